"""SymPy as programs see it, if installed: formulas, without its parser, printers to files and plots."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import re
import sys
import types
from typing import Any

from codev_env.sandbox.language import guards, reviewed, state
from codev_env.sandbox.language.facade import Facade, is_metaclass, nested
from codev_env.sandbox.language.refusals import RefusedCall, refuse

try:
    import sympy

    from codev_env.sandbox.language.facades import formulas
except ImportError:
    sympy = None

_PACKAGES = (
    "abc calculus combinatorics concrete core functions geometry integrals logic matrices ntheory polys series sets "
    "simplify solvers stats tensor"
)
_HINTS = {
    "var": "use x = symbols('x')",
    "plot": "compute the values and draw with matplotlib.pyplot",
    "preview": "print the formula",
    "parsing": "use sympy.sympify or sympy.parse_expr",
    "codegen": "use lambdify or evalf",
    "utilities": "use the names of sympy itself",
    "physics": "use the names of sympy itself",
    "sample": "use the random numbers of numpy",
    "print_latex": "use print(latex(formula))",
}
_LEFT_OUT = re.compile(
    r"\.(tests?|benchmarks|compatibility|core\.trace|core\.backend|testutil|pytorch|tensorflow|sampling)"
    r"|\.(z3|minisat|pycosat)"
)
_ASSUMPTION_TYPES = (bool, type(None))


def _pprint(expr: Any, **settings: Any) -> None:
    """`sympy.pprint` into the run's text."""
    settings.pop("use_unicode_sqrt_char", None)
    state.current().write(sympy.pretty(expr, **settings) + "\n")


def _random_matrix(*args: Any, prng: Any = None, **kwargs: Any) -> Any:
    """`sympy.randMatrix`: without a stream, from the run's own."""
    if prng is None and kwargs.get("seed") is None:
        prng = sympy.core.random.rng
    return sympy.randMatrix(*args, prng=prng, **kwargs)


def _init_printing(*_args: Any, **_kwargs: Any) -> None:
    """`sympy.init_printing`: there is no terminal to prepare."""


def modules() -> dict[str, Facade]:
    """The façades by import name; empty where SymPy is not installed."""
    if sympy is None:
        return {}
    names = _public(sympy)
    own = {
        "pprint": _pprint,
        "pretty_print": _pprint,
        "init_printing": _init_printing,
        "randMatrix": _random_matrix,
        "lambdify": formulas.lambdify,
        "__version__": sympy.__version__,
    }
    names.update(own)
    words = reviewed.read("sympy").allowed["sympy"]
    reader = formulas.FormulaReader({name: value for name, value in names.items() if name in words and _is_word(value)})
    names["parse_expr"] = reader
    _tighten(reader)
    found: dict[str, Facade] = {}
    for name in _PACKAGES.split():
        inner = {key: own.get(key, value) for key, value in _public(importlib.import_module(f"sympy.{name}")).items()}
        found[f"sympy.{name}"] = Facade(f"sympy.{name}", inner, _HINTS)
    for name in ("sympy.parsing", "sympy.parsing.sympy_parser", "sympy.utilities", "sympy.utilities.lambdify"):
        found[name] = Facade(name, {"lambdify": formulas.lambdify} if "utilities" in name else _parsing(reader))
    nested(found, Facade("sympy", names, _HINTS), "sympy")
    return found


def _public(module: Any) -> dict[str, Any]:
    names = {}
    for name in getattr(module, "__all__", None) or dir(module):
        value = getattr(module, name, None)
        if name.startswith("_") or isinstance(value, types.ModuleType | dict | list | str):
            continue
        if is_metaclass(value):
            continue
        origin = getattr(value, "__module__", None) or type(value).__module__
        if origin.startswith("sympy.") and not origin.startswith(_CLOSED) and value is not None:
            names[name] = value
    return names


_CLOSED = (
    "sympy.utilities.lambdify", "sympy.parsing", "sympy.plotting", "sympy.testing", "sympy.external",
    "sympy.interactive", "sympy.utilities.decorator", "sympy.utilities.source", "sympy.utilities.runtests",
    "sympy.printing.preview", "sympy.multipledispatch",
)  # fmt: skip


def _parsing(reader: Any) -> dict[str, Any]:
    from sympy.parsing import sympy_parser

    wanted = (
        "standard_transformations implicit_multiplication implicit_multiplication_application convert_xor "
        "rationalize implicit_application function_exponentiation"
    )
    names = {name: getattr(sympy_parser, name) for name in wanted.split() if hasattr(sympy_parser, name)}
    return {**names, "parse_expr": reader}


