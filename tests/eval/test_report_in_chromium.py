"""The report in a real browser: scripts run, filters count, images appear, injected scripts do not run."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
from browser import CHROMIUM, Browser
from eval_samples import episodes, make_run, trajectory
from PIL import Image
from test_report import evil_trajectory
from test_view import Running

from codev_env.provenance.coordinates import box_polygon
from codev_env.scoring.metrics import summarize
from codev_env.trajectory import read_trajectories, write_trajectories
from codev_env.types import Region
from codev_eval.report.condition_pages import write_condition_pages
from codev_eval.report.report import RUN_TASKS, write_report, write_run_report

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome on PATH"),
]


def chromium(page: Path, *options: str, fragment: str = "") -> str:
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=2000", *options]
    done = subprocess.run([*command, page.as_uri() + fragment], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


def counted(dom: str) -> str:
    found = re.search(r'<output id="count"[^>]*>([^<]*)</output>', dom)
    assert found is not None
    return unescape(found[1])


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    run = make_run(tmp_path_factory.mktemp("run"))
    write_run_report(run)
    return run


def test_without_filters_all_episodes_are_shown(run):
    assert counted(chromium(run / "report.html", "--dump-dom")) == f"{2 * RUN_TASKS} episodes"


def test_filters_in_the_address_are_applied(run):
    after = read_trajectories(run / "after")[:RUN_TASKS]
    wanted = sum(t.is_correct and not t.is_faithful for t in after)
    assert wanted > 0
    dom = chromium(run / "report.html", "--dump-dom", fragment="#correct=1&faithful=0&run=after")
    assert counted(dom) == f"{wanted} of {2 * RUN_TASKS} episodes"
    hidden = len(re.findall(r'<article class="episode"[^>]* hidden=""', dom))
    assert hidden == 2 * RUN_TASKS - wanted


def test_a_filter_that_nothing_fits_says_so(run):
    dom = chromium(run / "report.html", "--dump-dom", fragment="#run=before&category=relative_position&faithful=1")
    assert counted(dom).startswith("0 of")
    assert re.search(r'<p id="nothing" class="empty">', dom)


def test_an_unknown_value_in_the_address_is_ignored(run):
    dom = chromium(run / "report.html", "--dump-dom", fragment="#correct=maybe&nothing=1")
    assert counted(dom) == f"{2 * RUN_TASKS} episodes"


def driven(run: Path, script: str) -> str:
    """The page's DOM after a script used it; the page's policy, which would forbid the script, is taken out."""
    html = (run / "report.html").read_text("utf-8")
    html = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", html)
    page = run / "driven.html"
    page.write_text(html.replace("</body>", f"<script>{script}</script></body>"), "utf-8")
    return chromium(page, "--dump-dom")


def test_clicks_filter_hide_boxes_and_are_kept_in_the_address(run):
    click = "document.querySelector('{}').click();"
    clicks = ('input[name=correct][value="0"]', 'input[name=run][value="after"]', 'input[name="show-crop"]')
    script = "".join(map(click.format, clicks)) + "document.body.dataset.hash = location.hash"
    dom = driven(run, script)
    wrong = sum(not t.is_correct for t in read_trajectories(run / "after")[:RUN_TASKS])
    assert counted(dom) == f"{wrong} of {2 * RUN_TASKS} episodes"
    body = re.search(r"<body[^>]*>", dom)
    assert body is not None
    assert "show-target" in body[0] and "show-crop" not in body[0]
    assert 'data-hash="#correct=0&amp;run=after"' in body[0]


def test_reset_shows_everything_again(run):
    script = """document.querySelector('input[name=correct][value="0"]').click();
        document.querySelector('button[type=reset]').click()"""
    assert counted(driven(run, script)) == f"{2 * RUN_TASKS} episodes"


def test_j_and_k_walk_through_the_tasks(run):
    press = "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: '%s', bubbles: true}));"
    script = "".join(press % key for key in "jjjk") + "document.activeElement.dataset.here = 1"
    here = re.search(r'<section[^>]*data-here="1"[^>]*>', driven(run, script))
    assert here is not None and 'aria-label="Task 1"' in here[0]


def test_the_images_are_painted_in_light_and_dark(run, tmp_path):
    backgrounds = []
    for scheme in ("1", "0"):
        shot = tmp_path / f"{scheme}.png"
        options = (f"--screenshot={shot}", "--window-size=1200,4000", f"--blink-settings=preferredColorScheme={scheme}")
        chromium(run / "report.html", *options)
        with Image.open(shot) as opened:
            pixels = opened.convert("RGB")
        backgrounds.append(sum(pixels.getpixel((2, 2))))  # type: ignore[arg-type]
        colors = {color for _, color in pixels.getcolors(1 << 24) or []}
        for disc in ((0, 128, 0), (0, 0, 255), (255, 165, 0)):
            assert any(max(abs(a - b) for a, b in zip(disc, color, strict=True)) < 8 for color in colors), disc
        assert (242, 113, 28) in colors, "the crop boxes"
    assert backgrounds[0] > 700 > 100 > backgrounds[1]


def test_injected_scripts_do_not_run(tmp_path):
    episode = evil_trajectory()
    page = write_report(tmp_path, [episode], {"n": 1}, "plain title")
    html = page.read_text("utf-8")
    # Even if escaping failed somewhere, the page's policy lets no other script run.
    broken = tmp_path / "broken.html"
    attack = "<script>document.title='attacked'</script><img src=x onerror=\"document.title='attacked'\">"
    broken.write_text(html.replace("</header>", attack + "</header>", 1), "utf-8")
    for path in (page, broken):
        assert "<title>plain title</title>" in chromium(path, "--dump-dom")


@pytest.fixture
def browser():
    with Browser() as opened:
        yield opened


def shown(browser: Browser) -> str:
    return browser.js("document.querySelector('#count').textContent")


def test_mouse_and_keys_filter_by_every_field(browser, tmp_path):
    played = episodes(True, 16)
    page = write_report(tmp_path, played, summarize(played), "evaluation")
    browser.open(page.as_uri())
    assert shown(browser) == "16 episodes"
    browser.click('input[name=correct][value="0"]')
    wrong = sum(not t.is_correct for t in played)
    assert shown(browser) == f"{wrong} of 16 episodes"
    browser.click("button[type=reset]")
    browser.js("new Promise(done => setTimeout(done, 50))")
    assert shown(browser) == "16 episodes"
    browser.js("document.activeElement.blur()")
    browser.press("c")
    assert shown(browser) == f"{16 - wrong} of 16 episodes"
    browser.press("f")
    both = sum(t.is_correct and t.is_faithful for t in played)
    assert shown(browser) == f"{both} of 16 episodes"
    browser.press("r")
    browser.js("new Promise(done => setTimeout(done, 50))")
    options = browser.js("[...document.querySelectorAll('select[name=suspected] option')].map(o => o.value)")
    assert "right, not faithful" in options
    browser.js("location.hash = '#' + new URLSearchParams({suspected: 'right, not faithful'})")
    browser.js("new Promise(done => setTimeout(done, 50))")
    blind = sum(t.is_correct and not t.is_faithful for t in played)
    assert blind and shown(browser) == f"{blind} of 16 episodes"
    assert len(browser.screenshot()) > 10_000


def test_another_condition_is_a_link_away_and_shows_whose_answer_changed(browser, tmp_path):
    plain = episodes(True, 6)
    masked = [replace(t, final_answer="none", is_correct=False) if t.index % 2 else t for t in plain]
    links = write_condition_pages(tmp_path, {"": plain, "perturbed-mask": masked}, "evaluation")
    page = write_report(tmp_path, plain, summarize(plain), "evaluation", links)
    browser.open(page.as_uri())
    browser.click("#conditions a")
    browser.wait_for("Page.loadEventFired", 2)
    assert browser.js("location.pathname").endswith("/perturbed-mask/report.html") and shown(browser) == "12 episodes"
    browser.click('input[name=differ][value="answer"]')
    assert shown(browser) == "6 of 12 episodes"
    changed = sum(a.is_correct != b.is_correct for a, b in zip(plain, masked, strict=True))
    browser.click('input[name=differ][value="correct"]')
    assert 0 < changed < 6 and shown(browser) == f"{2 * changed} of 12 episodes"
    browser.click('input[name=run][value="mask"]')
    assert shown(browser) == f"{changed} of 12 episodes"
    tree = browser.send("Accessibility.getFullAXTree")["nodes"]
    names = {n["name"]["value"] for n in tree if n.get("role", {}).get("value") == "radio" and not n.get("ignored")}
    assert {"plain", "mask", "answer differently", "one is right"} <= names
    browser.click('a[href="../report.html"]')
    browser.wait_for("Page.loadEventFired", 3)
    assert shown(browser) == "6 episodes"


def test_everything_can_be_reached_by_keyboard_and_has_a_name(browser, run):
    browser.open((run / "report.html").as_uri())
    tree = browser.send("Accessibility.getFullAXTree")["nodes"]
    roles = {"radio", "checkbox", "button", "combobox", "link", "image"}
    named = [n for n in tree if n.get("role", {}).get("value") in roles and not n.get("ignored")]
    assert len(named) > 10
    assert not [n for n in named if not n.get("name", {}).get("value")]
    assert browser.js("[...document.querySelectorAll('input, select, button, summary, a')].every(e => e.tabIndex >= 0)")


def test_runs_that_disagree_can_be_filtered(browser, run):
    browser.open((run / "report.html").as_uri())
    before, after = (read_trajectories(run / part)[:RUN_TASKS] for part in ("before", "after"))
    differ = sum(a.is_correct != b.is_correct for a, b in zip(before, after, strict=True))
    browser.click('input[name=differ][value="correct"]')
    assert 0 < differ < RUN_TASKS and shown(browser) == f"{2 * differ} of {2 * RUN_TASKS} episodes"


def test_a_live_page_loads_itself_again_when_the_run_went_on(browser, tmp_path):
    write_trajectories(tmp_path, episodes(True, 2))
    with Running(tmp_path) as running:
        browser.open(running.url)
        assert shown(browser) == "2 episodes"
        browser.js("new Promise(done => setTimeout(done, 300))")  # it has asked for the version once
        browser.events.clear()
        write_trajectories(tmp_path, episodes(True, 5)[2:])
        browser.wait_for("Page.loadEventFired")
        assert shown(browser) == "5 episodes"
        browser.open("about:blank")


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (390, 844)])
def test_the_first_number_is_above_the_fold_and_nothing_is_cut(browser, run, width, height):
    metrics = {"deviceScaleFactor": 1, "mobile": False, "width": width, "height": height}
    browser.send("Emulation.setDeviceMetricsOverride", metrics)
    browser.open((run / "report.html").as_uri())
    assert browser.js("document.querySelector('.tile .big').getBoundingClientRect().bottom") < height
    assert browser.js("document.documentElement.scrollWidth") <= width
    inside = "[...document.querySelectorAll('.rows > * > tr > *')].every(e => e.getBoundingClientRect().right <= {})"
    assert browser.js(inside.format(width))


def wait(browser: Browser, ms: int = 80) -> None:
    browser.js(f"new Promise(done => setTimeout(done, {ms}))")


def view_box(browser: Browser) -> list[float]:
    return [float(n) for n in browser.js("document.querySelector('.stage svg').getAttribute('viewBox')").split()]


def test_an_image_opens_at_zoom_by_mouse_wheel_keys_and_touch(browser, run):
    browser.open((run / "report.html").as_uri())
    browser.click(".task:nth-of-type(2) .scene .picture")
    assert browser.js("document.querySelector('#zoom').open")
    whole = view_box(browser)
    browser.send("Input.dispatchMouseEvent", {"type": "mouseWheel", "x": 500, "y": 300, "deltaX": 0, "deltaY": -400})
    wait(browser)
    near = view_box(browser)
    assert near[2] < whole[2]
    # The point under the pointer stays where it is.
    across = 500 / browser.js("innerWidth")
    assert whole[0] + across * whole[2] == pytest.approx(near[0] + across * near[2], abs=2)
    browser.press("0")
    assert view_box(browser) == pytest.approx(whole)
    browser.press("t")
    x, y, w, h = view_box(browser)
    line = "document.querySelector('.stage .mark.target .line').getBBox()"
    left, top = browser.js(f"{line}.x"), browser.js(f"{line}.y")
    assert w < whole[2] / 2 and x <= left <= x + w and y <= top <= y + h
    browser.press("0")
    fingers = [[{"x": 400 - d, "y": 300, "id": 1}, {"x": 500 + d, "y": 300, "id": 2}] for d in (0, 40, 120)]
    browser.send("Emulation.setTouchEmulationEnabled", {"enabled": True, "maxTouchPoints": 2})
    for kind, points in (("touchStart", fingers[0]), ("touchMove", fingers[1]), ("touchMove", fingers[2])):
        browser.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    browser.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    wait(browser)
    assert view_box(browser)[2] < whole[2]
    browser.press("n")
    assert "Returned image 1" in browser.js("document.querySelector('#zoom .caption').textContent")
    browser.click("[data-do=close]")
    assert not browser.js("document.querySelector('#zoom').open")
    assert browser.js("document.activeElement.matches('.picture')")
    browser.js("document.querySelector('.task .picture').focus()")
    browser.press("Enter")
    assert browser.js("document.querySelector('#zoom').open")


def test_a_slider_shows_one_turn_and_the_crops_up_to_it(browser, tmp_path):
    played = [trajectory(1, looks=True, right=True)]
    played[0] = replace(played[0], turns=(played[0].turns[0], *played[0].turns))
    browser.open(write_report(tmp_path, played, summarize(played), "long").as_uri())
    slide = (
        "(n => {const r = document.querySelector('.slide input'); r.value = n; r.dispatchEvent(new Event('input'))})"
    )
    turns = "[...document.querySelectorAll('li[data-turn]')].filter(t => !t.hidden).map(t => t.dataset.turn).join()"
    crops = (
        "[...document.querySelectorAll('.scene .mark.crop')].filter(m => getComputedStyle(m).display != 'none').length"
    )
    assert browser.js(turns) == "1,2,3" and browser.js(crops) == 2
    browser.js(f"{slide}(1)")
    assert browser.js(turns) == "1" and browser.js(crops) == 1
    assert browser.js("document.querySelector('.slide output').textContent") == "1 of 3"
    browser.js(f"{slide}(0)")
    assert browser.js(turns) == "1,2,3" and browser.js(crops) == 2


def test_a_key_goes_to_the_next_episode_of_the_same_outcome(browser, tmp_path):
    played = episodes(True, 16)
    browser.open(write_report(tmp_path, played, summarize(played), "outcomes").as_uri())
    outcomes = [(t.is_correct, t.is_faithful) for t in played]
    alike = [t.index for t, outcome in zip(played, outcomes, strict=True) if outcome == outcomes[0]]
    here = "document.activeElement.closest('.task').getAttribute('aria-label')"
    seen = []
    for _ in range(3):
        browser.press("n")
        seen.append(browser.js(here))
    assert seen == [f"Task {index}" for index in alike[:3]]
    browser.press("p")
    assert browser.js(here) == f"Task {alike[1]}"


def test_what_was_not_seen_can_be_dimmed(browser, tmp_path):
    part, box = trajectory(1, looks=True, right=True), (454, 6, 554, 106)
    region = Region(box_polygon(box), box, 0, "rot0", original_share=1.0)
    played = [replace(part, turns=(replace(part.turns[0], regions=(region,)), *part.turns[1:]))]
    browser.open(write_report(tmp_path, played, summarize(played), "seen").as_uri())
    dimmed = "getComputedStyle(document.querySelector('.unseen')).display != 'none'"
    assert not browser.js(dimmed)
    browser.click("input[name=show-seen]")
    assert browser.js(dimmed)
    assert browser.js("document.querySelectorAll('.scene .mark.target.seen, .crops figure.seen').length") == 2


def test_without_scripts_the_page_can_be_read_and_offers_nothing_that_does_not_work(browser, run):
    browser.send("Emulation.setScriptExecutionDisabled", {"value": True})
    browser.open((run / "report.html").as_uri())
    visible = "[...document.querySelectorAll({!r})].filter(e => e.checkVisibility()).length"
    assert browser.js(visible.format("form, input, button")) == 0
    assert browser.js(visible.format(".episode")) == 2 * RUN_TASKS
