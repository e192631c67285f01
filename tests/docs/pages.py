"""The pages of the documentation, their code blocks, and the commands in them, for the tests."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", *sorted(DOCS.rglob("*.md")))

_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
_SHELL = ("console", "bash", "sh", "")
_END = {"|", "||", "&&", ";", ">", ">>", "&"}


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        info: The text after the opening fence, for example `python` or `python no-run`.
        text: Its content.
        line: Line of the file at which its content starts.
    """

    info: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    text = page.read_text("utf-8")
    return [Block(m["info"].strip(), m["text"], text[: m.start("text")].count("\n") + 1) for m in _FENCE.finditer(text)]


def python_blocks(page: Path) -> list[Block]:
    """Return the Python blocks of a page, including those that are not run."""
    return [block for block in blocks(page) if block.info.split()[:1] == ["python"]]


def commands(page: Path) -> list[list[str]]:
    """Return the words of each `codev` command in a block, fenced for a shell or indented, without `codev`."""
    indented = re.findall(r"^ {4}(\S.*)$", _FENCE.sub("", page.read_text("utf-8").replace("\\\n", " ")), re.MULTILINE)
    fenced = [block.text.replace("\\\n", " ") for block in blocks(page) if block.info in _SHELL]
    lines = [line for text in fenced for line in text.splitlines()] + indented
    return [words for line in lines if re.search(r"\bcodev|make train", line) for words in _commands_of(line)]


def inline_commands(page: Path) -> list[list[str]]:
    """Return the words of each `codev` command in inline code."""
    found = re.findall(r"`codev ([^`]+)`", _FENCE.sub("", page.read_text("utf-8")))
    return [_plain(text.replace("\n", " ").split()) for text in found]


def _commands_of(line: str) -> list[list[str]]:
    found: list[list[str]] = []
    words = shlex.split(re.sub(r"\s#\s.*", "", line.removeprefix("$ ")))  # shlex ends at the # of URL#NAME, too
    while words:
        end = next((i for i, word in enumerate(words) if word in _END), len(words))
        part, words = words[:end], words[end + 1 :]
        starts = [i for i, word in enumerate(part) if word.rpartition("/")[2] in ("codev", "codev_env.app.cli")]
        made = [word.removeprefix("ARGS=") for word in part if word.startswith("ARGS=")]
        if starts:
            found.append(_plain([word.rstrip(";") for word in part[starts[0] + 1 :]]))
        elif {"make", "train"} <= set(part):
            found.append(["train", "--preset", "tiny", *_plain(shlex.split(" ".join(made)))])
    return [words for words in found if words]


def _plain(words: list[str]) -> list[str]:
    """Remove the brackets of optional words, and replace shell variables with numbers."""
    plain = [re.sub(r"\$\w+", "0", re.sub(r"^\[(?=--)", "", word)) for word in words if word not in ("…", "...")]
    return [word.removesuffix("]") if "[" not in word else word for word in plain]
