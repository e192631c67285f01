"""The `codevision` dialect: a JSON call of one tool that runs Python on one of the images seen so far (CodeVision)."""

from __future__ import annotations

import ast
import dataclasses
import json
import re
from collections.abc import Sequence
from typing import Any

from codev_env.dialects.dialect import Dialect, execution_lines, invalid_lines, question_lines
from codev_env.dialects.future import without_future
from codev_env.dialects.markup import call_turn, shift_lines, unfenced, write_call
from codev_env.python_text import parse
from codev_env.types import IMAGE_PLACEHOLDER, Answer, Box, Code, Execution, Task, Turn

TOOL = "code_image_tool"
MOST_CHARS = 2048
"""Characters of one program (the released tool's limit)."""

_SCHEMA = {
    "type": "function",
    "function": {
        "name": TOOL,
        "description": "Run Python on one of the images and look at the image it makes.",
        "parameters": {
            "type": "object",
            "properties": {
                "code": {
                    "type": "string",
                    "description": "Python. `image` (also `img`) is the chosen image, a PIL image; `draw` draws on it. "
                    f"Assign the new image to `result`. At most {MOST_CHARS} characters.",
                },
                "description": {"type": "string", "description": "What the code is for, in a few words."},
                "image_index": {
                    "type": "integer",
                    "description": "Number of the image to work on: the given images from 0, then each image that a "
                    "call made, in order.",
                },
            },
            "required": ["code", "description", "image_index"],
        },
    },
}

SYSTEM_PROMPT = f"""\
You answer questions about images. They may be turned, mirrored, or too small to read. You can call a tool:
<tools>
{json.dumps(_SCHEMA)}
</tools>
Think within <think></think>. Then end your turn with one call,
<tool_call>
{{"name": "{TOOL}", "arguments": {{"code": "result = image.rotate(90, expand=True)", \
"description": "Turn it upright.", "image_index": 0}}}}
</tool_call>
or with <answer>your answer</answer>. The answer to a call comes within <tool_response></tool_response>."""

NEXT = "Think about it. Then call the tool again, or answer."
NO_IMAGE = "the code must assign a PIL image to `result`"

_RESULTS = ("result", "output", "processed_image", "img", "image")
"""Variables whose image is returned; the first one that the program assigns."""
_PROLOGUE_LINES = 1
_EPILOGUE = re.compile(r" \(line \d+: result = \(\w+ if hasattr\(.*", re.DOTALL)
_NO_IMAGE = ("TypeError", "NameError", "AttributeError")


