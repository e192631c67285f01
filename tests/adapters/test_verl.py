"""The adapter for verl: its real agent loop class and token builder, a real processor, and a scripted server."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

agent_loop = pytest.importorskip(
    "verl.experimental.agent_loop.agent_loop",
    reason="verl is not installed: pip install verl cachetools fastapi uvicorn",
)
pytest.importorskip("tokenizers", reason="the toy policy needs the extra [train]")

from chat_server import LOOKED_RIGHT, SCENES  # noqa: E402
from omegaconf import OmegaConf  # noqa: E402
from verl.workers.rollout.replica import TokenOutput  # noqa: E402

from codev_agents import answer_turn, crop_turn, expand_box  # noqa: E402
from codev_agents.engines.options import ToyModelOptions  # noqa: E402
from codev_agents.engines.toy_processor import toy_processor  # noqa: E402
from codev_env.adapters.episodes import EpisodeRunner  # noqa: E402
from codev_env.adapters.verl import NAME, CodeVAgentLoop, rows  # noqa: E402
from codev_train.run.options import EnvOptions, SFTOptions  # noqa: E402
from codev_train.sft import cold_start as sft  # noqa: E402

sys.path.append(str(Path(__file__).parents[2] / "examples"))


@pytest.fixture(scope="module")
def processor():
    toy = ToyModelOptions(hidden=64, layers=2, heads=2, view=84, min_view=84)
    return toy_processor(sft.toy_policy(SFTOptions(env=EnvOptions(scenes="toy"), toy=toy)))


class Server:
    """Plays a list of turns, and records what it is asked."""

    def __init__(self, tokenizer, turns, logprobs=True):
        self.tokenizer, self.turns, self.logprobs, self.asked = tokenizer, list(turns), logprobs, []

    async def generate(self, request_id, prompt_ids, sampling_params, image_data):
        self.asked.append(SimpleNamespace(ids=list(prompt_ids), params=sampling_params, images=list(image_data)))
        ids = self.tokenizer.encode(self.turns.pop(0), add_special_tokens=False)
        return TokenOutput(token_ids=ids, log_probs=[-0.5] * len(ids) if self.logprobs else None)


def expert(index=3):
    """The turns that look at the target and answer right."""
    player = EpisodeRunner(**SCENES)
    player.reset(index=index)
    dialect, task = player.base.dialect, player.base.task
    crop = crop_turn(dialect, expand_box(task.targets[0], task.image.size, 0.25))
    return [crop, answer_turn(dialect, task.answer, looked=True)]


def play(processor, turns, length=4096, logprobs=True):
    """Play the task of index 3; returns verl's output and the server."""

    async def run():
        server = Server(processor.tokenizer, turns, logprobs)
        rollout = {"prompt_length": 4096, "response_length": length}
        config = OmegaConf.create({"actor_rollout_ref": {"rollout": rollout}, "data": {}})
        loop = CodeVAgentLoop(
            trainer_config=agent_loop.DictConfigWrap(config),
            server_manager=server,
            tokenizer=processor.tokenizer,
            processor=processor,
            dataset_cls=None,
            data_config=agent_loop.DictConfigWrap(config.data),
            tools=None,
            options=SCENES,
        )
        [row] = rows([3])
        return await loop.run({"temperature": 1.0}, raw_prompt=row["prompt"], extra_info=row["extra_info"]), server

    return asyncio.run(run())


def test_it_is_registered():
    assert agent_loop._agent_loop_registry[NAME]["_target_"] == "codev_env.adapters.verl.CodeVAgentLoop"


def test_an_episode_is_played_and_paid(processor):
    output, server = play(processor, expert())
    assert output.reward_score == pytest.approx(1.8)
    told = output.extra_fields["reward_extra_info"]
    assert {name: told[f"reward_{name}"] for name in LOOKED_RIGHT} == pytest.approx(LOOKED_RIGHT)
    assert [len(request.images) for request in server.asked] == [1, 2]
    assert len(output.multi_modal_data["images"]) == 2
    assert server.asked[0].params["stop"] == ["</code>", "</answer>"]


def test_exactly_the_sampled_tokens_are_trained_on(processor):
    turns = expert()
    output, server = play(processor, turns)
    sampled = [i for turn in turns for i in processor.tokenizer.encode(turn, add_special_tokens=False)]
    assert [i for i, own in zip(output.response_ids, output.response_mask, strict=True) if own] == sampled
    values = [value for value, own in zip(output.response_logprobs, output.response_mask, strict=True) if own]
    assert values == [-0.5] * len(sampled) and len(output.response_logprobs) == len(output.response_ids)
    assert output.prompt_ids == server.asked[0].ids
    assert output.prompt_ids + output.response_ids[: len(server.asked[1].ids) - len(output.prompt_ids)] == (
        server.asked[1].ids
    )


def test_each_image_has_its_tokens(processor):
    output, _ = play(processor, expert())
    pads = (output.prompt_ids + output.response_ids).count(processor.image_token_id)
    images = [processor.image_processor(images=[image]) for image in output.multi_modal_data["images"]]
    assert pads == sum(int(found["image_grid_thw"][0].prod()) // 4 for found in images)


def test_a_response_that_grows_too_long_ends_without_half_an_image(processor):
    turns = expert()
    first = len(processor.tokenizer.encode(turns[0], add_special_tokens=False))
    output, server = play(processor, turns, length=first + 5)
    assert len(server.asked) == 1 and len(output.response_ids) == first
    assert len(output.multi_modal_data["images"]) == 1
    told = output.extra_fields["reward_extra_info"]
    assert told["correct"] == 0.0 and output.reward_score == pytest.approx(told["reward"])


def test_a_server_without_log_probabilities_will_do(processor):
    output, _ = play(processor, expert(), logprobs=False)
    assert output.response_logprobs is None and output.reward_score == pytest.approx(1.8)


def test_the_times_are_seconds_and_no_counts(processor, monkeypatch):
    """verl logs them as timings, and finds the slowest trajectory by them."""

    class Slow(Server):
        async def generate(self, *args, **request):
            await asyncio.sleep(0.05)
            found = await super().generate(*args, **request)
            return found.model_copy(update={"num_preempted": 2})

    monkeypatch.setitem(globals(), "Server", Slow)
    output, _ = play(processor, expert())
    assert 0.1 <= output.metrics.generate_sequences < 10 and output.metrics.num_preempted == 4
    assert 0 < output.metrics.tool_calls != 1
    assert output.extra_fields["reward_extra_info"]["tool_calls"] == 1


def test_the_example_writes_what_verl_reads(tmp_path):
    import pyarrow.parquet
    import verl_agent_loop

    assert "agent_loop_config_path" in verl_agent_loop.main(str(tmp_path))
    [loop] = OmegaConf.load(tmp_path / "agent_loop.yaml")
    assert loop.name == NAME and loop.options.data == "synthetic"
    table = pyarrow.parquet.read_table(tmp_path / "train.parquet").to_pylist()
    assert len(table) == 1024 and table[7]["extra_info"] == {"index": 7} and table[7]["agent_name"] == NAME
