"""Corruptions: what they do to an image, where they leave things, and task sets that are wrapped in them."""

from __future__ import annotations

import hashlib
import pickle
import subprocess
import sys
import time
import types
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image

from codev_env.errors import ConfigError
from codev_env.tasks import VStarTaskSet, corruptions, load_tasks
from codev_env.tasks.corruption_kinds import CORRUPTIONS, SEVERITIES
from codev_env.tasks.corruptions import check_library, corrupt, widen
from codev_env.tasks.generators.photos import photographs
from codev_env.tasks.wrappers import TransformedTaskSet, suite, wrap_tasks
from codev_env.transforms import transform_image
from codev_env.types import Task

try:
    check_library()
except ConfigError as error:
    pytest.skip(f"{error}", allow_module_level=True)

SEED = np.random.SeedSequence(5)
MOVING = [name for name, entry in CORRUPTIONS.items() if entry.moves_pixels]
STILL = [name for name in CORRUPTIONS if name not in MOVING]


@pytest.fixture(scope="module")
def photos() -> list[Image.Image]:
    files = [path for path in photographs() if path.stem in ("astronaut", "coffee", "chelsea")]
    if len(files) < 3:
        pytest.skip("needs the photographs of scikit-image")
    return [Image.open(path).convert("RGB").crop((88, 28, 312, 252)) for path in files]


def difference(a: Image.Image, b: Image.Image) -> float:
    return float(np.abs(np.asarray(a, float) - np.asarray(b, float)).mean())


def psnr(a: Image.Image, b: Image.Image) -> float:
    return float(10 * np.log10(255**2 / ((np.asarray(a, float) - np.asarray(b, float)) ** 2).mean()))


def digest(image: Image.Image) -> str:
    return hashlib.sha256(image.tobytes()).hexdigest()


# ---- one image


def test_the_taxonomy():
    assert {entry.group for entry in CORRUPTIONS.values()} == {"noise", "blur", "weather", "digital"}
    assert MOVING == ["zoom_blur", "glass_blur", "elastic"]
    assert all(entry.name == name for name, entry in CORRUPTIONS.items())


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_severities_change_photographs_more_and_more(photos, name):
    for photo in photos:
        outs = [corrupt(photo, name, severity, SEED) for severity in SEVERITIES]
        assert all((out.size, out.mode) == (photo.size, "RGB") for out in outs)
        changes = [difference(photo, out) for out in outs]
        assert changes[0] > 1.0, "severity 1 can be seen"
        assert all(a < b for a, b in pairwise(changes)), changes
        ratios = [psnr(photo, out) for out in outs]
        assert all(a > b for a, b in pairwise(ratios)), ratios
        assert ratios[-1] > 5, "severity 5 leaves something of the image"


@pytest.mark.parametrize("name", STILL)
def test_corruptions_leave_things_where_they_are(photos, name):
    photo = np.asarray(photos[0].convert("L"), float)
    out = np.asarray(corrupt(photos[0], name, 5, SEED).convert("L"), float)
    middle = photo[8:-8, 8:-8] - photo[8:-8, 8:-8].mean()
    shifts = [(dx, dy) for dx in range(-3, 4) for dy in range(-3, 4)]
    fits = {}
    for dx, dy in shifts:
        part = out[8 + dy : out.shape[0] - 8 + dy, 8 + dx : out.shape[1] - 8 + dx]
        fits[dx, dy] = (middle * (part - part.mean())).sum() / np.linalg.norm(part - part.mean())
    dx, dy = max(fits, key=lambda shift: fits[shift])
    assert max(abs(dx), abs(dy)) <= 1
    assert widen((3, 4, 9, 8), photos[0].size, name, 5) == (3, 4, 9, 8)


@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("name", MOVING)
def test_a_widened_box_holds_what_a_corruption_moves(name, severity):
    for box in [(100, 80, 140, 120), (20, 200, 50, 215), (280, 10, 310, 60)]:
        pixels = np.zeros((240, 320, 3), np.uint8)
        pixels[box[1] : box[3], box[0] : box[2]] = 255
        out = np.asarray(corrupt(Image.fromarray(pixels), name, severity, SEED))[..., 0]
        wide = widen(box, (320, 240), name, severity)
        assert wide[0] <= box[0] and wide[1] <= box[1] and wide[2] >= box[2] and wide[3] >= box[3]
        inside = out[wide[1] : wide[3], wide[0] : wide[2]]
        assert out.sum(dtype=int) > 0
        # What is outside is the fringe of a blur, not the thing.
        assert out.sum(dtype=int) - inside.sum(dtype=int) <= 0.01 * out.sum(dtype=int)


