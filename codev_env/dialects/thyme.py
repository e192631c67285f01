"""The `thyme` dialect: code in the middle of one message, whose output is written into that message (Thyme)."""

from __future__ import annotations

import dataclasses

from codev_env.dialects.dialect import Dialect, execution_lines, invalid_lines, question_lines
from codev_env.dialects.markup import (
    UNBALANCED,
    boxed_turn,
    first_block,
    last_boxed,
    lower_tags,
    read_code,
    strays,
    tagged_turn,
)
from codev_env.types import IMAGE_PLACEHOLDER, Answer, Code, Execution, Task, Turn

SYSTEM_PROMPT = """\
Solve the problem step by step. Where it helps, work on the image with Python: crop, resize, rotate, change the \
contrast, measure or calculate. Write such code as
<code>
```python
image = Image.open(image_path)
processed_path = "crop.png"
image.crop((0, 0, 100, 100)).save(processed_path)
print(processed_path)
```
</code>
A sandbox runs it. Its output, the processed image or the printed result, follows within \
<sandbox_output></sandbox_output>, and you go on from there. End the code by printing the path of the image, or the \
result. Variables are kept from one code block to the next."""

FORMAT = "Reason within <think></think>, code included. Then write <answer>your answer</answer>."


class ThymeDialect(Dialect):
    """The grammar of Thyme (arXiv 2508.11630): `<think>` spans the code blocks, outputs are in the same message.

    A turn is one piece of the message: it ends at `</code>` or `</answer>`, and its `<think>` may have been opened in
    an earlier turn or be closed in a later one.
    """

    name = "thyme"
    tags = ("think", "code", "sandbox_output", "answer")
    stop = ("</code>", "</answer>")
    persist = "variables"
    repairs = ("indentation", "paths", "imports")
    observation_role = "assistant"

    def system_prompt(self) -> str:
        """Return the text of the system message."""
        return SYSTEM_PROMPT

    def image_name(self, index: int) -> str:
        """Return `input.png` for the first image, then `input2.png`, and so on."""
        return "input.png" if index == 0 else f"input{index + 1}.png"

    def first_message(self, task: Task) -> str:
        """Return placeholders, question and choices, path and size (width x height) of each image, and the format."""
        lines = [*[IMAGE_PLACEHOLDER] * len(task.images), *question_lines(task), ""]
        for index, image in enumerate(task.images):
            lines.append(f'User Image Path: "{self.image_name(index)}"')
            lines.append(f'User Image Size: "{image.width}x{image.height}"')
        return "\n".join([*lines, "", FORMAT])

    def parse(self, text: str) -> Turn:
        r"""Read one turn: its first block, code or answer, as generation stops there.

        Of several answers the last one counts, and of an answer the content of its last LaTeX `boxed`, as the released
        inference does before it scores. Without any block, a `boxed` is taken as the answer.
        """
        text = lower_tags(text)
        problems: list[str] = []
        block = first_block(text, 0, "code", read_code)
        if block is None:
            return boxed_turn(text, "code", problems)
        rest = text[block.end :]
        if not block.closed and rest.strip():
            problems.append(UNBALANCED)
        problems += strays(rest, ("code", "answer"))
        turn = tagged_turn(block, rest, problems)
        boxed = last_boxed(turn.text) if isinstance(turn, Answer) else None
        return dataclasses.replace(turn, text=boxed[0]) if isinstance(turn, Answer) and boxed else turn

    def write(self, turn: Code | Answer, think: str = "") -> str:
        """Write a turn in the grammar of this dialect; its thinking is opened and closed within the turn."""
        head = f"<think>{think}</think>\n" if think else ""
        if isinstance(turn, Answer):
            return f"{head}<answer>{turn.text}</answer>"
        return f"{head}<code>\n```python\n{turn.code}\n```\n</code>"

    def render(self, execution: Execution, images: int) -> str:
        """Return the output as one `<sandbox_output>` block, to be appended right after `</code>`."""
        return f"<sandbox_output>{chr(10).join(execution_lines(execution, images))}</sandbox_output>"

    def invalid(self, reason: str) -> str:
        """Return the reason as one `<sandbox_output>` block."""
        return f"<sandbox_output>{chr(10).join(invalid_lines(reason))}</sandbox_output>"
