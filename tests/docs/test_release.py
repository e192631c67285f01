"""The files of a release agree with the package and with each other."""

from __future__ import annotations

import re
import tomllib

import pytest
import yaml
from pages import ROOT

from codev_env import __version__

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
PYTHONS = [found[1] for text in PROJECT["classifiers"] if (found := re.search(r":: (3\.\d+)$", text))]


def test_the_version_is_the_same_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert __version__ == PROJECT["version"] == str(citation["version"]) == newest[1]


def test_the_citation_has_the_required_fields():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert citation["cff-version"] == "1.2.0" and citation["type"] == "software"
    assert citation["license"] == PROJECT["license"]
    for entry in (citation, *citation["references"]):
        assert entry["title"] and entry["authors"]
        assert all(
            {"name"} <= set(author) or {"family-names", "given-names"} <= set(author) for author in entry["authors"]
        )
    assert citation["message"] and all(reference["type"] for reference in citation["references"])


def test_the_workflow_runs_the_checks_on_every_python():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8"))
    fast, everything = workflow["jobs"]["fast"], workflow["jobs"]["all"]
    assert fast["strategy"]["matrix"]["python"] == PYTHONS
    assert any("make test" in step.get("run", "") for step in fast["steps"])
    assert any(step.get("run") == ".ci/run" for step in everything["steps"])
    assert workflow["permissions"] == {"contents": "read"}


@pytest.mark.parametrize(
    "form", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.stem
)
def test_issue_forms_have_the_required_fields(form):
    content = yaml.safe_load(form.read_text("utf-8"))
    if form.stem == "config":
        assert isinstance(content["blank_issues_enabled"], bool)
        return
    assert content["name"] and content["description"]
    ids = [field["id"] for field in content["body"]]
    assert len(set(ids)) == len(ids) and all(field["attributes"]["label"] for field in content["body"])


def test_packages_of_the_extra_docs_are_pinned():
    pins = {line.partition("==")[0].lower() for line in (ROOT / "constraints.txt").read_text("utf-8").split()}
    for wanted in PROJECT["optional-dependencies"]["docs"]:
        assert re.split(r"[<>=\[]", wanted)[0].lower() in pins
