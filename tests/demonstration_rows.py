"""Small rows in the formats of published SFT trajectories, and sets of them."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from codev_eval.data.demonstrations import Demonstration, DemonstrationSet

SIZE = (320, 200)
PATH = "/data/temp_processed_images/dvqa_00110792.png"
CROP = f'''\
import cv2
import os
from uuid import uuid4

image_path = "{PATH}"
image = cv2.imread(image_path)
x1, y1, x2, y2 = 10, 20, 110, 70
cropped = image[y1:y2, x1:x2]
processed_path = os.path.join("/mnt/data/temp_processed_images/", f"dvqa_00110792_{{str(uuid4())[:8]}}.jpg")
cv2.imwrite(processed_path, cropped)
print(processed_path)'''


def picture(size: tuple[int, int] = SIZE, seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))


def base64_of(image: Image.Image) -> str:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def block(code: str) -> str:
    return f"<code>\n```python\n{code}\n```\n</code>"


def thyme_row(*steps: tuple[str, str], answer: str = "B", images: list[str] | None = None, **fields: Any) -> dict:
    """A row of Thyme-SFT: code and output in turn; outputs with a placeholder show a picture of 100 x 50."""
    body = "".join(
        f"\nLook at it.\n{block(code)}\n<sandbox_output>{output}</sandbox_output>\n" for code, output in steps
    )
    shown = sum(output.count("<image>") for _code, output in steps)
    question = (
        f'<image>\nWhat is it?\nA. cat\nB. dog\n\n### User Image Path:** "{PATH}"\n### User Image Size:** "320x200"\n\n'
        "### **Output Format (strict adherence required):**\n\n<think>Your reasoning.</think>\n<answer>…</answer>\n"
    )
    if images is None:
        images = [base64_of(picture()), *[base64_of(picture((100, 50), 1))] * shown]
    response = f"<think>I see a chart.{body}So it is clear.</think>\n<answer>{answer}</answer>"
    return {"image": images, "question": question, "response": response} | fields


def codevision_row(
    folder: Path, *calls: tuple[dict[str, Any], str], answer: str = "park", gold: str | None = "park", shown: int = 0
) -> dict:
    """A row of CodeVision-SFT: arguments of calls and the tool's replies; images are files under `folder`."""
    (folder / "codevision_images").mkdir(exist_ok=True)
    names = []
    for number in range(1 + shown):
        names.append(f"codevision_images/sample0_{number}.png")
        picture(SIZE if number == 0 else (200, 320), number).save(folder / names[-1])
    conversations = [{"from": "human", "value": "<image>What is the shortest word?"}]
    for arguments, reply in calls:
        call = json.dumps({"name": "code_image_tool", "arguments": arguments})
        conversations.append({"from": "gpt", "value": f"<think>Turn it.</think>\n<tool_call>\n{call}\n</tool_call>"})
        conversations.append({"from": "tool", "value": reply})
    conversations.append({"from": "gpt", "value": f"<think>Now I read it.</think>\n<answer>{answer}</answer>"})
    metadata = json.dumps({"sample_id": 0, "transform": "rotate_90", "answer": gold})
    return {"conversations": conversations, "images": names, "metadata": metadata, "system": "You are helpful."}


def write_rows(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def thyme_set(folder: Path, *rows: Any) -> DemonstrationSet:
    return DemonstrationSet("thyme", write_rows(folder / "train.jsonl", list(rows)))


def codevision_set(folder: Path, *rows: dict) -> DemonstrationSet:
    (folder / "codevision_sft.json").write_text(json.dumps(rows))
    return DemonstrationSet("codevision", folder / "codevision_sft.json")


def only(demos: DemonstrationSet) -> Demonstration:
    demo = demos[0]
    assert isinstance(demo, Demonstration), demo
    return demo


def mixed_rows() -> list[Any]:
    good = [thyme_row((f"print({number})", str(number))) for number in range(6)]
    return [
        *good[:3],
        thyme_row(("print(1 / 0)", "1")),
        thyme_row(response=""),
        *good[3:],
        thyme_row((CROP, "<image>")),
    ]
