"""The toy policy in the form that other libraries need: with a processor, and a chat template with tool calls."""

from __future__ import annotations

from typing import Any

from transformers import Qwen3VLProcessor
from transformers.processing_utils import ProcessorMixin

from codev_agents.engines.policy import Policy

CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ 'user' if m['role'] == 'tool' else m['role'] }}\n"
    "{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for c in m['content'] %}"
    "{% if c['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ c['text'] }}{% endif %}"
    "{% endfor %}{% endif %}{% for t in m['tool_calls'] or [] %}{{ t | tojson }}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""A tool's output is a user message, as in the `codev` dialect."""


class ToyProcessor(Qwen3VLProcessor):
    """Qwen3-VL's processor without its video half, which needs torchvision."""

    def __init__(self, image_processor: Any, tokenizer: Any, chat_template: str = CHAT_TEMPLATE) -> None:
        self.image_token, self.video_token = "<|image_pad|>", "<|video_pad|>"
        self.image_token_id = tokenizer.convert_tokens_to_ids(self.image_token)
        self.video_token_id = tokenizer.convert_tokens_to_ids(self.video_token)
        ProcessorMixin.__init__(self, image_processor, tokenizer, chat_template=chat_template)


def toy_processor(policy: Policy) -> ToyProcessor:
    """Return the processor of a toy policy; it shares the policy's tokenizer."""
    return ToyProcessor(policy.processor.image_processor, policy.processor.tokenizer)
