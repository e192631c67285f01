"""Pages that are made from the code while the site is built: one for each environment, reward, dialect and command.

A hook of MkDocs (`hooks:` in mkdocs.yml). It needs the packages, but not what they train with.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from option_tables import Option, about_class, options_of

from codev_env.app import cli
from codev_env.app.completion import OPTIONS
from codev_env.dialects import dialect_names, get_dialect
from codev_env.envs.bench import CodeVBenchEnv
from codev_env.registration import _ENVS
from codev_env.rewards import REWARDS, GroupTerm, Reward
from codev_env.rewards.reward import about
from codev_env.tasks import BENCHES
from codev_env.types import Answer, Execution
from codev_eval.rewards.cli import formula

ROOT = Path(__file__).parents[2]
Made = tuple[str, str, str]
"""Title in the navigation, path within the site, text."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Make all pages and put them into the navigation, before its last part."""
    sections: dict[str, list[Made]] = {
        "Environments": list(environment_pages()),
        "Rewards": list(reward_pages()),
        "Dialects": list(dialect_pages()),
        "Commands": list(command_pages()),
    }
    nav: list[Any] = [{name: [{title: path} for title, path, _ in pages]} for name, pages in sections.items()]
    assert config.nav is not None
    adapters = sorted(path.name for path in Path(config.docs_dir).glob("adapters*.md"))
    config.nav.insert(len(config.nav) - 1, {"Other libraries": adapters})
    config.nav.insert(len(config.nav) - 1, {"Reference": nav})
    config.extra["made"] = [page for pages in sections.values() for page in pages]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that were made, and the changelog, which lies outside of docs/."""
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8").replace("](docs/", "](")
    for _, path, text in (*config.extra.pop("made"), ("", "changelog.md", changelog)):
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Take off what the site has no use for: `no-run` of code fences, and links to files outside of docs/."""
    markdown = re.sub(r"^(```python) no-run$", r"\1", markdown, flags=re.MULTILINE)
    if "/" in page.file.src_uri:
        return markdown
    return re.sub(r"\[([^\]]+)\]\(\.\./[^)]*\)", r"\1", markdown)


def environment_pages() -> Iterator[Made]:
    """Yield a page that all environments share, and one for each id."""
    text = inspect.getdoc(CodeVBenchEnv) or ""
    yield "What all share", "reference/environments/index.md", f"# Environments\n\n{text}\n"
    for env_id, arguments in _ENVS.items():
        bench = BENCHES[arguments["bench"]]
        places = f"`$CODEV_DATA/{bench.folder}`, then `./data/{bench.folder}`"
        rows = {
            "`bench`": f"`{bench.name}`: {bench.title}",
            "`split`": ", ".join(f"`{split}`" for split in bench.splits) + " of the real data",
            '`data="auto"`': places if bench.folder else "a path has to be given",
            '`data="synthetic"`': f"generated scenes, preset `{bench.scenes}`",
        }
        if "wrap" in arguments:
            rows["`wrap`"] = f"`{arguments['wrap']}`: see [robustness](../../robustness.md)"
        lines = [
            f"# {env_id}",
            "",
            *_code("python", f'import gymnasium as gym\n\nenv = gym.make("codev_env:{env_id}", data="synthetic")'),
            "",
            *_table(("argument", "here"), rows.items()),
            "",
            "Observations, actions, rewards and all other arguments are those of [all environments](index.md). What "
            "the data holds: [benchmarks and your own data](../../data.md); what the generated scenes show: "
            "[tasks](../../tasks.md).",
        ]
        yield env_id, f"reference/environments/{env_id}.md", _text(lines)


def reward_pages() -> Iterator[Made]:
    """Yield a page for each reward of the package."""
    for reward in REWARDS.values():
        lines = [
            f"# Reward `{reward.name}`",
            "",
            *_code("text", formula(reward)),
            "",
            f"Source: {reward.source}. Why each term is what it is: [the formulas](../../rewards.md#the-formulas).",
            "",
            *_table(("term", "weight", "value", "paid by"), _term_rows(reward)),
            "",
            f"- Needs: {', '.join(reward.needs) or 'nothing'}.",
            f"- Terms for the use of tools: {', '.join(f'`{name}`' for name in reward.tool_terms) or 'none'}.",
            "- Robust, that is, claims that no cheat earns more for tools than an honest look at a wrong place: "
            f"{'yes' if reward.robust else 'no'}. See [the cheat suite](../../redteam.md).",
            "",
            *_code("console", f"$ codev train --preset tiny --reward {reward.name}"),
        ]
        yield reward.name, f"reference/rewards/{reward.name}.md", _text(lines)


