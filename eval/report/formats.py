"""Numbers as people read them: shares, differences in points, seconds; `–` for a number that is not defined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

UNDEFINED = "–"


def is_number(value: Any) -> bool:
    """Whether a value of a JSON file is a number; `true` and `false` are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def percent(value: float) -> str:
    """`0.123` as `12.3 %`; `0 %` and `100 %` without the decimal."""
    return "0 %" if value == 0 else "100 %" if value == 1 else f"{100 * value:.1f} %"


def whole_percent(value: float) -> str:
    """`0.25` as `25 %`, for axes."""
    return f"{100 * value:.0f} %"


def share(value: Any) -> str:
    """A share, which may be negative; `–` where it is not defined."""
    if not is_number(value):
        return UNDEFINED
    return f"-{percent(-value)}" if value < 0 else percent(value)


def with_interval(value: Any, interval: Sequence[float] | None) -> str:
    """A share with its 95 % interval, where it has one."""
    return f"{share(value)} [{share(interval[0])}, {share(interval[1])}]" if interval else share(value)


def points(value: Any) -> str:
    """A difference of two shares, in percentage points; `–` where it is not defined."""
    return f"{_signed(value)} points" if is_number(value) else UNDEFINED


def difference(value: Any, interval: Sequence[float] | None) -> str:
    """A difference of two shares with its 95 % interval, in percentage points; `–` for what is not defined."""
    bracket = f"{_signed(interval[0])}, {_signed(interval[1])}" if interval else UNDEFINED
    return f"{points(value)} [{bracket}]" if is_number(value) else UNDEFINED


def _signed(value: float) -> str:
    # Small differences round to minus zero; adding 0 makes it zero.
    return f"{round(100 * value, 1) + 0.0:+.1f}"


def counted(number: int, name: str) -> str:
    """A number with the name of what is counted, such as `1 task`, `2 tasks` and `2 boxes`."""
    return f"{number} {name}" if number == 1 else f"{number} {name}{'es' if name.endswith('x') else 's'}"


def short(value: float) -> str:
    """A number in few characters: `1200`, `0.25`, `1.2e-05`."""
    if value == 0:
        return "0"
    if 0.001 <= abs(value) < 100_000:
        return f"{value:.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
    return f"{value:.1e}"


def duration(seconds: float) -> str:
    """Seconds as `12 ms`, `8.4 s`, `3 min 20 s` or `2 h 05 min`."""
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
