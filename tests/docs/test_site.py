"""Links, anchors, the navigation and the built site."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
import yaml
from pages import DOCS, PAGES, ROOT

from codev_env import ENV_IDS
from codev_env.app.cli import COMMANDS
from codev_env.app.completion import OPTIONS
from codev_env.dialects import dialect_names
from codev_env.rewards import REWARDS

FILES = [*PAGES, *(ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"))]
MADE = {"changelog.md"}
"""Pages of the navigation that are made while the site is built."""


def without_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE))


def anchors(text: str) -> set[str]:
    """The anchors of headings as both GitHub and Python-Markdown name them, where the two agree."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    plain = [re.sub(r"[^\w\s-]", "", heading.replace("`", "").lower()).strip() for heading in headings]
    return {heading.replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", FILES, ids=lambda page: page.name)
def test_links_and_anchors_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text("utf-8"))):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{page.name} links to {link}"
        if anchor:
            assert anchor in anchors(target.read_text("utf-8")), f"{page.name} links to {link}"


def test_every_page_is_in_the_navigation_once():
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]
    entries = [entry for section in nav for pages in section.values() for entry in pages]
    listed = [entry if isinstance(entry, str) else next(iter(entry.values())) for entry in entries]
    assert len(set(listed)) == len(listed)
    found = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if not page.name.startswith("adapters")}
    assert set(listed) - MADE == found


def test_tables_of_options_hold_what_the_commands_take():
    spec = importlib.util.spec_from_file_location("option_tables", DOCS / "hooks" / "option_tables.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["option_tables"] = module
    spec.loader.exec_module(module)
    from codev_env.app.completion import completions

    known = completions()
    for command, target in OPTIONS.items():
        options = module.options_of(target)
        flags = {option.flag for option in options if option.flag.startswith("--")}
        own = {word for word in known[command] if word.startswith("--")}
        # What goes before the options is no field of them; `codev study` has a `--preset` of its own.
        assert flags == own - ({"--help", "--preset", "--config", "--dry-run"} - flags), command
        assert all(option.about and option.type for option in options), command
    train = {option.flag: option for option in module.options_of(OPTIONS["train"])}
    assert train["--env.max-turns"].default == "6" and train["--reward"].default == "'tapo'"
    compare = module.options_of(OPTIONS["eval compare"])
    assert [option.flag for option in compare[:2]] == ["A", "B"] and not compare[0].default


class Resources(HTMLParser):
    """Collects what a page loads by itself: scripts, styles, images, frames."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag in ("script", "img", "iframe", "source", "object"):
            self.found.append(given.get("src") or given.get("data") or "")
        elif tag == "link" and given.get("rel") in ("stylesheet", "preconnect", "preload", "icon"):
            self.found.append(given.get("href") or "")


@pytest.mark.integration
def test_the_site_builds_without_warnings_and_loads_nothing_from_elsewhere(tmp_path):
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed (make docs)")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    reference = tmp_path / "reference"
    for folder, names in (
        ("environments", ENV_IDS),
        ("rewards", REWARDS),
        ("dialects", dialect_names()),
        ("commands", COMMANDS),
    ):
        assert {path.stem for path in (reference / folder).glob("*.html")} - {"index"} == set(names)
    assert "--env.max-turns" in (reference / "commands" / "train.html").read_text("utf-8")
    assert "no-run" not in (tmp_path / "data.html").read_text("utf-8")
    for page in tmp_path.rglob("*.html"):
        parser = Resources()
        parser.feed(page.read_text("utf-8"))
        outside = [url for url in parser.found if re.match(r"(https?:)?//", url)]
        assert not outside, f"{page.name} loads {outside}"
