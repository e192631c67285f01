"""The templates of the reports: Jinja2 lays out plain data, and escapes all of it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment, Template


def render(template: str, /, package: str = "codev_eval.report", **data: Any) -> str:
    """Return a template filled with data.

    Args:
        template: File name in the folder `templates` of the package. Values are escaped as HTML except in `.md.j2`.
        package: Import name of the package that has the template.
        **data: Variables of the template; one that the template uses and that is missing is an error.
    """
    return load(template, package).render(data)


def load(template: str, package: str = "codev_eval.report") -> Template:
    """Return a template; its attribute `module` has its macros as functions."""
    return _environment(package).get_template(template)


def require() -> None:
    """Raise `ModuleNotFoundError` where a library that pages are made with is missing."""
    import jinja2  # noqa: F401
    import pygments  # noqa: F401


@functools.cache
def _environment(package: str) -> Environment:
    import jinja2  # imported here so that a command's --help does not wait for it

    return jinja2.Environment(
        loader=jinja2.PackageLoader(package),
        autoescape=lambda name: name is None or not name.endswith(".md.j2"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
