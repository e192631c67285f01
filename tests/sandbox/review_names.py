"""Lists what the installed libraries have that `codev_env/sandbox/language/names` does not.

Run it after an upgrade, look at what each new name does to files, memory, processes and text that it runs, write those
that programs must not have below `refused` of the module, with the reason, then run it with `--accept`.
"""

from __future__ import annotations

import importlib
import sys
import textwrap
import types
import warnings
from collections.abc import Iterator
from typing import Any

from codev_env.sandbox.language import reviewed
from codev_env.sandbox.language.facade import Facade
from codev_env.sandbox.worker import libraries

UNASKED = "nobody has asked for them"


def home(value: Any) -> str:
    """The library that a function or class is of; that of an object's class."""
    module = getattr(value, "__module__", None) or type(value).__module__
    return str(module).partition(".")[0].lstrip("_")


def left_out(label: str, facade: Facade) -> set[str]:
    """The functions and classes of the real module that its façade does not offer."""
    try:
        module = importlib.import_module(label)
    except ImportError:
        return set()
    library = label.partition(".")[0]
    listed = getattr(module, "__all__", None)
    names = set(listed or vars(module)) - vars(facade).keys()
    values = {name: getattr(module, name, None) for name in names if not name.startswith("_")}
    return {
        name
        for name, value in values.items()
        if callable(value) and not isinstance(value, types.ModuleType) and (listed or home(value) == library)
    }


def new_names(offered: dict[str, Facade], tables: dict[str, reviewed.Reviewed]) -> Iterator[str]:
    """Put what a table lacks into it; yields a line for each name."""
    for label, facade in sorted(offered.items()):
        library = label.partition(".")[0]
        if library not in tables:
            continue
        table = tables[library]
        allowed = table.allowed.setdefault(label, set())
        reasons = table.refused.setdefault(label, {})
        refused: set[str] = set().union(*reasons.values())
        for name in sorted(reviewed.names_of(facade).keys() - allowed - refused):
            allowed.add(name)
            yield f"{label}.{name}: programs would get it"
        for name in sorted(left_out(label, facade) - refused):
            reasons.setdefault(UNASKED, set()).add(name)
            yield f"{label}.{name}: programs do not get it"
        for cls in reviewed.classes_of(library, facade, allowed):
            for base in reviewed.lineage(cls):
                known = table.classes.setdefault(base.__qualname__, set())
                for name in sorted(reviewed.own_attributes(base) - known):
                    known.add(name)
                    yield f"class {base.__qualname__} of {library}: {name}"


def write(library: str, table: reviewed.Reviewed) -> None:
    """Write the table of a library."""
    sections = {module: names for module, names in table.allowed.items()}
    for module, reasons in table.refused.items():
        sections.update({f"{module} refused: {reason}": names for reason, names in reasons.items() if names})
    sections.update({f"class {cls}": names for cls, names in table.classes.items()})
    ordered = sorted(sections, key=lambda heading: (heading.startswith("class "), heading))
    lines = [f"# What programs may use of {library}. See `reviewed.py`."]
    for heading in ordered:
        lines.append(heading)
        indent = {"initial_indent": "    ", "subsequent_indent": "    "}
        lines += textwrap.wrap(" ".join(sorted(sections[heading])), 120, break_on_hyphens=False, **indent)
    (reviewed.FOLDER / f"{library}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(accept: bool) -> None:
    """Print what is new, a line each; with `accept`, the tables know it from then on."""
    warnings.simplefilter("ignore")
    keep = reviewed.keep_reviewed
    reviewed.keep_reviewed = lambda _modules: []
    unusable = libraries.load("science")
    reviewed.keep_reviewed = keep
    tables = {library: reviewed.read(library) for library in reviewed.LIBRARIES}
    for library, why in unusable.items():
        print(f"{library}: not looked at, since the guards do not fit it ({why})")
    for line in new_names(libraries.MODULES, tables):
        print(line)
    for library, table in tables.items() if accept else ():
        write(library, table)


if __name__ == "__main__":
    main("--accept" in sys.argv[1:])
