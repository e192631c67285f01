"""The `pyvision` dialect: code on variables that live through the episode, images shown by `plt.show()` (PyVision)."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Sequence

from codev_env.dialects.dialect import HINTS, Dialect, invalid_lines, question_lines
from codev_env.dialects.future import without_future
from codev_env.dialects.markup import (
    UNBALANCED,
    boxed_turn,
    first_block,
    last_boxed,
    lower_tags,
    read_code,
    shift_lines,
    strays,
    tagged_turn,
)
from codev_env.types import IMAGE_PLACEHOLDER, Answer, Box, Code, Execution, Task, Turn

SYSTEM_PROMPT = """\
Solve the problem step by step. You may write Python that runs in a notebook: variables live on from one code block to \
the next. Write a block as
<code>
```python
plt.imshow(image_clue_0.crop((0, 0, 100, 100)))
plt.axis("off")
plt.show()
```
</code>
The images are there as PIL images: image_clue_0, image_clue_1 and so on. Print results, show images with plt.show(). \
What you printed and showed comes back within <interpreter></interpreter>. Write one code block per turn. When you \
know the answer, write
<answer>
\\boxed{your answer}
</answer>"""

CODE_OUTSIDE = "code outside <code>"

_BARE = "```python"
_PROLOGUE_LINES = 2
_CLUE = re.compile(r"image_clue_\d+")
_DPI = 100
_READ = functools.partial(read_code, last=True)


class PyVisionDialect(Dialect):
    r"""The grammar of PyVision (arXiv 2507.07998): `<code>`, `<interpreter>`, `<answer>` with `\boxed{…}`.

    Reasoning is plain text. Inputs are the variables `image_clue_0`, `image_clue_1`, …; the images that a program shows
    are numbered on from there in the tags around them, and are no variables.
    """

    name = "pyvision"
    tags = ("code", "interpreter", "answer", "image_clue")
    stop = ("</code>", "</answer>")
    persist = "variables"
    repairs = ("imports",)

    def system_prompt(self) -> str:
        """Return the text of the system message."""
        return SYSTEM_PROMPT

    def image_name(self, index: int) -> str:
        """Return `image_clue_0` for the first image, then `image_clue_1`, and so on: the name of its variable."""
        return f"image_clue_{index}"

    def first_message(self, task: Task) -> str:
        """Return each image within its own tags, the sizes in pixels, the question and its lettered choices."""
        names = [self.image_name(i) for i in range(len(task.images))]
        lines = [_clue(name) for name in names]
        lines += [
            f"width of {name}: {image.width}, height of {name}: {image.height}"
            for name, image in zip(names, task.images, strict=True)
        ]
        return "\n".join([*lines, *question_lines(task)])

    def parse(self, text: str) -> Turn:
        r"""Read one turn: its first block, code or answer, as generation stops there.

        Of several fences in a block the last one runs, as in the released loop. The content of the last LaTeX `boxed`
        within the answer is the answer. A fence without `<code>` runs as well; without any block, a `boxed` is taken as
        the answer.
        """
        text = lower_tags(text)
        problems: list[str] = []
        block = first_block(text, 0, "code", _READ)
        if block is None:
            if _BARE not in text:
                return boxed_turn(text, "code", problems)
            problems.append(CODE_OUTSIDE)
            return tagged_turn(_READ(text, text.index(_BARE)), "", problems)
        rest = text[block.end :]
        if not block.closed and rest.strip():
            problems.append(UNBALANCED)
        problems += strays(rest, ("code", "answer"))
        turn = tagged_turn(block, rest, problems)
        return dataclasses.replace(turn, text=_unboxed(turn.text)) if isinstance(turn, Answer) else turn

    def write(self, turn: Code | Answer, think: str = "") -> str:
        """Write a turn in the grammar of this dialect."""
        head = f"{think}\n" if think else ""
        if isinstance(turn, Answer):
            text = turn.text
            # One pair of quotes is taken off when it is read.
            boxed = f"\\boxed{{'{text}'}}" if _quoted(text) else f"\\boxed{{{text}}}"
            # Braces that do not match would end the box too early or too late.
            return f"{head}<answer>\n{boxed if _unboxed(boxed) == text else text}\n</answer>"
        return f"{head}<code>\n```python\n{turn.code}\n```\n</code>"

    def program(self, turn: Code, images: Sequence[str]) -> str:
        """Return the code after two lines that make the variables of the inputs, unless a program changed them."""
        names = [name for i, name in enumerate(images) if name == self.image_name(i)]
        inputs = ", ".join(names)
        opened = ", ".join(f'Image.open("{name}")' for name in names)
        prologue = f"try: {inputs}\nexcept NameError: {inputs} = {opened}" if names else "pass\npass"
        future, code = without_future(turn.code)
        first, _, rest = code.partition("\n")
        if future and not first.strip():  # the place of the first line is free for it
            return f"{future}\n{prologue}\n{rest}"
        return f"{prologue}\n{turn.code}"

    def report(self, execution: Execution, images: Sequence[str]) -> Execution:
        """Return the execution with the line numbers of the model's code and the shown images numbered on."""
        error = execution.error
        if error is not None:
            error = shift_lines(error, _PROLOGUE_LINES)
        names = tuple(f"image_clue_{len(images) + i}" for i in range(len(execution.images)))
        return dataclasses.replace(execution, error=error, names=names)

    def crop(self, box: Box, image_index: int = 0) -> Code:
        """Return the code that shows a box of an input image, pixel for pixel and without a frame."""
        x1, y1, x2, y2 = box
        return Code(
            "import matplotlib.pyplot as plt\n"
            f"crop = {self.image_name(image_index)}.crop(({x1}, {y1}, {x2}, {y2}))\n"
            f"plt.figure(figsize=({x2 - x1} / {_DPI}, {y2 - y1} / {_DPI}), dpi={_DPI})\n"
            "plt.axes((0, 0, 1, 1)).imshow(crop)\n"
            'plt.axis("off")\n'
            "plt.show()"
        )

    def render(self, execution: Execution, images: int) -> str:
        """Return what was printed and shown as one `<interpreter>` block; of an error its message and a hint.

        The numbers of the shown images are those of `execution.names`, which `report` gives; else from 1.
        """
        printed = execution.stdout.strip("\n")
        names = [name for name in execution.names[:images] if _CLUE.fullmatch(name)]
        if len(names) < images:
            names = [f"image_clue_{i + 1}" for i in range(images)]
        lines = ["<interpreter>"]
        if execution.error is None or printed or images:
            shown = [_clue(name) for name in names]
            lines += ["Text Result:", printed or "None", "Image Result:", *(shown or ["None"])]
        if execution.error is not None:
            lines.append(f"Error: {execution.error}")
            lines.append(f"Hint: {HINTS.get(execution.stop, HINTS['error'])}")
        return "\n".join([*lines, "</interpreter>"])

    def invalid(self, reason: str) -> str:
        """Return the reason as one `<interpreter>` block."""
        return "\n".join(["<interpreter>", *invalid_lines(reason), "</interpreter>"])


def _clue(name: str) -> str:
    return f"<{name}>{IMAGE_PLACEHOLDER}</{name}>"


def _unboxed(text: str) -> str:
    r"""Take the answer out of the last `\boxed{…}`, and there out of one pair of quotes, if it is inside them."""
    found = last_boxed(text)
    if found is None:
        return text
    return found[0][1:-1] if _quoted(found[0]) else found[0]


def _quoted(text: str) -> bool:
    return len(text) >= 2 and text[0] == text[-1] == "'"
