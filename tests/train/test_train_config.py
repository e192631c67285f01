"""Options: presets, YAML files and the command line; every one documented, typed and read somewhere."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import re
from pathlib import Path

import pytest
import yaml

import codev_agents
import codev_train
from codev_agents.engines import options as engine_options
from codev_agents.engines.options import LoraOptions
from codev_env.app import cli as codev
from codev_env.errors import ConfigError
from codev_eval.study.methods import METHODS
from codev_train import experiment
from codev_train.learn.sharding import Layout
from codev_train.problems import find_problems
from codev_train.run import health, held_out, options
from codev_train.run.config import OPTIONS, fingerprint, presets, read_file, read_preset, read_request
from codev_train.run.environments import make_eval_env, make_train_env
from codev_train.run.options import SFTOptions, TrainOptions
from codev_train.sft.start import start_folder

DATACLASSES = [
    kind
    for module in (options, engine_options, health, held_out)
    for kind in vars(module).values()
    if hasattr(kind, "__pydantic_fields__") and kind.__module__ == module.__name__
]
FIELDS = [
    pytest.param(kind, f.name, id=f"{kind.__name__}.{f.name}") for kind in DATACLASSES for f in dataclasses.fields(kind)
]


@pytest.fixture
def yaml_file(tmp_path):
    def write(content: object) -> str:
        path = tmp_path / "options.yaml"
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
        return str(path)

    return write


def parse(argv: list[str], section: str = "train"):
    kind = {"train": TrainOptions, "sft": SFTOptions}[section]
    return read_request(argv).parse(section, kind, f"codev {section}")


# --- what every option owes ---


def test_there_are_presets():
    assert "tiny" in presets()


@pytest.mark.parametrize("name", presets())
def test_every_preset_parses_for_both_commands_and_says_what_it_does(name):
    train, sft = parse(["--preset", name]), parse(["--preset", name], "sft")
    assert train.env == sft.env
    content = read_preset(name)
    assert content["about"].strip() and train.name == content["train"].get("name", train.name)
    assert not list(find_problems(train))
    for make in (make_train_env, make_eval_env):
        make(train).close()


def test_the_toy_presets_share_a_cold_start_and_differ_by_their_method():
    names = ("tiny", "tapo", "evidence")
    assert len({start_folder(parse(["--preset", name], "sft")) for name in names}) == 1
    tiny, tapo, evidence = (dataclasses.asdict(parse(["--preset", name])) for name in names)
    assert tapo["imitation"]["answers"] == tapo["imitation"]["calls"] == tapo["down_sample"] == 0 < tiny["down_sample"]
    assert {key for key in tapo if tapo[key] != evidence[key]} == {"name", "candidates"}
    (method,) = (row for row in METHODS if row.name == "imitation")
    for name, value in method.options.items():
        assert functools.reduce(dict.get, name.split("."), tiny) == value, name


def test_a_file_changes_the_preset_it_names_as_its_base(tmp_path):
    (tmp_path / "mine.yaml").write_text(
        "base: tiny\ntrain: {steps: 7, eval: {episodes: 5}}\nenv: {scene: {cue_p: 0.5}}"
    )
    mine, tiny = parse(["--config", str(tmp_path / "mine.yaml")]), parse(["--preset", "tiny"])
    assert (mine.steps, mine.eval.episodes, mine.prompts) == (7, 5, tiny.prompts)
    assert mine.env.scenes == tiny.env.scenes and mine.env.scene != tiny.env.scene
    (tmp_path / "mine.yaml").write_text("base: tinny")
    with pytest.raises(ConfigError, match="tiny"):
        parse(["--config", str(tmp_path / "mine.yaml")])


def test_an_option_outside_the_sections_of_a_file_is_told_where_it_belongs(tmp_path):
    (tmp_path / "flat.yaml").write_text("steps: 3")
    with pytest.raises(ConfigError, match=r"steps is outside the sections .* train: \{steps: 3\}"):
        parse(["--config", str(tmp_path / "flat.yaml")])


@pytest.mark.parametrize(
    "words",
    [
        "--steps 0",
        "--group 1",
        "--prompts 3 --group 2 --minibatches 7",
        "--temperature 0",
        "--eval.temperature -1",
        "--clip-low 2",
        "--dual-clip 0.5",
        "--seed -1",
        "--seed 4294967296",
        "--optimizer.lr -1",
        "--optimizer.decay 2",
        "--env.data auto",
        "--reward tapoo",
        "--weights toool 1",
        "--env.scenes toi",
        "--env.scene sell 3",
        "--env.id codev_env:CodeV-VStar-v9",
        "--env.id a/b/c",
        "--env.id CartPole-v1",
        "--env.id no_such_module:CodeV-VStar-v0",
        "--env.data no/such/folder",
        "--max-length 0",
        "--max-tokens 64 --max-length 64",
        "--compile true",
        "--sequence-parallel 2",
        "--optimizer.lr nan",
        "--optimizer.lr inf",
        "--optimizer.grad-clip 0",
        "--kl -0.1",
        "--resample -1",
        "--down-sample 1",
        "--threads -1",
        "--curriculum unifrom",
        "--curriculum no_such_module:choose",
        "--lora.rank -1",
        "--env.max-turns 0",
        "--vllm.memory 1.5",
        "--vllm.memory 0",
        "--vllm.patience -1",
        "--vllm.timeout 0",
        "--vllm.url localhost:8000",
        "--engine vllm-server --vllm.folder no/such/folder",
        "--health.ratio 0.5",
        "--health.signal 0",
        "--health.judge-failed 2",
        "--health.patience 0",
        "--estimate.gpus 8 --estimate.shards 3",
        "--estimate.mfu 0",
        "--step-timeout -1",
        "--estimate.trajectory 999999",
        "--estimate.trajectory 100 --estimate.response 101",
        "--name a/../../b",
        "--name a\\b",
        "--name ..",
        "--name .",
        "--out /proc/nobody-writes-here",
        "--model ./no-such-folder",
        "--model /no/such/folder",
        "--env.judge http://127.0.0.1:9/v1#judge",
    ],
)
def test_a_bad_value_is_refused_before_anything_is_written(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert codev.main(["train", "--preset", "smoke", *words.split()]) == 1
    message = capsys.readouterr().err
    assert message.startswith("codev train: ") and message.count("\n") == 1
    assert words.split()[-2].lstrip("-").split(".")[-1] in message or words.split()[-1] in message
    assert not list(tmp_path.iterdir())


def test_minibatches_are_parts_of_the_rollouts_of_all_processes():
    chosen = TrainOptions(prompts=8, group=4, minibatches=16)
    assert [list(find_problems(chosen, processes)) for processes in (1, 2, 8)] == [[], [], []]
    (problem,) = find_problems(dataclasses.replace(chosen, minibatches=33), 8)
    assert problem.text == "--minibatches is 33; it must be at most the 32 rollouts."


def test_no_prompts_are_told_once(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert codev.main(["train", "--preset", "smoke", "--prompts", "0"]) == 1
    message = capsys.readouterr().err
    assert "--prompts is 0" in message and "minibatches" not in message


def test_a_folder_that_is_not_there_is_not_looked_for_on_a_hub(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    assert codev.main(["train", "--preset", "smoke", "--model", "runs/nonexist"]) == 1
    assert "the folder runs holds no nonexist" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        "--name a/b",
        "--pool 0",
        "--snap -1",
        "--number-weight 0",
        "--toy.layers 0",
        "--ground.reads -1",
        "--imitate.objects 5 2",
        "--ground.more 5",
        "--ground.optimizer.final 0 --ground.more 5 --ground.until 1 --ground.optimizer.decay 0.5",
        "--trajectories no/such/folder",
        "--model ./no-such-folder",
    ],
)
def test_a_bad_value_of_the_cold_start_is_refused(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert codev.main(["sft", "--preset", "smoke", *words.split()]) == 1
    assert words.split()[0] in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_all_bad_values_are_told_at_once(capsys):
    assert codev.main(["train", "--preset", "smoke", "--steps", "0", "--kl", "-1", "--vllm.memory", "2"]) == 1
    message = capsys.readouterr().err
    assert all(f"--{name} is" in message for name in ("steps", "kl", "vllm.memory"))


@pytest.mark.parametrize("kind", DATACLASSES, ids=lambda k: k.__name__)
def test_every_option_has_a_docstring(kind):
    (tree,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(tree, ast.ClassDef)
    documented = {
        line.target.id
        for line, after in zip(tree.body, [*tree.body[1:], None], strict=True)
        if isinstance(line, ast.AnnAssign)
        and isinstance(line.target, ast.Name)
        and isinstance(after, ast.Expr)
        and isinstance(after.value, ast.Constant)
        and str(after.value.value).strip().endswith(".")
    }
    assert documented == {f.name for f in dataclasses.fields(kind)}


@functools.cache
def attributes_read() -> set[tuple[str, str]]:
    """Each `holder.name` that the trainer and its engines read, as the last name of the holder and the name."""
    found = set()
    folders = (Path(package.__file__).parent for package in (codev_train, codev_agents))
    for path in (path for folder in folders for path in folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                holder = node.value
                name = holder.attr if isinstance(holder, ast.Attribute) else getattr(holder, "id", "")
                found.add((name, node.attr))
    return found


@pytest.mark.parametrize(("kind", "name"), FIELDS)
def test_every_option_is_read_somewhere(kind, name):
    holders = {
        "EnvOptions": {"options", "env"},
        "OptimizerOptions": {"options", "optimizer"},
        "StageOptions": {"stage", "ground", "imitate"},
        "HeldOutOptions": {"eval"},
        "EstimateOptions": {"estimate", "assumed"},
        "ToyModelOptions": {"options", "toy"},
        "VllmOptions": {"options", "vllm"},
        "LoraOptions": {"options", "lora"},
        "HealthOptions": {"options", "health"},
    }.get(kind.__name__, {"options"})
    assert any((holder, name) in attributes_read() for holder in holders), f"{kind.__name__}.{name} is never read"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--toy.hidden", "100"], "--toy.hidden is 100; it must be a multiple of twice toy.heads, 8"),
        (["--toy.heads", "200"], "--toy.hidden is 128; it must be a multiple of twice toy.heads, 400"),
        (["--toy.vision_hidden", "40"], "--toy.vision-hidden is 40; it must be a multiple of 16"),
        (["--toy.patch", "90"], "--toy.patch is 90; it must be at most toy.view, 84"),
    ],
)
def test_a_toy_has_sizes_that_can_be_made(given, message):
    with pytest.raises(ConfigError, match=message):
        parse(given, "sft")


# --- where values come from ---


def test_later_layers_go_over_earlier_ones(yaml_file):
    path = yaml_file({"env": {"max_turns": 5}, "train": {"steps": 7, "optimizer": {"lr": 0.5}}})
    found = parse(["--preset", "tiny", "--config", path, "--steps", "9"])
    tiny = parse(["--preset", "tiny"])
    assert (found.steps, found.optimizer.lr, found.env.max_turns) == (9, 0.5, 5)
    assert found.group == tiny.group and found.eval == tiny.eval and found.env.scenes == tiny.env.scenes
    assert parse(["--config", path, "--preset", "tiny"]).steps == tiny.steps
    assert parse([f"--config={path}"]) == parse(["--config", path])


def test_yaml_values_of_every_type(yaml_file):
    content = {
        "env": {"scene": {"cue_p": 0.25, "objects": 3}},
        "sft": {"ground": {"objects": [1, 6], "optimizer": {"name": "muon", "lr": 2e-3}}},
        "train": {"weights": {"tool": 0.1}, "gradient_checkpointing": True, "resume": "", "temperature": 0.7},
    }
    path = yaml_file(content)
    train, sft = parse(["--config", path]), parse(["--config", path], "sft")
    assert train.env.scene == sft.env.scene == {"cue_p": 0.25, "objects": 3}
    assert train.weights == {"tool": 0.1} and train.gradient_checkpointing is True and train.temperature == 0.7
    assert sft.ground.objects == (1, 6) and sft.ground.optimizer.name == "muon" and sft.ground.optimizer.lr == 2e-3


@pytest.mark.parametrize("name", ["2024-01-01", "3", "2024-01-01 10:00:00"])
def test_a_name_in_a_file_may_look_like_another_type(yaml_file, name):
    assert parse(["--config", yaml_file(f"train: {{name: {name}}}")]).name == name


def test_mappings_on_the_command_line():
    found = parse(["--env.scene", "cue_p", "0.5", "--weights", "tool", "0", "outcome", "2.5"])
    assert found.env.scene == {"cue_p": 0.5} and found.weights == {"tool": 0.0, "outcome": 2.5}
    assert parse(["--env.scene", "cue_p=0.5", "objects=3"]).env.scene == {"cue_p": 0.5, "objects": 3}
    assert parse(["--env.scene", '{"cue_p": 0.5, "objects": 3}']).env.scene == {"cue_p": 0.5, "objects": 3}


def test_the_start_shares_environment_seed_and_folder_of_the_command_line():
    argv = ["--preset", "tiny", "--seed=5", "--env.max-turns", "4", "--steps", "1", "--out", "here", "--optimizer.lr=1"]
    sft = read_request(argv).parse("sft", SFTOptions, "codev sft", own=False)
    plain = parse(["--preset", "tiny"], "sft")
    assert sft == dataclasses.replace(plain, seed=5, out="here", env=dataclasses.replace(plain.env, max_turns=4))


def test_the_fingerprint_stands_for_all_values():
    base = SFTOptions()
    other = dataclasses.replace(base, toy=dataclasses.replace(base.toy, layers=base.toy.layers + 1))
    assert fingerprint(base) == fingerprint(SFTOptions()) != fingerprint(other)
    assert start_folder(base) != start_folder(other)
    judged = dataclasses.replace(base, env=dataclasses.replace(base.env, judge="none", view_pixels=9))
    assert start_folder(judged) == start_folder(base), "what a judge says is not learned"
    afar = dataclasses.replace(base, env=dataclasses.replace(base.env, farm="ray"))
    assert start_folder(afar) == start_folder(base), "where programs run is not learned"


def test_options_that_came_later_leave_the_names_of_starts_as_they_were():
    assert fingerprint(SFTOptions()) == "22d44e26"
    base = SFTOptions(model="base")
    assert fingerprint(dataclasses.replace(base, gradient_checkpointing=True)) == fingerprint(base)
    others = [{"lora": LoraOptions(rank=4)}, {"max_length": 64}, {"train_vision": False}]
    assert len({fingerprint(base), *(fingerprint(dataclasses.replace(base, **other)) for other in others)}) == 4


def test_options_of_a_run_are_read_back_as_they_were(tmp_path):
    argv = ["--preset", "tiny", "--weights", "tool", "0.25", "--optimizer.lr", "3e-7", "--credit", "turn"]
    request = read_request(argv)
    found = request.parse("train", TrainOptions, "codev train")
    experiment._write_options(tmp_path, request, found)
    assert parse(["--config", str(tmp_path / OPTIONS)]) == found


# --- what cannot be used ---


def exit_code(argv: list[str], command: str = "train") -> int:
    """The exit code of `codev`, however it leaves."""
    try:
        return codev.main([command, *argv])
    except SystemExit as left:
        return left.code  # type: ignore[return-value]


@pytest.mark.parametrize("command", ["train", "sft"])
def test_an_unknown_preset_names_the_nearest(command, capsys):
    assert exit_code(["--preset", "tinny"], command) != 0
    assert "unknown preset 'tinny'. Did you mean 'tiny'?" in capsys.readouterr().err


def test_an_unknown_section_names_the_nearest(yaml_file, capsys):
    assert exit_code(["--config", yaml_file({"trian": {}})]) != 0
    assert "'trian'. Did you mean 'train'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("section", "content", "nearest"),
    [
        ("train", {"stepps": 3}, "train: 'stepps'. Did you mean 'steps'?"),
        ("train", {"optimizer": {"lrr": 3}}, "train: optimizer: 'lrr'. Did you mean 'lr'?"),
        ("train", {"optimizer.lrr": 3}, "train: optimizer: 'lrr'. Did you mean 'lr'?"),
        ("env", {"max_turn": 3}, "env: 'max_turn'. Did you mean 'max_turns'?"),
        ("sft", {"ground": {"decoratives": 1}}, "sft: ground: 'decoratives'. Did you mean 'decorative'?"),
    ],
)
def test_an_unknown_option_in_a_file_names_the_file_and_the_nearest(yaml_file, capsys, section, content, nearest):
    path = yaml_file({section: content})
    assert exit_code(["--config", path], "sft" if section == "sft" else "train") == 1
    assert f"{path}, {nearest}" in capsys.readouterr().err


@pytest.mark.parametrize(("option", "nearest"), [("--stesp", "--steps"), ("--optimizer.warm-up", "--optimizer.warmup")])
def test_an_unknown_option_on_the_command_line_names_the_nearest(capsys, option, nearest):
    assert exit_code([option, "3"]) == 2
    assert nearest in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--steps", "many"], "many"),
        (["--engine", "vlm"], "hf"),
        (["--gradient-checkpointing", "perhaps"], "perhaps"),
    ],
)
def test_a_value_of_the_wrong_kind_says_what_is_allowed(capsys, argv, said):
    assert exit_code(argv) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--steps", "0"], "--steps is 0"),
        (["--max-tokens", "-4"], "--max-tokens is -4"),
        (["--group", "1"], "--group is 1"),
        (["--loss", "gspa"], "--loss: unknown loss 'gspa'. Did you mean 'gspo'?"),
        (["--loss", "no_such_module:loss"], "--loss: cannot import the loss 'no_such_module:loss'"),
        (["--loss", "micro_run:CONFIG"], "--loss: loss 'micro_run:CONFIG' is a dict; it must be a function"),
        (["--loss", "micro_run:write_config"], "--loss: loss 'micro_run:write_config' failed on three tokens"),
        (["--credit", "turns"], "--credit: unknown credit 'turns'. Did you mean 'turn'?"),
        (["--credit", "micro_run:write_config"], "--credit: credit 'micro_run:write_config' failed on five"),
        (["--curriculum", "micro_run:write_config"], "--curriculum: curriculum 'micro_run:write_config' cannot be"),
        (["--temperature", "0"], "--temperature is 0"),
        (["--eval.episodes", "0"], "--eval.episodes is 0"),
        (["--config"], "--config needs a value"),
        (["--preset"], "tiny"),
        (["--config", "no-such-file.yaml"], "no-such-file.yaml"),
        (["--resume", "no-such-run"], "no folder no-such-run. A run that was stopped in its cold start has none yet"),
        ([], "model is empty"),
    ],
)
def test_values_that_make_no_sense(capsys, tmp_path, monkeypatch, argv, said):
    monkeypatch.chdir(tmp_path)
    assert exit_code(argv) == 1
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir()), "nothing is left behind"


@pytest.mark.parametrize("text", ["- a\n- list\n", "just text", "", "train: {steps: 1", "a: b: c"])
def test_a_file_that_is_no_configuration_is_refused_by_name(yaml_file, text):
    path = yaml_file(text)
    with pytest.raises(ConfigError, match=r"options\.yaml"):
        read_file(path)


@pytest.mark.parametrize("words", [[], ["--dry-run"]])
def test_a_file_does_not_resume_a_run_with_its_own_options(yaml_file, capsys, words):
    """A run goes on with the options it was started with, which only `--resume` reads."""
    assert exit_code(["--config", str(yaml_file("train: {resume: runs/a b, group: 2}")), *words]) == 1
    assert "give --resume 'runs/a b' on the command line" in capsys.readouterr().err


def test_a_file_that_is_no_text_is_refused_by_name(tmp_path):
    (tmp_path / "weights.yaml").write_bytes(b"\xd0\x00\xff")
    with pytest.raises(ConfigError, match=r"weights\.yaml is not text in UTF-8"):
        read_file(str(tmp_path / "weights.yaml"))


@pytest.mark.parametrize(
    ("words", "processes", "layout", "said"),
    [
        (
            {"sharding": "fsdp2"},
            2,
            Layout("none"),
            "--sharding is fsdp2; it must be none under this launcher, which sha",
        ),
        ({"sharding": "none"}, 2, Layout("fsdp2"), "--sharding is none; it must be fsdp2 under this launcher"),
        ({"sharding": "fsdp2"}, 2, Layout("fsdp2-offload"), "--sharding is fsdp2; it must be fsdp2-offload under"),
        ({"sharding": "fsdp2"}, 4, Layout("hsdp", 2), "--sharding is fsdp2; it must be hsdp under this launcher"),
        ({"sharding": "hsdp", "replicas": 4}, 8, Layout("hsdp", 2), "--replicas is 4; it must be 2, as in the config"),
        (
            {"sharding": "fsdp2"},
            2,
            Layout("DEEPSPEED"),
            "configuration is for DEEPSPEED, which the trainer does not use",
        ),
        (
            {"sharding": "fsdp2"},
            2,
            Layout("FSDP, version 1"),
            "configuration is for FSDP, version 1, which the trainer",
        ),
        (
            {"sharding": "none"},
            1,
            Layout("DEEPSPEED"),
            "configuration is for DEEPSPEED, which the trainer does not use",
        ),
        ({"sharding": "fsdp2-offload"}, 1, None, "--sharding is fsdp2-offload; it must be none with one process"),
        ({"sharding": "hsdp"}, 1, Layout("none"), "--sharding is hsdp; it must be none with one process"),
        ({"sharding": "fsdp2"}, 1, Layout("none"), ""),
        ({"sharding": "fsdp2"}, 2, Layout("fsdp2"), ""),
        ({"sharding": "hsdp"}, 4, Layout("hsdp", 2), ""),
        ({"sharding": "hsdp"}, 4, None, ""),
    ],
)
def test_a_launcher_that_shards_in_another_way_is_refused(words, processes, layout, said):
    found = [p.text for p in find_problems(TrainOptions(prompts=8, **words), processes, layout)]
    assert len(found) == bool(said) and all(said in text for text in found), found


@pytest.mark.parametrize(
    ("command", "words", "said"),
    [
        ("train", ["--eval.data", "auto"], "--eval.data is auto; it must be synthetic, hub or a path"),
        ("train", ["--env.data", "auto"], "--env.data is auto; it must be synthetic, hub or a path"),
        ("sft", ["--env.data", "auto"], "--env.data is auto; it must be synthetic, hub or a path"),
        ("sft", ["--ground.captions", "8", "--ground.reads", "0", "--ground.experts", "0"], ""),
        (
            "sft",
            ["--ground.captions", "1", "--ground.reads", "1", "--ground.experts", "0"],
            "--ground.experts is 0; it must be above 0",
        ),
        ("sft", ["--imitate.experts", "0", "--imitate.decorative", "0"], "--imitate.experts is 0; it must be above 0"),
    ],
)
def test_data_and_examples_that_leave_something_open(command, words, said):
    def make() -> None:
        kind = TrainOptions if command == "train" else SFTOptions
        read_request(["--preset", "smoke", *words]).parse(command, kind, f"codev {command}")

    if not said:
        return make()
    with pytest.raises(ConfigError, match=re.escape(said)):
        make()
