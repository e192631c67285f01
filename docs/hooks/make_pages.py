"""A hook of MkDocs (`hooks:` in mkdocs.yml): a page for each environment, reward, dialect and command, and a gallery.

It imports the packages, but no training libraries.
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

from gallery import Entry, entries, entry_on_page, gallery_page
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from option_tables import Option, about_class, options_of

from codev_env.app import cli
from codev_env.app.completion import OPTIONS
from codev_env.benches import BENCHES, Bench, environments
from codev_env.dialects import dialect_names, get_dialect
from codev_env.envs.codev_env import CodeVBenchEnv
from codev_env.rewards import REWARDS, GroupTerm, Reward
from codev_env.rewards.reward import about
from codev_env.types import Answer, Execution
from codev_eval.rewards.cli import formula

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
GeneratedPage = tuple[str, str, str]
"""Title in the navigation, path within the site, text."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Generate all pages and put them into the navigation, before its last section."""
    played = entries()
    sections: dict[str, list[GeneratedPage]] = {
        "Environments": list(environment_pages(played)),
        "Rewards": list(reward_pages()),
        "Dialects": list(dialect_pages()),
        "Commands": list(command_pages()),
    }
    nav: list[Any] = [{name: [{title: path} for title, path, _ in pages]} for name, pages in sections.items()]
    assert config.nav is not None
    adapters = sorted(path.name for path in Path(config.docs_dir).glob("adapters*.md"))
    config.nav.insert(len(config.nav) - 1, {"Other libraries": adapters})
    config.nav.insert(len(config.nav) - 1, {"Reference": nav})
    gallery = ("Gallery", "gallery.md", gallery_page(played))
    next(section["Environments"] for section in config.nav if "Environments" in section).insert(
        0, {gallery[0]: gallery[1]}
    )
    config.extra["generated_pages"] = [gallery, *(page for pages in sections.values() for page in pages)]
    config.extra["generated_images"] = [image for entry in played for image in entry.images]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, and the changelog, which is outside docs/."""
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8").replace("](docs/", "](")
    for _, path, text in (*config.extra.pop("generated_pages"), ("", "changelog.md", changelog)):
        files.append(File.generated(config, path, content=text))
    for path, image in config.extra.pop("generated_images"):
        files.append(File.generated(config, path, content=image))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Remove `no-run` from code fences, and links to files outside docs/."""
    markdown = re.sub(r"^(```python) no-run$", r"\1", markdown, flags=re.MULTILINE)
    if "/" in page.file.src_uri:
        return markdown
    return re.sub(r"\[([^\]]+)\]\(\.\./[^)]*\)", r"\1", markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Let names in tables break and options nowhere, and put the diagram of an episode into the page.

    There it has the reader's colours.
    """

    def inline(found: re.Match[str]) -> str:
        return f'<span class="diagram">{(DOCS / found[1]).read_text("utf-8")}</span>'

    html = re.sub(r"<pre\b.*?</pre>|<td\b.*?</td>|<code>[^<]*</code>", _breaks, html, flags=re.DOTALL)
    return re.sub(r'<img [^>]*src="(images/episode\.svg)"[^>]*>', inline, html)


def _breaks(part: re.Match[str]) -> str:
    """Say where the lines of code break: a block of it as it is written, a cell by its names, text not in an option."""
    if part[0].startswith("<pre"):
        return part[0]
    if part[0].startswith("<td"):
        return re.sub(r"(?<=<code>)(?!--[\w.-]+</code>)[^<]+", _breakable, part[0])
    return re.sub(r"(?<![\w-])--\w[\w.-]*", r'<span class="option">\g<0></span>', part[0])


def _breakable(code: re.Match[str]) -> str:
    """Allow line breaks after spaces, `,` and `://`, and, within words but not options, after `/`, `-`, `_`."""
    return re.sub(r"(?<=\w[/_-])(?=[\w*])|(?<=[ ,])|(?<=://)", "<wbr>", code[0])


def environment_pages(played: list[Entry]) -> Iterator[GeneratedPage]:
    """Yield a page about all environments, and one for each id."""
    text = inspect.getdoc(CodeVBenchEnv) or ""
    yield "All environments", "reference/environments/index.md", f"# Environments\n\n{text}\n"
    for (env_id, arguments), entry in zip(environments().items(), played, strict=True):
        bench = BENCHES[arguments["bench"]]
        places = f"`$CODEV_DATA/{bench.folder}`, then `./data/{bench.folder}`"
        rows = {
            "`bench`": f"`{bench.name}`: {bench.title}",
            "`split`": ", ".join(f"`{split}`" for split in bench.splits) + " of the real data",
            '`data="auto"`': places if bench.folder else "a path is required",
            '`data="synthetic"`': f"generated scenes, preset `{bench.scenes}`",
        }
        if "wrap" in arguments:
            rows["`wrap`"] = f"`{arguments['wrap']}`: see [robustness](../../robustness.md)"
        lines = [
            f"# {env_id}",
            "",
            *_code("python", _made(env_id, bench)),
            "",
            *_table(("argument", "value"), rows.items()),
            "",
            "Observations, actions, rewards and all other arguments are those of [all environments](index.md). The "
            "data is described in [benchmarks and your own data](../../data.md), the generated scenes in "
            "[tasks](../../tasks.md).",
            "",
            "## A task and the expert's crops",
            "",
            entry_on_page(entry, "../../"),
        ]
        yield env_id, f"reference/environments/{env_id}.md", _text(lines)


def _made(env_id: str, bench: Bench) -> str:
    """Return the lines that make an environment; one without data of its own shows yours first."""
    made = f'env = gym.make("codev_env:{env_id}", data='
    lines = [f'{made}"synthetic")']
    if not bench.folder:
        lines = [f'{made}"rows.jsonl")  # your own data', f"{lines[0]}  # generated scenes"]
    return "\n".join(["import gymnasium as gym", "", *lines])


def reward_pages() -> Iterator[GeneratedPage]:
    """Yield a page for each reward of the package."""
    for reward in REWARDS.values():
        lines = [
            f"# Reward `{reward.name}`",
            "",
            *_code("text", formula(reward)),
            "",
            f"Source: {reward.source}. The terms are explained under [the formulas](../../rewards.md#the-formulas).",
            "",
            *_table(("term", "weight", "value", "computed by"), _term_rows(reward)),
            "",
            f"- Needs: {', '.join(reward.needs) or 'nothing'}.",
            f"- Terms for the use of tools: {', '.join(f'`{name}`' for name in reward.tool_terms) or 'none'}.",
            f"- Robust: {'yes' if reward.robust else 'no'}. A robust reward claims that no cheat earns more for tools "
            "than an honest look at a wrong place; see [the cheat suite](../../redteam.md).",
            "",
            *_code("console", f"$ codev train --preset tapo --reward {reward.name}"),
        ]
        yield reward.name, f"reference/rewards/{reward.name}.md", _text(lines)


def _term_rows(reward: Reward) -> Iterator[tuple[str, ...]]:
    for term in reward.all_terms:
        payer = "the trainer" if isinstance(term, GroupTerm) else "the environment"
        channel = f", in channel `{term.channel.name}`" if len(reward.channels) > 1 else ""
        yield f"`{term.name}`", f"{term.weight:g}", about(term), payer + channel


def dialect_pages() -> Iterator[GeneratedPage]:
    """Yield a page for each dialect: its constants, the system prompt, and a turn with its response."""
    for name in dialect_names():
        dialect = get_dialect(name)
        looked = Execution(stdout="crop.png\n" if dialect.name == "codev" else "")
        rows = {
            "stop strings": ", ".join(f"`{stop}`" for stop in dialect.stop),
            "kept between programs": f"`{dialect.persist}`",
            "repairs": ", ".join(dialect.repairs) or "none",
            "role of an observation": f"`{dialect.observation_role}`",
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
            "## A tool call and its response",
            "",
            *_code("text", dialect.write(dialect.crop((100, 50, 300, 250)), "I look closer.")),
            "",
            *_code("text", dialect.render(looked, 1)),
            "",
            "## An answer",
            "",
            *_code("text", dialect.write(Answer("red"), "It is red.")),
            "",
            "[Dialects](../../dialects.md) describes how turns are parsed, and which mistakes are tolerated.",
        ]
        yield name, f"reference/dialects/{name}.md", _text(lines)


def command_pages() -> Iterator[GeneratedPage]:
    """Yield a page for each subcommand of `codev` with all its options."""
    for name, command in cli.COMMANDS.items():
        extra = f' Needs `pip install "codev-env[{command.extra}]"`.' if command.extra else ""
        lines = [f"# codev {name}", "", f"`codev {name}`: {command.help}.{extra}", ""]
        tables = {words: target for words, target in OPTIONS.items() if words.split()[0] == name}
        if not tables:  # the --help text of an argparse parser
            lines += _code("text", _help_text(cli.load(command.target)))
        for words, target in tables.items():
            lines += [f"## codev {words}", "", about_class(target), ""]
            if name in ("train", "sft"):
                lines += [
                    "`--preset NAME` and `--config FILE.yaml` set many options at once, and `codev train --dry-run` "
                    "checks a run without starting it: see [the trainer](../../training.md#options).",
                    "",
                ]
            lines += [
                *_table(("option", "type and range", "default", "meaning"), map(_option_row, options_of(target))),
                "",
            ]
        yield f"codev {name}", f"reference/commands/{name}.md", _text(lines)


def _option_row(option: Option) -> tuple[str, ...]:
    return f"`{option.flag}`", f"`{option.type}`", option.typed, option.about


def _help_text(main: Callable[[list[str]], Any]) -> str:
    """Return the `--help` text of an argparse command."""
    out = io.StringIO()
    os.environ["COLUMNS"] = "100"
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main(["--help"])
    return out.getvalue()


def _own_docstring(kind: type) -> str:
    return inspect.cleandoc(kind.__doc__ or "")


def _table(header: tuple[str, ...], rows: Any) -> list[str]:
    cells = [[re.sub(r"(`[^`]*`)|\|", _pipe, cell.replace("\n", " ")) for cell in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *cells)]


def _pipe(found: re.Match[str]) -> str:
    """Escape a pipe outside code, where it would end the cell; inside, the backslash would be shown."""
    return found[1] or "\\|"


def _code(language: str, text: str) -> list[str]:
    """Return a fenced block; the fence is longer than any in the text."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`{3,}", text)), default=0))
    return [f"{fence}{language}", text.rstrip("\n"), fence]


def _text(lines: list[str]) -> str:
    return "\n".join(lines).rstrip("\n") + "\n"
