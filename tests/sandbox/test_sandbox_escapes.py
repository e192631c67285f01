"""Attempts to leave the language, each of which must end in an error and change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from test_sandbox_programs import by_cost, read_programs, skip_without_libraries

from codev_env.sandbox import Limits, Sandbox, Session

LISTS = sorted(Path(__file__).parent.glob("escapes*.txt"))
ATTACKS = {f"{path.stem}-{name}": code for path in LISTS for name, code in read_programs(path).items()}
SECRET = "a-word-that-is-nowhere-else"


@pytest.fixture(scope="module")
def victim() -> Iterator[Session]:
    with Sandbox(Limits(wall_s=20)) as box, box.session({"input.png": Image.new("RGB", (32, 24), "red")}) as session:
        yield session


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret.txt").write_text(SECRET)
    Image.new("RGB", (31, 17)).save(tmp_path / "pic.png")
    return tmp_path


@pytest.mark.parametrize("name", by_cost(ATTACKS))
def test_is_refused(name: str, victim: Session, folder: Path) -> None:
    code = ATTACKS[name].replace("{folder}", str(folder))
    skip_without_libraries(code)
    execution = victim.run(code)
    assert execution.stop in ("refused", "error")
    assert "PWNED" not in execution.stdout
    assert SECRET not in f"{execution.stdout}{execution.error}"
    assert sorted(path.name for path in folder.iterdir()) == ["pic.png", "secret.txt"]
    # One worker runs everything here, so the next line would show any damage done by an attack.
    check = (
        "r = image.rotate(90, expand=True)\nprint(r.size, np.array([1, 2]).sum(), len([]), Image.new('L', (2, 2)).size)"
    )
    assert victim.run(check).stdout == "(24, 32) 3 0 (2, 2)\n"


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
def test_no_attack_hides_another(path: Path) -> None:
    assert len(read_programs(path)) == sum(line.startswith("#### ") for line in path.read_text().splitlines())
