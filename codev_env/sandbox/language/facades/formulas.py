"""SymPy without running text: a reader of formulas, and functions that evaluate a formula by walking its tree."""

from __future__ import annotations

import ast
import functools
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mpmath
import numpy as np
import sympy

from codev_env.sandbox.language.refusals import RefusedCall

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Pow: operator.pow, ast.Mod: operator.mod, ast.FloorDiv: operator.floordiv, ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_, ast.MatMult: operator.matmul, ast.BitXor: operator.xor,
}  # fmt: skip
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert,
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}  # fmt: skip
_FACTORIAL = re.compile(r"(\w+|\([^()]*\))!(?!=)")
_TOO_LONG = 2000


class FormulaReader:
    """Reads formulas: numbers, names, operators, brackets and calls of known functions.

    Args:
        known: Values of names; any other name is a symbol, or a function if it is called.
    """

    def __init__(self, known: Mapping[str, Any]) -> None:
        self._known = known

    def __call__(
        self, s: Any, local_dict: Mapping[str, Any] | None = None, transformations: Any = (), *_: Any, **__: Any
    ) -> Any:
        """Read a formula, as `sympy.parse_expr` does.

        Raises:
            SyntaxError: The text is not a formula.
            RefusedCall: The text holds something that formulas do not need.
        """
        text = str(s).strip()
        if len(text) > _TOO_LONG:
            raise RefusedCall(f"a formula may have {_TOO_LONG} characters, not {len(text)}: build it from symbols.")
        steps = (
            "" if isinstance(transformations, str) else " ".join(getattr(t, "__name__", "") for t in transformations)
        )
        if "implicit" in steps:
            text = re.sub(r"(?<![\w.])(\d+(?:\.\d+)?)\s*(?=[A-Za-z(])", r"\1*", text)
            text = re.sub(r"\)\s*(?=[\w(])", ")*", text)
        if "xor" in steps:
            text = text.replace("^", "**")
        text = _FACTORIAL.sub(r"factorial(\1)", text)
        try:
            tree = ast.parse(text, mode="eval").body
        except (ValueError, RecursionError, MemoryError):
            raise SyntaxError("no formula") from None
        return _Formula(self._known, local_dict or {}, rational="rationalize" in steps).value(tree)


class _Formula:
    def __init__(self, known: Mapping[str, Any], given: Mapping[str, Any], rational: bool) -> None:
        self.known = known
        self.given = given
        self.rational = rational

    def value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=bool() | None as constant):
                return constant
            case ast.Constant(value=int() as number):
                return sympy.Integer(number)
            case ast.Constant(value=float() as number):
                text = ast.unparse(node)
                return sympy.Rational(text) if self.rational else sympy.Float(text if "e" in text else repr(number))
            case ast.Name(id=name):
                found = self.given[name] if name in self.given else self.known.get(name)
                return sympy.Symbol(name) if found is None else found
            case ast.BinOp(op=op, left=left, right=right) if type(op) in _BINARY:
                return _BINARY[type(op)](self.value(left), self.value(right))
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
                return _UNARY[type(op)](self.value(operand))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return sympy.Not(self.value(operand))
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
                return _COMPARE[type(op)](self.value(left), self.value(right))
            case ast.Tuple(elts=parts):
                return tuple(map(self.value, parts))
            case ast.List(elts=parts):
                return [self.value(part) for part in parts]
            case ast.Set(elts=parts):
                return {self.value(part) for part in parts}
            case ast.Dict(keys=keys, values=values) if None not in keys:
                return {self.value(key): self.value(value) for key, value in zip(keys, values, strict=True) if key}
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                called = self.given[name] if name in self.given else self.known.get(name)
                function = sympy.Function(name) if called is None else called
                return function(*map(self.value, args))
        raise RefusedCall(
            "text for SymPy may hold numbers, names, operators, brackets and calls of SymPy's functions, "
            f"not {ast.unparse(node)[:40]!r}: build the formula from symbols."
        )


_ARRAY_FUNCTIONS: dict[str, Any] = {
    "Abs": np.abs, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "atan2": np.arctan2, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh, "ceiling": np.ceil, "floor": np.floor, "log": np.log, "exp": np.exp,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "sign": np.sign,
    "re": np.real, "im": np.imag, "conjugate": np.conj, "arg": np.angle, "sqrt": np.sqrt, "Heaviside": np.heaviside,
    "Mod": np.mod, "sinc": lambda x: np.sinc(x / np.pi),
    "Max": lambda *xs: functools.reduce(np.maximum, xs), "Min": lambda *xs: functools.reduce(np.minimum, xs),
}  # fmt: skip
_RELATIONS: dict[str, Any] = {
    "Equality": operator.eq, "Unequality": operator.ne, "StrictLessThan": operator.lt, "LessThan": operator.le,
    "StrictGreaterThan": operator.gt, "GreaterThan": operator.ge,
}  # fmt: skip


