"""Charts: bars, lines and pies with printed values, and questions about one or several of these values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from PIL import Image

from codev_env.errors import ConfigError, unknown
from codev_env.geometry import as_box
from codev_env.tasks.generators.answers import answer_fields, choices_for, decimals_hint, write
from codev_env.tasks.generators.generator import (
    SceneOptions,
    between,
    check_difficulty,
    grade,
    grade_range,
    pick,
    require,
    require_names,
    require_range,
    require_sizes,
    sample,
    stream,
)
from codev_env.tasks.generators.plotting import CHARTS, MOST_SLICES, Panel, draw_panel, fitting_font
from codev_env.types import Box, Task

CATEGORIES = ("value", "extreme", "difference", "count", "list")
"""Categories of questions."""

TITLES = (
    *("Visitors", "Orders", "Deliveries", "Repairs", "Bookings", "Harvest", "Rainfall", "Members", "Tickets", "Points"),
    *("Loans", "Calls", "Output", "Stock", "Votes", "Trips"),
)
"""Titles of charts; the charts of one image have different ones."""

NAMES = (
    ("Apple", "Pear", "Plum", "Lemon", "Mango", "Grape", "Fig", "Peach", "Cherry", "Melon", "Olive", "Kiwi"),
    ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
    ("Oak", "Elm", "Ash", "Birch", "Cedar", "Maple", "Pine", "Willow", "Beech", "Alder", "Larch", "Yew"),
    ("Fox", "Hare", "Owl", "Deer", "Otter", "Crane", "Swan", "Heron", "Lynx", "Bear", "Wolf", "Seal"),
    ("Team A", "Team B", "Team C", "Team D", "Team E", "Team F", "Team G", "Team H", "Team J", "Team K"),
)
"""Families of item names; each chart uses one family."""

_LEAST_FONT = 9
_LEAST_SLICE = 4  # percent; room for the number


class _PanelQuestion(NamedTuple):
    """A question about some items of a panel, by index; the names of the items `names` are evidence too."""

    text: str
    answer: str
    choices: tuple[str, ...]
    evidence: list[int]
    fields: dict[str, Any]
    names: tuple[int, ...] = ()


@dataclass(frozen=True)
class ChartOptions(SceneOptions):
    """Options of an image with one or several charts, all values printed.

    `value` asks for one value, `extreme` for the name with the largest or smallest one, `difference` for that of two
    values, `count` for how many are greater than a number, `list` for two values in order. The targets are the printed
    numbers that have to be read, for `extreme` the name too. The answers are those of MathVista, free or with four
    choices; `meta` has `question_type`, `answer_type` and `precision`.
    """

    kind: ClassVar[str] = "charts"

    sizes: tuple[tuple[int, int], ...] = ((1280, 960), (1600, 1200), (1600, 900))
    """Widths and heights in pixels; each scene takes one pair."""
    categories: tuple[str, ...] = CATEGORIES
    """The categories of questions."""
    charts: tuple[str, ...] = CHARTS
    """The kinds of charts: `"bar"`, `"line"`, `"pie"`."""
    panels: tuple[int, int] = (1, 2)
    """Least and greatest number of charts in an image."""
    items: tuple[int, int] = (5, 8)
    """Least and greatest number of values in a chart, 4 to 10; a pie has at most 8."""
    font: tuple[int, int] = (18, 24)
    """Least and greatest size of the text in pixels; smaller, but at least 9, if it does not fit."""
    decimals: tuple[int, ...] = (0, 1)
    """Numbers of decimals of the values; each chart takes one. Pies have whole percentages."""
    choice_share: float = 0.5
    """Probability of four choices, for categories that have them."""

    def __post_init__(self) -> None:
        require_sizes("sizes", self.sizes, 256)
        require_names("categories", self.categories, CATEGORIES)
        require_names("charts", self.charts, CHARTS)
        require_range("panels", self.panels, 1, len(TITLES))
        require_range("items", self.items, 4, 10)
        require_range("font", self.font, _LEAST_FONT, 200)
        ok = len(self.decimals) > 0 and set(self.decimals) <= {0, 1, 2}
        require(ok, "decimals", self.decimals, "one or more of 0, 1, 2")
        require(0 <= self.choice_share <= 1, "choice_share", self.choice_share, "a probability from 0 to 1")
        for size in self.sizes:
            if _most_font(size, self.panels, self.items[1]) < _LEAST_FONT:
                raise ConfigError(
                    f"scene options 'panels' {self.panels!r} and 'items' {self.items!r} leave no room for legible text "
                    f"in an image of {size[0]}x{size[1]} pixels: use fewer of them or larger 'sizes'."
                )

    def only(self, category: str) -> ChartOptions:
        """Return a copy that asks questions of one category; raises `ConfigError` for one it does not have."""
        if category not in self.categories:
            raise unknown("category of charts", category, self.categories)
        return replace(self, categories=(category,))

    def at_difficulty(self, difficulty: float) -> ChartOptions:
        """Return a copy for a level of difficulty; the images keep their sizes.

        Sets `font` from 36 down to 11, `panels` from 1 up to 6 and `items` from (4, 5) up to (8, 10), with fewer panels
        where an image has no room for them. Raises `ConfigError` for a difficulty out of range.
        """
        d = check_difficulty(difficulty)
        font, panels = round(grade(d, 36, 11)), round(grade(d, 1, 6))
        items = grade_range(d, (4, 5), (8, 10))
        while panels > 1 and any(_most_font(size, (panels, panels), items[1]) < font for size in self.sizes):
            panels -= 1
        return replace(self, font=(font, font), panels=(panels, panels), items=items)

    def draw(self, task_id: str, seed: np.random.SeedSequence) -> Task:
        """Draw the scene that belongs to a seed; see `SceneOptions.draw`."""
        rng = stream(seed, 0)
        size = pick(rng, self.sizes)
        category = pick(rng, self.categories)
        panels = self._panels(rng, size)
        asked = between(rng, 0, len(panels) - 1)
        panel = panels[asked]
        question = _ask(rng, panel, category, bool(rng.random() < self.choice_share))
        image = Image.new("RGB", size, (255, 255, 255))
        drawn = [draw_panel(stream(seed, 1 + number), image, panel) for number, panel in enumerate(panels)]
        first = sum(len(panel.names) for panel in panels[:asked])
        items = drawn[asked]
        boxes = [items[i]["box"] for i in question.evidence] + [items[i]["name_box"] for i in question.names]
        where = f'In the chart "{panel.title}": ' if len(panels) > 1 else ""
        return Task(
            task_id=task_id,
            images=(image,),
            question=where + question.text,
            answer=question.answer,
            choices=question.choices,
            targets=tuple(as_box(box) for box in boxes),
            category=category,
            meta={
                "objects": [{"panel": number, **item} for number, items in enumerate(drawn) for item in items],
                "targets": [first + i for i in question.evidence],
                "panel": asked,
                "charts": [panel.chart for panel in panels],
                "titles": [panel.title for panel in panels],
                **question.fields,
            },
        )

    def _panels(self, rng: np.random.Generator, size: tuple[int, int]) -> list[Panel]:
        """Decide the contents and the place of each chart."""
        count = between(rng, *self.panels)
        items = [between(rng, *self.items) for _ in range(count)]
        boxes = _grid(size, count)
        # One font for all: the same text in every chart.
        font = min(between(rng, *self.font), fitting_font(boxes[0], max(items)))
        titles = sample(rng, TITLES, count)
        return [self._panel(rng, *args, font) for args in zip(titles, items, boxes, strict=True)]

    def _panel(self, rng: np.random.Generator, title: str, count: int, box: Box, font: int) -> Panel:
        chart = pick(rng, self.charts)
        names = pick(rng, NAMES)
        if chart == "pie":
            values, decimals = _percentages(rng, min(count, MOST_SLICES)), 0
        else:
            decimals = pick(rng, self.decimals)
            # All different: the largest and the smallest value are unique.
            values = (rng.permutation(95 * 10**decimals)[:count] + 5).tolist()
        chosen = sorted(rng.permutation(len(names))[: len(values)].tolist())
        return Panel(chart, title, tuple(names[i] for i in chosen), tuple(values), decimals, box, font)


def _ask(rng: np.random.Generator, panel: Panel, category: str, has_choices: bool) -> _PanelQuestion:
    """Return a question of a category about a chart."""
    values, decimals = panel.values, panel.decimals
    a, b = rng.permutation(len(values))[:2].tolist()
    if category == "extreme":
        largest = bool(rng.random() < 0.5)
        best = values.index(max(values) if largest else min(values))
        wrong = [name for name in panel.names if name != panel.names[best]]
        choices = tuple(sample(rng, [panel.names[best], *sample(rng, wrong, 3)], 4)) if has_choices else ()
        text = f"Which name has the {'largest' if largest else 'smallest'} value?"
        return _PanelQuestion(text, panel.names[best], choices, [best], answer_fields("text", choices), (best,))
    if category == "list":
        text = f"What are the values of {panel.names[a]} and {panel.names[b]}, in this order? "
        answer = f"[{write(values[a], decimals)}, {write(values[b], decimals)}]"
        fields = {**answer_fields("list", ()), "decimals": decimals}
        return _PanelQuestion(f"{text}Answer with a list, as [1, 2].", answer, (), [a, b], fields)
    if category == "count":
        return _ask_count(rng, panel, has_choices)
    if category == "value":
        text, value, evidence = f"What is the value of {panel.names[a]}?", values[a], [a]
    else:
        a, b = sorted((a, b), key=lambda i: -values[i])
        text = f"By how much is the value of {panel.names[a]} greater than that of {panel.names[b]}?"
        value, evidence = values[a] - values[b], [a, b]
    choices = choices_for(rng, value, decimals, values if category == "value" else (), least=1) if has_choices else ()
    fields = {**answer_fields("float" if decimals else "integer", choices, decimals), "decimals": decimals}
    hint = "" if choices else decimals_hint(decimals)
    return _PanelQuestion(text + hint, write(value, decimals), choices, evidence, fields)


def _ask_count(rng: np.random.Generator, panel: Panel, has_choices: bool) -> _PanelQuestion:
    """Ask how many values are greater than a number; at least one is, and at least one is not."""
    ranked = sorted(panel.values)
    place = between(rng, 1, len(ranked) - 1)
    bound = between(rng, ranked[place - 1], ranked[place] - 1)
    evidence = [i for i, value in enumerate(panel.values) if value > bound]
    choices = choices_for(rng, len(evidence), least=1) if has_choices else ()
    text = f"How many values are greater than {write(bound, panel.decimals)}?"
    fields = {**answer_fields("integer", choices), "bound": bound, "decimals": panel.decimals}
    return _PanelQuestion(text, str(len(evidence)), choices, evidence, fields)


def _percentages(rng: np.random.Generator, count: int) -> list[int]:
    """Return different whole percentages that add up to 100, in random order."""
    base = list(range(_LEAST_SLICE, _LEAST_SLICE + count))
    # Each remaining percent goes to a value that stays below the next one: all stay different.
    for _ in range(100 - sum(base)):
        free = [i for i in range(count) if i == count - 1 or base[i] + 1 < base[i + 1]]
        base[pick(rng, free)] += 1
    return sample(rng, base, count)


def _grid(size: tuple[int, int], count: int) -> list[Box]:
    """Divide an image into `count` boxes of the same size, as near to 4 : 3 as possible."""

    def mismatch(columns: int) -> float:
        rows = -(-count // columns)
        empty = columns * rows - count
        return abs(np.log(size[0] / columns / (size[1] / rows) * 0.75)) + 0.3 * empty

    columns = min(range(1, count + 1), key=mismatch)
    width, height = size[0] // columns, size[1] // -(-count // columns)
    corners = [(i % columns * width, i // columns * height) for i in range(count)]
    return [(x, y, x + width, y + height) for x, y in corners]


def _most_font(size: tuple[int, int], panels: tuple[int, int], items: int) -> int:
    """Return the largest font that fits whatever the number of panels is."""
    return min(fitting_font(_grid(size, count)[0], items) for count in range(panels[0], panels[1] + 1))
