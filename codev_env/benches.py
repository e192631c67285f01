"""The table of benchmarks and training sets, one row each: ids, hub repository, folder, format and scoring.

A new benchmark is a new row here, and a reader in `codev_env.tasks.readers` only where its format is new.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Scoring = Literal[
    "vstar",
    "hrbench",
    "mathvista",
    "tir",
    "treevgr",
    "mme",
    "blink-eval",
    "insight-o3",
    "charxiv-reasoning",
    "charxiv-templates",
    "relaxed",
    "mathruler",
    "llm",
]
"""Whose published evaluation scores a benchmark; `"llm"`: a language model alone, with the plain mean as total."""


@dataclass(frozen=True)
class HubFiles:
    """The files of a data set on the Hugging Face hub.

    Attributes:
        repo_id: Name on the hub.
        patterns: The files that are needed, as shell patterns.
        revision: A commit where one is known, else the branch `"main"`, whose content may change.
        license: As the data set's card states it; `""` where the card states none.
    """

    repo_id: str
    patterns: tuple[str, ...]
    revision: str = "main"
    license: str = ""

    @property
    def url(self) -> str:
        """Return the address of the data set's card."""
        return f"https://huggingface.co/datasets/{self.repo_id}"


@dataclass(frozen=True, kw_only=True)
class Bench:
    """One benchmark or training set.

    Attributes:
        name: Value of `bench=` and of `task.meta["bench"]`.
        title: Its published name.
        env_id: Id of its Gymnasium environment.
        splits: Splits of the real data; the first one is the default.
        reader: Its format: a name in `codev_env.tasks.READERS`, or `"module:attribute"` of a function like those.
        reader_options: Options of the reader that belong to this benchmark.
        categories: The categories of its questions, where the benchmark fixes them.
        folder: Folder that `data="auto"` looks for under `$CODEV_DATA` and `./data`; `""` for none.
        files: Shell pattern of its files, where other benchmarks share the folder; `""` for all files.
        subfolders: Shell pattern of its files where the published form has a folder for each part; `""` for none.
        hub: Its files on the hub; `None` where it is not published there.
        scenes: Preset in `codev_env.tasks.SCENES` of the generated scenes that replace it.
        scoring: Whose published evaluation scores it; `None` where there is none.
        variants: More environments over it: id to the `wrap` argument.
        suites: Groups of benchmarks that it belongs to, such as `"zoom"`; see `suite_of`.
    """

    name: str
    title: str
    env_id: str
    splits: tuple[str, ...]
    reader: str
    reader_options: Mapping[str, Any] = field(default_factory=dict)
    categories: tuple[str, ...] = ()
    folder: str = ""
    files: str = ""
    subfolders: str = ""
    hub: HubFiles | None = None
    scenes: str = "vstar"
    scoring: Scoring | None = None
    variants: Mapping[str, str] = field(default_factory=dict)
    suites: tuple[str, ...] = ()

    def places(self) -> tuple[Path, ...]:
        """Return the folders that `data="auto"` looks for, in order."""
        roots = (os.environ.get("CODEV_DATA"), "data")
        return tuple(Path(root) / self.folder for root in roots if root and self.folder)

    def find(self) -> Path | None:
        """Return the folder with the data, or `None`."""
        return next((place for place in self.places() if place.is_dir() and self._is_in(place)), None)

    def _is_in(self, place: Path) -> bool:
        if not self.files or (self.subfolders and any(place.glob(self.subfolders))):
            return True
        return any(any(folder.glob(self.files)) for folder in (place, place / "data"))


_PARQUET = ("*.parquet", "data/*.parquet")
_ZOOMBENCH = HubFiles(
    "inclusionAI/ZoomBench", _PARQUET, revision="b788097e57d30510c6877824833234a73bf80d25", license="apache-2.0"
)

