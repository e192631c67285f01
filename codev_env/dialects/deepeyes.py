"""The `deepeyes` dialect: a JSON call that zooms into a box of the original image (DeepEyes)."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from typing import Any

from codev_env.dialects.dialect import Dialect, question_lines
from codev_env.dialects.markup import call_turn, write_call
from codev_env.errors import ConfigError
from codev_env.types import IMAGE_PLACEHOLDER, Answer, Box, Code, Execution, Task, Turn

TOOL = "image_zoom_in_tool"
MIN_SIDE = 30
"""A zoomed-in region must have longer sides than this, in pixels of the original."""
MOST_ASPECT = 100
LABEL_CHARS = 200
_LARGEST = 1e9

_SCHEMA = {
    "type": "function",
    "function": {
        "name": TOOL,
        "description": "Look closer at a region of the image: it is cut out and shown.",
        "parameters": {
            "type": "object",
            "properties": {
                "bbox_2d": {
                    "type": "array",
                    "items": {"type": "number"},
                    "minItems": 4,
                    "maxItems": 4,
                    "description": "[x1, y1, x2, y2] in pixels of the given image: top left and bottom right corner.",
                },
                "label": {"type": "string", "description": "What is in the region (optional)."},
            },
            "required": ["bbox_2d"],
        },
    },
}

SYSTEM_PROMPT = f"""\
You answer questions about an image. You can call a tool:
<tools>
{json.dumps(_SCHEMA)}
</tools>
A call is a JSON object:
<tool_call>
{{"name": "{TOOL}", "arguments": {{"bbox_2d": [40, 60, 220, 180], "label": "the sign"}}}}
</tool_call>"""

NEXT = (
    "Think first, within <think></think>. Then either call the tool within <tool_call></tool_call>, "
    "or answer within <answer></answer>."
)

_HEAD = f"# {TOOL} "
_PYTHON_ERROR = re.compile(r"\AValueError: (.*?)(?: \(line \d+: .*)?\Z", re.DOTALL)


class DeepEyesDialect(Dialect):
    """The grammar of DeepEyes (arXiv 2505.14362): Hermes tool calls of `image_zoom_in_tool`, which can only crop.

    A call becomes a program that does exactly what the tool does: it crops the first input image, clamps the box to
    it, and refuses a region with a side of 30 pixels or less, or more than 100 times as long as wide.
    """

    name = "deepeyes"
    tags = ("tools", "think", "tool_call", "tool_response", "answer")
    stop = ("</tool_call>", "</answer>")
    persist = "images"
    repairs = ()
    least_side = MIN_SIDE + 1
    croppable = 1

    def system_prompt(self) -> str:
        """Return the text of the system message, with the tool's schema."""
        return SYSTEM_PROMPT

    def image_name(self, index: int) -> str:
        """Return `image_0.png` for the first image, then `image_1.png`, and so on; the model never needs it."""
        return f"image_{index}.png"

    def first_message(self, task: Task) -> str:
        """Return placeholders, the question and its lettered choices, and how to go on; no name and no size."""
        return "\n".join([*[IMAGE_PLACEHOLDER] * len(task.images), *question_lines(task), NEXT])

    def parse(self, text: str) -> Turn:
        """Read one turn: the first call, or of answers after the last `</think>` the last one; see `call_turn`."""
        return call_turn(text, TOOL, _read)

    def write(self, turn: Code | Answer, think: str = "") -> str:
        """Write a turn in the grammar of this dialect.

        Raises:
            ConfigError: If the code is none that `crop` or `parse` made: this dialect cannot say anything else.
        """
        head = f"<think>{think}</think>\n" if think else ""
        if isinstance(turn, Answer):
            return f"{head}<answer>{turn.text}</answer>"
        return head + write_call(TOOL, _arguments(turn.code))

    def crop(self, box: Box, image_index: int = 0) -> Code:
        """Return the code that shows a box of the first input image.

        Raises:
            ConfigError: If another image is asked for.
        """
        if image_index != 0:
            raise ConfigError(f"image_index is {image_index}; the deepeyes dialect can only crop the first image, 0.")
        return Code(_zoom([int(value) for value in box], ""))

    def report(self, execution: Execution, images: Sequence[str]) -> Execution:
        """Return the execution with its error in the tool's words, without traces of Python."""
        if execution.error is None:
            return execution
        return dataclasses.replace(execution, error=_PYTHON_ERROR.sub(r"\1", execution.error))

    def render(self, execution: Execution, images: int) -> str:
        """Return the images as one `<tool_response>` block and how to go on, or the error."""
        lines = [f"<tool_response>{IMAGE_PLACEHOLDER * images}</tool_response>"] if images else []
        if printed := execution.stdout.strip("\n"):
            lines.append(printed)
        if execution.error is not None:
            lines.append(f"Error: {execution.error}")
        return "\n".join([*(lines or ["No output."]), NEXT])

    def invalid(self, reason: str) -> str:
        """Return the reason as an error."""
        return f"Error: {reason}\n{NEXT}"


def _read(arguments: dict[str, Any]) -> Code | str:
    box, label = arguments.get("bbox_2d"), arguments.get("label", "")
    if not isinstance(box, (list, tuple)) or len(box) != 4 or not all(map(_is_number, box)):
        return "the argument bbox_2d must be four numbers: [x1, y1, x2, y2]"
    return Code(_zoom(list(box), label if isinstance(label, str) else ""))


def _is_number(value: Any) -> bool:
    # Not for NaN, infinity and numbers of hundreds of digits.
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= _LARGEST


def _zoom(box: Sequence[float], label: str) -> str:
    """Return the program of a call; its first line holds the call's arguments, from which `write` makes it again."""
    arguments: dict[str, Any] = {"bbox_2d": list(box)}
    if label:
        arguments["label"] = label[:LABEL_CHARS]
    x1, y1, x2, y2 = box
    return (
        f"{_HEAD}{json.dumps(arguments)}\n"
        f"x1, y1, x2, y2 = max(0, {x1}), max(0, {y1}), min(image.width, {x2}), min(image.height, {y2})\n"
        f"if x2 - x1 <= {MIN_SIDE} or y2 - y1 <= {MIN_SIDE}:\n"
        f'    raise ValueError("within the image the box must be wider and higher than {MIN_SIDE} pixels")\n'
        f"if max(x2 - x1, y2 - y1) > {MOST_ASPECT} * min(x2 - x1, y2 - y1):\n"
        f'    raise ValueError("one side of the box is more than {MOST_ASPECT} times as long as the other")\n'
        "show(image.crop((x1, y1, x2, y2)))"
    )


def _arguments(code: str) -> dict[str, Any]:
    """Return the arguments of the call that a program came from; raises `ConfigError` if it is not of this dialect."""
    first = code.partition("\n")[0]
    if first.startswith(_HEAD):
        try:
            arguments = json.loads(first.removeprefix(_HEAD))
            if _zoom(arguments["bbox_2d"], arguments.get("label", "")) == code:
                return arguments
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            pass
    raise ConfigError("the deepeyes dialect can only crop: write the turn with dialect.crop(box).")
