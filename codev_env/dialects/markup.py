"""Parsing that dialects share: tagged blocks in the text of one turn, code in fences, calls in JSON.

Everything here is lenient, never raises and takes linear time: the text is whatever a model wrote.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from codev_env.python_text import literal
from codev_env.types import Answer, Code, Invalid, Turn

UNBALANCED = "unbalanced tags"
SEVERAL_CODES = "several code blocks"
SEVERAL_CALLS = "several tool calls"
SEVERAL_ANSWERS = "several answers"
CODE_AFTER_ANSWER = "code after the answer"
ANSWER_AFTER_CODE = "code and answer in one turn"
BOXED = "answer outside <answer>"

_LITERAL_CHARS = 4096
"""Longest call that is read as a Python literal where it is no JSON: the compiler's stack is finite."""

# Possessive, so that a long run of blanks costs linear time.
_FENCE = re.compile(r"```[ \t]*+(python3?|py)?[ \t]*+(?:\r?\n|(?=\S))", re.IGNORECASE)
# The fence of another program ends one, too: models forget the end between two.
_FENCE_END = re.compile(
    r"```[ \t]*+(?=\r?\n|\Z|</code>|```)|(?<=\n)(?=```[ \t]*+(?:python3?|py)[ \t]*+\r?\n)", re.IGNORECASE
)
_LANGUAGE = re.compile(r"\s*+(?:python3?|py)[ \t]*+(?:\r?\n|\Z)", re.IGNORECASE)
_CODE_END = re.compile("</code>")
_OPENING = re.compile(r"<(?:think|code|answer)>")
_ANY_CASE = re.compile(r"</?(?:think|code|answer|tool_call)>", re.IGNORECASE | re.ASCII)
_CALL_END = re.compile(r"\s*+(?:```\s*+)?</tool_call>")
_JSON_START = re.compile(r"\s*+(?:```[a-z]*+\s*+)?", re.IGNORECASE)
_LINE = re.compile(r"(?<=\(line )\d+(?=: )|(?<= on line )\d+")
# A refused program: one line of the message for each line of the code that breaks a rule.
_REFUSED_LINE = re.compile(r"(?<=^line )\d+(?=: )", re.MULTILINE)
_DECODER = json.JSONDecoder(strict=False)


@dataclass(frozen=True)
class Block:
    """A tagged block.

    Attributes:
        tag: Its name.
        content: The text between its tags; of code in a fence, the text in the fence.
        end: Position in the text after its end tag.
        closed: It has an end tag; else it reaches to the end of the text.
        value: The object that `read_call` decoded, `None` if that was not possible.
    """

    tag: str
    content: str
    end: int
    closed: bool
    value: Any = None


Reader = Callable[[str, int], Block]
"""Reads the block whose start tag ends at a position."""


def lower_tags(text: str) -> str:
    """Return a turn with its tags in lower case, in which all parsing here looks for them."""
    return _ANY_CASE.sub(lambda tag: tag[0].lower(), text)


def read_code(text: str, start: int, *, last: bool = False, ahead: _Markup | None = None) -> Block:
    """Read the code after a `<code>` tag: inside its fences if it has any, else up to `</code>` or the end.

    Several fences are one program. One without a language is output where a fence of Python and prose come before it.
    A first line that only names Python is left out.

    Args:
        text: The turn.
        start: Where the tag ends.
        last: Only the last fence runs, of those that name Python if any does.
        ahead: The markup of this text, for blocks that are read one after the other.
    """
    ahead = ahead or _Markup(text)
    fences, position = _read_fences(text, start, ahead)
    if not fences:
        end = text.find("</code>", start)
        stop = len(text) if end < 0 else end
        code = text[start:stop] if end >= 0 else _without_part(text[start:], "</code>")
        return Block("code", _without_language(code), stop + len("</code>") * (end >= 0), end >= 0)
    if last:
        fences = [fence for fence in fences if fence[0]][-1:] or fences[-1:]
    codes = [_without_language(code) for _, code in fences]
    content = codes[0] if len(codes) == 1 else "\n".join(code.strip("\r\n") for code in codes)
    end, after = ahead.code_ends(position)
    # Prose may come before the end tag; a tag that opens something else shows that this block has none.
    if end == after or _OPENING.search(text, position, end):
        return Block("code", content, position, False)
    return Block("code", content, after, True)