def test_boxes_are_widened_by_what_is_moved_and_stay_in_the_image():
    assert widen((100, 100, 120, 120), (672, 672), "glass_blur", 1) == (96, 96, 124, 124)
    assert widen((0, 0, 672, 672), (672, 672), "zoom_blur", 5) == (0, 0, 672, 672)
    x1, y1, x2, y2 = widen((600, 600, 620, 620), (672, 672), "zoom_blur", 1)
    assert (x1, y1) == (599, 599)
    assert x2 == y2 == 633, "336 + 1.04 * 284 and a pixel"


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_images_of_any_size(name):
    rng = np.random.default_rng(0)
    for size in [(1, 1), (28, 28), (3, 90), (90, 3), (385, 130)]:
        image = Image.fromarray(rng.integers(60, 200, (size[1], size[0], 3), dtype=np.uint8))
        for severity in (1, 5):
            out = corrupt(image, name, severity, SEED)
            assert (out.size, out.mode) == (size, "RGB")
            assert min(size) < 28 or digest(out) != digest(image)


def test_tiles_fit_together():
    """No seam: at the border of two tiles an image looks as if it were in the middle of one."""
    texture = np.random.default_rng(0).integers(0, 256, (64, 2200, 3), dtype=np.uint8)
    whole = np.asarray(corrupt(Image.fromarray(texture), "defocus_blur", 3, SEED))
    part = np.asarray(corrupt(Image.fromarray(texture[:, 1900:]), "defocus_blur", 3, SEED))
    # On some processors a filter rounds by where a pixel lies; without a halo most pixels would be off by more.
    assert np.abs(whole[:, 2000:2160].astype(int) - part[:, 100:260]).max() <= 1


def test_tiles_have_patterns_of_their_own():
    grey = Image.new("RGB", (2 * 2048, 32), (128, 128, 128))
    out = np.asarray(corrupt(grey, "gaussian_noise", 3, SEED))
    assert not np.array_equal(out[:, :2048], out[:, 2048:])
    assert abs(out[:, :2048].std() - out[:, 2048:].std()) < 2


SCRIPT = """
import hashlib, sys
import numpy as np
from PIL import Image
from codev_env.tasks.corruption_kinds import CORRUPTIONS
from codev_env.tasks.corruptions import corrupt
image = Image.fromarray(np.random.default_rng(1).integers(0, 256, (40, 50, 3), dtype=np.uint8))
for name in reversed(CORRUPTIONS):
    print(name, hashlib.sha256(corrupt(image, name, 2, np.random.SeedSequence(5)).tobytes()).hexdigest())
"""


@pytest.mark.integration
def test_the_same_in_another_process_and_order():
    run = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    image = Image.fromarray(np.random.default_rng(1).integers(0, 256, (40, 50, 3), dtype=np.uint8))
    here = {name: digest(corrupt(image, name, 2, np.random.SeedSequence(5))) for name in CORRUPTIONS}
    assert dict(line.split() for line in run.stdout.splitlines()) == here


def test_the_input_is_not_changed(photos):
    before = digest(photos[0])
    for name in CORRUPTIONS:
        corrupt(photos[0], name, 5, SEED)
    assert digest(photos[0]) == before


def test_bad_names_and_severities(photos):
    with pytest.raises(ConfigError, match="Did you mean 'gaussian_blur'"):
        corrupt(photos[0], "gausian_blur", 1, SEED)
    with pytest.raises(ConfigError, match="severity of 'jpeg' is 0"):
        corrupt(photos[0], "jpeg", 0, SEED)


def test_a_missing_library_is_told_with_what_to_install(monkeypatch):
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    tasks = load_tasks("synthetic", "test", scenes="toy")
    monkeypatch.setattr("codev_env.tasks.corruptions.metadata.version", missing)
    with pytest.raises(ConfigError, match=r"nrtk-albumentations.*pip install 'codev-env\[corruptions\]'"):
        wrap_tasks(tasks, "jpeg:3")
    assert wrap_tasks(tasks, "orientation")[1].transform == ("rotate_90",)


