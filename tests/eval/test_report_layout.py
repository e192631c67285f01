"""The layout of reports in Chromium: cards fill their rows."""

from __future__ import annotations

import json

import pytest
from browser import CHROMIUM, Browser

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
