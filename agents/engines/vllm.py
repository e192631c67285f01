"""The `vllm` engine: vLLM in the trainer's own process. It sleeps while the trainer computes gradients."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import itertools
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch

from codev_agents.engines.memory import release
from codev_agents.engines.options import VllmOptions
from codev_agents.engines.pixels import to_image
from codev_agents.engines.vllm_request import Seeds, one_per_image, sampling_params
from codev_agents.engines.weights import named_weights, weight_dtype
from codev_agents.rollout.engine import Completion, EngineError, Prompt, Sampling
from codev_agents.rollout.families import positions_of
from codev_agents.rollout.tokens import ChatProcessor, PixelBlock
from codev_env.errors import ConfigError

CPU_CACHE = 1 << 30
"""Bytes of key-value cache where there is no GPU."""


class VllmEngine:
    """Samples with vLLM, one engine per training process, each on its process's GPU.

    vLLM is started without weights and gets the policy's from memory, at the start and by each `sync`. Unless
    `VllmOptions.exact_replay` is set, it draws from the random generators of the process, which `seed` sets.

    Args:
        model: The policy; a model that vLLM knows, too.
        processor: The tokenizer side.
        options: Memory and type of the weights.
        max_batch: Most sequences decoded together.
        max_length: Longest sequence, in tokens.
        seed: Seed of the sampling.
        device: The device of this process.

    Raises:
        ConfigError: vLLM is not installed.
    """

    def __init__(
        self,
        model: Any,
        processor: ChatProcessor,
        options: VllmOptions,
        max_batch: int = 256,
        max_length: int = 32768,
        seed: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        self.processor = processor
        self.dtype = weight_dtype(options.dtype, device)
        self._exact = options.exact_replay
        self._on_cpu = torch.device(device).type == "cpu"
        self._asleep = False
        self._images: WeakKeyDictionary[PixelBlock, Any] = WeakKeyDictionary()
        self._numbers = itertools.count()
        self._answers: dict[str, asyncio.Future[Completion]] = {}
        self._decoding: asyncio.Task[None] | None = None
        self._threads = torch.get_num_threads()
        self._llm = self._start(model, options, max_batch, max_length)
        self.sync(model)
        self.seed(seed)

    def _start(self, model: Any, options: VllmOptions, max_batch: int, max_length: int) -> Any:
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # the weights are handed over in memory
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")  # the trainer uses the threads as well
        try:
            from vllm import LLM
        except ImportError as error:
            raise ConfigError(
                f'--engine vllm needs vLLM ({error}): pip install "codev-env[vllm]", or use --engine hf.'
            ) from error
        set_num_threads = torch.set_num_threads
        machine: dict[str, Any] = (
            {"enforce_eager": True, "kv_cache_memory_bytes": CPU_CACHE}
            if self._on_cpu
            else {"enable_sleep_mode": True, "gpu_memory_utilization": options.memory}
        )
        # vLLM reads tokenizer and image processor from a folder, at any time.
        self._folder = tempfile.TemporaryDirectory(prefix="codev-vllm-")
        config = copy.deepcopy(model.config)
        config.architectures = config.architectures or [type(model).__name__]
        for part in (config, self.processor.tokenizer, self.processor.image_processor):
            part.save_pretrained(self._folder.name)
        if not self._on_cpu:
            release("start")  # vLLM measures what is free, and a cold start in this process leaves cached blocks.
        llm = LLM(
            self._folder.name,
            load_format="dummy",
            mm_device_do_normalize=False,  # its constants count as weights, which "dummy" makes up
            generation_config="vllm",  # no defaults of the checkpoint, such as a repetition penalty
            dtype=str(self.dtype).removeprefix("torch."),
            max_model_len=min(max_length, positions_of(model.config) or max_length),
            max_num_seqs=max_batch,
            logprobs_mode="processed_logprobs",
            limit_mm_per_prompt={"video": 0},
            mm_processor_kwargs={"do_resize": False},  # done, and not idempotent: see `pixels`
            # Processes of one launcher are connected already; each still has an engine of its own.
            distributed_executor_backend="external_launcher" if torch.distributed.is_initialized() else "uni",
            disable_log_stats=True,
            **machine,
        )
        torch.set_num_threads = set_num_threads  # vLLM removes it on CPUs
        return llm

    def seed(self, seed: int) -> None:
        """Make the next samples a function of `seed`, and without `exact_replay` of the order of requests, too."""
        self._seeds = Seeds(seed)
        if not self._exact:
            torch.manual_seed(seed)
            np.random.seed(seed % 2**32)  # vLLM's second model runner draws the seeds of requests with it

    def sleep(self) -> None:
        """Free the memory of weights and key-value cache (GPUs only)."""
        if not self._on_cpu and not self._asleep:
            self._llm.sleep(level=2)
            self._asleep = True

    def sync(self, model: Any) -> dict[str, float]:
        """Wake up with the weights of `model`, and drop everything computed with earlier ones.

        vLLM maps device memory when it wakes and cannot use the blocks that PyTorch has cached, so these are freed
        before the weights wake, and again before the key-value cache does, because gathered weights were freed between.
        """
        memory: dict[str, float] = {}
        if self._asleep:
            memory |= release("wake")
            self._llm.wake_up(tags=["weights"])
        with self._packing():
            self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": named_weights(model, self.dtype)})
        if self._asleep:
            memory |= release("cache")
            self._llm.wake_up(tags=["kv_cache"])
            self._asleep = False
        if self._llm.reset_prefix_cache() is False:
            raise EngineError("vLLM kept its prefix cache, which is of earlier weights: some request is not finished.")
        self._llm.reset_mm_cache()
        self._llm.llm_engine.reset_encoder_cache()
        return memory

    @contextlib.contextmanager
    def _packing(self) -> Iterator[None]:
        """Pack the weights that are loaded inside for the number of threads for which the first ones were packed.

        oneDNN packs weights for the number of threads, and on CPUs without AVX-512 the layouts differ. It remembers how
        it multiplies matrices of a size, layout included, for the life of the process: it would read weights that are
        packed for another number of threads as if they were in the first layout.
        """
        if not self._on_cpu:
            yield
            return
        before = torch.get_num_threads()
        torch.set_num_threads(self._threads)
        try:
            yield
            self._llm.collective_rpc(_pack_tied_head)
        finally:
            torch.set_num_threads(before)

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Completion]:
        """Sample one completion per prompt, in order."""
        engine, found = self._llm.llm_engine, {}
        # Not `LLM.generate`: it processes images with another cache than `complete`.
        inputs = [engine.renderer.render_cmpl([self._input(prompt)], skip_mm_cache=True)[0] for prompt in prompts]
        names = [
            self._add(given, sampling, seed) for given, seed in zip(inputs, self._seeds.take(len(prompts)), strict=True)
        ]
        while engine.has_unfinished_requests():
            found.update({output.request_id: completion(output) for output in engine.step() if output.finished})
        return [found[name] for name in names]

    def new_seed(self) -> int:
        """Return a number that depends on `seed` and on how many numbers were taken since."""
        return self._seeds.take(1)[0]

    async def complete(
        self, prompt: Prompt, sampling: Sampling, seed: int, decoding: AbstractContextManager[None]
    ) -> Completion:
        """Sample one completion, batched with the others under way.

        Threads process the images, so that the event loop's only steps the model. `skip_mm_cache` keeps the processed
        images in a cache of the renderer and always hands them over. With vLLM's other cache the engine has to get
        requests in the order in which they were processed, and each of them, also those that are cancelled meanwhile.
        """
        given = await asyncio.to_thread(self._input, prompt)
        (given,) = await self._llm.llm_engine.renderer.render_cmpl_async([given], skip_mm_cache=True)
        with decoding:
            name = self._add(given, sampling, seed)
            answer = self._answers[name] = asyncio.get_running_loop().create_future()
            try:
                if self._decoding is None or self._decoding.done():
                    self._decoding = asyncio.create_task(self._decode())
                return await answer
            except asyncio.CancelledError:
                self._llm.llm_engine.abort_request([name])
                raise
            finally:
                del self._answers[name]

    def _add(self, given: Any, sampling: Sampling, seed: int) -> str:
        """Add a request whose prompt is processed; returns its name."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        params = sampling_params(sampling, self.processor, seed if self._exact else None)
        name = f"codev-{next(self._numbers)}"
        self._llm.llm_engine.add_request(
            name, given, SamplingParams(**params, output_kind=RequestOutputKind.FINAL_ONLY)
        )
        return name

    async def _decode(self) -> None:
        """Step vLLM while it has requests; they come and go between steps. Only this thread uses its state."""
        engine = self._llm.llm_engine
        try:
            while engine.has_unfinished_requests():
                for output in engine.step():
                    answer = self._answers.get(output.request_id)
                    if output.finished and answer is not None and not answer.done():
                        answer.set_result(completion(output))
                await asyncio.sleep(0)
        except Exception as error:
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(error)

    def _input(self, prompt: Prompt) -> dict[str, Any]:
        given: dict[str, Any] = {"prompt_token_ids": one_per_image(prompt, self.processor.image_id)}
        if prompt.images:
            given["multi_modal_data"] = {"image": [self._image(block) for block in prompt.images]}
        return given

    def _image(self, block: PixelBlock) -> Any:
        image = self._images.get(block)
        if image is None:
            image = self._images[block] = to_image(block, self.processor.image_processor)
        return image


def _pack_tied_head(worker: Any) -> None:
    """Pack the output head again: on CPUs a head tied to the input embedding keeps its old packed weights."""
    head = getattr(worker.get_model().get_language_model(), "lm_head", None)
    if head is not None:
        head.quant_method.process_weights_after_loading(head)


def completion(output: Any) -> Completion:
    """Read a `RequestOutput` of vLLM."""
    (sampled,) = output.outputs
    if sampled.finish_reason not in ("stop", "length"):
        raise EngineError(f"vLLM ended a completion by {sampled.finish_reason!r}; its log says why.")
    ids = list(sampled.token_ids)
    logprobs = [found[token].logprob for token, found in zip(ids, sampled.logprobs, strict=True)]
    return Completion(ids, logprobs, list(output.prompt_token_ids), sampled.finish_reason)
