"""Downloads of data sets from the Hugging Face hub, through `huggingface_hub`, and where each one is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from codev_env.errors import ConfigError, TaskError, unknown


@dataclass(frozen=True)
class Repo:
    """Where a data set is published.

    Attributes:
        repo_id: Name on the hub.
        patterns: The files that are needed.
        revision: A commit where one is known, else the branch `"main"`, whose content may change.
        license: As the data set's card states it; `""` where it was not seen to state one.
    """

    repo_id: str
    patterns: tuple[str, ...]
    revision: str = "main"
    license: str = ""

    @property
    def url(self) -> str:
        """Return the address of the data set's card."""
        return f"https://huggingface.co/datasets/{self.repo_id}"


REPOS = {
    "vstar": Repo("craigwu/vstar_bench", ("test_questions.jsonl", "direct_attributes/*", "relative_position/*")),
    "hrbench4k": Repo("DreamMr/HR-Bench", ("hr_bench_4k.parquet",), license="other"),
    "hrbench8k": Repo("DreamMr/HR-Bench", ("hr_bench_8k.parquet",), license="other"),
    "mathvista": Repo("AI4Math/MathVista", ("data/testmini-*.parquet",), license="cc-by-sa-4.0"),
    "mvtool": Repo("kkwok/MVToolBench", ("*.parquet", "data/*.parquet"), license="cc-by-sa-4.0"),
    "codev-rl": Repo("RenlyH/CodeV-RL-Data", ("*.parquet", "data/*.parquet"), license="apache-2.0"),
    "codevision-rl": Repo("kkwok/CodeVision-RL", ("*.parquet", "data/*.parquet"), license="cc-by-sa-4.0"),
    "deepeyes": Repo(
        "ChenShawn/DeepEyes-Datasets-47k", ("*.parquet",), revision="5546681e28fa2eda9f60a9ea9dd0cf291216ded3"
    ),
}
"""The data set of each benchmark, by its name in `codev_env.tasks.benches.BENCHES`."""


def download(
    repo_id: str,
    patterns: Sequence[str],
    *,
    revision: str = "main",
    local_dir: str | Path | None = None,
    instead: str = "",
) -> Path:
    """Download files of a data set, or return what was downloaded before.

    With `HF_HUB_OFFLINE=1` only what is in the hub's cache is used.

    Args:
        repo_id: Name on the hub, `"owner/name"`.
        patterns: Files to download, as shell patterns.
        revision: Branch, tag or commit.
        local_dir: Where to put the files; `None` for the hub's own cache.
        instead: What else a user can do, for the error.

    Returns:
        The folder that holds the files.

    Raises:
        TaskError: No network, no such data set, no access, or nothing that matches.
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
    # Failures of the network are errors of the HTTP library underneath, which differs between versions.
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
        TaskError: It could not be downloaded; the message names the folder to put a copy into.
        ConfigError: A benchmark that is not on the hub, or `huggingface_hub` is not installed.
    """
    if bench not in REPOS:
        raise unknown("data set on the hub", bench, REPOS)
    from codev_env.tasks.benches import BENCHES

    repo = REPOS[bench]
    places = " or ".join(str(place) for place in BENCHES[bench].places())
    instead = f"Or put {', '.join(repo.patterns)} of {repo.url} into {places}."
    return download(repo.repo_id, repo.patterns, revision=repo.revision, local_dir=local_dir, instead=instead)


def _failures() -> tuple[type[Exception], ...]:
    """Return what a failed download may raise."""
    found: list[type[Exception]] = [OSError, ValueError, RuntimeError]
    for module, name in (("httpx", "HTTPError"), ("requests", "RequestException")):
        try:
            found.append(getattr(__import__(module), name))
        except ImportError:
            continue
    return tuple(found)
