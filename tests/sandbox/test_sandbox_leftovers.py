"""Nothing of a run is left for another: no code runs after the reply, and a view finds everything as it was."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from PIL import Image
from test_sandbox_failures import used, worker_of
from test_sandbox_fuzz import profiles
from test_sandbox_programs import by_cost, read_programs, skip_without_libraries

from codev_env.sandbox import Limits, Sandbox, Session
from codev_env.types import Execution

PROGRAMS = read_programs(Path(__file__).with_name("leftovers.txt"))
PROBE = """
import json, random, re
from collections import Counter
from PIL import ImageColor, ImageFont, ImageStat
def look():
    yield image.size, ImageStat.Stat(image).mean
    yield sorted(np.typecodes.items()), np.array([1 / 3]), np.geterr()
    yield random.random(), np.random.rand(), np.random.default_rng().random()
    yield ImageColor.getrgb('red'), json.dumps({'a': 1}), re.sub('a', 'b', 'aa'), Counter('aab')
    yield ImageFont.load_default(12).getbbox('text'), image.rotate(9).getpixel((9, 9)), image.info
    yield cv2.getTextSize('a', 0, 1, 1), cv2.cvtColor(np.array(image), cv2.COLOR_RGB2GRAY).sum()
for value in look():
    print(value)
show(image)
"""
PLOT_PROBE = """
import matplotlib.pyplot as plt
from matplotlib import cm, colors, patches, ticker
import zlib
for table in (plt.rcParams, colors.CSS4_COLORS, colors.TABLEAU_COLORS):
    print(zlib.crc32(str(sorted(table.items())).encode()))