def _read_fences(text: str, start: int, ahead: _Markup) -> tuple[list[tuple[bool, str]], int]:
    """Return the fences of a block, whether each names Python and its content, and where the last one ends."""
    fences: list[tuple[bool, str]] = []
    position = start
    while True:
        end, _ = ahead.code_ends(position)
        stop = min(end, ahead.openings(position)[0]) if fences else end
        fence = _FENCE.search(text, position, stop)
        if fence is None:
            return fences, position
        named, between = fence[1] is not None, text[position : fence.start()]
        content_end, after = ahead.fence_ends(fence.end())
        if fences and not named and content_end > stop:
            position = fence.end()  # a second end of the fence before it
            continue
        # If a second block starts before the fence ends, this block's fence was never closed.
        if content_end == len(text) or text.find("<code>", end, content_end) >= 0:
            content_end = after = stop
        output = fences and not named and (not fence[0].endswith("\n") or (fences[0][0] and between.strip()))
        if not output:
            code = text[fence.end() : content_end]
            cut = content_end == len(text)
            fences.append((named, _without_part(_without_part(code, "</code>"), "```") if cut else code))
        position = after


class _Ahead:
    """Finds the next match at or after positions that only grow; all calls together read the text once.

    Args:
        pattern: What to find.
        text: In which text.
    """

    def __init__(self, pattern: re.Pattern[str], text: str) -> None:
        self._pattern, self._text, self._span = pattern, text, (-1, -1)

    def __call__(self, position: int) -> tuple[int, int]:
        """Return where the next match starts and ends; the end of the text where there is none."""
        if self._span[0] < position:
            match = self._pattern.search(self._text, position)
            self._span = match.span() if match else (len(self._text), len(self._text))
        return self._span


class _Markup:
    """Finds the markup of blocks of code in a text, which is read once however many blocks it has."""

    def __init__(self, text: str) -> None:
        self.code_ends, self.openings, self.fence_ends = (
            _Ahead(pattern, text) for pattern in (_CODE_END, _OPENING, _FENCE_END)
        )


def _without_language(code: str) -> str:
    line = _LANGUAGE.match(code)
    return code[line.end() :] if line else code


def unfenced(code: str) -> str:
    """Return the code of a call without its fences, or without a first line that only names Python."""
    return read_code(code, 0).content.strip("\r\n") if code.lstrip().startswith("```") else _without_language(code)


def read_answer(text: str, start: int) -> Block:
    """Read the text after an `<answer>` tag, up to `</answer>` or the end."""
    end = text.find("</answer>", start)
    if end < 0:
        return Block("answer", _without_part(text[start:], "</answer>"), len(text), False)
    return Block("answer", text[start:end], end + len("</answer>"), True)


def _without_part(text: str, tag: str) -> str:
    """Return a text without the beginning of an end tag at its end, where generation was cut off within the tag."""
    return next((text[: -len(part)] for end in range(len(tag) - 1, 1, -1) if text.endswith(part := tag[:end])), text)


def read_call(text: str, start: int) -> Block:
    """Read the JSON object after a `<tool_call>` tag; its strings may hold any tags and line breaks.

    A Python literal is read as well: models write single quotes.
    """
    blank = _JSON_START.match(text, start)
    begin = blank.end() if blank else start
    try:
        value, after = _DECODER.raw_decode(text, begin)
    except (ValueError, RecursionError):
        end = text.find("</tool_call>", start)
        closed = end >= 0
        stop = end if closed else len(text)
        content = text[start:stop]
        return Block("tool_call", content, stop + len("</tool_call>") * closed, closed, _literal(content))
    end_tag = _CALL_END.match(text, after)
    return Block("tool_call", text[begin:after], end_tag.end() if end_tag else after, bool(end_tag), value)


