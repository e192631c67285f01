"""Highlighting keeps every character, escaped, whatever the source."""

from __future__ import annotations

import re
from html import unescape

import pytest
from eval_samples import markup
from hypothesis import given
from hypothesis import strategies as st

from codev_eval.report.highlight import highlight


def html_of(source: str) -> str:
    return markup("episodes", "code", highlight(source))


def text_of(html: str) -> str:
    return unescape(re.sub(r'<span class="[ksncb]">|</span>', "", html))


def test_tokens_get_their_class():
    html = html_of("for i in range(3):  # loop\n    x = 'a'\n")
    assert '<span class="k">for</span>' in html
    assert '<span class="b">range</span>' in html
    assert '<span class="n">3</span>' in html
    assert '<span class="c"># loop</span>' in html
    assert '<span class="s">&#39;a&#39;</span>' in html


@pytest.mark.parametrize(
    "source",
    ["x = (1,", "  bad\n indent", "'''open", "f'{a!r:>{w}} {{}}' + x", "a\r\nb\r", "\x00", "\f1", "\ufeffx", "'\ud800"],
)
def test_broken_source_is_kept(source):
    assert "".join(text for _, text in highlight(source)) == source
    assert text_of(html_of(source)) == source


@given(st.text() | st.text(alphabet="abf'\"{}()<&>#\n\t :=10\\"))
def test_no_character_is_lost_and_none_is_markup(source):
    html = html_of(source)
    assert text_of(html) == source
    assert re.fullmatch(r'(?:<span class="[ksncb]">|</span>|[^<>])*', html)