plt.rcParams['figure.dpi'] = 60
fig, ax = plt.subplots()
ax.plot([1, 2], color='red')
ax.set_title('title')
plt.savefig('plot.png')
print('plot.png', plt.get_fignums(), cm.get_cmap('viridis')(0.5))
"""
SCIENCE_PROBE = """
import sympy, scipy.constants, scipy.ndimage, skimage.color
x = sympy.Symbol('x')
print(sympy.integrate(x * sympy.sin(x), x), sympy.solve(x**2 - 2), scipy.constants.physical_constants['speed of light'])
print(skimage.color.rgb2lab(np.array(image)[:4, :4]).sum(), scipy.ndimage.gaussian_filter(np.eye(5), 1).sum())
"""

TABLE_PROBE = """
import pandas as pd
from sklearn.cluster import KMeans
df = pd.DataFrame({'a': np.linspace(0, 1, 70), 'b': list('abcdefg') * 10})
print(df, df['b'].astype('category').cat.categories, df.attrs, df.groupby('b').agg('mean'))
print(pd.options.display.max_rows, pd.get_option('display.float_format'), hasattr(pd.DataFrame, 'late'))
print(KMeans(2, n_init=1).fit(df[['a']]).cluster_centers_, df.sample(3))
"""


def outcome(execution: Execution) -> tuple[Any, ...]:
    return execution.stop, execution.error, execution.stdout, [image.tobytes() for image in execution.images]


def probes(code: str) -> str:
    if any(name in code for name in ("pandas", "sklearn")):
        return TABLE_PROBE + PROBE
    if any(name in code for name in ("scipy", "sympy", "skimage")):
        return SCIENCE_PROBE + PROBE
    return PLOT_PROBE + PROBE if "matplotlib" in code else PROBE


@pytest.fixture(scope="module")
def patient_box() -> Any:
    with Sandbox(Limits(wall_s=20)) as box:
        yield box


@pytest.mark.parametrize("persist", ["images", "variables"])
@pytest.mark.parametrize("name", by_cost(PROGRAMS))
def test_another_view_finds_everything_as_it_was(
    name: str, persist: Literal["images", "variables"], patient_box: Sandbox, image: Image.Image
) -> None:
    code = PROGRAMS[name]
    skip_without_libraries(probes(code))
    with patient_box.session({"input.png": image}, persist=persist) as session:
        session.add_view("before", {"input.png": image})
        expected = outcome(session.run(probes(code), view="before"))
        session.run(code)
        session.add_view("after", {"input.png": image})
        assert outcome(session.run(probes(code), view="after")) == expected
        if persist == "images":
            assert outcome(session.run(probes(code))) == expected


def test_lists_of_sys_start_anew(session: Session, image: Image.Image) -> None:
    session.add_view("other", {"input.png": image})
    look = "import sys\nprint(sys.argv, sys.path)"
    session.run("import sys\nsys.argv.append('seen')\nsys.path.append(image)")
    assert session.run(look).stdout == session.run(look, view="other").stdout == "['program.py'] ['']\n"


@pytest.mark.parametrize(
    "changes",
    [
        "import operator\noperator.attrgetter('typecodes')(np)['All'] = image",
        "from operator import attrgetter as get\nget('typecodes')(np)['All'] = image",
    ],
)
def test_a_name_in_a_text_reaches_no_later_run(changes: str, session: Session, image: Image.Image) -> None:
    session.add_view("other", {"input.png": image})
    session.run(changes)
    look = "import operator\nprint(type(operator.attrgetter('typecodes')(np)['All']))"
    assert session.run(look).stdout == session.run(look, view="other").stdout == "<class 'str'>\n"


@pytest.mark.parametrize(
    "make",
    [
        "np.pad(np.zeros(2), 11_249, mode='empty')",
        "np.full(90, 1, {'names': ['a'], 'formats': ['u1'], 'offsets': [0], 'itemsize': 1000})",
        "np.zeros(90, 'u1').astype({'names': ['a'], 'formats': ['u1'], 'offsets': [0], 'itemsize': 1000})",
        "np.array([(1, 1.5)] * 5000, np.dtype([('a', 'u1'), ('b', 'f8')], align=True))",
        "np.zeros(5000, 'f8').astype(np.longdouble)",
    ],
)
def test_no_array_shows_memory_of_an_earlier_run(make: str, session: Session, image: Image.Image) -> None:
    session.add_view("other", {"input.png": image})
    session.run("x = [np.full(90_000, 77, np.uint8) for _ in range(50)]\ny = [np.full(80_000, 77, np.uint8)]")
    assert session.run(f"print((({make}).view(np.uint8) == 77).sum())", view="other").stdout == "0\n"


def test_work_left_behind_counts_against_its_own_run(quick_box: Sandbox, image: Image.Image) -> None:
    with quick_box.session({"input.png": image}) as session:
        code = "def g():\n    try:\n        yield\n    finally:\n        while True: pass\nx = g()\nnext(x)"
        execution = session.run(code)
        assert execution.stop == "timeout"
        assert session.run("print(1)").stdout == "1\n"


@pytest.mark.parametrize("persist", ["images", "variables"])
def test_an_idle_worker_does_nothing(persist: Literal["images", "variables"], box: Sandbox, image: Image.Image) -> None:
    if not Path("/proc/self/stat").exists():
        pytest.skip("there is no /proc here")
    with box.session({"input.png": image}, persist=persist) as session:
        for code in PROGRAMS.values():
            if not any(name in code for name in ("matplotlib", "sympy", "pandas", "sklearn")):
                session.run(code)
        worker = worker_of(session)
        before = used(worker)
        time.sleep(0.3)
        assert used(worker) - before <= 1


def test_memory_is_given_back(image: Image.Image) -> None:
    hold = "x = np.ones(50_000_000)\nkeep = []\n"
    hold += "def g(y):\n    try:\n        yield\n    finally:\n        keep.append(y)\n"
    hold += "z = g(x)\nnext(z)\nkeep.append(keep)"
    with Sandbox(Limits(memory_mb=512, wall_s=20)) as box, box.session({"input.png": image}) as session:
        for _ in range(3):
            assert session.run(hold).stop == "ok"


_LATE = "def make(n):\n    try:\n        yield n\n    finally:\n        "
_PART = st.sampled_from(
    [
        f"{_LATE}print('late', n)\n        keep.append(make(n + 1))\n        next(keep[-1])",
        f"{_LATE}show(image.rotate(n))\n        image.save('late.png')",
        "def make(n):\n    yield from (x for x in [n])",
        "def make(n):\n    with Image.open('input.png') as im:\n        yield im.rotate(n)",
    ]
)
_USE = st.sampled_from(
    [
        "g{n} = make({n})\nnext(g{n})",
        "keep.append(make({n}))\nnext(keep[-1])",
        "keep.append(keep)",
        "image.info['g{n}'] = make({n})\nnext(image.info['g{n}'])\nshow(image)",
        "f{n} = lambda *a: [print('called', {n}), next(make({n}))]\nsorted([3, 1, 2], key=f{n})",
        "np.typecodes['All'] = 'changed {n}'",
        "np.set_printoptions(precision={n})",
        "np.seterrcall(print)",
        "import functools\n@functools.lru_cache\ndef c{n}(x):\n    return make(x)\nnext(c{n}({n}))",
        "class C{n}:\n    gens = [make({n})]\n    def __eq__(self, other):\n        print('eq'); return True\n"
        "next(C{n}.gens[0])\nkeep.append(C{n}())",
        "a{n} = np.empty(3, object)\na{n}[0] = make({n})\nnext(a{n}[0])\na{n}[1] = a{n}",
        "import collections\nd{n} = collections.defaultdict(lambda: make({n}))\nnext(d{n}['x'])",
        "import re\nre.sub('a', lambda m: keep.append(m) or 'b', 'aaa')",
        "import json\njson.dumps({{'a': keep}}, default=lambda o: 'x', skipkeys=True) if {n} < 0 else None",
        "try:\n    next(make({n})).nothing\nexcept Exception as e:\n    keep.append(e)",
        "image.filter(ImageFilter.SHARPEN).info['x'] = keep",
        "image.paste((0, 0, 0), (0, 0, 50, 50))\nimage.save('input.png')",
        "ImageDraw.Draw(image).font = keep",
        "u{n} = np.frompyfunc(lambda x: next(make(x)), 1, 1)\nu{n}(np.arange(3))",
    ]
)
_TABLE_USE = st.sampled_from(
    [
        "s{n} = pd.Series([make({n}), keep], dtype=object)\nnext(s{n}[0])\nkeep.append(s{n})",
        "pd.set_option('display.precision', {n} + 1)",
        "pd.set_option('display.float_format', lambda v: keep.append(make(v)) or 'x')\nstr(pd.Series([{n}.5]))",
        "pd.Series([{n}, 2]).apply(lambda v: keep.append(make(v)))",
        "df{n} = pd.DataFrame({{'a': [1, 2], 'b': [3, 4]}})\ndf{n}.attrs['k'] = keep\nkeep.append(df{n})",
        "pd.DataFrame({{'a': [1, 2], 'b': [3, 4]}}).groupby('a').agg({{'b': lambda s: keep.append(s) or 1}})",
        "k{n} = {{make({n}): 1}}\nnext(next(iter(k{n})))\nkeep.append(pd.Series(k{n}))",
        "m{n} = KMeans(2, n_init=1).fit(np.arange(8.0).reshape(4, 2))\nm{n}.labels_[:] = 9\nkeep.append(m{n})",
        "try:\n    KMeans(n_clusters=make).fit([[1]])\nexcept Exception as e:\n    keep.append(e)",
        "class N{n}(float):\n    def __del_me(self): pass\nkeep.append(pd.Index([N{n}(1), 2]))",
    ]
)


@profiles(quick=4, long=150)
@pytest.mark.integration
def test_a_random_program_with_tables_leaves_nothing(profile: Any, patient_box: Sandbox, image: Image.Image) -> None:
    pytest.importorskip("pandas")
    with patient_box.session({"input.png": image}) as session:
        expected = outcome(session.run(TABLE_PROBE))
        assert expected[0] == "ok"

    @profile
    @given(_PART, st.lists(_TABLE_USE, min_size=1, max_size=5))
    def check(part: str, uses: list[str]) -> None:
        imports = "import pandas as pd\nfrom sklearn.cluster import KMeans\nkeep = []"
        code = "\n".join([imports, part, *(use.format(n=n) for n, use in enumerate(uses))])
        with patient_box.session({"input.png": image}) as session:
            event(session.run(code).stop)
            session.add_view("probe", {"input.png": image})
            assert outcome(session.run(TABLE_PROBE, view="probe")) == expected

    check()


@profiles(quick=15, long=400)
def test_a_random_program_leaves_nothing(profile: Any, patient_box: Sandbox, image: Image.Image) -> None:
    pytest.importorskip("cv2")
    with patient_box.session({"input.png": image}) as session:
        expected = outcome(session.run(PROBE))

    @profile
    @given(_PART, st.lists(_USE, min_size=1, max_size=5))
    def check(part: str, uses: list[str]) -> None:
        code = "\n".join(["keep = []", part, *(use.format(n=n) for n, use in enumerate(uses))])
        with patient_box.session({"input.png": image}) as session:
            event(session.run(code).stop)
            session.add_view("probe", {"input.png": image})
            assert outcome(session.run(PROBE, view="probe")) == expected

    check()


def test_ordinary_programs_keep_their_worker(box: Sandbox, image: Image.Image) -> None:
    pytest.importorskip("cv2")
    with box.session({"input.png": image}) as session:
        worker = worker_of(session)
        for code in (
            "w, h = image.size\ncrop = image.crop((0, 0, 9, h)).resize((w, h))\ncrop.save('a.png')\nprint('a.png')",
            "import os\nfrom pathlib import Path\nprint(os.path.exists('a.png'), Path('a.png').exists())",
            "import cv2\ngrey = cv2.cvtColor(np.array(image), cv2.COLOR_RGB2GRAY)\nprint(cv2.Canny(grey, 9, 99).sum())",
            "def f(x):\n    return (y for y in x)\nprint(sorted(f([2, 1]), key=lambda v: -v))",
        ):
            if "cv2" in code:
                session.run(code)  # a worker of another kind
                worker = worker_of(session)
            assert session.run(code).stop == "ok"
            assert worker_of(session) == worker
        session.run("getattr(image, 'size')")
        assert worker_of(session) != worker


_WORN = "for i in range(20):\n    a = np.array(image) + 0\n    c = np.array(image.convert('L')).ravel()[:900] + 0"
_UNWRITTEN = {
    "empty": "x = [np.empty((120, 160, 3), np.uint8), *(np.empty(n, np.uint8) for n in (900, 500, 100))]",
    "empty_like": "x = [np.empty_like(np.zeros((120, 160, 3), np.uint8))]",
    "getattr": "x = [getattr(np, 'emp' + 'ty')((120, 160, 3), np.uint8)]",
    "where": "x = [np.add(np.zeros((120, 160, 3), np.uint8), 1, where=np.zeros((120, 160, 3), bool))]",
    "arguments": "x = [np.add(np.zeros((120, 160, 3), np.uint8), 1, **{'where': np.zeros((120, 160, 3), bool)})]",
    "warpAffine": "import cv2\nx = [cv2.warpAffine(np.array(image), np.array([[1, 0, 1e3], [0, 1, 1e3]]), (160, 120), "
    "borderMode=5)]",
}


@pytest.mark.parametrize("name", _UNWRITTEN)
def test_unwritten_memory_holds_nothing_of_other_runs(name: str, box: Sandbox) -> None:
    code = _UNWRITTEN[name]
    if "cv2" in code:
        pytest.importorskip("cv2")
    with box.session({"input.png": Image.new("RGB", (160, 120), (123, 124, 125))}) as session:
        session.add_view("other", {"input.png": Image.new("RGB", (160, 120))})
        look = f"{code}\nprint(sum(int((part == v).sum()) for part in x for v in (123, 124, 125)) > 300)"
        worn = _WORN + ("\nimport cv2" if "cv2" in code else "")
        assert session.run(worn).stop == "ok"
        execution = session.run(look, view="other")
        assert (execution.error, execution.stdout) == (None, "False\n")
