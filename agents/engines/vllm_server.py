"""The `vllm-server` engine: vLLM servers, on other GPUs or machines, over HTTP.

They are started by the user, with the endpoints for tokens and for weights (`docs/engines.md` has the command).
"""

from __future__ import annotations

import asyncio
import datetime
import functools
import math
import re
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from codev_agents.engines.http import Client, LostAgain, LostWeights, OpenRequest, ServerLost
from codev_agents.engines.options import VllmOptions
from codev_agents.engines.pixels import to_image
from codev_agents.engines.servers import GIVEN_UP, GIVEN_UP_S, LOAD_S, Servers
from codev_agents.engines.vllm_request import Seeds, one_per_image, sampling_params
from codev_agents.engines.weights import named_weights, weight_dtype
from codev_agents.engines.weights_folder import WeightsFolder, locked_if_possible
from codev_agents.rollout.engine import Completion, EngineError, Prompt, Sampling
from codev_agents.rollout.tokens import ChatProcessor, PixelBlock
from codev_env.errors import ConfigError
from codev_env.messages import png_data_url
from codev_env.threads import in_own_thread, is_given_up

GENERATE = "/inference/v1/generate"
_CLAIM = ".loading"  # follows the name of a push that takes a server over, until its weights are loaded
_PUSHED = re.compile(rf"[0-9a-f]{{32}}({re.escape(_CLAIM)})?")  # the name of a push, of any run
CLAIM_S = 0.2  # longest time between two requests of a run, in seconds, in which another one is kept from loading
STATE_S = 60.0  # longest wait for what a server says of itself, in seconds
PATIENCE = datetime.timedelta(hours=6)  # of processes for the push of another, as for its episodes


