"""`codev eval --as NAME`: options as published, what is downloaded, and the published numbers beside ours."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from halves import half_quick

from codev_env.app import cli
from codev_env.app.completion import option_values
from codev_env.app.options import OptionError, build
from codev_env.benches import BENCHES
from codev_env.dialects import dialect_names
from codev_env.scoring import SCORERS
from codev_env.trajectory import read_trajectories
from codev_eval.bench import evaluation
from codev_eval.bench.options import EvalOptions
from codev_eval.bench.released import RELEASED, Name
from codev_eval.bench.saved import longest_episode
from codev_eval.report.published import announcement, comparison, comparison_text

ROOT = Path(__file__).parents[2]
NAMES = get_args(Name)


def options_of(name: str, **given: Any) -> EvalOptions:
    return build(EvalOptions, {"as_": name, "data": ["synthetic"], **given})


def test_every_name_has_a_row_and_every_value_a_source():
    assert set(NAMES) == set(RELEASED) and list(NAMES) == sorted(NAMES)
    for row in RELEASED.values():
        known = row.options.keys() & {"dialect", "max_turns", "max_tokens", "temperature", "scorer"}
        assert len(known) == 5 and row.options["dialect"][0] in dialect_names()
        assert row.options["scorer"][0] in SCORERS and row.options.keys() <= EvalOptions.__pydantic_fields__.keys()
        assert row.published.keys() <= BENCHES.keys() and "vstar" in row.published
        for _, source in (*row.options.values(), *row.published.values()):
            assert re.match(r"arXiv \d{4}\.\d{5}|github\.com/\S+ at [0-9a-f]{7}|not read", source)
        # What has no source is told to the user.
        assert row.unread or not any(source.startswith("not read") for _, source in row.options.values())
        assert row.weights or any(text.startswith("weights: ") for text in row.unread)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_sets_the_published_options_and_explicit_ones_win(name):
    row = RELEASED[name]
    set_here = options_of(name, model="somewhere")
    assert {option: getattr(set_here, option) for option in row.options} == {o: v for o, (v, _) in row.options.items()}
    mine = options_of(name, model="somewhere", max_turns=3, dialect="plain", temperature=0.5)
    assert (mine.max_turns, mine.dialect, mine.temperature) == (3, "plain", 0.5)
    assert mine.max_tokens == row.options["max_tokens"][0]
    if row.weights:
        assert options_of(name).model == row.weights
    else:
        with pytest.raises(OptionError, match=f"--as {name} has no published weights.*--model"):
            options_of(name)


def test_a_server_has_its_own_limit_on_pixels():
    assert options_of("deepeyes-7b", model="http://localhost:1/v1#m").max_pixels is None
    with pytest.raises(OptionError, match="--max-pixels 100 is of the model of a folder"):
        options_of("deepeyes-7b", model="http://localhost:1/v1#m", max_pixels=100)


@pytest.mark.parametrize("name", NAMES)
def test_an_image_as_large_as_the_budget_leaves_room_for_turns_as_published(name):
    options = RELEASED[name].options
    image = options["max_pixels"][0] // 28**2 if "max_pixels" in options else 0
    text, turn = 2000, options["max_tokens"][0]
    # The prompt, a short turn, an output half as large as the input, and a whole turn.
    assert 2 * text + image + image // 2 + turn <= longest_episode(turn, 128_000)
    assert longest_episode(turn, 30_000) == 30_000


def test_an_unknown_name_lists_the_names(capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(["eval", "--as", "codev-8b", "--data", "synthetic"])
    err = capsys.readouterr().err
    assert (
        caught.value.code == 2
        and "--as is codev-8b" in err
        and "missing" not in err
        and all(name in err for name in NAMES)
    )


def test_completion_and_help_know_the_names(capsys):
    assert option_values()["--as"] == list(NAMES)
    with pytest.raises(SystemExit):
        cli.main(["eval", "--help"])
    assert f"--as {{{','.join(NAMES)}}}" in capsys.readouterr().out


def test_downloads_and_what_was_not_read_are_told_first():
    text = announcement("codev-7b", options_of("codev-7b", data=["hub"], bench=["vstar", "zoombench"]).fixed())
    assert "https://huggingface.co/RenlyH/CodeV-RL: about 16.6 GB in bfloat16" in text
    assert "https://huggingface.co/datasets/craigwu/vstar_bench" in text
    assert "Not read in a public source: the image budget of the evaluation" in text
    text = announcement("codev-7b", options_of("codev-7b", model="runs/x", max_turns=3).fixed())
    assert "no weights: the model is runs/x" in text and "--max-turns 3 (published: 10)" in text
    assert "datasets" not in text


def test_nothing_is_loaded_before_the_downloads_are_told(monkeypatch, capsys):
    def stopped(options):
        assert "https://huggingface.co/Kwai-Keye/Thyme-RL" in capsys.readouterr().out
        raise KeyboardInterrupt

    monkeypatch.setattr("codev_eval.cli.Evaluation", stopped)
    assert cli.main(["eval", "--as", "thyme-7b", "--data", "hub"]) == cli.INTERRUPTED


def record_of(source: str, **metrics: Any) -> dict[str, Any]:
    return {"benches": {"vstar": metrics}, "sets": {"vstar": {"source": source}}}


def test_the_published_number_stands_beside_ours_with_reasons():
    options = options_of("deepeyes-7b", max_turns=3, n=5).fixed()
    record = record_of("real", accuracy=0.8, ci95={"accuracy": [0.4, 0.95]}, score={"overall": 0.75})
    found = comparison("deepeyes-7b", options, record)
    assert found["benches"]["vstar"] == {
        "published": 90.1,
        "here": 75.0,
        "ci95": [40.0, 95.0],
        "source": "arXiv 2505.14362, table 1",
    }
    text = comparison_text(json.loads(json.dumps(found)))
    assert re.search(r"vstar +90\.1 +75\.0 +\[40\.0, 95\.0\] +arXiv", text)
    assert "- --max-turns is 3, and 11 as published." in text and "- --n is 5: not every task once." in text
    assert "A is always right" in text and "Qwen2.5-72B" in text and "float32" in text
    assert "generated" not in text and "the model is" not in text
    record = record_of("generated", accuracy=None) | {
        "benches": {"vstar": {"accuracy": None}, "charxiv": {"accuracy": 1}}
    }
    text = comparison_text(comparison("codevision-7b", options_of("codevision-7b", model="x").fixed(), record))
    assert "generated scenes stand in for vstar" in text and "the model is x, not the published one" in text
    assert re.search(r"vstar +83\.7 +–", text) and re.search(r"charxiv +– +100\.0 .*no published number", text)


def test_the_page_has_the_table():
    lines = ["| `--as` | weights | options | published, in % |", "| --- | --- | --- | --- |"]
    for name in NAMES:
        row = RELEASED[name]
        options = " ".join(f"`--{o.replace('_', '-')} {value}`" for o, (value, _) in row.options.items())
        numbers = ", ".join(f"{bench} {value}" for bench, (value, _) in row.published.items())
        lines.append(f"| `{name}` | {row.weights or 'none found'} | {options} | {numbers} |")
    assert "\n".join(lines) in (ROOT / "docs" / "evaluation.md").read_text("utf-8")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    """A folder in the checkpoints' format: Qwen2.5-VL with its chat template, of toy width and random weights."""
    pytest.importorskip("transformers")
    patch = pytest.MonkeyPatch()
    patch.syspath_prepend(str(ROOT / "tests" / "train"))
    patch.syspath_prepend(str(ROOT / "tests" / "rehearsal"))
    from real_vocabulary import TEMPLATE
    from toy_families import toy_policy

    policy = toy_policy("qwen2_5_vl")
    policy.processor.tokenizer.chat_template = TEMPLATE
    folder = tmp_path_factory.mktemp("released")
    policy.save(folder)
    patch.undo()
    sys.path_importer_cache.clear()
    return folder