class CodeVisionDialect(Dialect):
    """The grammar of CodeVision (arXiv 2512.03746): Hermes tool calls of `code_image_tool`.

    Differences to the released tool, on purpose: what a program prints is shown; a program that assigns no image
    returns none (the released tool returns the input); an image that is assigned to `image` is returned as assigned.
    """

    name = "codevision"
    tags = ("tools", "think", "tool_call", "tool_response", "answer")
    stop = ("</tool_call>", "</answer>")
    persist = "images"
    repairs = ("imports",)

    def system_prompt(self) -> str:
        """Return the text of the system message, with the tool's schema."""
        return SYSTEM_PROMPT

    def image_name(self, index: int) -> str:
        """Return `image_0.png` for the first image, then `image_1.png`, and so on; outputs are numbered on."""
        return f"image_{index}.png"

    def first_message(self, task: Task) -> str:
        """Return placeholders, numbers and sizes (width x height in pixels), the question and its lettered choices."""
        lines = [IMAGE_PLACEHOLDER] * len(task.images)
        lines += [f"Image {i}: {image.width}x{image.height}" for i, image in enumerate(task.images)]
        return "\n".join([*lines, *question_lines(task)])

    def parse(self, text: str) -> Turn:
        """Read one turn: the first call, or of answers after the last `</think>` the last one; see `call_turn`."""
        return call_turn(text, TOOL, _read)

    def write(self, turn: Code | Answer, think: str = "") -> str:
        """Write a turn in the grammar of this dialect."""
        head = f"<think>{think}</think>\n" if think else ""
        if isinstance(turn, Answer):
            return f"{head}<answer>{turn.text}</answer>"
        arguments = {
            "code": turn.code,
            "description": f"Work on image {turn.image_index}.",
            "image_index": turn.image_index,
        }
        return head + write_call(TOOL, arguments)

    def program(self, turn: Code, images: Sequence[str]) -> str:
        """Return the code between a line that opens image number `image_index` and one that saves the result.

        The result is saved as image number `len(images)`, so that a later call can work on it.
        """
        if turn.image_index >= len(images):
            known = f"images 0 to {len(images) - 1}" if images else "no images"
            return f'raise IndexError("there is no image {turn.image_index}: there are {known}")'
        name = images[turn.image_index]
        if not name:
            why = "it was only shown; assign to `result` what a later call is to work on"
            return f'raise IndexError("there is no image {turn.image_index} to work on: {why}")'
        prologue = f"image = img = Image.open({json.dumps(name, ensure_ascii=False)})"
        if "draw" in turn.code:
            prologue += "; draw = ImageDraw.Draw(image)"
        future, code = without_future(turn.code)
        first = f"{future}; {prologue}" if future else prologue
        return f"{first}\n{code}{self._epilogue(turn.code, self.image_name(len(images)))}"

    def _epilogue(self, code: str, name: str) -> str:
        assigned, changed = _effects(code)
        variable = next((variable for variable in _RESULTS if variable in assigned), "image" if changed else None)
        if variable is None:
            return ""
        image = f'{variable} if hasattr({variable}, "save") else Image.fromarray({variable})'
        return f'\nresult = ({image}).save("{name}") or "{name}"'

    def report(self, execution: Execution, images: Sequence[str]) -> Execution:
        """Return the execution with the line numbers of the model's code, and a missing image in its own terms."""
        error = execution.error
        if error is None:
            return execution
        if (end := _EPILOGUE.search(error)) is not None:
            error = NO_IMAGE if error.startswith(_NO_IMAGE) else error[: end.start()]
        elif error.startswith("IndexError: there is no image "):
            error = error.partition(" (line 1: ")[0].removeprefix("IndexError: ")
        else:
            error = shift_lines(error, _PROLOGUE_LINES)
        return dataclasses.replace(execution, error=error)

    def crop(self, box: Box, image_index: int = 0) -> Code:
        """Return the code that shows a box of an input image."""
        x1, y1, x2, y2 = box
        return Code(f"result = image.crop(({x1}, {y1}, {x2}, {y2}))", image_index=image_index)

    def render(self, execution: Execution, images: int) -> str:
        """Return one `<tool_response>` block: images, then text."""
        lines = execution_lines(execution, images)
        text = [line for line in lines if line != IMAGE_PLACEHOLDER]
        text += [] if execution.error is not None else [NEXT]
        body = IMAGE_PLACEHOLDER * images + "\n".join(text)
        return f"<tool_response>\n{body}\n</tool_response>"

    def invalid(self, reason: str) -> str:
        """Return the reason as one `<tool_response>` block."""
        return "\n".join(["<tool_response>", *invalid_lines(reason), "</tool_response>"])


def _read(arguments: dict[str, Any]) -> Code | str:
    code, index = arguments.get("code"), arguments.get("image_index")
    # JSON has one kind of number, and models write null for what they leave out.
    index = 0 if index is None else int(index) if isinstance(index, float) and index.is_integer() else index
    code = unfenced(code) if isinstance(code, str) else code
    if not isinstance(code, str) or not code.strip():
        return "the argument code must be a text with Python in it"
    if len(code) > MOST_CHARS:
        return f"the code has {len(code)} characters; at most {MOST_CHARS} are allowed"
    if isinstance(index, bool) or not isinstance(index, int) or index < 0:
        return "the argument image_index must be a whole number, 0 or more"
    return Code(code.strip("\r\n"), image_index=index)


def _effects(code: str) -> tuple[set[str], bool]:
    """Return the names a program assigns outside functions and classes, and whether it may change `image` in place.

    Text that is not Python assigns nothing.
    """
    try:
        tree = parse(code)
    except ValueError:
        return set(), False
    names: set[str] = set()
    changed = False
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            function = node.value.func
            owner = function.value if isinstance(function, ast.Attribute) else None
            changed |= isinstance(owner, ast.Name) and owner.id in ("image", "img", "draw")
        inner = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.comprehension)
        if not isinstance(node, inner):
            waiting += ast.iter_child_nodes(node)
    return names, changed
