"""The cold start that comes with the repository: when it is taken, and that it is what today's code would make."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator

from codev_agents.engines.policy import Policy
from codev_env.app.cli import main
from codev_env.errors import ConfigError
from codev_train.learn.scorer import TokenScorer
from codev_train.run.config import Request, read_request
from codev_train.run.options import TrainOptions
from codev_train.sft import cold_start
from codev_train.sft import start as sft_start
from codev_train.sft.cold_start import accumulate, example_maker, toy_policy
from codev_train.sft.examples import StageData

SHIPPED = Path(sft_start.__file__).parent / "starts"
MOST_BYTES = 5_000_000
ALL_SCENES = 400
"""Of which a tokenizer is made; other tests make theirs of fewer."""
LEARNED = 0.4
"""Loss of examples like the last ones it was made with; a policy that has learned nothing starts at 11."""


def asked(*words: str) -> Request:
    return read_request([*words])


@pytest.fixture
def made(monkeypatch) -> list[Path]:
    """The folders of the cold starts that would have been made."""
    folders: list[Path] = []
    monkeypatch.setattr(sft_start, "make_start", lambda options, folder: folders.append(folder))
    return folders


def find(*words: str, fresh: bool = False) -> tuple[Path, str]:
    """The start for a command, and what was said of it."""
    said: list[str] = []
    return Path(sft_start.find_start(asked(*words), said.append, fresh)), "\n".join(said)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("preset", ["tiny", "tapo", "evidence"])
def test_a_default_run_takes_the_start_that_comes_with_the_repository(preset, made, tmp_path) -> None:
    place, said = find("--preset", preset, "--out", str(tmp_path / "runs"))
    assert not made and "--fresh" in said and str(place) in said
    assert place.parent == tmp_path / "runs"
    assert contents(place) == contents(SHIPPED / place.name)
    _, again = find("--preset", preset, "--out", str(tmp_path / "runs"))
    assert not made and "made before" in again
    assert [path.name for path in place.parent.iterdir()] == [place.name], "nothing is left beside it"


@pytest.mark.parametrize("words", [["--seed", "1"], ["--env.max-turns", "3"], ["--env.dialect", "codevision"]])
def test_with_other_options_a_start_is_made(words, made, tmp_path) -> None:
    place, said = find("--preset", "tiny", "--out", str(tmp_path), *words)
    assert made == [place] and "making it first" in said


def test_fresh_makes_it_in_place_of_the_one_that_is_there(made, tmp_path) -> None:
    words = "--preset", "tiny", "--out", str(tmp_path)
    place, said = find(*words, fresh=True)
    assert made == [place] and "made again" in said
    find(*words)
    find(*words, fresh=True)
    assert made == [place] * 2


def test_a_start_of_ones_own_goes_before_the_one_of_the_repository(made, tmp_path) -> None:
    words = "--preset", "tiny", "--out", str(tmp_path)
    own = sft_start.start_folder(asked(*words).start_options())
    own.mkdir()
    (own / "config.json").write_text("{}")
    place, _ = find(*words)
    assert place == own and not made and contents(own) == {"config.json": b"{}"}


@pytest.mark.parametrize("there", [True, False])
def test_whether_there_is_one_is_for_the_main_process_to_say(there, made, tmp_path, monkeypatch, capsys) -> None:
    own = sft_start.start_folder(asked("--preset", "tiny", "--out", str(tmp_path)).start_options())
    if not there:  # another run has just finished it
        own.mkdir()
        (own / "config.json").write_text("{}")
    monkeypatch.setattr(sft_start, "broadcast_object_list", lambda found: [there for _ in found])
    assert main(["sft", "--preset", "tiny", "--out", str(tmp_path)]) == 0
    assert ("exists already" in capsys.readouterr().out) is there
    assert made == ([] if there else [own])


def test_fresh_is_refused_where_no_start_is_made(tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"fresh is True.*False with a model"):
        asked("--preset", "tiny", "--model", str(tmp_path), "--fresh").parse("train", TrainOptions, "codev train")


def test_a_dry_run_measures_it(tmp_path, capsys, made) -> None:
    main(["train", "--preset", "tiny", "--dry-run", "--out", str(tmp_path)])
    assert "a cold start: 1.03 million parameters" in capsys.readouterr().out
    main(["train", "--preset", "tiny", "--dry-run", "--fresh", "--out", str(tmp_path)])
    assert "a cold start, 1.03 million parameters" in capsys.readouterr().out
    assert not made and not list(tmp_path.iterdir())


def test_what_is_shipped_is_what_the_default_run_asks_for_and_small() -> None:
    options = asked("--preset", "tiny").start_options()
    (folder,) = SHIPPED.iterdir()
    assert folder.name == sft_start.start_folder(options).name, "make it again, see docs/contributing.md"
    assert sum(path.stat().st_size for path in folder.iterdir()) <= MOST_BYTES
    said = json.loads((folder / "sft.json").read_text())
    assert (said["seed"], said["ground"]["steps"]) == (options.seed, options.ground.steps)


def test_what_is_shipped_fits_the_texts_and_images_of_today(monkeypatch) -> None:
    monkeypatch.setattr(cold_start, "CORPUS_SCENES", ALL_SCENES)
    options = asked("--preset", "tiny").start_options()
    (folder,) = SHIPPED.iterdir()
    policy, today = Policy.load(str(folder), torch.float32, True), toy_policy(options, shown=False)
    for name in ("tokenizer", "image_processor"):
        kept, built = getattr(policy.processor, name), getattr(today.processor, name)
        same = kept.get_vocab() == built.get_vocab() if name == "tokenizer" else kept.to_dict() == built.to_dict()
        assert same, f"the {name} is another one: make the start again, see docs/contributing.md"
    threads = torch.get_num_threads()
    maker = functools.partial(example_maker, options, options.imitate, policy.processor, [])
    examples = next(iter(StageData(maker, options.imitate, 64, (1,))))
    torch.set_num_threads(threads)
    loss = [accumulate(TokenScorer(p.model), p.processor, examples, 64, Accelerator(cpu=True)) for p in (policy, today)]
    assert loss[0] <= LEARNED < 5 < loss[1]
