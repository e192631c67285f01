"""The adapter for ms-swift, in its own scheduler and read by its own templates."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("swift.rollout", reason="ms-swift is not installed: pip install ms-swift")

from chat_server import LOOKED_RIGHT, SCENES, oracle  # noqa: E402
from swift.infer_engine.protocol import (  # noqa: E402
    ChatCompletionResponse,
    ChatCompletionResponseChoice,
    ChatMessage,
    RequestConfig,
    RolloutInferRequest,
    UsageInfo,
)
from swift.rollout.gym_env import envs  # noqa: E402
from swift.rollout.multi_turn import GYMScheduler  # noqa: E402
from swift.template.template_inputs import StdTemplateInputs  # noqa: E402
from swift.template.vision_utils import load_image  # noqa: E402

from codev_env.adapters.ms_swift import NAME, register, rows  # noqa: E402

sys.path.append(str(Path(__file__).parents[2] / "examples"))


class Scripted:
    """An engine whose model is a function of the conversation, and whose tokens are whole turns."""

    template = None

    def __init__(self, act):
        self.act, self.shown, self.turns = act, [], []
        self.tokenizer = SimpleNamespace(decode=lambda ids, **_: self.turns[ids[0]])

    def read(self, content):
        """Return the content of a message; the model's turns before are their tokens."""
        return self.turns[content[0]] if isinstance(content[0], int) else content

    async def infer_async(self, request, config, **_):
        inputs = StdTemplateInputs.from_dict({"messages": request.messages, "images": request.images})
        self.shown.append([load_image(image) for image in inputs.images])
        read = [{**m, "content": self.read(m["content"])} for m in request.messages]
        text = self.act(read)
        self.turns.append(text)
        message, ids = ChatMessage("assistant", text), [len(self.turns) - 1]
        choice = ChatCompletionResponseChoice(0, message, "stop", token_ids=ids)
        return ChatCompletionResponse("scripted", [choice], UsageInfo(1, 1, 2))


def play(row, act, **options):
    """Play as `swift rollout` does; returns its output and the engine."""
    engine = Scripted(act)
    scheduler = GYMScheduler(infer_engine=engine, gym_env=NAME, **options)
    request = RolloutInferRequest(
        messages=[dict(message) for message in row["messages"]],
        data_dict={"env_config": row["env_config"]},
        uuid="one",
    )
    return asyncio.run(scheduler.run(request, RequestConfig())), engine, scheduler


@pytest.fixture(autouse=True)
def registered():
    before = dict(envs)
    register(**SCENES)
    yield
    envs.clear()
    envs.update(before)


def test_the_scheduler_plays_an_episode_and_sums_its_rewards():
    [row] = rows([3])
    output, engine, scheduler = play(row, oracle([3], **SCENES))
    roles = [message["role"] for message in output.messages]
    assert roles == ["system", "user", "assistant", "user", "assistant"]
    assert output.rollout_infos["total_reward"] == pytest.approx(sum(LOOKED_RIGHT.values()))
    assert output.rollout_infos["step_rewards"] == pytest.approx([0.8, 1.0])
    assert output.rollout_infos["gym_done"] and not scheduler._envs
    assert [len(images) for images in engine.shown] == [1, 2]


def test_the_trainer_reads_the_images_that_were_shown():
    output, engine, _ = play(rows([3])[0], oracle([3], **SCENES))
    inputs = StdTemplateInputs.from_dict({"messages": output.messages})
    assert sum(message["content"].count("<image>") for message in inputs.messages if message["role"] == "user") == 2
    read = [load_image(image) for image in inputs.images]
    assert all(np.array_equal(one, shown) for one, shown in zip(read, engine.shown[-1], strict=True))


def test_a_stop_string_that_was_cut_off_is_no_flaw():
    act = oracle([3], **SCENES)
    output, _, _ = play(rows([3])[0], lambda messages: act(messages).replace("</code>", "").replace("</answer>", ""))
    assert output.rollout_infos["total_reward"] == pytest.approx(1.8)


def test_it_ends_after_the_environments_turns():
    row = rows([0])[0]
    row["env_config"] |= {"max_turns": 2, "task_id": None}  # as a data set fills up what a row lacks
    output, _, _ = play(row, lambda messages: "well")
    assert output.rollout_infos["num_turns"] == 2 and output.rollout_infos["gym_done"]


def test_the_example_runs(capsys):
    import ms_swift_plugin

    assert asyncio.run(ms_swift_plugin.play(rows([3])[0])) == pytest.approx(1.8)
    assert "reward 1.80" in capsys.readouterr().out