def _literal(content: str) -> Any:
    if len(content) > _LITERAL_CHARS:
        return None
    try:
        return literal(content.strip())
    except ValueError:
        return None


def write_call(name: str, arguments: dict[str, Any]) -> str:
    """Write a call of the tool `name` as a `<tool_call>` block, in which no stop string occurs before its end."""
    call = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    # Only strings can hold this sign in JSON.
    return f"<tool_call>\n{call.replace('<', chr(92) + 'u003c') if '</' in call else call}\n</tool_call>"


def first_block(text: str, start: int, tool: str, read: Reader) -> Block | None:
    """Find the first block with the tag `tool` or `answer` at or after `start`."""
    tag = re.compile(rf"<({tool}|answer)>").search(text, start)
    if tag is None:
        return None
    return read(text, tag.end()) if tag[1] == tool else read_answer(text, tag.end())


def acting_block(text: str, tool: str, read: Reader, problems: list[str]) -> tuple[Block | None, str]:
    """Find the block that a turn acts with, where thinking comes first and tags in it are text.

    Args:
        text: The turn.
        tool: Tag of the blocks that call a tool.
        read: Reads such a block.
        problems: Flaws are added to it.

    Returns:
        The block and the text after it; without a block `None` and the text after the thinking.
    """
    start = _after_thinking(text, tool, problems)
    block = first_block(text, start, tool, read)
    if block is not None and (cut := text.rfind("</think>", block.end)) >= 0:
        # A closing tag after the block: what stood before it was thinking after all, if a block follows.
        problems.append(UNBALANCED)
        block = first_block(text, cut + len("</think>"), tool, read) or block
    if block is None:
        return None, text[start:]
    rest = text[block.end :]
    if not block.closed and rest.strip():
        problems.append(UNBALANCED)
    problems += strays(rest, (tool, "answer", "think"))
    return block, rest


def _after_thinking(text: str, tool: str, problems: list[str]) -> int:
    """Return where the thinking ends: after each `<think>…</think>` that comes before the first block."""
    tags = re.compile(rf"<(think|{tool}|answer)>")
    position = 0
    first = tags.match(text, len(text) - len(text.lstrip()))
    closing = text.find("</think>")
    if closing >= 0 and (first is None or first[1] == "think"):
        position = closing + len("</think>")
    while (tag := tags.search(text, position)) is not None and tag[1] == "think":
        closing = text.find("</think>", tag.end())
        if closing < 0:
            problems.append(UNBALANCED)
            return tag.end()
        position = closing + len("</think>")
    return position


def last_answer(block: Block, rest: str, problems: list[str]) -> str:
    """Return the content of the last answer of a turn whose block is an answer."""
    if "<answer>" not in block.content + rest:
        return block.content.strip()
    problems.append(SEVERAL_ANSWERS)
    last = (block.content if "<answer>" not in rest else rest).rpartition("<answer>")[2]
    return _without_part(last.partition("</answer>")[0], "</answer>").strip()


