"""Downloads of data sets from the Hugging Face hub, through `huggingface_hub`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from codev_env.benches import BENCHES
from codev_env.errors import ConfigError, TaskError, unknown


def download(
    repo_id: str,
    patterns: Sequence[str],
    *,
    revision: str = "main",
    local_dir: str | Path | None = None,
    instead: str = "",
) -> Path:
    """Download files of a data set, or find them in an earlier download.

    With `HF_HUB_OFFLINE=1` only the hub's cache is used.

    Args:
        repo_id: Name on the hub, `"owner/name"`.
        patterns: Files to download, as shell patterns.
        revision: Branch, tag or commit.
        local_dir: Folder to write the files to; `None` for the hub's own cache.
        instead: Advice that errors end with.

    Returns:
        The folder that holds the files.

    Raises:
        TaskError: No network, no such data set, no access, or no file that matches.
        ConfigError: `huggingface_hub` is not installed.
    """
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise ConfigError(
            f"downloading {repo_id} needs huggingface_hub ({error}). "
            f"Install it: pip install 'codev-env[data]'. {instead}".rstrip()
        ) from error
    try:
        folder = Path(
            snapshot_download(
                repo_id,
                repo_type="dataset",
                revision=revision,
                allow_patterns=list(patterns),
                local_dir=None if local_dir is None else str(local_dir),
            )
        )
    # Network failures are errors of the HTTP library underneath, which differs between versions.
    except _failures() as error:
        reason = (str(error) or type(error).__name__).strip().splitlines()[0]
        raise TaskError(
            f"{repo_id} could not be downloaded ({type(error).__name__}: {reason}). Check the network, the name and "
            f"whether the data set asks for a login. {instead}".rstrip()
        ) from error
    if not any(path.is_file() for pattern in patterns for path in folder.glob(pattern)):
        raise TaskError(f"{repo_id} at {revision} has no files that match {', '.join(patterns)}. {instead}".rstrip())
    return folder


def fetch(bench: str, local_dir: str | Path | None = None) -> Path:
    """Download the data set of a benchmark; see `download`.

    Raises:
        TaskError: It could not be downloaded; the message names the folder for a copy.
        ConfigError: A benchmark that is not on the hub, or `huggingface_hub` is not installed.
    """
    found = BENCHES.get(bench)
    on_hub = [row.name for row in BENCHES.values() if row.hub]
    if found is None:
        raise unknown("data set on the hub", bench, on_hub)
    if found.hub is None:
        instead = "'owner/name', for any data set of the hub" if bench == "dataset" else "the path of a copy"
        raise ConfigError(
            f"'hub' downloads no data for bench {bench!r}, only for: {', '.join(on_hub)}. Give {instead} (--data)."
        )
    files = found.hub
    places = " or ".join(str(place) for place in found.places())
    instead = f"Or put {', '.join(files.patterns)} of {files.url} into {places}."
    return download(files.repo_id, files.patterns, revision=files.revision, local_dir=local_dir, instead=instead)


def _failures() -> tuple[type[Exception], ...]:
    """Return the exceptions of a failed download."""
    found: list[type[Exception]] = [OSError, ValueError, RuntimeError]
    for module, name in (("httpx", "HTTPError"), ("requests", "RequestException")):
        try:
            found.append(getattr(__import__(module), name))
        except ImportError:
            continue
    return tuple(found)
