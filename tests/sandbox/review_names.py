"""Lists what the installed libraries have that `codev_env/sandbox/language/names` does not.

Run it after an upgrade, look at what each new name does to files, memory, processes and text that it runs, write those
that programs must not have below `refused` of the module, with the reason, then run it with `--accept`.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import textwrap
import types
import warnings
from collections.abc import Iterator
from typing import Any

from codev_env.sandbox.language import closed, reviewed
from codev_env.sandbox.language.facade import Facade
from codev_env.sandbox.language.facades import pandas, sklearn
from codev_env.sandbox.worker import libraries

UNASKED = "nobody has asked for them"
CLOSED = {"pandas": pandas, "sklearn": sklearn}
_FITTED = re.compile(r"^    (\w+_) ?:", re.MULTILINE)


def home(value: Any) -> str:
    """The library that a function or class is of; that of an object's class."""
    module = getattr(value, "__module__", None) or type(value).__module__
    return str(module).partition(".")[0].lstrip("_")


def found(module: types.ModuleType, name: str) -> Any:
    """A name of a module; `None` if the module has no such name, or not without a further import."""
    try:
        return getattr(module, name, None)
    except ImportError:
        return None


def left_out(label: str, facade: Facade) -> set[str]:
    """The functions and classes of the real module that its façade does not offer."""
    try:
        module = importlib.import_module(label)
    except ImportError:
        return set()
    library = label.partition(".")[0]
    listed = getattr(module, "__all__", None)
    names = set(listed or vars(module)) - vars(facade).keys()
    values = {name: found(module, name) for name in names if not name.startswith("_")}
    return {
        name
        for name, value in values.items()
        if callable(value) and not isinstance(value, types.ModuleType) and (listed or home(value) == library)
    }


def attributes(cls: type) -> set[str]:
    """What a class adds to its bases, and what its objects have: parameters, and what the docstring lists of `fit`."""
    _before, _heading, after = (cls.__doc__ or "").partition("\n    Attributes\n    ----------\n")
    fitted = re.split(r"\n    (?:See Also|Notes|References|Examples)\n", after)[0]
    parameters = vars(cls).get("__init__") if hasattr(cls, "get_params") else None
    names = set(inspect.signature(parameters).parameters) - {"self"} if parameters else set()
    return reviewed.own_attributes(cls) | set(_FITTED.findall(fitted)) | names


def closed_classes(library: str, table: reviewed.Reviewed) -> Iterator[str]:
    """Put what the table of a closed library lacks into it; yields a line for each name."""
    for cls in CLOSED[library].classes():
        for base in cls.__mro__:
            if closed.library_of(base) is not closed.LIBRARIES[library]:
                continue
            known = table.classes.setdefault(base.__qualname__, set())
            refused: set[str] = set().union(*table.hidden.get(base.__qualname__, {}).values())
            for name in sorted(attributes(base) - known - refused):
                known.add(name)
                yield f"class {base.__qualname__} of {library}: {name}"


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
        for cls in () if library in CLOSED else reviewed.classes_of(library, facade, allowed):
            for base in reviewed.lineage(cls):
                known = table.classes.setdefault(base.__qualname__, set())
                for name in sorted(reviewed.own_attributes(base) - known):
                    known.add(name)
                    yield f"class {base.__qualname__} of {library}: {name}"
    for library in CLOSED.keys() & tables.keys() & closed.LIBRARIES.keys():
        yield from closed_classes(library, tables[library])


def write(library: str, table: reviewed.Reviewed) -> None:
    """Write the table of a library."""
    sections = {module: names for module, names in table.allowed.items()}
    for module, reasons in table.refused.items():
        sections.update({f"{module} refused: {reason}": names for reason, names in reasons.items() if names})
    sections.update({f"class {cls}": names for cls, names in table.classes.items()})
    for cls, reasons in table.hidden.items():
        sections.update({f"class {cls} refused: {reason}": names for reason, names in reasons.items() if names})
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
    unusable = libraries.load("tables")
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
