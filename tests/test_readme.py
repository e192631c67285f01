"""The Python blocks of the README run, in order, as a reader would paste them."""

from __future__ import annotations

import re
from pathlib import Path

README = (Path(__file__).parent.parent / "README.md").read_text("utf-8")


def test_python_blocks_run(capsys):
    blocks = re.findall(r"```python\n(.*?)```\n", README, re.DOTALL)
    # Blocks hold fences of their own inside strings, so they are told apart by the line they end on.
    assert len(blocks) >= 2
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    out = capsys.readouterr().out
    assert "(0, 0, 400, 300)" in out, "the crop's box is known"
    assert "True True" in out, "the oracle is right and faithful"


def test_what_the_readme_compares_was_evaluated_before_on_the_same_tasks():
    lines = README.replace("\\\n", " ").splitlines()
    compared = next(line.split()[3:5] for line in lines if line.startswith("    codev eval compare "))
    made = {found[1]: line for line in lines if (found := re.search(r"^    codev eval .*--out (\S+)", line))}
    assert set(compared) <= set(made)
    same = [re.findall(r"--(?:bench|data|scenes|n) \S+", made[folder]) for folder in compared]
    assert same[0] == same[1]


def test_commands_of_the_readme_exist():
    from codev_env.app.cli import COMMANDS

    commands = set(re.findall(r"^    codev (\w+)", README, re.MULTILINE))
    assert commands and commands <= set(COMMANDS)
    assert "make train" in README and "make test" in README
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (Path(__file__).parent.parent / target).exists(), f"broken link {target}"
