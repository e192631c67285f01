"""The templates: all compile, all are in the package, values are escaped, and a missing one is an error."""

from __future__ import annotations

import fnmatch
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import jinja2
import pytest

from codev_eval.report.rendering import load, render

ROOT = Path(__file__).parents[2]
PACKAGES = {"codev_eval.report": ROOT / "eval" / "report", "codev_eval.study": ROOT / "eval" / "study"}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_template_compiles_and_is_in_the_package(package):
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"][package]
    files = sorted((PACKAGES[package] / "templates").iterdir())
    assert files
    for file in files:
        assert any(fnmatch.fnmatch(f"templates/{file.name}", pattern) for pattern in declared), file.name
        if file.suffix == ".j2":
            load(file.name, package)


@pytest.mark.parametrize("package", PACKAGES)
def test_only_files_of_ours_are_marked_safe(package):
    """`| safe` is for the style, the script and figures that templates made: never for a text of a run."""
    safe = [
        line.strip()
        for file in sorted((PACKAGES[package] / "templates").glob("*.j2"))
        for line in file.read_text().splitlines()
        if re.search(r"\|\s*safe|autoescape", line)
    ]
    allowed = {"{{ style | safe }}", "<script>{{ script | safe }}</script>", "<figure>{{ figure.svg | safe }}</figure>"}
    assert set(safe) <= allowed


def test_a_missing_value_is_an_error():
    with pytest.raises(jinja2.UndefinedError, match="about"):
        render("study.html.j2", "codev_eval.study")


def test_texts_of_a_study_are_escaped_in_its_page_only(tmp_path):
    data = {"about": "<b>", "sources": "a & b", "pages": []}
    assert "&lt;b&gt;" in render("study.html.j2", "codev_eval.study", **data)
    assert "a & b" in render("study.md.j2", "codev_eval.study", **data)


def test_a_command_that_writes_no_report_imports_neither_library():
    code = "import sys, codev_eval.cli; sys.exit(bool({'jinja2', 'pygments'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