class VllmServerEngine:
    """Samples with vLLM servers.

    Each push of weights gets a name that a server repeats with every completion. A server that was started anew has
    another one: it gets the weights again, and its samples of other weights are discarded and requested again. With
    `VllmOptions.exact_replay` requests carry their seeds, so an answer that is lost is sampled again, the same.

    With `apart`, weights are replaced while requests are under way: the server pauses, loads them, computes its caches
    again and goes on, so a completion may have tokens of several versions. It says which. With
    `in_flight`, each request has a prefix cache of its own: vLLM 0.32 drops the pixels of images that the cache covers,
    and ends with an error when it has to compute them again.

    Args:
        model: The policy.
        processor: The tokenizer side.
        options: Where the servers are, and how long they may be gone.
        max_batch: Most requests under way.
        seed: Seed of the sampling.
        device: The device of this process.
        apart: The model is trained while this samples.
        version: Number of updates that the weights have had.
        in_flight: With `apart`, weights may change while requests are under way.

    Raises:
        ConfigError: The server reports other log-probabilities than those it samples from.
        EngineError: There is no server, or not one that offers what is needed.
    """

    def __init__(
        self,
        model: Any,
        processor: ChatProcessor,
        options: VllmOptions,
        max_batch: int = 256,
        seed: int = 0,
        device: torch.device | str = "cpu",
        apart: bool = False,
        version: int = 0,
        in_flight: bool = True,
    ) -> None:
        self.processor = processor
        self.dtype = weight_dtype(options.dtype, device)
        self._vocabulary = model.config.get_text_config().vocab_size
        self._servers = Servers(options.url, options.patience, options.timeout, self._restore, self._check)
        self._apart, self._version = apart, version - 1  # `sync` counts
        self._in_flight = apart and in_flight
        self._versions: dict[str, int] = {}  # by the name of a push
        self._checked: set[Client] = set()  # servers that report what they sample from, since they were started
        self._shared: set[Client] = set()  # servers that other runs use
        self._seeds, self._exact = Seeds(seed), options.exact_replay
        self._threads = ThreadPoolExecutor(max_batch, "vllm-server")
        self._urls: WeakKeyDictionary[PixelBlock, str] = WeakKeyDictionary()
        self._kept = WeightsFolder(options.folder)
        self._folder = self._kept.path  # the newest weights; its name is theirs
        shared = torch.distributed.is_available() and torch.distributed.is_initialized()
        # Of its own: the trainer uses the others while this one waits for the end of a push.
        self._group = torch.distributed.new_group(timeout=PATIENCE, backend="gloo") if shared else None
        self._writes = not shared or torch.distributed.get_rank() == 0
        try:
            self.sync(model)
        except BaseException:
            self.close()
            raise

    def seed(self, seed: int) -> None:
        """Make the next samples a function of `seed`, with `exact_replay`; without it the server draws its own."""
        self._seeds = Seeds(seed)

    def sleep(self) -> None:
        """Do nothing: the server has its own memory."""

    def sync(self, model: Any) -> dict[str, float]:
        """Push the weights of `model`, through a file that the server reads."""
        return self.stage(model)()

    def stage(self, model: Any) -> Callable[[], dict[str, float]]:
        """Copy the weights of `model`; returns the push, for another thread. One has to end before the next begins."""
        weights: dict[str, torch.Tensor] = {}
        for name, weight in named_weights(model, self.dtype):  # Gathering is a step of all processes.
            if self._writes:
                weights[name] = weight.to("cpu", copy=True).contiguous()
            del weight
        folders = [self._kept.path / uuid.uuid4().hex]
        if self._group:
            torch.distributed.broadcast_object_list(folders)
        self._version += 1
        self._versions[folders[0].name] = self._version
        return functools.partial(self._push, folders[0], weights)

    def _push(self, folder: Path, weights: dict[str, torch.Tensor]) -> dict[str, float]:
        before = self._folder
        if self._writes:
            in_own_thread("vllm-write", _write, weights, folder)[0].result()  # Ctrl-C does not wait for the disk
            weights.clear()
        if self._group and self._apart and not self._in_flight:
            torch.distributed.barrier(self._group)  # until no process has an episode under way
        self._folder = folder  # from here on nobody gives a server older ones
        if self._writes:
            self._servers.push(folder.name)
        else:
            self._servers.announce(folder.name)
        if self._group:
            torch.distributed.barrier(self._group)
        if not self._writes:
            self._servers.look(_version)  # only a push notices a server that says nothing, and this one pushes none
        if self._writes and before.parent == folder.parent:
            shutil.rmtree(before, ignore_errors=True)  # a network disk keeps a file that some server has open
        return self._numbers()

    def numbers(self) -> dict[str, float]:
        """Return the queues of the servers now, and how often one was lost; of a single one only with `apart`."""
        if self._apart:
            self._servers.notice()
        return self._numbers()

    def _numbers(self) -> dict[str, float]:
        if not self._apart and len(self._servers.clients) == 1:
            return {}
        queues = {f"server/{place}_queue": float(n) for place, n in enumerate(self._servers.queues)}
        return queues | {"server/lost": float(self._servers.losses)}

    def close(self) -> None:
        """End pushes under way, and resume the servers that they have left paused; nothing is sent after that."""
        self._servers.close()

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Completion]:
        """Sample one completion per prompt, in order; all are requested at the same time.

        Raises:
            EngineError: As `Servers.ask`, or nobody waits for them any more.
        """
        requests = [
            self._request(p, sampling, seed) for p, seed in zip(prompts, self._seeds.take(len(prompts)), strict=True)
        ]
        asked = [OpenRequest() for _ in requests]
        found = [self._threads.submit(self._complete, *one) for one in zip(requests, asked, strict=True)]
        try:
            for future in found:
                while not wait([future], GIVEN_UP_S).done:
                    if is_given_up():
                        raise EngineError(GIVEN_UP)
                future.result()
            return [future.result() for future in found]
        finally:
            for future, one in zip(found, asked, strict=True):  # after an error or Ctrl-C others may be under way
                future.cancel()
                one.give_up()

    def new_seed(self) -> int:
        """Return a number that depends on `seed` and on how many numbers were taken since."""
        return self._seeds.take(1)[0]

    async def complete(
        self, prompt: Prompt, sampling: Sampling, seed: int, decoding: AbstractContextManager[None]
    ) -> Completion:
        """Sample one completion. When cancelled, its connection is closed: the server stops sampling."""
        loop, asked = asyncio.get_running_loop(), OpenRequest()
        try:
            request = await loop.run_in_executor(self._threads, self._request, prompt, sampling, seed)
            with decoding:
                return await loop.run_in_executor(self._threads, self._complete, request, asked)
        finally:
            asked.give_up()

    def _url(self, block: PixelBlock) -> str:
        url = self._urls.get(block)
        if url is None:
            url = self._urls[block] = png_data_url(to_image(block, self.processor.image_processor))
        return url

    def _request(self, prompt: Prompt, sampling: Sampling, seed: int) -> dict[str, Any]:
        return {
            "token_ids": one_per_image(prompt, self.processor.image_id),
            "content_parts": [{"type": "image_url", "url": self._url(block)} for block in prompt.images],
            "sampling_params": sampling_params(sampling, self.processor, seed if self._exact else None),
            "return_token_ids": True,
            **({"cache_salt": uuid.uuid4().hex} if self._in_flight else {}),
        }

    def _complete(self, request: dict[str, Any], asked: OpenRequest | None = None) -> Completion:
        home = next((part["url"] for part in request.get("content_parts", ())), None)
        asked = asked or OpenRequest()
        sample = functools.partial(self._sample, request=request, asked=asked)
        return self._servers.ask(sample, hash(home) if home else None, asked)

    def _sample(self, client: Client, request: dict[str, Any], asked: OpenRequest | None = None) -> Completion:
        """Ask one server; raises `ServerLost` unless it answers with a completion by weights that it was given."""
        answer = client.post(GENERATE, request, asked)
        try:
            (choice,) = answer["choices"]
            ids, spans = list(map(int, choice["token_ids"])), choice.get("weight_versions") or ()
            names = {span["version"] for span in spans}
            known = names <= self._versions.keys() if self._apart else names == {self._folder.name}
            if names and not known:
                raise LostWeights(f"a completion by weights {sorted(names)}")
            versions = [self._versions[span["version"]] for span in spans for _ in range(span["start"], span["end"])]
            if not (names and len(versions) == len(ids)) or choice["finish_reason"] not in ("stop", "length"):
                raise ServerLost(f"a completion by weights {sorted(names)} that ended by {choice['finish_reason']!r}")
            logprobs = [float(token["logprob"]) for token, _ in zip(choice["logprobs"]["content"], ids, strict=True)]
            if not (ids and 0 <= min(ids) <= max(ids) < self._vocabulary and all(map(math.isfinite, logprobs))):
                raise ValueError("no tokens, or none of this model with finite log-probabilities")
            told = versions if self._apart else ()
            return Completion(ids, logprobs, list(answer["prompt_token_ids"]), choice["finish_reason"], told)
        except (LookupError, TypeError, ValueError, AttributeError) as error:  # of a gateway, or of another version
            raise ServerLost(f"no completion but {str(answer)[:200]} ({error!r})") from error

    def _restore(self, client: Client) -> str:
        """Send a server the newest weights, unless it has them; returns their name. One with others is checked."""
        with client.restoring, locked_if_possible(self._folder.parent / f"lock-{client.name}"):
            folder = self._folder
            there = _version(client)
            if there.removesuffix(_CLAIM) not in self._versions and client in self._checked:
                self._checked.remove(client)  # it was started again, perhaps with other flags
                self._servers.note_restart(client)
                if _PUSHED.fullmatch(there) and client not in self._shared:
                    self._shared.add(client)
                    print(
                        f"another run gives weights to the vLLM server at {client.url}, and each push of one costs the "
                        "other its samples: give each run servers of its own (--vllm.url).",
                        file=sys.stderr,
                    )
            if there != folder.name or self._is_paused(client):
                self._load(client, folder, there)
            if client not in self._checked:
                self._check_logprobs(client)
                self._checked.add(client)
        return folder.name

    def _check(self, client: Client) -> None:
        """Wait for a sign of a server's engine, which gives none while it loads weights; raises as `_version`."""
        with client.restoring, locked_if_possible(self._folder.parent / f"lock-{client.name}"):
            _version(client)

    def _load(self, client: Client, folder: Path, there: str) -> None:
        """Let a server with the weights `there` load others; raises `ServerLost` if another run does so meanwhile.

        Two runs may be given the same server. One that takes it over writes a name of its own first and waits: a run
        that has looked just before sees that name before it announces its weights, or has written over it by then.
        """

        def post(path: str, body: dict[str, Any] | None = None) -> Any:
            return client.post(path, body, OpenRequest())

        def name(version: str) -> None:
            post("/update_weight_version", {"new_version": version})

        def look() -> None:
            if (found := _version(client, LOAD_S)) != there:  # it answers when it has loaded those of the other
                raise ServerLost(f"it got weights {found!r} of another run, or was started again, during a push")

        if not folder.exists():
            raise ServerLost("its weights are still being written")
        client.paused = True
        # Requests under way end now, or go on with the new weights and no caches of the old ones.
        post("/pause?mode=keep&clear_cache=true" if self._apart else "/pause")
        if there not in self._versions:
            name(there := folder.name + _CLAIM)
            time.sleep(CLAIM_S)
        look()
        post("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}})
        if self._apart:
            look()
            name(folder.name)  # before the next token is sampled
        for cache in () if self._apart else ("prefix", "mm", "encoder"):
            if post(f"/reset_{cache}_cache") == {"success": False}:
                raise ServerLost(f"the {cache} cache could not be emptied")
        post("/resume")
        client.paused = False
        if not self._apart:
            look()
            name(folder.name)  # The name comes last: a server with it needs nothing more.

    def _is_paused(self, client: Client) -> bool:
        """Whether a push that ended between the name and the resumption left the server paused."""
        found = client.get("/is_paused", STATE_S) if self._apart else None
        return isinstance(found, dict) and bool(found.get("is_paused"))

    def _check_logprobs(self, client: Client) -> None:
        """Sample with one token allowed: it has probability 1 unless the server reports something else."""
        params = {"max_tokens": 1, "allowed_token_ids": [self.processor.eos_id], "logprobs": 0}
        asked = {"token_ids": [self.processor.eos_id], "sampling_params": params, "return_token_ids": True}
        try:
            logprobs = self._sample(client, asked).logprobs
        except ServerLost as error:
            raise LostAgain(str(error)) from error
        if sum(logprobs) < -1e-3:
            raise ConfigError(
                f"the vLLM server at {client.url} reports log-probabilities before temperature and bans; start it "
                "with --logprobs-mode processed_logprobs."
            )


def _version(client: Client, timeout: float = 0.0) -> str:
    """Return the name of a server's weights; raises `ServerLost` if it does not say, and its requests are ended."""
    try:
        found = client.get("/weight_info", timeout or STATE_S)
    except ServerLost:
        client.cut_off()  # its engine hangs, though the server in front of it may be healthy
        raise
    if not isinstance(found, dict) or "weight_version" not in found:
        raise ServerLost(f"/weight_info gives no weight_version but {str(found)[:200]}")
    return str(found["weight_version"])


def _write(weights: dict[str, torch.Tensor], folder: Path) -> None:
    """Write weights completely or not at all; raises `EngineError` where the disk is full."""
    part = folder.with_suffix(".part")
    try:
        part.mkdir()
        save_file(weights, part / "model.safetensors")
        part.rename(folder)
    except (OSError, SafetensorError) as error:
        raise EngineError(
            f"cannot write the weights for the vLLM servers to {folder.parent}: {error}. Make room there or give "
            "another folder, --vllm.folder; then continue with --resume."
        ) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