def play(checkpoint: Path, out: Path, name: str, *options: str) -> dict[str, Any]:
    given = ["--as", name, "--model", str(checkpoint), "--data", "synthetic", "--scenes", "toy", "--n", "1"]
    given += ["--max-tokens", "4", "--max-turns", "2", "--max-pixels", "1024"]  # Less work than as published.
    assert cli.main(["eval", *given, "--out", str(out), *options]) == 0
    return json.loads((out / "metrics.json").read_text())


@pytest.mark.parametrize("name", half_quick(NAMES))
def test_a_toy_in_the_checkpoints_format_plays(checkpoint, tmp_path, capsys, name):
    row = RELEASED[name]
    record = play(checkpoint, tmp_path, name)
    (played,) = read_trajectories(tmp_path)
    assert played.dialect == row.options["dialect"][0] and record["scorer"] == row.options["scorer"][0]
    assert record["published"]["as"] == name and record["published"]["benches"]["vstar"]["published"] > 70
    out = capsys.readouterr().out
    assert out.startswith(f"{name}: {row.title}") and "no weights: the model is" in out
    assert "Reasons that a difference can have" in out and "--max-turns is 2, and" in out
    assert all(text in out for text in (*row.unread, *row.differs))


def test_the_image_budget_shrinks_images(checkpoint, tmp_path):
    # The toy's patches have 4 pixels a side, and two by two of them are a token.
    tokens = [
        play(checkpoint, tmp_path / str(pixels), "codev-7b", "--max-pixels", str(pixels), "--max-turns", "1")["usage"]
        for pixels in (32**2, 16**2)
    ]
    assert 0 < tokens[0]["prompt_tokens"] - tokens[1]["prompt_tokens"] <= 16


