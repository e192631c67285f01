"""Tasks that ask the same question count as one where chance is measured: repeated rows, cycles and variants."""

from __future__ import annotations

import dataclasses
from itertools import product
from types import SimpleNamespace

import pytest
from eval_samples import trajectory
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from codev_env.tasks.readers.annotated import original_id
from codev_env.trajectory import read_trajectories, write_trajectories
from codev_eval.bench.clusters import cluster_of, clusters_of
from codev_eval.bench.measures import measure
from codev_eval.bench.paired import mcnemar, pass_rates, sign_flip
from codev_eval.bench.zoom import zooming_gap
from codev_eval.compare import compare


def played(task_id: str, right: bool, **task):
    made = trajectory(0, looks=True, right=right)
    return dataclasses.replace(made, task_id=task_id, meta={"task": task})


def repeated(rights):
    """Rows of MME-RealWorld-Lite, each three times."""
    names = [
        (f"mme-realworld-lite-{row}{again}", right) for row, right in enumerate(rights) for again in ("", "#2", "#3")
    ]
    return [played(name, right, bench="mme-realworld-lite") for name, right in names]


def test_repeated_rows_of_a_benchmark_are_one_question():
    episodes = repeated([True, False])
    assert [cluster_of(t) for t in episodes] == ["mme-realworld-lite-0"] * 3 + ["mme-realworld-lite-1"] * 3
    turned = played(
        "mme-realworld-lite-0#2~jpeg", True, bench="mme-realworld-lite", source_task_id="mme-realworld-lite-0#2"
    )
    assert cluster_of(turned) == "mme-realworld-lite-0"
    assert original_id("a#2b") == "a#2b" and cluster_of(played("mine#2", True, bench="dataset")) == "mine#2"


