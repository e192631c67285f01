"""The `codev` dialect: `<think>`, then one `<code>` block or one `<answer>` per turn (CodeV, arXiv 2511.19661)."""

from __future__ import annotations

from codev_env.dialects.dialect import Dialect, execution_lines, invalid_lines, question_lines
from codev_env.dialects.markup import acting_block, boxed_turn, lower_tags, read_code, tagged_turn
from codev_env.types import IMAGE_PLACEHOLDER, Answer, Code, Execution, Task, Turn

SYSTEM_PROMPT = """\
You answer questions about an image. Think inside <think></think>. Then end your turn with code or with the answer.
Code is optional. It runs in Python and shows you images you make:
<code>
```python
from PIL import Image
image = Image.open("input.png")
image.crop((0, 0, 100, 100)).save("crop.png")
print("crop.png")
```
</code>
Open an image by its given name. Save what you want to see and print only its file name. Write one code block per turn.
When you know the answer, write <answer>your answer</answer>."""

GO_ON = "Analyse the output: answer in <answer></answer>, or run more Python in <code></code>."
"""What follows an output in `codev-released`, in our words."""


class CodeVDialect(Dialect):
    """The turn grammar of CodeV; outputs come back in a user turn as `<sandbox_output>`."""

    name = "codev"
    tags = ("think", "code", "sandbox_output", "answer")
    stop = ("</code>", "</answer>")
    persist = "images"

    def system_prompt(self) -> str:
        """Return the text of the system message: what a turn is, and how code shows images."""
        return SYSTEM_PROMPT

    def image_name(self, index: int) -> str:
        """Return `input.png` for the first image, then `input2.png`, and so on."""
        return "input.png" if index == 0 else f"input{index + 1}.png"

    def first_message(self, task: Task) -> str:
        """Return placeholders, names and sizes (width x height in pixels), the question and its lettered choices."""
        lines = [IMAGE_PLACEHOLDER] * len(task.images)
        lines += [f"Image: {self.image_name(i)} ({im.width}x{im.height})" for i, im in enumerate(task.images)]
        lines += question_lines(task)
        if task.choices:
            lines.append("Answer with the letter.")
        return "\n".join(lines)

    def parse(self, text: str) -> Turn:
        """Read one turn: its code blocks and their fences run as one program; of several answers the last one counts.

        Lenient where generation was cut at a stop string (no end tag), where a chat template already wrote `<think>`,
        and about fences and the case of tags. Flaws that the published format reward punishes are listed in
        `problems`. Tags inside the thinking are text. Without any block, a LaTeX `boxed` is taken as the answer.
        """
        problems: list[str] = []
        block, rest = acting_block(lower_tags(text), "code", read_code, problems)
        if block is None:
            return boxed_turn(rest, "code", problems)
        return tagged_turn(block, rest, problems, join=True)

    def write(self, turn: Code | Answer, think: str = "") -> str:
        """Write a turn in the grammar of this dialect."""
        head = f"<think>{think}</think>\n" if think else ""
        if isinstance(turn, Answer):
            return f"{head}<answer>{turn.text}</answer>"
        return f"{head}<code>\n```python\n{turn.code}\n```\n</code>"

    def render(self, execution: Execution, images: int) -> str:
        """Return the output as one `<sandbox_output>` block."""
        return "\n".join(["<sandbox_output>", *execution_lines(execution, images), "</sandbox_output>"])

    def invalid(self, reason: str) -> str:
        """Return the reason as one `<sandbox_output>` block."""
        return "\n".join(["<sandbox_output>", *invalid_lines(reason), "</sandbox_output>"])


class CodeVReleasedDialect(CodeVDialect):
    """The turn grammar of CodeV with the observations of its released sandbox.

    After a program that put something out, a line asks to go on from it; errors and empty outputs have none. The error
    of a file that is not there names the image that is.

    Source: rl/verl/workers/agent/envs/python_interpreter/python_interpreter.py of RenlyH/CodeV_internal.
    """

    name = "codev-released"

    def render(self, execution: Execution, images: int) -> str:
        """Return the output as one `<sandbox_output>` block, and after it what to do with it."""
        if execution.error is not None:
            error = execution.error
            if "FileNotFoundError" in error:
                error = f"FileNotFoundError: open the image with Image.open('{self.image_name(0)}')"
            said = f"{IMAGE_PLACEHOLDER * images}Error: {error} Fix the program, then answer."
            return f"<sandbox_output>{said}</sandbox_output>"
        printed = execution.stdout.strip("\n")
        if not printed and not images:
            return "<sandbox_output>No output. Print values, or names of saved images to see them.</sandbox_output>"
        shown = f"{printed}\n" * bool(printed and images) or printed
        return f"<sandbox_output>{shown}{IMAGE_PLACEHOLDER * images}</sandbox_output>{GO_ON}"