def test_weights_of_the_hub_are_loaded_by_name(monkeypatch, tmp_path):
    loaded = []

    class Nothing:
        def __init__(self, path, **given):
            loaded.append((path, given["max_pixels"], given["max_tokens"]))

        def play(self, *args, **given):
            yield from ()

    monkeypatch.setattr(evaluation, "SavedModel", Nothing)
    given = [
        "--as",
        "deepeyes-7b",
        "--data",
        "synthetic",
        "--scenes",
        "toy",
        "--n",
        "1",
        "--out",
        str(tmp_path / "out"),
    ]
    with pytest.raises(IndexError):  # No episode, and no failure either.
        cli.main(["--debug", "eval", *given])
    assert loaded == [("ChenShawn/DeepEyes-7B", 16384 * 28 * 28, 10240)]


def without_network(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", False)

    def fail(*_, **__):
        raise ConnectionError("Name or service not known\nmore")

    monkeypatch.setattr(hub.HfApi, "model_info", fail)


@pytest.mark.parametrize(
    ("surroundings", "reason"),
    [
        (lambda monkeypatch: None, "HF_HUB_OFFLINE forbids downloading it"),
        (without_network, "the hub does not offer it: Name or service not known"),
    ],
)
def test_weights_that_cannot_be_downloaded_are_named_before_the_first_episode(
    monkeypatch, tmp_path, capsys, surroundings, reason
):
    pytest.importorskip("transformers")
    surroundings(monkeypatch)
    given = ["--as", "deepeyes-7b", "--data", "synthetic", "--scenes", "toy", "--n", "1", "--out", str(tmp_path / "x")]
    assert cli.main(["eval", *given]) == 1
    advice = "download it first, or give a folder."
    said = f"codev eval: --model ChenShawn/DeepEyes-7B: it is not on this machine, and {reason}; {advice}\n"
    assert capsys.readouterr().err == said and not (tmp_path / "x").exists()