def test_tasks_of_a_cluster_are_resampled_together():
    alone = [played(f"charxiv-{n}", n % 8 < 4) for n in range(160)]
    clusters = [played(f"charxiv-{n}", n % 8 < 4, cluster=n // 4) for n in range(160)]
    assert len({cluster_of(t) for t in clusters}) == 40
    independent, found = (
        measure(episodes, "charxiv-descriptive")["ci95"]["accuracy"] for episodes in (alone, clusters)
    )
    forty = measure(alone[::4], "charxiv-descriptive")["ci95"]["accuracy"]
    assert found[1] - found[0] > 1.4 * (independent[1] - independent[0])
    assert found[1] - found[0] == pytest.approx(forty[1] - forty[0], rel=0.1)
    test = compare({"": clusters}, {"": [dataclasses.replace(t, is_correct=True) for t in clusters]})[""]["mcnemar"]
    assert test["only_b"] == 80 and test["p"] == pytest.approx(2 / 2**20)


def of_images(folder, bench: str, source: str = "real", questions: int = 4):
    """Forty questions, some about each image, which are right or wrong together, written and read back."""
    shown = [Image.new("RGB", (32, 32), (n, 0, 0)) for n in range(40 // questions)]
    made = [
        dataclasses.replace(
            played(f"{bench}-{n}", n // questions % 3 > 0, bench=bench), source=source, images=(shown[n // questions],)
        )
        for n in range(40)
    ]
    write_trajectories(folder, made)
    return read_trajectories(folder)


def test_questions_about_one_image_of_a_benchmark_are_resampled_together(tmp_path):
    shared = of_images(tmp_path / "a", "o3bench")
    alone = of_images(tmp_path / "b", "o3bench", questions=1)
    assert len(set(clusters_of(shared))) == 10 and len(set(clusters_of(alone))) == 40
    wide, narrow = (measure(episodes, "o3bench")["ci95"]["accuracy"] for episodes in (shared, alone))
    assert wide[1] - wide[0] > 1.4 * (narrow[1] - narrow[0])
    passed = pass_rates({t.task_id: [t] for t in shared})["1"]["ci95"]
    assert passed[1] - passed[0] > 1.4 * (narrow[1] - narrow[0])
    test = compare({"": shared}, {"": [dataclasses.replace(t, is_correct=True) for t in shared]})[""]["mcnemar"]
    assert test["only_b"] == 16 and test["p"] == pytest.approx(2 / 2**4)


def test_the_zooming_gap_resamples_images(tmp_path):
    gaps = []
    for questions in (4, 1):
        whole = of_images(tmp_path / str(questions), "zoombench", questions=questions)
        crop = [dataclasses.replace(t, task_id=t.task_id.replace("-", "-crop-"), is_correct=True) for t in whole]
        # As many questions are right about the whole image, whether they share it or not.
        rights = [n // 4 % 3 > 0 for n in range(40)]
        whole = [dataclasses.replace(t, is_correct=right) for t, right in zip(whole, rights, strict=True)]
        sets = {bench: SimpleNamespace(source="real") for bench in ("zoombench", "zoombench-crop")}
        gaps.append(zooming_gap({"zoombench": whole, "zoombench-crop": crop}, sets)["gap_ci95"])
    assert gaps[0][1] - gaps[0][0] > 1.4 * (gaps[1][1] - gaps[1][0])


@pytest.mark.parametrize(("bench", "source"), [("dataset", "real"), ("o3bench", "generated")])
def test_images_of_your_own_data_and_of_generated_scenes_make_no_clusters(bench, source, tmp_path):
    assert len(set(clusters_of(of_images(tmp_path, bench, source)))) == 40


def test_repeated_rows_and_other_questions_about_their_image_are_one_cluster(tmp_path):
    image, other = (Image.new("RGB", (32, 32), colour) for colour in ("red", "blue"))
    asked = [("row", image), ("row#2", other), ("next", other), ("last", Image.new("RGB", (32, 32)))]
    made = [
        dataclasses.replace(
            played(f"mme-realworld-lite-{name}", True, bench="mme-realworld-lite"), source="real", images=(shown,)
        )
        for name, shown in asked
    ]
    write_trajectories(tmp_path, made)
    found = clusters_of(read_trajectories(tmp_path))
    assert found[0] == found[1] == found[2] != found[3]


def test_clusters_of_one_task_change_nothing():
    alone = [played(f"mine-{n}", n % 3 > 0) for n in range(12)]
    named = [played(f"mine-{n}", n % 3 > 0, cluster=f"image {n}") for n in range(12)]
    assert measure(named, "vstar") == measure(alone, "vstar")
    assert cluster_of(played("a", True, cluster="")) == "a"
    assert cluster_of(played("a", True, cluster=[1])) == cluster_of(played("b", True, cluster=[1]))


def test_intervals_do_not_count_repeated_rows_as_more_questions():
    once = measure([t for t in repeated([True, False] * 6) if "#" not in t.task_id], "vstar")["ci95"]["accuracy"]
    thrice = measure(repeated([True, False] * 6), "vstar")["ci95"]["accuracy"]
    assert thrice[1] - thrice[0] >= 0.9 * (once[1] - once[0])


def test_a_comparison_tests_questions_and_counts_tasks():
    found = compare({"": repeated([False] * 5)}, {"": repeated([True] * 5)})[""]["mcnemar"]
    assert found["only_b"] == 15 and found["p"] == pytest.approx(2 / 2**5)
    found = compare({"": repeated([False, True])}, {"": repeated([True, False])})[""]["mcnemar"]
    assert found["p"] == 1.0


@given(st.lists(st.integers(-4, 4), max_size=7))
def test_signs_are_flipped_exactly(differences):
    sums = [
        abs(sum(s * d for s, d in zip(signs, differences, strict=True)))
        for signs in product((1, -1), repeat=len(differences))
    ]
    expected = sum(total >= abs(sum(differences)) for total in sums) / len(sums)
    assert sign_flip(differences) == pytest.approx(expected)


@given(st.lists(st.integers(-1, 1), max_size=30))
def test_with_a_task_for_each_question_it_is_mcnemars_test(differences):
    assert sign_flip(differences) == mcnemar(differences.count(-1), differences.count(1))
    assert sign_flip([2 * d for d in differences]) == pytest.approx(sign_flip(differences))
