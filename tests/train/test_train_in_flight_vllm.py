"""Weights that change while a real vLLM server samples, with `staleness`. Needs vLLM's Python."""

from __future__ import annotations

import importlib.util
import threading
import time
from collections.abc import Iterator

import pytest
from test_train_engine_contract import other_weights, untied
from test_train_engine_contract import policy as policy  # a toy that vLLM can run; pytest takes it from here
from test_train_engine_restart import metric
from vllm_process import VllmProcess

from codev_agents.engines import make_engine
from codev_agents.engines.hf import HFEngine
from codev_agents.engines.options import VllmOptions
from codev_agents.engines.policy import Policy
from codev_agents.rollout.engine import Completion, Prompt, Sampling
from codev_env.types import IMAGE_PLACEHOLDER

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed in this environment"),
]
LONG = Sampling(temperature=0.0, max_tokens=1000)
SHORT = Sampling(temperature=0.0, max_tokens=16)


@pytest.fixture(scope="module")
def own(policy) -> Policy:
    return untied(policy)


@pytest.fixture(scope="module")
def server(own, tmp_path_factory) -> Iterator[VllmProcess]:
    folder = tmp_path_factory.mktemp("server")
    own.save(folder / "model")
    with VllmProcess(folder / "model", folder / "log.txt") as started:
        yield started


def after(own: Policy, ids: list[int], weights) -> list[int]:
    """What these weights write after these ids."""
    return HFEngine(weights, own.processor).generate([Prompt(ids)], SHORT)[0].ids


def pushed_in_flight(engine, prompts: list[Prompt], weights, url: str, sampling: Sampling = LONG) -> list[Completion]:
    """Sample while the weights are replaced."""
    found: list[Completion] = []
    before = metric(url, "generation_tokens_total")
    call = threading.Thread(target=lambda: found.extend(engine.generate(prompts, sampling)))
    call.start()
    while metric(url, "generation_tokens_total") < before + 100:
        time.sleep(0.02)
    engine.sync(weights)
    call.join()
    return found


def test_a_push_in_flight_keeps_the_tokens_and_goes_on_with_the_new_weights(own, server):
    new = other_weights(own.model)
    # Three times as many as are sampled at once: however slow the push, it comes before the last.
    prompts = [Prompt(own.processor.prompt("sys", f"number {i}", [])) for i in range(12)]
    engine = make_engine(
        "vllm-server", own.model, own.processor, 4, 0, VllmOptions(url=server.url), apart=True, version=7
    )
    weights = {7: own.model}
    for version in range(8, 12):  # pushes, until one meets a completion that is under way
        weights[version] = new if version % 2 == 0 else own.model
        found = pushed_in_flight(engine, prompts, weights[version], server.url)
        assert len(found) == len(prompts)
        before = version - 1
        for prompt, completion in zip(prompts, found, strict=True):
            versions = list(completion.versions)
            assert len(versions) == len(completion.ids) == len(completion.logprobs)
            assert versions == sorted(versions) and set(versions) <= {before, version}
            # The first tokens are those of the weights that they name, also where all are of one version.
            begun = versions[0]
            count = min(versions.count(begun), 16)
            assert completion.ids[:count] == after(own, list(prompt.ids), weights[begun])[:count]
        spanning = [(p, c) for p, c in zip(prompts, found, strict=True) if len(set(c.versions)) == 2]
        if spanning:
            break
    assert spanning, "no completion was under way while the weights were replaced"
    for prompt, completion in spanning:
        old = list(completion.versions).count(before)
        wanted = after(own, [*prompt.ids, *completion.ids[:old]], weights[version])
        # The new weights read the whole text again: nothing of the old ones is left in a cache.
        assert completion.ids[old : old + len(wanted)] == wanted
    # Nor for the prompts that come next.
    for prompt, completion in zip(prompts, engine.generate(prompts, SHORT), strict=True):
        assert completion.ids == after(own, list(prompt.ids), weights[version])
        assert set(completion.versions) == {version}


def test_images_of_groups_are_computed_again(own, server, picture):
    """Episodes of a group share an image; each push meets requests whose prompts were asked for before."""
    images = [own.processor.image(picture(100 + 20 * number, 60)) for number in range(3)]
    text = f"{IMAGE_PLACEHOLDER} what? " + "4, 8, 15, " * 60  # more than a block of the cache after the image
    asked = [Prompt(own.processor.prompt("sys", text, [one]), [one]) for one in images]
    prompts = [prompt for prompt in asked for _ in range(4)]
    engine = make_engine("vllm-server", own.model, own.processor, 12, 0, VllmOptions(url=server.url), apart=True)
    new = other_weights(own.model)
    engine.generate(asked, SHORT)
    for version in range(1, 7):
        weights = new if version % 2 else own.model
        found = pushed_in_flight(engine, prompts, weights, server.url, Sampling(0.0, 300))
        assert len(found) == len(prompts)
    assert metric(server.url, "num_requests_running") == 0  # it is there
    for prompt, completion in zip(asked, engine.generate(asked, SHORT), strict=True):
        assert completion.ids == HFEngine(own.model, own.processor).generate([prompt], SHORT)[0].ids
