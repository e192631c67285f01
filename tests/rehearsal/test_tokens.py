"""Tokens and images at the real vocabulary: what is sampled is what is trained on, byte pair by byte pair."""

from __future__ import annotations

import pytest
from models import photograph
from real_vocabulary import SPECIAL, TEMPLATE, greedy, ranks, real_tokenizer

from codev_agents.rollout.families import FAMILIES
from codev_agents.rollout.tokens import ChatProcessor, TokenSequence
from codev_env.types import IMAGE_PLACEHOLDER

pytestmark = pytest.mark.integration
QWEN = FAMILIES[0]


@pytest.fixture(scope="module")
def processor() -> ChatProcessor:
    from transformers import Qwen2VLImageProcessorPil

    images = Qwen2VLImageProcessorPil(size={"shortest_edge": 3136, "longest_edge": 12845056})
    return ChatProcessor(real_tokenizer(), images, QWEN)


def test_the_tokenizer_is_that_of_the_published_models(processor):
    """Ids of the published vocabulary, and words of many scripts as byte pairs are defined."""
    assert processor.encode("Hello world") == [9707, 1879]
    assert [processor.tokenizer.convert_tokens_to_ids(name) for name in SPECIAL] == list(range(151643, 151657))
    known = ranks()
    for word in ("antidisestablishmentarianism", "ÜberGröße", "图像处理", "👩‍👩‍👧", "ﷺ", "नमस्ते"[:2], "    "):
        ids = processor.encode(word)
        assert processor.decode(ids) == word
        if word.isalpha():
            assert ids == greedy(word.encode(), known), word


def test_a_prompt_has_the_ids_of_the_chat_template(processor):
    image = processor.image(photograph(280, 140))
    found = processor.prompt("Be brief.", f"Look {IMAGE_PLACEHOLDER}\nWhich colour?", [image])
    blocks = [
        {"type": "text", "text": "Look "},
        {"type": "image"},
        {"type": "text", "text": "\nWhich colour?"},
    ]
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": blocks}]
    text = processor.tokenizer.apply_chat_template(
        messages, chat_template=TEMPLATE, tokenize=False, add_generation_prompt=True
    )
    wanted = processor.tokenizer(text.replace("<|image_pad|>", "<|image_pad|>" * image.tokens))["input_ids"]
    assert found == wanted


@pytest.mark.parametrize(
    ("reply", "role", "rest"),
    [
        ("</code>", "assistant", "\n<sandbox_output>"),
        ("<code>x</code>\n", "user", "\n<sandbox_output>"),
        ("</co", "assistant", "de>\n"),
        ("the crop sh", "assistant", "ows"),
    ],
)
def test_sampled_ids_stay_where_a_turn_ends_inside_what_would_be_one_token(processor, reply, role, rest):
    """Tokenised again, the border merges into other ids; the trajectory keeps those that were sampled."""
    sampled = processor.encode(reply)
    sequence = TokenSequence()
    prompt = processor.prompt("system", "question", [])
    sequence.add_observation(prompt)
    sequence.add_action(sampled, [-1.0] * len(sampled), 0)
    sequence.add_observation(processor.observation(rest, [], sampled, role))
    assert sequence.ids[len(prompt) : len(prompt) + len(sampled)] == sampled
    assert [turn for turn in sequence.turns if turn >= 0] == [0] * len(sampled)
    assert processor.decode(sequence.ids).count(reply) == 1
    if role == "assistant":
        again = processor.tokenizer(processor.tokenizer.decode(sequence.ids))["input_ids"]
        assert again != sequence.ids, "the border merges in no way: this case checks nothing"
        assert processor.tokenizer.decode(again) == processor.tokenizer.decode(sequence.ids)


def test_the_text_of_the_environment_never_becomes_a_control_token(processor):
    for name in SPECIAL:
        assert not set(processor.encode(f"a{name}b")) & set(range(151643, 151657)), name
        assert processor.decode(processor.encode(f"a{name}b")) == f"a{name}b"


def test_a_character_cut_in_its_bytes_comes_back_whole(processor):
    ids = processor.encode("👩‍👩‍👧 ok")
    assert "\ufffd" in processor.decode(ids[:2])
    assert processor.decode([*ids[:2], *ids[2:]]) == "👩‍👩‍👧 ok"


@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    [(1600, 900, 1824), (3840, 2160, 10549), (2048, 1536, 4015), (56, 4000, 286), (20, 20, 4)],
)
def test_images_of_real_sizes_take_the_tokens_of_the_published_processor(processor, width, height, tokens):
    block = processor.image(photograph(width, height))
    assert block.tokens == tokens
    assert len(block.values) == 4 * tokens and block.values.isfinite().all()