def _is_word(value: Any) -> bool:
    """Return whether text may name this value: it builds formulas, and reads nothing as text again."""
    if value in (sympy.S, sympy.Q) or isinstance(value, Facade):
        return False
    if isinstance(value, type):
        return issubclass(value, sympy.Basic | sympy.MatrixBase)
    origin = getattr(value, "__module__", None) or ""
    simple = ("sympy.functions.", "sympy.core.function", "sympy.simplify.", "sympy.integrals.", "sympy.core.power")
    return isinstance(value, sympy.Basic) or (callable(value) and origin.startswith(simple))


def _tighten(reader: Any) -> None:
    """Replace, in this process, functions that run text, and those that make classes with any attribute."""
    # By name: `from sympy.utilities import lambdify` would give the function of that name.
    function, sympy_parser, ast_parser, preview, lambdify = (
        importlib.import_module(f"sympy.{name}")
        for name in (
            "core.function",
            "parsing.sympy_parser",
            "parsing.ast_parser",
            "printing.preview",
            "utilities.lambdify",
        )
    )
    real_parser, real_lambdify = sympy_parser.parse_expr, lambdify.lambdify
    _replace_everywhere({id(real_parser): reader, id(real_lambdify): formulas.lambdify})
    for module, name in ((sympy_parser, "eval_expr"), (ast_parser, "parse_expr"), (preview, "preview")):
        setattr(module, name, refuse(name, "it runs text"))
    for name in ("lambdastr", "implemented_function", "_import"):
        setattr(lambdify, name, refuse(name, "it runs text"))
    make = function.UndefinedFunction.__new__

    def make_with_assumptions(mcl: Any, name: Any, bases: Any = None, __dict__: Any = None, **assumptions: Any) -> Any:
        if bases is not None or __dict__ is not None:
            raise RefusedCall("Function() takes a name and assumptions here.")
        for key, value in assumptions.items():
            if key.startswith("_") or not isinstance(value, _ASSUMPTION_TYPES):
                raise RefusedCall(f"Function() takes assumptions that are true or false here, not {key}.")
        return make(mcl, name, **assumptions)

    function.UndefinedFunction.__new__ = make_with_assumptions
    guards.never_give(formulas.mpmath.ctx_base.StandardBaseContext)
    symbol = sympy.Symbol
    construct = symbol.__new__

    def named(cls: Any, name: Any, *args: Any, **assumptions: Any) -> Any:
        # Rings and fields make attributes of their symbols, and NumPy believes those with double underscores.
        if not isinstance(name, str) or str.__str__(name).startswith("__"):
            raise RefusedCall(f"the name {str(name)[:40]!r} is none of a symbol here: choose a plain one.")
        return construct(cls, str.__str__(name), *args, **assumptions)

    symbol.__new__ = staticmethod(named)
    sympy.Dummy._base_dummy_index = 10**6  # drawn at random when SymPy is imported


def _replace_everywhere(replaced: dict[int, Any]) -> None:
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "sympy" and module is not None:
            for key, value in list(vars(module).items()):
                if id(value) in replaced:
                    setattr(module, key, replaced[id(value)])


def seed(value: int, used: bool) -> None:
    """Start SymPy's random stream of a run."""
    if sympy is not None:
        sympy.core.random.seed(value)
        if used:
            formulas.mpmath.mp.dps = 15


def warm() -> None:
    """Use once what SymPy loads lazily."""
    if sympy is None:
        return
    x, y = sympy.symbols("x y")
    formula = sympy.sin(x) ** 2 + sympy.cos(x) ** 2
    sympy.simplify(formula)
    sympy.solve(x**2 - 2, x)
    sympy.solve([x + y - 1, x - y], [x, y])
    sympy.solveset(x**2 - 1, x)
    sympy.integrate(sympy.exp(-(x**2)), (x, -sympy.oo, sympy.oo))
    sympy.integrate(x * sympy.sin(x), x)
    sympy.limit(sympy.sin(x) / x, x, 0)
    sympy.series(sympy.exp(x), x, 0, 3)
    sympy.factor(x**2 - 1)
    sympy.Matrix([[1, 2], [3, 4]]).eigenvals()
    sympy.Matrix([[1, 2], [3, 4]]).inv()
    sympy.dsolve(sympy.Function("f")(x).diff(x) - x)
    sympy.nsolve(sympy.cos(x) - x, x, 1)
    sympy.Sum(1 / x**2, (x, 1, sympy.oo)).evalf()
    sympy.Polygon((0, 0), (1, 0), (0, 1)).area.evalf()
    for text in (sympy.latex(formula), sympy.pretty(formula), sympy.srepr(formula), sympy.pycode(formula)):
        str(text)
    for name in f"{_PACKAGES} assumptions codegen discrete parsing.ast_parser physics.control printing vector".split():
        package = importlib.import_module(f"sympy.{name}")
        for _finder, inner, _is_package in pkgutil.walk_packages(getattr(package, "__path__", ()), f"sympy.{name}."):
            if not _LEFT_OUT.search(inner):
                with contextlib.suppress(ImportError):  # some need packages that are not installed
                    importlib.import_module(inner)
