"""The generated pages of the reference: defaults and types as they are typed, and data of the reader's own."""

from __future__ import annotations

import re
import sys

import pytest
from pages import DOCS


@pytest.fixture(scope="module")
def hook():
    pytest.importorskip("mkdocs")
    sys.path.insert(0, str(DOCS / "hooks"))
    try:
        import gallery
        import make_pages
    finally:
        sys.path.remove(str(DOCS / "hooks"))
    return gallery, make_pages


def test_commands_show_defaults_as_they_are_typed(hook):
    pages = {title: text for title, _, text in hook[1].command_pages()}
    for text in pages.values():
        assert not re.search(r"PosixPath|\| `(\(.*?\)|None|'.*?')` \|", text)
        assert "`{," not in text
    assert "| `--out` | `PATH` | `runs/eval` |" in pages["codev eval"]
    assert re.search(r"\| `--suite` \| `\{zoom,all\}` \| \*empty\* \|", pages["codev eval"])
    assert "| `--bench` | `TEXT` | `vstar` |" in pages["codev eval"]
    assert re.search(r"\| `--model` \| `TEXT` \| required \|", pages["codev eval"])


@pytest.mark.parametrize("env_id", ["CodeV-Dataset-v0", "CodeV-Video-v0"])
def test_environments_over_own_data_show_how_to_name_it(hook, env_id):
    _, made = hook
    bench = next(bench for bench in made.BENCHES.values() if bench.env_id == env_id)
    text = made._made(env_id, bench)
    assert f'gym.make("codev_env:{env_id}", data="rows.jsonl")' in text and 'data="synthetic")' in text
    assert "rows.jsonl" not in made._made("CodeV-VStar-v0", made.BENCHES["vstar"])


def test_names_in_tables_break_between_their_parts_alone(hook):
    cells = "<td><code>--image-folder</code></td><td><code>a/b_c-d --wrap x.py</code> e_f</td>"
    shown = hook[1].on_page_content(f"<table><tr>{cells}</tr></table>")
    assert "<code>--image-folder</code>" in shown
    assert "<code>a/<wbr>b_<wbr>c-<wbr>d <wbr>--wrap <wbr>x.py</code> e_f" in shown


def test_choices_and_addresses_in_tables_break(hook):
    shown = hook[1].on_page_content("<td><code>{a,b}</code> <code>http://host:1</code> a,b</td>")
    assert shown == "<td><code>{a,<wbr>b}</code> <code>http://<wbr>host:1</code> a,b</td>"


def test_no_line_breaks_within_an_option(hook):
    """Browsers break lines after `--`."""
    shown = hook[1].on_page_content("<p><code>codev train --dry-run</code> --x</p><pre><code>a --b</code></pre>")
    option = '<span class="option">--dry-run</span>'
    assert shown == f"<p><code>codev train {option}</code> --x</p><pre><code>a --b</code></pre>"


def test_pipes_in_code_are_shown_as_they_are(hook):
    assert hook[1]._table(("a",), [["`x|y` or z|w"]])[-1] == "| `x|y` or z\\|w |"
