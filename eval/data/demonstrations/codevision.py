"""Rows of CodeVision-SFT: ShareGPT conversations with Hermes tool calls, images as files (arXiv 2512.03746).

One JSON list; each row has `conversations` (turns of `human`, `gpt` and `tool`), `images` (paths: the inputs, then what
the tool made), `system`, and often `metadata` as JSON text with the gold answer and the transform.
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
    from_json,
    reports_error,
    text_field,
    without_images,
)

_RESPONSE_TAGS = re.compile(r"</?tool_response>")
_META = ("sample_id", "source_dataset", "transform")


def read_row(row: Mapping[str, Any]) -> Draft:
    """Take a row apart; raises `Unusable`. The recorded system prompt is not used: prompts are the dialect's."""
    messages = [_message(entry) for entry in _entries(row)]
    messages = [message for message in messages if message[0] != "system"]
    if not messages or messages[0][0] != "human":
        raise Unusable("turn_order", "the conversation does not start with the user")
    question = without_images(messages[0][1])
    if not question:
        raise Unusable("missing_field", "the first message holds no question")
    replies = [*messages[1:], ("tool", "")]
    turns: list[RecordedTurn] = []
    outputs: list[int] = []
    for (role, text), (reply_role, reply) in zip(replies[::2], replies[1::2], strict=False):
        # Some exports write the tool's reply as a message of the user.
        if role != "gpt" or reply_role == "gpt":
            raise Unusable("turn_order", f"message {2 * len(turns) + 2} is of {role!r} and the next of {reply_role!r}")
        if IMAGE_PLACEHOLDER in text:
            raise Unusable("image_count", "a turn of the model holds an image placeholder")
        if text.count("<think>") != text.count("</think>"):
            raise Unusable("unbalanced_tags", "<think> and </think> are not balanced")
        told = without_images(_RESPONSE_TAGS.sub("", reply))
        turns.append(RecordedTurn(text.rstrip(), told, failed=reports_error(told)))
        outputs.append(reply.count(IMAGE_PLACEHOLDER))
    if len(replies) % 2:
        raise Unusable("no_answer", "the conversation ends with the tool's reply")
    metadata = from_json(row.get("metadata") or {}, "metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    gold = metadata.get("answer")
    return Draft(
        question=question,
        turns=tuple(turns),
        inputs=messages[0][1].count(IMAGE_PLACEHOLDER),
        outputs=tuple(outputs),
        gold=gold.strip() if isinstance(gold, str) and gold.strip() else None,
        meta={key: metadata[key] for key in _META if isinstance(metadata.get(key), (str, int))},
    )


def _entries(row: Mapping[str, Any]) -> list[Any]:
    entries = from_json(row.get("conversations"), "conversations")
    if not isinstance(entries, list) or not entries:
        raise Unusable("missing_field", "'conversations' is no list of messages")
    return entries


def _message(entry: Any) -> tuple[str, str]:
    if not isinstance(entry, Mapping):
        raise Unusable("missing_field", "a message is no object with 'from' and 'value'")
    sender = entry.get("from")
    if not isinstance(sender, str):
        raise Unusable("missing_field", f"the 'from' of a message is {sender!r}, no text")
    role = {"observation": "tool", "user": "human", "assistant": "gpt"}.get(sender, sender)
    if role not in ("human", "gpt", "tool", "system"):
        raise Unusable("turn_order", f"a message is from {role!r}; known are human, gpt, tool and system")
    return role, text_field(entry, "value")
