"""Sample episodes and run folders, made by hand: what a report must be able to show."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

from PIL import Image, ImageDraw

from codev_env.scoring.metrics import summarize
from codev_env.trajectory import Trajectory, write_trajectories
from codev_env.types import Answer, Code, Execution, Invalid, Step, StepScore
from codev_eval.report.rendering import load

COLORS = ("red", "green", "blue", "orange", "purple")
CELL = 112


def scene(seed: int) -> tuple[Image.Image, list[tuple[str, tuple[int, int, int, int], int]]]:
    """A 672x672 image of six coloured discs with a small digit each: (colour, box, digit)."""
    rng = random.Random(seed)
    image = Image.new("RGB", (672, 672), (244, 241, 234))
    draw = ImageDraw.Draw(image)
    objects = []
    for number, cell in enumerate(rng.sample(range(36), 5)):
        x, y = cell % 6 * CELL, cell // 6 * CELL
        box, digit = (x + 16, y + 16, x + 96, y + 96), rng.randrange(10)
        draw.ellipse(box, fill=COLORS[number])
        draw.text((x + 52, y + 50), str(digit), fill="white")
        objects.append((COLORS[number], box, digit))
    return image, objects


def trajectory(index: int, *, looks: bool, right: bool, tool: bool = True, category: str = "direct_attributes"):
    """An episode with one crop (of the target, or of something else) and an answer."""
    image, objects = scene(index)
    color, target, digit = objects[index % 5]
    choices = tuple(str((digit + k) % 10) for k in (0, 3, 5, 7))
    x1, y1, x2, y2 = target if looks else ((target[0] + 300) % 500, (target[1] + 200) % 500, 0, 0)
    box = (x1 - 10, y1 - 10, x2 + 10, y2 + 10) if looks else (x1, y1, x1 + 150, y1 + 120)
    code = f'# zoom on the {color} disc\nimg = Image.open("input.png")\nshow(img.crop({box}))\nprint("size", img.size)'
    turns = []
    if tool:
        turns.append(
            Step(
                f"<think>The digit on the {color} disc is too small to read.</think>\n"
                f"<code>\n```python\n{code}\n```\n</code>",
                Code(code),
                Execution("size (672, 672)\n", (image.crop(box),), wall_s=0.004),
                score=StepScore(
                    1.0 if looks else 0.0,
                    "the crop covers 100 % of target 0" if looks else "no target in view",
                    faithful=looks,
                ),
                observation="<sandbox_output><image></sandbox_output>",
                images=(image.crop(box),),
                crop_boxes=(box,),
                reward=0.5 if looks else 0.0,
                reward_terms={"outcome": 0.0, "format": 0.0, "tool": 0.5 if looks else 0.0},
            )
        )
    answer = str(digit) if right else choices[1]
    turns.append(
        Step(
            f"<think>Now it can be read.</think><answer>{answer}</answer>",
            Answer(answer),
            reward=1.3 if right else 0.3,
            reward_terms={"outcome": float(right), "format": 0.3, "tool": 0.0},
        )
    )
    return Trajectory(
        task_id=f"toy-test-{index:05d}",
        index=index,
        env_id="CodeV-VStar-v0",
        split="test",
        category=category,
        question=f"Which digit is on the {color} disc?",
        choices=choices,
        answer=str(digit),
        targets=(target,),
        images=(image,),
        dialect="codev",
        reward_name="tapo",
        agent="sample",
        turns=tuple(turns),
        final_answer=answer,
        is_correct=right,
        is_faithful=looks and tool,
        stop_reason="answer",
    )


def failing_trajectory(index: int) -> Trajectory:
    """An episode with an error, an invalid turn and no answer."""
    image, objects = scene(index)
    turns = (
        Step(
            "<code>\n```python\nimg.crop((0, 0, 9)).show(\n```\n</code>",
            Code("img.crop((0, 0, 9)).show("),
            Execution(error="SyntaxError: '(' was never closed (line 1)", stop="error"),
            observation="<sandbox_output>SyntaxError: '(' was never closed (line 1)</sandbox_output>",
        ),
        Step("I think it is nine", Invalid("no tags"), observation="Write <code> or <answer>."),
    )
    return Trajectory(
        task_id=f"toy-test-{index:05d}",
        index=index,
        category="relative_position",
        question="Is the red disc left of the blue disc?",
        choices=("yes", "no"),
        answer="yes",
        targets=(objects[0][1], objects[2][1]),
        images=(image,),
        turns=turns,
        stop_reason="max_turns",
    )


def episodes(after: bool, count: int = 16) -> list[Trajectory]:
    """Held-out episodes of a policy that guesses well without a look (before) or that looks (after)."""
    made = []
    for index in range(count):
        if index == 3 and not after:
            made.append(failing_trajectory(index))
            continue
        category = "relative_position" if index % 4 == 3 else "direct_attributes"
        looks = index % 8 != 5 if after else index % 8 == 1
        made.append(
            trajectory(index, looks=looks, right=index % 5 != 4, tool=after or index % 6 != 2, category=category)
        )
    return made


def markup(template: str, macro: str, *data: object) -> str:
    """Lay out plain data with a macro of one of the report's templates."""
    return str(getattr(load(f"{template}.html.j2").module, macro)(*data))


def make_run(folder: Path, count: int = 16) -> Path:
    """Write a training run's folder as `codev train` leaves it."""
    summary: dict = {
        "name": "tiny-seed0",
        "about": "A toy model of a million weights learns to look before it answers. About 8 minutes on two cores.",
        "seed": 0,
        "options": {"steps": 60, "prompts": 16, "group": 8, "reward": "tapo", "optimizer": {"lr": 2e-4}},
    }
    for name, after in (("before", False), ("after", True)):
        played = episodes(after, count)
        write_trajectories(folder / name, played)
        summary[name] = summarize(played, seed=0)
    summary["seconds"] = {
        "cold start": 141.2,
        "evaluation before": 12.0,
        "training": 180.0,
        "saving": 0.0,
        "total": 345.0,
    }
    (folder / "summary.json").write_text(json.dumps(summary))
    rng, rows = random.Random(0), []
    for step in range(60):
        rise = 1 / (1 + math.exp(-(step - 22) / 6))
        noise = rng.gauss(0, 0.04)
        rows.append(
            {
                "step": step,
                "reward": 1.05 + 0.42 * rise + noise,
                "accuracy": min(1, 0.82 + 0.08 * rise + noise),
                "faithful": min(1, max(0, 0.08 + 0.8 * rise + noise)),
                "tool_calls": 1 + 0.1 * rise + noise / 2,
                "update/entropy": 0.9 - 0.5 * rise + noise,
                "update/grad_norm": 0.6 + abs(noise) * 4,
                "seconds/rollouts": 1.75,
                "seconds/update": 1.0,
            }
        )
    (folder / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder
