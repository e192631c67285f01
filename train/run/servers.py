"""The engine's servers before a run: whether they answer, and take trajectories of its length."""

from __future__ import annotations

from collections.abc import Iterator

from codev_agents.engines.http import Client, ServerLost, server_length
from codev_agents.rollout.engine import EngineError
from codev_env.app.check import Check, Status
from codev_train.run.options import TrainOptions

_LOOK_S = 5.0  # longest wait for one answer
_GROUP, _NAME = "engine", "vllm-server"


def look_for_servers(options: TrainOptions, positions: int, patience: float, lacking: Status) -> Iterator[Check]:
    """Look for the servers of `vllm.url`. A run that is resumed does without those that are gone, if there are others.

    Args:
        options: The options of the run.
        positions: Of the model; 0 if they are not known.
        patience: Seconds that a server may take to come up.
        lacking: Status of a server that does not answer.
    """
    clients = [Client(url, patience, _LOOK_S) for url in options.vllm.url]
    absences = [_absence(client) for client in clients]
    for client, absence in zip(clients, absences, strict=True):
        if options.resume and isinstance(absence, ServerLost) and None in absences:
            detail = f"--vllm.url: {client.url} does not answer ({absence})"
            if patience:
                print(f"{detail}: it is left out until it does.")
            yield Check(_GROUP, _NAME, "warn", detail, "it is left out until it does")
        else:
            yield from _one(client, absence, options, positions, lacking)


def _absence(client: Client) -> ServerLost | EngineError | None:
    """Return why a server does not answer as one that is healthy, if it does not."""
    try:
        client.get("/health")
    except (ServerLost, EngineError) as error:
        return error
    return None


def _one(
    client: Client, absence: ServerLost | EngineError | None, options: TrainOptions, positions: int, lacking: Status
) -> Iterator[Check]:
    try:
        if isinstance(absence, EngineError):
            raise absence
        if absence:
            if client.patience:
                print(f"Waiting up to {client.patience:g} s for the vLLM server at {client.url} (--vllm.patience).")
            client.wait()
        yield Check(_GROUP, _NAME, "ok", f"{client.url} is healthy")
        wanted, has = min(options.max_length, positions or options.max_length), server_length(client)
        if 0 < has < wanted:
            detail = f"--max-length is {wanted}, the server at {client.url} takes {has} tokens"
            advice = f"start it with --max-model-len {wanted}, or give --max-length {has}"
            yield Check(_GROUP, _NAME, lacking, detail, advice)
    except EngineError as error:
        reason = str(error).partition(" Then continue")[0].rstrip(".")  # there is nothing to resume yet
        detail = f"--vllm.url: {client.url} does not answer: {reason}"
        yield Check(_GROUP, _NAME, lacking, detail, "docs/engines.md has the command")
