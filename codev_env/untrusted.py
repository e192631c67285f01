"""Text that nobody vouches for, made fit for a prompt: it can neither end its string nor look like a chat template."""

from __future__ import annotations

import json
import re
from typing import Any

_TEMPLATE_MARKS = re.compile(r"[<>]|\[(?=/?[A-Z_]{3,}\])")


def as_data(data: dict[str, Any]) -> str:
    """Return one line of JSON in ASCII, in which marks like `<|im_end|>` or `[/INST]` are escaped too."""
    text = json.dumps(data)
    return _TEMPLATE_MARKS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
