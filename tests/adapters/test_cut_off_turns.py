"""A turn that a limit of tokens ended gets no end tag that the model did not write."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import SimpleNamespace

import gymnasium as gym
import pytest
from chat_server import SCENES

sys.path.append(str(Path(__file__).parents[2] / "examples"))


class Client:
    """A client of the OpenAI API whose model always begins the same answer."""

    def __init__(self, finish_reason: str, later: bool = False) -> None:
        self.sent = []
        message = SimpleNamespace(content="<answer>1")
        self.reply = SimpleNamespace(choices=[SimpleNamespace(message=message, finish_reason=finish_reason)])
        self.chat = SimpleNamespace(completions=SimpleNamespace(create=self.create_later if later else self.create))

    def create(self, messages, **request):
        self.sent = messages  # the list goes on
        return self.reply

    async def create_later(self, **request):
        return self.create(**request)


@pytest.mark.parametrize(("finish_reason", "said"), [("stop", "<answer>1</answer>"), ("length", "<answer>1")])
def test_the_example_loops_restore_stop_strings_alone(finish_reason, said):
    pytest.importorskip("openai")
    import async_loop
    import openai_loop

    env, client = gym.make("codev_env:CodeV-VStar-v0", **SCENES), Client(finish_reason)
    openai_loop.play(env, client, "toy", 0)
    assert client.sent[-1] == {"role": "assistant", "content": said}
    env.close()
    client = Client(finish_reason, later=True)
    asyncio.run(async_loop.run_one(client, "toy", 0))
    assert client.sent[-1] == {"role": "assistant", "content": said}


def test_nemo_gyms_server_restores_stop_strings_alone():
    nemo_gym = pytest.importorskip(
        "codev_env.adapters.nemo_gym", reason="nemo-gym is not installed", exc_type=ImportError
    )
    runner = SimpleNamespace(base=SimpleNamespace(dialect=SimpleNamespace(stop=("</answer>",))))
    text = SimpleNamespace(type="output_text", text="<answer>1")
    for limit, said in ((None, "<answer>1</answer>"), ({"reason": "max_output_tokens"}, "<answer>1")):
        output = [SimpleNamespace(type="message", role="assistant", content=[text])]
        response = SimpleNamespace(output=output, incomplete_details=limit)
        assert nemo_gym._turn(response, runner) == said