def _term_rows(reward: Reward) -> Iterator[tuple[str, ...]]:
    for term in reward.all_terms:
        payer = "the trainer, which knows the group" if isinstance(term, GroupTerm) else "the environment"
        channel = f", in channel `{term.channel.name}`" if len(reward.channels) > 1 else ""
        yield f"`{term.name}`", f"{term.weight:g}", about(term), payer + channel


def dialect_pages() -> Iterator[Made]:
    """Yield a page for each dialect: its constants, what the model is told, and a turn with its answer."""
    for name in dialect_names():
        dialect = get_dialect(name)
        looked = Execution(stdout="crop.png\n" if dialect.name == "codev" else "")
        rows = {
            "stop strings": ", ".join(f"`{stop}`" for stop in dialect.stop),
            "kept between programs": f"`{dialect.persist}`",
            "repairs": ", ".join(dialect.repairs) or "none",
            "an observation is said by": f"`{dialect.observation_role}`",
            "name of the first image": f"`{dialect.image_name(0)}`",
        }
        lines = [
            f"# Dialect `{name}`",
            "",
            _own_docstring(type(dialect)),
            "",
            *_table(("", "value"), rows.items()),
            "",
            "## System prompt",
            "",
            *_code("text", dialect.system_prompt()),
            "",
            "## A look, and what comes back",
            "",
            *_code("text", dialect.write(dialect.crop((100, 50, 300, 250)), "I look closer.")),
            "",
            *_code("text", dialect.render(looked, 1)),
            "",
            "## An answer",
            "",
            *_code("text", dialect.write(Answer("red"), "It is red.")),
            "",
            "How turns are read, and what is forgiven: [dialects](../../dialects.md).",
        ]
        yield name, f"reference/dialects/{name}.md", _text(lines)


def command_pages() -> Iterator[Made]:
    """Yield a page for each subcommand of `codev` with all its options."""
    for name, command in cli.COMMANDS.items():
        extra = f' Needs `pip install "codev-env[{command.extra}]"`.' if command.extra else ""
        lines = [f"# codev {name}", "", f"`codev {name}`: {command.help}.{extra}", ""]
        tables = {words: target for words, target in OPTIONS.items() if words.split()[0] == name}
        if not tables:  # a parser of argparse: what it prints for --help
            lines += _code("text", _help_text(cli.load(command.target)))
        for words, target in tables.items():
            lines += [f"## codev {words}", "", about_class(target), ""]
            if name in ("train", "sft"):
                lines += [
                    "`--preset NAME` and `--config FILE.yaml` set many options at once, `codev train --dry-run` only "
                    "looks: [the trainer](../../training.md#options).",
                    "",
                ]
            lines += [
                *_table(("option", "type and range", "default", "meaning"), map(_option_row, options_of(target))),
                "",
            ]
        yield f"codev {name}", f"reference/commands/{name}.md", _text(lines)


def _option_row(option: Option) -> tuple[str, ...]:
    return f"`{option.flag}`", f"`{option.type}`", f"`{option.default}`" if option.default else "required", option.about


def _help_text(main: Callable[[list[str]], Any]) -> str:
    """Return what a command of argparse prints for `--help`."""
    out = io.StringIO()
    os.environ["COLUMNS"] = "100"
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main(["--help"])
    return out.getvalue()


def _own_docstring(kind: type) -> str:
    return inspect.cleandoc(kind.__doc__ or "")


def _table(header: tuple[str, ...], rows: Any) -> list[str]:
    cells = [[cell.replace("\n", " ").replace("|", "\\|") for cell in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *cells)]


def _code(language: str, text: str) -> list[str]:
    """Return a fenced block; the fence is longer than any in the text."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`{3,}", text)), default=0))
    return [f"{fence}{language}", text.rstrip("\n"), fence]


def _text(lines: list[str]) -> str:
    return "\n".join(lines).rstrip("\n") + "\n"