def call_turn(text: str, name: str, make: Callable[[dict[str, Any]], Code | str]) -> Turn:
    r"""Read a turn of thinking and then a call of the tool `name` or an answer.

    The first call counts; of answers after the last `</think>` the last one. Tags inside the thinking are text. Without
    any block, a LaTeX `boxed` is taken as the answer.

    Args:
        text: The turn.
        name: The one tool there is.
        make: Makes code from the call's arguments, or returns the reason why it cannot.
    """
    problems: list[str] = []
    block, rest = acting_block(lower_tags(text), "tool_call", read_call, problems)
    if block is None:
        return boxed_turn(rest, "tool_call", problems)
    if block.tag == "answer":
        answer = last_answer(block, rest, problems)
        if "<tool_call>" in rest or "<tool_call>" in block.content:
            problems.append(CODE_AFTER_ANSWER)
        return Answer(answer, once(problems))
    if "<tool_call>" in rest:
        problems.append(SEVERAL_CALLS)
    if "<answer>" in rest:
        problems.append(ANSWER_AFTER_CODE)
    call = block.value
    if not isinstance(call, dict):
        return Invalid("the tool call is not a JSON object", once(problems))
    if call.get("name") != name:
        return Invalid(f"there is no tool {str(call.get('name'))[:40]!r}; call {name!r}", once(problems))
    arguments = call.get("arguments")
    if isinstance(arguments, str):  # as in the calls of OpenAI's API
        try:
            arguments = _DECODER.decode(arguments)
        except (ValueError, RecursionError):
            arguments = None
    if not isinstance(arguments, dict):
        return Invalid("the tool call has no object of arguments", once(problems))
    made = make(arguments)
    if isinstance(made, str):
        return Invalid(made, once(problems))
    return dataclasses.replace(made, problems=once(problems))


def tagged_turn(block: Block, rest: str, problems: list[str], *, join: bool = False) -> Turn:
    """Make a turn of a `<code>` or `<answer>` block and the text after it; of several answers the last one counts.

    Args:
        block: The first block.
        rest: The text after it.
        problems: Flaws are added to it.
        join: Several code blocks are one program; else the first one runs.
    """
    if block.tag == "answer":
        text = last_answer(block, rest, problems)
        if "<code>" in rest or "<code>" in block.content:
            problems.append(CODE_AFTER_ANSWER)
        return Answer(text, once(problems))
    if "<code>" in rest:
        problems.append(SEVERAL_CODES)
    if "<answer>" in rest:
        problems.append(ANSWER_AFTER_CODE)
    code = "\n".join(part.strip("\r\n") for part in (block.content, *(_later_code(rest) if join else ())))
    return Code(code, once(problems)) if code.strip() else Invalid("the code block is empty", once(problems))


def _later_code(rest: str) -> list[str]:
    """Return the contents of the code blocks in the text after the first one."""
    found, start, ahead = list[str](), 0, _Markup(rest)
    while (start := rest.find("<code>", start)) >= 0:
        block = read_code(rest, start + len("<code>"), ahead=ahead)
        found.append(block.content)
        start = block.end
    return found


def strays(rest: str, tags: tuple[str, ...]) -> list[str]:
    """Name tags after the block that were closed without being opened, or the other way round."""
    uneven = any(rest.count(f"<{tag}>") != rest.count(f"</{tag}>") for tag in tags)
    return [UNBALANCED] if uneven else []


def boxed_turn(body: str, tool: str, problems: list[str]) -> Turn:
    r"""Make a turn of a text without any block: the content of its last `\boxed{…}` is the answer."""
    found = last_boxed(body)
    if found is None:
        problems += [UNBALANCED] if f"</{tool}>" in body or "</answer>" in body else []
        return Invalid(f"no {tool} block and no answer block; write one of them", once(problems))
    content, closed = found
    problems += [BOXED] if closed else [BOXED, UNBALANCED]
    return Answer(content, once(problems))


def last_boxed(text: str) -> tuple[str, bool] | None:
    r"""Return the content of the last `\boxed{…}` and whether its braces are closed; `None` without any."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    start += len("\\boxed{")
    depth = 1
    for end in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if depth == 0:
            return text[start:end].strip(), True
    return text[start:].strip(), False


def once(problems: list[str]) -> tuple[str, ...]:
    """Return the problems in order, each once."""
    return tuple(dict.fromkeys(problems))


def shift_lines(error: str, lines: int) -> str:
    """Return a sandbox's error with line numbers that leave out `lines` lines written before the model's code."""
    place = _REFUSED_LINE if error.startswith("line ") else _LINE
    return place.sub(lambda number: str(max(1, int(number[0]) - lines)), error)
