"""The `vllm-server` engine: a vLLM server, on other GPUs or machines, over HTTP.

The server is started by the user, with the endpoints for tokens and for weights (`docs/engines.md` has the command).
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from safetensors.torch import save_file

from codev_agents.engines.http import Client, ServerLost
from codev_agents.engines.options import VllmOptions
from codev_agents.engines.pixels import to_data_url, to_image
from codev_agents.engines.vllm_request import Seeds, one_per_image, sampling_params
from codev_agents.engines.weights import named_weights, weight_dtype
from codev_agents.rollout.engine import Completion, EngineError, Prompt, Sampling
from codev_agents.rollout.tokens import ChatProcessor, PixelBlock
from codev_env.errors import ConfigError
from codev_env.files import locked

GENERATE = "/inference/v1/generate"
_TRIES = 5  # per completion or push; between two of them the server may be gone for up to `patience` seconds


class VllmServerEngine:
    """Samples with a vLLM server.

    Each push of weights gets a name that the server repeats with every completion. A server that was started anew has
    another one: it gets the weights again, and its samples of other weights are discarded and requested again. With
    `VllmOptions.exact_replay` requests carry their seeds, so an answer that is lost is sampled again, the same.

    Args:
        model: The policy.
        processor: The tokenizer side.
        options: Where the server is, and how long it may be gone.
        max_batch: Most requests under way.
        seed: Seed of the sampling.
        device: The device of this process.
        apart: Weights may change while requests are under way.
        version: Number of updates that the weights have had.

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
    ) -> None:
        self.processor = processor
        self.dtype = weight_dtype(options.dtype, device)
        self._client = Client(options.url, options.patience, options.timeout)
        self._seeds, self._exact = Seeds(seed), options.exact_replay
        self._threads = ThreadPoolExecutor(max_batch, "vllm-server")
        self._urls: WeakKeyDictionary[PixelBlock, str] = WeakKeyDictionary()
        self._kept = tempfile.TemporaryDirectory(prefix="codev-weights-", dir=options.folder or None)
        self._folder = Path(self._kept.name)  # the newest weights; its name is theirs
        self.sync(model)
        self._check_logprobs()

    def seed(self, seed: int) -> None:
        """Make the next samples a function of `seed`, with `exact_replay`; without it the server draws its own."""
        self._seeds = Seeds(seed)

    def sleep(self) -> None:
        """Do nothing: the server has its own memory."""

    def sync(self, model: Any) -> dict[str, float]:
        """Push the weights of `model`, through a file that the server reads."""
        shared = torch.distributed.is_available() and torch.distributed.is_initialized()
        writes = not shared or torch.distributed.get_rank() == 0
        weights: dict[str, torch.Tensor] = {}
        for name, weight in named_weights(model, self.dtype):  # Gathering is a step of all processes.
            if writes:
                weights[name] = weight.cpu().contiguous()
            del weight
        folders = [Path(self._kept.name) / uuid.uuid4().hex]
        if shared:
            torch.distributed.broadcast_object_list(folders)
        before, self._folder = self._folder, folders[0]
        if writes:
            self._folder.mkdir()
            save_file(weights, self._folder / "model.safetensors")
            self._persist(self._restore)
            if before.parent == self._folder.parent:
                shutil.rmtree(before)
        if shared:
            torch.distributed.barrier()
        return {}

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Completion]:
        """Sample one completion per prompt, in order; all are requested at the same time."""
        asked = [
            self._request(p, sampling, seed) for p, seed in zip(prompts, self._seeds.take(len(prompts)), strict=True)
        ]
        return list(self._threads.map(self._complete, asked))

    def new_seed(self) -> int:
        """Return a number that depends on `seed` and on how many numbers were taken since."""
        return self._seeds.take(1)[0]

    async def complete(
        self, prompt: Prompt, sampling: Sampling, seed: int, decoding: AbstractContextManager[None]
    ) -> Completion:
        """Sample one completion. When cancelled, its answer is discarded, and a failed request is not made again."""
        loop, given_up = asyncio.get_running_loop(), threading.Event()
        try:
            request = await loop.run_in_executor(self._threads, self._request, prompt, sampling, seed)
            with decoding:
                return await loop.run_in_executor(self._threads, self._complete, request, given_up)
        finally:
            given_up.set()

    def _url(self, block: PixelBlock) -> str:
        url = self._urls.get(block)
        if url is None:
            url = self._urls[block] = to_data_url(to_image(block, self.processor.image_processor))
        return url

    def _request(self, prompt: Prompt, sampling: Sampling, seed: int) -> dict[str, Any]:
        return {
            "token_ids": one_per_image(prompt, self.processor.image_id),
            "content_parts": [{"type": "image_url", "url": self._url(block)} for block in prompt.images],
            "sampling_params": sampling_params(sampling, self.processor, seed if self._exact else None),
            "return_token_ids": True,
        }

    def _complete(self, request: dict[str, Any], given_up: threading.Event | None = None) -> Completion:
        def ask() -> Completion:
            answer = self._client.post(GENERATE, request)
            (choice,) = answer["choices"]
            versions = {span["version"] for span in choice.get("weight_versions") or ()}
            if versions != {self._folder.name} or choice["finish_reason"] not in ("stop", "length"):
                raise ServerLost(
                    f"a completion by weights {sorted(versions)} that ended by {choice['finish_reason']!r}"
                )
            logprobs = [token["logprob"] for token in choice["logprobs"]["content"]]
            return Completion(choice["token_ids"], logprobs, answer["prompt_token_ids"], choice["finish_reason"])

        return self._persist(ask, given_up)

    def _persist(self, action: Callable[[], Any], given_up: threading.Event | None = None) -> Any:
        """Return the result of `action`; if the server is lost meanwhile, wait for it and try again unless given up."""
        for attempt in range(_TRIES):
            try:
                if attempt:
                    self._restore()
                return action()
            except ServerLost as error:
                if given_up and given_up.is_set():
                    raise EngineError("nobody waits for this completion any more") from error
                reason = error
                self._client.wait()
        raise EngineError(
            f"the vLLM server at {self._client.url} is there, but {_TRIES} tries of one request failed; the last: "
            f"{reason}. It has to be vLLM 0.32 or newer; its log says more."
        )

    def _restore(self) -> None:
        """Send the server the newest weights, unless it has them."""
        post = self._client.post
        with locked(self._folder.parent / "lock"):
            if self._client.get("/weight_info")["weight_version"] == self._folder.name:
                return
            post("/pause")  # what it is sampling with other weights ends now
            post("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(self._folder)}})
            for cache in ("prefix", "mm", "encoder"):
                if post(f"/reset_{cache}_cache") == {"success": False}:
                    raise ServerLost(f"the {cache} cache could not be emptied")
            post("/resume")
            # The name comes last: a server with it needs nothing more.
            post("/update_weight_version", {"new_version": self._folder.name})

    def _check_logprobs(self) -> None:
        """Sample with one token allowed: it has probability 1 unless the server reports something else."""
        params = {"max_tokens": 1, "allowed_token_ids": [self.processor.eos_id], "logprobs": 0}
        asked = {"token_ids": [self.processor.eos_id], "sampling_params": params, "return_token_ids": True}
        if self._complete(asked).logprobs[0] < -1e-3:
            raise ConfigError(
                f"the vLLM server at {self._client.url} reports log-probabilities before temperature and bans; "
                "start it with --logprobs-mode processed_logprobs."
            )
