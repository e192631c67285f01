"""The Python blocks of README and docs run in order, and options of commands in them exist."""

from __future__ import annotations

import argparse
import ast
import importlib.util
from pathlib import Path

import pytest
from pages import PAGES, ROOT, commands, inline_commands, python_blocks

from codev_env.app import arguments, cli
from codev_env.app.completion import completions

ELSEWHERE = {
    "README": "tests/test_readme.py",
    "contributing": "tests/docs/test_contributing.py",
    "data": "tests/tasks/test_tasks_docs.py",
    "demonstrations": "tests/tasks/test_tasks_docs.py",
    "dialects": "tests/dialects/test_dialects_programs.py",
    "redteam": "tests/cheats/test_cheats.py",
    "rewards": "tests/rewards/test_rewards_docs.py",
    "robustness": "tests/tasks/test_tasks_docs.py",
    "scorers": "tests/tasks/test_tasks_docs.py",
    "tasks": "tests/tasks/test_tasks_docs.py",
}
"""Pages whose blocks are run by other tests, which also check what those pages say about them."""

NEED_A_SERVER = ("adapters",)
"""Pages about other programs: tests/adapters runs the code they name against the real ones, if installed."""

OTHERS = ("openenv", "ray", "skyrl_gym", "stable_baselines3", "swift", "torchrl", "trl", "vagen", "verifiers", "verl")
"""Libraries that no extra installs; the blocks of a page about a missing one are skipped."""

OURS = ("codev_env", "codev_agents", "codev_train", "codev_eval")
RUN = [page for page in PAGES if python_blocks(page) and page.stem not in ELSEWHERE and page.stem not in NEED_A_SERVER]
BLOCKS = [(page, block) for page in PAGES for block in python_blocks(page)]
COMMANDS = {page: commands(page) for page in PAGES if commands(page)}


class ParsedError(Exception):
    """A command has parsed its options and would start."""


@pytest.fixture
def parse_only(monkeypatch, tmp_path):
    """Stop every command as soon as its own parser has accepted its options."""
    build, parse_args = arguments.build, argparse.ArgumentParser.parse_args

    def stop_after(parse):
        def parse_and_stop(*args, **options):
            parse(*args, **options)
            raise ParsedError

        return parse_and_stop

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(arguments, "build", stop_after(build))
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stop_after(parse_args))


def names_in(module: str) -> set[str]:
    """The names that one of our modules defines or imports at its top level, found without importing it."""
    spec = importlib.util.find_spec(module)
    assert spec and spec.origin, f"there is no module {module}"
    tree = ast.parse(Path(spec.origin).read_text("utf-8"))
    names = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    names |= {
        node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    }
    return names | {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_blocks_of_a_page_run_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    names: dict[str, object] = {}
    for block in python_blocks(page):
        if block.info != "python":
            continue
        # Leading blank lines make an error name the line of the page.
        code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
        try:
            exec(code, names)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in OTHERS:
                raise
            pytest.skip(f"{error.name} is not installed")
    assert names.keys() - {"__builtins__"}, "the page's code defined no name: did it run?"


@pytest.mark.parametrize(("page", "block"), BLOCKS, ids=[f"{page.stem}-{block.line}" for page, block in BLOCKS])
def test_every_block_compiles_and_imports_existing_names(page, block):
    assert block.info in ("python", "python no-run"), "a test would skip it"
    compile(block.text, page.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in OURS:
            missing = {
                alias.name
                for alias in node.names
                if alias.name not in names_in(node.module)
                and not importlib.util.find_spec(f"{node.module}.{alias.name}")
            }
            assert not missing, f"{page.name}, line {block.line}: {node.module} has no {missing}"


@pytest.mark.parametrize(("page", "test"), ELSEWHERE.items(), ids=ELSEWHERE)
def test_pages_left_to_other_tests_are_covered_there(page, test):
    text = (ROOT / test).read_text("utf-8")
    assert f"{page}.md" in text or f'"{page}"' in text


@pytest.mark.parametrize(
    ("page", "words"),
    [(page, words) for page, found in COMMANDS.items() for words in found],
    ids=[f"{page.stem}-{i}" for page, found in COMMANDS.items() for i in range(len(found))],
)
def test_commands_in_blocks_take_their_options(page, words, parse_only, tmp_path, capsys):
    name, *rest = words
    if name.startswith("-"):
        return
    assert name in cli.COMMANDS, f"{page.name}: codev {' '.join(words)}"
    for option, file in (("--resume", "options.yaml"), ("--config", "")):
        if option in rest:
            path = tmp_path / rest[rest.index(option) + 1] / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("train: {}\n")
    try:
        cli.load(cli.COMMANDS[name].target)(rest)
    except ParsedError:
        return
    except SystemExit as stop:
        assert stop.code == 0, f"{page.name}: codev {' '.join(words)}\n{capsys.readouterr().err}"
        return
    assert rest in ([], ["--help"]), f"{page.name}: codev {' '.join(words)} ran without reading options"


@pytest.mark.parametrize("page", [page for page in PAGES if inline_commands(page)], ids=lambda page: page.stem)
def test_options_of_commands_in_the_text_exist(page):
    known = completions()
    for words in inline_commands(page):
        path = max((p for p in known if words[: len(p.split())] == p.split()), key=len)
        options = {word.partition("=")[0] for word in words if word.startswith("--") and word != "--debug"}
        assert options <= {*known[path], "--help"}, f"{page.name}: codev {' '.join(words)}"
        assert path or words[0].startswith("-") or words[0].isupper() or words[0] == "…", f"{page.name}: {words}"