def test_the_first_use_may_be_by_many_threads_at_once(monkeypatch):
    half_made = types.ModuleType("cv2")  # as OpenCV leaves itself for a moment while it is imported: without a spec
    found = sys.modules.get("cv2")

    def slowly(name: str) -> str:
        sys.modules["cv2"] = half_made
        time.sleep(0.3)
        sys.modules.pop("cv2")
        if found is not None:
            sys.modules["cv2"] = found
        return name

    monkeypatch.setattr("codev_env.tasks.corruptions.importlib.import_module", slowly)
    corruptions._library.cache_clear()
    try:
        with ThreadPoolExecutor(4) as pool:
            libraries = [pool.submit(corruptions._library) for _ in range(2)]
            libraries += [pool.submit(check_library) for _ in range(2)]
            assert [library.result() for library in libraries][:2] == ["albumentations"] * 2
    finally:
        corruptions._library.cache_clear()


# ---- task sets


def test_the_suite():
    names = suite("corruption")
    assert names[0] == "source"
    assert len(names) == 1 + 5 * len(STILL)
    assert suite("corruption", [3]) == ("source", *(f"{name}:3" for name in STILL))
    assert "elastic:5" in suite("corruption", moving=True)


def test_corrupted_toy_scenes():
    inner = load_tasks("synthetic", "test", scenes="toy")
    tasks = TransformedTaskSet(inner, ["source", "jpeg:3", "gaussian_noise:1", "gaussian_noise:2"])
    plain, jpeg, weak, strong = (tasks[i] for i in range(4, 8))
    assert jpeg.task_id == f"{inner[1].task_id}@jpeg:3"
    assert tasks.index_of(jpeg.task_id) == 5
    assert jpeg.transform == ("jpeg:3",)
    assert jpeg.targets == plain.targets == inner[1].targets
    assert digest(plain.image) == digest(inner[1].image) != digest(jpeg.image)
    assert jpeg.meta["corrupted_by"].startswith("nrtk-albumentations ")
    assert "corrupted_by" not in plain.meta
    a, b = (np.asarray(task.image, float) - np.asarray(plain.image, float) for task in (weak, strong))
    assert np.corrcoef(a.ravel(), b.ravel())[0, 1] > 0.8, "severities share their pattern"


def test_patterns_depend_on_task_and_seed_alone():
    inner = load_tasks("synthetic", "test", scenes="toy")
    noises = []
    for tasks, number in [
        (TransformedTaskSet(inner, ["gaussian_noise:2"]), 0),
        (TransformedTaskSet(inner, ["fog:1", "gaussian_noise:2"], seed=0), 1),
        (pickle.loads(pickle.dumps(TransformedTaskSet(inner, ["gaussian_noise:2"]))), 0),
        (TransformedTaskSet(inner, ["gaussian_noise:2"], seed=1), 0),
        (TransformedTaskSet(inner, ["gaussian_noise:2"]), 1),
    ]:
        noises.append(digest(tasks[number].image))
    assert noises[0] == noises[1] == noises[2]
    assert len(set(noises)) == 3


def test_the_same_image_gets_another_pattern_in_another_task_and_place():
    image = Image.new("RGB", (40, 40), (128, 128, 128))
    inner = [Task(name, (image, image), "?", "!") for name in "ab"]

    class Two:
        name, source = "two", "generated"
        __len__, __getitem__ = inner.__len__, inner.__getitem__

        def index_of(self, task_id: str) -> int:
            return "ab".index(task_id)

    tasks = TransformedTaskSet(Two(), ["gaussian_noise:3"])
    assert len({digest(image) for number in (0, 1) for image in tasks[number].images}) == 4


def test_corrupting_a_rotated_set_of_files(vstar):
    inner = VStarTaskSet(vstar)
    rotated = TransformedTaskSet(inner, ["rotate_90"])
    tasks = TransformedTaskSet(rotated, ["elastic:1", "contrast:2"])
    task = tasks[1]
    assert task.transform == ("rotate_90", "contrast:2")
    assert task.targets == rotated[0].targets
    upright = transform_image(task.image, "rotate_270")
    plain = np.asarray(inner[0].image, float)
    assert np.corrcoef(np.asarray(upright, float).ravel(), plain.ravel())[0, 1] > 0.95
    moved = tasks[0]
    before = rotated[0].targets
    assert moved.targets == tuple(widen(box, moved.image.size, "elastic", 1) for box in before) != before
    assert moved.meta["variant"] == "rotate_90+elastic:1"
