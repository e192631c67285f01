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
GENERATED = {"changelog.md"}
"""Pages of the navigation that are generated while the site is built."""


def without_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE))


def anchors(text: str) -> set[str]:
    """The anchors of headings for which GitHub and Python-Markdown agree."""
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
    assert set(listed) - GENERATED == found


def test_options_read_from_the_source_match_the_commands():
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
        # Arguments handled before the options are not fields of them; `codev study` has its own `--preset`.
        assert flags == own - ({"--help", "--preset", "--config", "--dry-run"} - flags), command
        assert all(option.about and option.type for option in options), command
    train = {option.flag: option for option in module.options_of(OPTIONS["train"])}
    assert train["--env.max-turns"].default == "6" and train["--reward"].default == "'tapo'"
    compare = module.options_of(OPTIONS["eval compare"])
    assert [option.flag for option in compare[:2]] == ["A", "B"] and not compare[0].default


class Resources(HTMLParser):
    """Collects the resources that a page loads: scripts, styles, images, frames."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag in ("script", "img", "iframe", "source", "object"):
            self.found.append(given.get("src") or given.get("data") or "")
        elif tag == "link" and given.get("rel") in ("stylesheet", "preconnect", "preload", "icon"):
            self.found.append(given.get("href") or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built once."""
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed (make docs)")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.integration
def test_the_site_builds_without_warnings_and_loads_nothing_from_elsewhere(site):
    reference = site / "reference"
    for folder, names in (
        ("environments", ENV_IDS),
        ("rewards", REWARDS),
        ("dialects", dialect_names()),
        ("commands", COMMANDS),
    ):
        assert {path.stem for path in (reference / folder).glob("*.html")} - {"index"} == set(names)
    assert "--env.max-turns" in (reference / "commands" / "train.html").read_text("utf-8")
    assert "no-run" not in (site / "data.html").read_text("utf-8")
    for page in site.rglob("*.html"):
        parser = Resources()
        parser.feed(page.read_text("utf-8"))
        outside = [url for url in parser.found if re.match(r"(https?:)?//", url)]
        assert not outside, f"{page.name} loads {outside}"


@pytest.mark.integration
def test_the_gallery_shows_a_task_a_crop_and_a_reward_of_each_environment(site):
    page = (site / "gallery.html").read_text("utf-8")
    parser = Resources()
    parser.feed(page)
    entries = page.split('<div class="entry">')[1:]
    assert len(entries) == len(ENV_IDS)
    for env_id, entry in zip(ENV_IDS, entries, strict=True):
        assert f">{env_id}</a>" in entry and re.search(r"Reward <strong>1\.\d", entry)
        files = re.findall(r'src="(gallery/[^"]+)"', entry)
        assert files[0] == f"gallery/{env_id}.jpg" and len(files) >= 2
        assert all(1_000 < (site / name).stat().st_size < 200_000 for name in files)
        assert f'src="../../{files[0]}"' in (site / "reference" / "environments" / f"{env_id}.html").read_text("utf-8")


@pytest.fixture
def browser():
    sys.path.insert(0, str(ROOT / "tests" / "eval"))
    from browser import CHROMIUM, Browser

    if CHROMIUM is None:
        pytest.skip("no chromium, chromium-browser or google-chrome on PATH")
    with Browser() as opened:
        yield opened


SEARCH = """(async () => {
    const field = document.querySelector("[data-md-component=search-query]");
    const toggle = document.querySelector("#__search");
    toggle.checked = true;
    toggle.dispatchEvent(new Event("change"));
    field.focus();
    for (let tries = 0; tries < 100; tries++) {
        field.value = "provenance";
        field.dispatchEvent(new KeyboardEvent("keyup", {bubbles: true}));
        await new Promise((done) => setTimeout(done, 100));
        const found = [...document.querySelectorAll(".md-search-result__item a")].map((link) => link.href);
        if (found.length) return found;
    }
    return [];
})()"""


@pytest.mark.integration
def test_the_search_works_in_a_page_opened_from_disk(site, browser):
    browser.open((site / "index.html").as_uri())
    assert any("provenance.html" in link for link in browser.js(SEARCH))


@pytest.mark.integration
def test_copy_buttons_copy_what_is_typed(site, browser):
    browser.open((site / "index.html").as_uri())
    # What the button copies is the text of the block while it carries this attribute.
    copied = browser.js(
        """(() => { const code = document.querySelector(".highlight .gp").closest("code");
        code.setAttribute("data-md-copying", ""); return code.innerText; })()"""
    )
    assert copied.split("\n")[:2] == ["make train", "make test"] and "$" not in copied


@pytest.mark.integration
@pytest.mark.parametrize("width", [1280, 390])
def test_the_home_page_has_the_report_and_a_diagram_and_is_not_cut(site, browser, width):
    metrics = {"deviceScaleFactor": 1, "mobile": False, "width": width, "height": 900}
    browser.send("Emulation.setDeviceMetricsOverride", metrics)
    browser.open((site / "index.html").as_uri())
    assert browser.js("document.querySelector('.shot img').naturalWidth") > 600
    assert browser.js("document.querySelectorAll('svg.episode rect').length") > 4
    assert browser.js("document.documentElement.scrollWidth") <= width
    # On phones it scrolls beside the text: in the width of the page its letters could not be read.
    assert browser.js("document.querySelector('.shot img').getBoundingClientRect().width") > 600
