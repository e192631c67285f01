"""The layout of reports in Chromium: cards fill their rows."""

from __future__ import annotations

import json

import pytest
from browser import CHROMIUM, Browser
from PIL import Image

from codev_env.app import cli

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    for name in ("none", "oracle"):
        given = ["--model", f"scripted:{name}", "--data", "synthetic", "--scenes", "toy", "--n", "3"]
        assert cli.main(["eval", *given, "--dual", "--perturb", "mask", "--out", str(folder / name)]) == 0
    assert cli.main(["eval", "compare", str(folder / "none"), str(folder / "oracle"), "--out", str(folder / "c")]) == 0
    return folder


@pytest.fixture(scope="module")
def browser():
    with Browser("--hide-scrollbars") as opened:
        yield opened


def size(browser: Browser, width: int) -> None:
    sizes = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.send("Emulation.setDeviceMetricsOverride", sizes)


@pytest.mark.parametrize("width", [1000, 1280, 1600])
def test_cards_of_an_evaluation_fill_their_rows(browser, pages, width):
    size(browser, width)
    browser.open((pages / "oracle" / "report.html").as_uri())
    found = browser.js(
        "JSON.stringify([...document.querySelectorAll('.parts')].map(p => "
        "[p, ...p.children].map(e => { const r = e.getBoundingClientRect(); return [r.top, r.right] })))"
    )
    groups = json.loads(found)
    assert groups and all(len(group) > 3 for group in groups)
    for (_, end), *cards in groups:
        rows = {top: max(right for each, right in cards if each == top) for top, _ in cards}
        assert len(rows) > 1 and list(rows.values()) == [pytest.approx(end, abs=1)] * len(rows)


def test_one_episode_is_no_episodes_and_a_long_word_is_not_cut(browser, tmp_path):
    Image.new("RGB", (200, 100), "grey").save(tmp_path / "a.png")
    row = {"image": "a.png", "question": "w" * 400, "answer": "a", "targets": [10, 10, 50, 50]}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    given = ["--model", "scripted:none", "--bench", "dataset", "--data", str(tmp_path / "rows.jsonl")]
    assert cli.main(["eval", *given, "--out", str(tmp_path / "one")]) == 0
    size(browser, 390)
    browser.open((tmp_path / "one" / "report.html").as_uri())
    assert "1 episode;" in browser.js("document.querySelector('.results .note').textContent")
    assert browser.js("document.querySelector('#count').textContent") == "1 episode"
    assert browser.js("(h => h.scrollWidth - h.clientWidth)(document.querySelector('.task h3'))") <= 0