BENCHES: dict[str, Bench] = {
    bench.name: bench
    for bench in (
        Bench(
            name="vstar",
            title="V*Bench",
            env_id="CodeV-VStar-v0",
            suites=("zoom",),
            variants={"CodeV-Orientation-v0": "orientation", "CodeV-Corruption-v0": "corruption"},
            splits=("test",),
            reader="vstar",
            categories=("direct_attributes", "relative_position"),
            folder="vstar_bench",
            hub=HubFiles("craigwu/vstar_bench", ("test_questions.jsonl", "direct_attributes/*", "relative_position/*")),
            scoring="vstar",
        ),
        Bench(
            name="hrbench4k",
            title="HR-Bench 4K",
            env_id="CodeV-HRBench4K-v0",
            suites=("zoom",),
            splits=("test",),
            reader="lettered",
            reader_options={"needs_cycle": True},
            categories=("single", "cross"),
            folder="HR-Bench",
            files="*4[kK]*",
            hub=HubFiles("DreamMr/HR-Bench", ("hr_bench_4k.parquet",), license="other"),
            scenes="hrbench-4k",
            scoring="hrbench",
        ),
        Bench(
            name="hrbench8k",
            title="HR-Bench 8K",
            env_id="CodeV-HRBench8K-v0",
            suites=("zoom",),
            splits=("test",),
            reader="lettered",
            reader_options={"needs_cycle": True},
            categories=("single", "cross"),
            folder="HR-Bench",
            files="*8[kK]*",
            hub=HubFiles("DreamMr/HR-Bench", ("hr_bench_8k.parquet",), license="other"),
            scenes="hrbench-8k",
            scoring="hrbench",
        ),
        Bench(
            name="mathvista",
            title="MathVista",
            env_id="CodeV-MathVista-v0",
            splits=("test", "testmini"),
            reader="mathvista",
            folder="MathVista",
            hub=HubFiles("AI4Math/MathVista", ("data/testmini-*.parquet",), license="cc-by-sa-4.0"),
            scenes="mathvista",
            scoring="mathvista",
        ),
        Bench(
            name="mvtool",
            title="MVToolBench",
            env_id="CodeV-MVTool-v0",
            splits=("test",),
            reader="verl",
            reader_options={"split_by_file": False},
            folder="MVToolBench",
            hub=HubFiles("kkwok/MVToolBench", _PARQUET, license="cc-by-sa-4.0"),
            scenes="mvtool",
        ),
        Bench(
            name="treebench",
            title="TreeBench",
            env_id="CodeV-TreeBench-v0",
            suites=("zoom",),
            splits=("test",),
            reader="annotated",
            reader_options={"needs": ("options", "boxes", "category")},
            folder="TreeBench",
            hub=HubFiles("HaochenWang/TreeBench", ("TreeBench.tsv",)),
            scoring="treevgr",
        ),
        Bench(
            name="visualprobe",
            title="VisualProbe",
            env_id="CodeV-VisualProbe-v0",
            suites=("zoom",),
            splits=("test",),
            reader="annotated",
            folder="VisualProbe_Hard",
            subfolders="VisualProbe_*/val.json",
            scoring="llm",
        ),
        Bench(
            name="mme-realworld-lite",
            title="MME-RealWorld-Lite",
            env_id="CodeV-MMERealWorldLite-v0",
            suites=("zoom",),
            splits=("test",),
            reader="annotated",
            reader_options={"needs": ("options", "category"), "repeats": True},
            folder="MME-RealWorld-Lite",
            hub=HubFiles(
                "yifanzhang114/MME-RealWorld-Base64",
                ("mme_realworld_lite.tsv",),
                revision="93310bbe383ad164ef4afadd329090679c52d7c4",
            ),
            scoring="mme",
        ),
        Bench(
            name="o3bench",
            title="O3-Bench",
            env_id="CodeV-O3Bench-v0",
            suites=("zoom",),
            splits=("test",),
            reader="annotated",
            folder="O3-Bench/test",
            hub=HubFiles("m-Just/O3-Bench", ("test/metadata.jsonl", "test/images/*")),
            scenes="mathvista",
            scoring="insight-o3",
        ),
        Bench(
            name="zoombench",
            title="ZoomBench",
            env_id="CodeV-ZoomBench-v0",
            suites=("zoom",),
            splits=("test",),
            reader="annotated",
            reader_options={"box_column": "bbox"},
            folder="ZoomBench",
            hub=_ZOOMBENCH,
            scoring="mathruler",
        ),
        Bench(
            name="zoombench-crop",
            title="ZoomBench, the crops",
            env_id="CodeV-ZoomBenchCrop-v0",
            suites=("zoom",),
            splits=("test",),
            reader="annotated",
            reader_options={"image": "crop_image"},
            folder="ZoomBench",
            hub=_ZOOMBENCH,
            scoring="mathruler",
        ),
        Bench(
            name="blink",
            title="BLINK",
            env_id="CodeV-BLINK-v0",
            splits=("test", "val"),
            reader="annotated",
            reader_options={"needs": ("options", "category")},
            folder="BLINK",
            files="BLINK*",
            subfolders="*/val-*.parquet",
            scenes="album",
            scoring="blink-eval",
        ),
        Bench(
            name="charxiv",
            title="CharXiv, reasoning",
            env_id="CodeV-CharXiv-v0",
            splits=("test", "val"),
            reader="figures",
            reader_options={"mode": "reasoning"},
            folder="CharXiv",
            files="reasoning_val*",
            scenes="mathvista",
            scoring="charxiv-reasoning",
        ),
        Bench(
            name="charxiv-descriptive",
            title="CharXiv, descriptive",
            env_id="CodeV-CharXivDescriptive-v0",
            splits=("test", "val"),
            reader="figures",
            reader_options={"mode": "descriptive"},
            folder="CharXiv",
            files="descriptive_val*",
            scenes="charts",
            scoring="charxiv-templates",
        ),
        Bench(
            name="chartqapro",
            title="ChartQAPro",
            env_id="CodeV-ChartQAPro-v0",
            splits=("test",),
            reader="chartqapro",
            categories=("Factoid", "Multi Choice", "Conversational", "Fact Checking", "Hypothetical"),
            folder="ChartQAPro",
            hub=HubFiles("ahmed-masry/ChartQAPro", _PARQUET, license="mit"),
            scenes="charts",
            scoring="relaxed",
        ),
        Bench(
            name="tirbench",
            title="TIR-Bench",
            env_id="CodeV-TIRBench-v0",
            splits=("test",),
            reader="tir",
            folder="TIR-Bench",
            hub=HubFiles("Agents-X/TIR-Bench", ("TIR-Bench.json", "data.zip")),
            scenes="tirbench",
            scoring="tir",
        ),
        Bench(
            name="video",
            title="videos of your own",
            env_id="CodeV-Video-v0",
            splits=("train", "val", "test"),
            reader="films",
            scenes="video",
        ),
        Bench(
            name="codev-rl",
            title="CodeV-RL-Data",
            env_id="CodeV-RL-v0",
            splits=("train",),
            reader="verl",
            folder="CodeV-RL-Data",
            hub=HubFiles("RenlyH/CodeV-RL-Data", _PARQUET, license="apache-2.0"),
            scenes="codev-rl",
        ),
        Bench(
            name="codevision-rl",
            title="CodeVision-RL",
            env_id="CodeVision-RL-v0",
            splits=("train",),
            reader="verl",
            folder="CodeVision-RL",
            hub=HubFiles("kkwok/CodeVision-RL", _PARQUET, license="cc-by-sa-4.0"),
            scenes="codevision-rl",
        ),
        Bench(
            name="deepeyes",
            title="DeepEyes-Datasets-47k",
            env_id="CodeV-DeepEyes-v0",
            splits=("train",),
            reader="verl",
            folder="DeepEyes-Datasets-47k",
            hub=HubFiles(
                "ChenShawn/DeepEyes-Datasets-47k", ("*.parquet",), revision="5546681e28fa2eda9f60a9ea9dd0cf291216ded3"
            ),
            scenes="deepeyes",
        ),
        Bench(
            name="dataset",
            title="your own data",
            env_id="CodeV-Dataset-v0",
            splits=("train", "val", "test"),
            reader="dataset",
        ),
    )
}
"""All benchmarks and training sets by name."""


def environments() -> dict[str, dict[str, Any]]:
    """Return the arguments of each Gymnasium id."""
    found: dict[str, dict[str, Any]] = {bench.env_id: {"bench": bench.name} for bench in BENCHES.values()}
    for bench in BENCHES.values():
        found |= {env_id: {"bench": bench.name, "wrap": wrap} for env_id, wrap in bench.variants.items()}
    return found


def suite_of(name: str) -> tuple[str, ...]:
    """Return the benchmarks of a group: `"zoom"`, questions that need a look at detail, or `"all"` published ones."""
    if name == "all":
        return tuple(bench.name for bench in BENCHES.values() if "test" in bench.splits and bench.folder)
    return tuple(bench.name for bench in BENCHES.values() if name in bench.suites)


def scoring_of(name: str) -> Scoring | None:
    """Return whose published evaluation scores a benchmark; `None` for one without, and for an unknown name."""
    return BENCHES[name].scoring if name in BENCHES else None


def benches_scored_by(*scorings: str) -> tuple[str, ...]:
    """Return the names of the benchmarks with a published scoring: any, or one of those named."""
    return tuple(b.name for b in BENCHES.values() if b.scoring and (not scorings or b.scoring in scorings))
