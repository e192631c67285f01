"""Finds the phrases of `words.txt` in pages, docstrings, comments, error messages and help texts.

    python .ci/words.py [PATHS]

Prints one line for each: file, line where the sentence begins, phrase and clearer words; exits with 1 if there are any.
Names in code, also between backticks, do not count.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("docs", "codev_env", "agents", "train", "eval", "examples", "benchmarks")
FILES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "Makefile", ".ci/run")
LIST = ROOT / ".ci" / "words.txt"

# A sentence ends with its mark, with a paragraph, or where a list, heading or table cell begins.
_ITEM = r"(?:[-*>|]|#+|\d+\.)"
_END = re.compile(rf"(?<=[.!?])[\"')\]*]*\s+|\n\s*\n|\n\s*(?={_ITEM} )|\s\|\s|^\s*{_ITEM}\s+", re.M)
_CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]*`|<[^>\n]*>|\]\([^)\n]*\)", re.M | re.S)


@dataclass(frozen=True)
class Phrase:
    """A pattern with clearer words, and the paths where it is no finding."""

    pattern: re.Pattern[str]
    clearer: str
    allowed: tuple[str, ...]


def phrases(text: str) -> list[Phrase]:
    """Read the list: `pattern<TAB>clearer<TAB>allowed paths`; a line that begins with `#` is a comment."""
    found = []
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            pattern, clearer, *allowed = re.split(r"\t+", line)
            flags = re.NOFLAG if re.search(r"[A-Z]", re.sub(r"\\.", "", pattern)) else re.IGNORECASE
            found.append(Phrase(re.compile(pattern, flags), clearer, tuple(" ".join(allowed).split())))
    return found


def blank(match: re.Match[str]) -> str:
    """As many line ends as the code had, and a letter that no phrase has for the rest."""
    return re.sub(r"[^\n]", "\N{MIDDLE DOT}", match[0])


def python_texts(source: str) -> Iterator[tuple[int, str]]:
    """The first line and text of every string with several words, and of every block of comments."""
    tree = ast.parse(source)
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(_text(part) or "{}" for part in node.values)
        elif id(node) not in parts and " " in _text(node):
            yield node.lineno, _text(node)
    yield from comments(source)


def _text(node: ast.AST) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def comments(source: str) -> Iterator[tuple[int, str]]:
    """The first line and text of every block of comments."""
    begun, lines = 0, []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if lines and token.start[0] != begun + len(lines):
            yield begun, "\n".join(lines)
            lines = []
        begun = begun if lines else token.start[0]
        lines.append(token.string.lstrip("#: "))
    if lines:
        yield begun, "\n".join(lines)


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """The first line and text of every piece of prose in a file."""
    source = path.read_text("utf-8")
    if path.suffix == ".py":
        yield from python_texts(source)
    elif path.suffix == ".md":
        yield 1, source
    else:
        for number, line in enumerate(source.splitlines(), 1):
            if re.match(r"\s*(#|@?echo )", line):
                yield number, line.strip("# \t")


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """The lines before each sentence, and the sentence on one line."""
    at = 0
    text = _CODE.sub(blank, text)
    for end in [*_END.finditer(text), None]:
        raw = text[at : end.start() if end else len(text)]
        if raw.strip():
            yield text.count("\n", 0, at + len(raw) - len(raw.lstrip())), " ".join(raw.split())
        at = end.end() if end else at


def findings(path: Path, known: list[Phrase]) -> Iterator[tuple[int, str, str]]:
    """The line, phrase and clearer words of every finding in a file."""
    name = path.relative_to(ROOT).as_posix()
    known = [phrase for phrase in known if not name.startswith(phrase.allowed or ("\0",))]
    for first, text in texts(path):
        for before, sentence in sentences(text):
            for phrase in known:
                for match in phrase.pattern.finditer(sentence):
                    yield first + before, match[0], phrase.clearer


def main(places: list[str]) -> int:
    """Print the findings below some paths; returns 1 if there are any."""
    known = phrases(LIST.read_text("utf-8"))
    count = 0
    for place in [ROOT / place for place in places or [*FILES, *FOLDERS]]:
        inside = (
            sorted(path for path in place.rglob("*") if path.suffix in (".py", ".md")) if place.is_dir() else [place]
        )
        for path in inside:
            for line, phrase, clearer in findings(path, known):
                count += 1
                print(f"{path.relative_to(ROOT)}:{line}: {phrase!r}; clearer: {clearer}")
    print(f"{count} phrases to reword; the list is {LIST.relative_to(ROOT)}" if count else "no phrase of the list")
    return int(bool(count))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
