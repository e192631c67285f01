"""The pages of other conditions: one each, beside the plain episodes, led to by the report and made again with it."""

from __future__ import annotations

import re
from pathlib import Path

from eval_samples import episodes

from codev_env.app import cli
from codev_eval.report.condition_pages import write_condition_pages


def run_eval(out: Path, *options: str, model: str = "scripted:oracle") -> int:
    given = ["--model", model, "--data", "synthetic", "--scenes", "toy", "--n", "2", "--out", str(out)]
    return cli.main(["eval", *given, *options])


def links(page: Path) -> list[str]:
    return re.findall(r'<a href="([^"#]+)"', page.read_text("utf-8"))


def runs(page: Path) -> list[str]:
    return re.findall(r'<article [^>]*data-run="([^"]*)"', page.read_text("utf-8"))


def test_every_condition_has_a_page_that_the_report_leads_to(tmp_path):
    options = ["--dual", "--perturb", "mask", "empty", "--suites", "orientation"]
    assert run_eval(tmp_path, *options) == 0
    folders = ["perturbed-empty", "perturbed-mask", "suite-orientation", "without-tool"]
    assert links(tmp_path / "report.html") == [f"{folder}/report.html" for folder in folders]
    assert runs(tmp_path / "without-tool" / "report.html") == ["plain", "without tool"] * 2
    assert runs(tmp_path / "perturbed-mask" / "report.html") == ["plain", "mask"] * 2
    suite = (tmp_path / "suite-orientation" / "report.html").read_text("utf-8")
    variants = re.findall(r'data-variant="([^"]*)"', suite)
    assert len(variants) == 10 and variants[:5] == variants[5:] and len(set(variants)) == 5
    assert all(f'<option value="{name}">' in suite for name in variants)
    for folder in folders:
        (back,) = links(tmp_path / folder / "report.html")
        assert (tmp_path / folder / back).resolve() == tmp_path.resolve() / "report.html"
    # `codev report` makes all of them again.
    pages = {path: path.read_bytes() for path in tmp_path.rglob("report.html")}
    for path in pages:
        path.unlink()
    assert cli.main(["report", str(tmp_path)]) == 0
    assert {path: path.read_bytes() for path in tmp_path.rglob("report.html")} == pages


def test_there_is_no_section_without_other_conditions(tmp_path):
    assert run_eval(tmp_path, "--perturb", "mask", model="scripted:none") == 0
    assert not links(tmp_path / "report.html") and 'id="conditions"' not in (tmp_path / "report.html").read_text()


def test_only_plain_episodes_that_were_played_again_stand_beside(tmp_path):
    plain = episodes(True, 6)
    write_condition_pages(tmp_path, {"": plain, "perturbed-noise": plain[2:4]}, "title")
    page = tmp_path / "perturbed-noise" / "report.html"
    assert runs(page) == ["plain", "noise"] * 2
    assert re.findall(r'aria-label="Task (\d+)"', page.read_text("utf-8")) == ["2", "3"]