def lambdify(args: Any, expr: Any, modules: Any = None, *_: Any, **__: Any) -> Callable[..., Any]:
    """`sympy.lambdify` that walks the tree of the formula, instead of running generated text.

    Args:
        args: A symbol, or a sequence of them.
        expr: A formula, a matrix, or a sequence of formulas.
        modules: `"mpmath"` computes with the numbers of mpmath, other values with those of NumPy.
    """
    names = list(args) if isinstance(args, Sequence | set | sympy.Tuple) else [args]
    exact = modules == "mpmath" or (isinstance(modules, list) and "mpmath" in modules)
    formula = expr if isinstance(expr, Sequence) and not isinstance(expr, str) else sympy.sympify(expr)

    def function(*values: Any) -> Any:
        if len(values) != len(names):
            raise TypeError(f"the function takes {len(names)} values, not {len(values)}")
        return _compute(formula, _bind(names, values), exact)

    return function


def _bind(names: Sequence[Any], values: Sequence[Any]) -> dict[Any, Any]:
    bound: dict[Any, Any] = {}
    for name, value in zip(names, values, strict=True):
        if isinstance(name, Sequence | sympy.Tuple):
            bound.update(_bind(list(name), value))
        else:
            bound[sympy.sympify(name)] = value
    return bound


def _compute(formula: Any, bound: dict[Any, Any], exact: bool) -> Any:
    if isinstance(formula, list | tuple | sympy.Tuple):
        parts = [_compute(part, bound, exact) for part in formula]
        return parts if isinstance(formula, list) else tuple(parts)
    if isinstance(formula, sympy.MatrixBase):
        rows = [[_compute(cell, bound, exact) for cell in row] for row in formula.tolist()]
        return mpmath.matrix(rows) if exact else np.array(rows)
    if formula in bound:
        return bound[formula]
    if isinstance(formula, sympy.Number | sympy.NumberSymbol) or formula in (sympy.I, sympy.zoo):
        return _number(formula, exact)
    if formula in (sympy.true, sympy.false):
        return bool(formula)
    if isinstance(formula, sympy.Piecewise):
        return _choose(formula, bound, exact)
    if isinstance(formula, sympy.Expr | sympy.logic.boolalg.Boolean) and formula.args:
        return _apply(formula, [_compute(part, bound, exact) for part in formula.args], exact)
    raise NameError(f"name {str(formula)!r} is not defined")


def _number(number: Any, exact: bool) -> Any:
    if isinstance(number, sympy.Integer):
        return int(number)
    if exact:
        return number._to_mpmath(mpmath.mp.prec)
    if isinstance(number, sympy.Rational) and number.is_finite:
        return int(number.p) / int(number.q)
    return complex(number) if number == sympy.I else float(number)


def _choose(formula: Any, bound: dict[Any, Any], exact: bool) -> Any:
    cases = [(_compute(value, bound, exact), _compute(when, bound, exact)) for value, when in formula.args]
    if any(isinstance(when, np.ndarray) for _value, when in cases):
        shape = np.broadcast_shapes(*(np.shape(when) for _value, when in cases))
        conditions = [np.broadcast_to(when, shape) for _value, when in cases]
        return np.select(conditions, [np.broadcast_to(value, shape) for value, _when in cases], default=np.nan)
    return next((value for value, when in cases if when), math.nan)


def _apply(formula: Any, values: list[Any], exact: bool) -> Any:
    name = type(formula).__name__
    if isinstance(formula, sympy.Add):
        return functools.reduce(operator.add, values)
    if isinstance(formula, sympy.Mul):
        return functools.reduce(operator.mul, values)
    if isinstance(formula, sympy.Pow):
        return _power(values[0], values[1], formula.args[1], exact)
    if name in _RELATIONS:
        return _RELATIONS[name](*values)
    if name in ("And", "Or"):
        return functools.reduce(np.logical_and if name == "And" else np.logical_or, values)
    if name == "Not":
        return np.logical_not(values[0])
    if exact:
        function = getattr(mpmath, {"Abs": "fabs", "ceiling": "ceil"}.get(name, name), None)
        if isinstance(formula, sympy.Function) and callable(function):
            return function(*values)
    elif name in _ARRAY_FUNCTIONS:
        return _ARRAY_FUNCTIONS[name](*values)
    free = [sympy.sympify(value) for value in values]
    number = formula.func(*free).evalf()
    if not number.is_number:
        raise NameError(f"name {name!r} is not defined")
    return number._to_mpmath(mpmath.mp.prec) if exact else (float(number) if number.is_real else complex(number))


def _power(base: Any, exponent: Any, symbolic: Any, exact: bool) -> Any:
    if symbolic == sympy.S.Half:
        return mpmath.sqrt(base) if exact else np.sqrt(base)
    if isinstance(exponent, int) and exponent < 0 and isinstance(base, int | np.ndarray | np.integer):
        return 1 / base**-exponent
    return base**exponent
