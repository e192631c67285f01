"""Rows of Thyme-SFT: one response with code and outputs inline, images as base64 (Thyme, arXiv 2508.11630).

Its splits `wo_thinking_thyme_single_round`, `2round` and `computation` have the columns `image` (the input image, then
those that programs made; empty for some calculations), `question` (with the path and size of the image and the output
format) and `response`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from codev_env.types import IMAGE_PLACEHOLDER
from codev_eval.data.demonstrations.demonstration import (
    Draft,
    RecordedTurn,
    Unusable,
    reports_error,
    text_field,
    without_images,
)

_TAGS = ("think", "code", "sandbox_output", "answer")
_OUTPUT = re.compile(r"<sandbox_output>(.*?)</sandbox_output>", re.DOTALL)
_PATH = re.compile(r"User Image Path:?[*\s]*\"([^\"\n]+)\"")
_TAIL = re.compile(r"\n[ \t#*]*+(?:User Image (?:Path|Size)|Output Format).*", re.DOTALL | re.IGNORECASE)


def read_row(row: Mapping[str, Any]) -> Draft:
    """Take a row apart; raises `Unusable`."""
    prompt, response = text_field(row, "question"), text_field(row, "response")
    for tag in _TAGS:
        opened, closed = response.count(f"<{tag}>"), response.count(f"</{tag}>")
        if opened != closed:
            raise Unusable("unbalanced_tags", f"{opened} <{tag}>, but {closed} </{tag}>")
    question = without_images(_TAIL.sub("", prompt))
    if not question:
        raise Unusable("missing_field", "'question' holds no question")
    # Text and outputs by turns: the pattern has one group.
    pieces = _OUTPUT.split(response)
    turns: list[RecordedTurn] = []
    outputs: list[int] = []
    for text, output in zip(pieces[:-1:2], pieces[1::2], strict=True):
        turns.append(_code_turn(text, output))
        outputs.append(output.count(IMAGE_PLACEHOLDER))
    if "<code>" in pieces[-1]:
        raise Unusable("turn_order", "code without an output after it")
    if response.count(IMAGE_PLACEHOLDER) != sum(outputs):
        raise Unusable("image_count", "an image placeholder is outside of the outputs")
    return Draft(
        question=question,
        turns=(*turns, RecordedTurn(pieces[-1].rstrip())),
        inputs=prompt.count(IMAGE_PLACEHOLDER),
        outputs=(*outputs, 0),
        paths=tuple(_PATH.findall(prompt)),
    )


def _code_turn(text: str, output: str) -> RecordedTurn:
    if text.count("<code>") != 1:
        raise Unusable("turn_order", f"{text.count('<code>')} code blocks before one output")
    head, end, rest = text.partition("</code>")
    if "<code>" not in head or rest.strip():
        raise Unusable("turn_order", "an output that does not follow its code")
    told = without_images(output)
    return RecordedTurn(head + end, told, told, failed=reports_error(told))
