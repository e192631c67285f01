"""`df.query` and `df.eval`, by walking the tree of the expression, which can do what the program itself could."""

from __future__ import annotations

import ast
import functools
import operator
import re
import sys
from collections.abc import Callable
from typing import Any

import pandas

from codev_env.sandbox.language import guards
from codev_env.sandbox.language.refusals import RefusedCall

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Pow: operator.pow, ast.Mod: operator.mod, ast.FloorDiv: operator.floordiv, ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
}  # fmt: skip
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert, ast.Not: operator.invert,
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}  # fmt: skip
_TOO_LONG = 2000
_QUOTED, _LOCAL = "QUOTED_COLUMN_", "LOCAL_VARIABLE_"
_TOKEN = re.compile(r"""("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|`([^`]+)`|@(\w+)|([&|])""")


def query(frame: Any) -> Callable[..., Any]:
    """`df.query`."""

    def select(expr: Any, *, inplace: bool = False, **_other: Any) -> Any:
        found = frame.loc[_Expression(frame, expr).evaluate()]
        return frame._update_inplace(found) if inplace else found

    return select


def evaluate(frame: Any) -> Callable[..., Any]:
    """`df.eval`: of an expression, or of one assignment."""

    def compute(expr: Any, *, inplace: bool = False, **_other: Any) -> Any:
        target, assigned, formula = str.__str__(expr).partition("=") if _assigns(expr) else ("", "", expr)
        value = _Expression(frame, formula).evaluate()
        if not assigned:
            return value
        changed = frame.assign(**{target.strip(): value})
        return frame._update_inplace(changed) if inplace else changed

    return compute


def _assigns(expr: Any) -> bool:
    return isinstance(expr, str) and re.match(r"\s*[A-Za-z]\w*\s*=(?!=)", expr) is not None


class _Expression:
    def __init__(self, frame: Any, text: Any) -> None:
        if not isinstance(text, str) or len(text) > _TOO_LONG:
            raise RefusedCall(f"an expression is text of at most {_TOO_LONG} characters here.")
        self.frame = frame
        self.quoted: list[str] = []
        self.variables = _variables()
        self.tree = ast.parse(_TOKEN.sub(self._token, str.__str__(text)).strip(), mode="eval").body

    def _token(self, found: re.Match[str]) -> str:
        if found[1]:
            return found[1]
        if found[4]:  # which bind like the words in pandas
            return " and " if found[4] == "&" else " or "
        if found[3]:
            return f"{_LOCAL}{found[3]}"
        self.quoted.append(found[2])
        return f"{_QUOTED}{len(self.quoted) - 1}"

    def evaluate(self) -> Any:
        return self.value(self.tree)

    def value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=constant):
                return constant
            case ast.Name(id=name):
                return self.named(name)
            case ast.BinOp(op=op, left=left, right=right) if type(op) in _BINARY:
                return _BINARY[type(op)](self.value(left), self.value(right))
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
                return _UNARY[type(op)](self.value(operand))
            case ast.BoolOp(op=op, values=parts):
                join = operator.and_ if isinstance(op, ast.And) else operator.or_
                return functools.reduce(join, map(self.value, parts))
            case ast.Compare(left=left, ops=ops, comparators=others):
                sides = [self.value(side) for side in (left, *others)]
                pairs = zip(sides, ops, sides[1:], strict=False)
                return functools.reduce(operator.and_, [_compare(one, op, other) for one, op, other in pairs])
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                return [self.value(part) for part in parts]
            case ast.Subscript(value=owner, slice=key):
                return self.value(owner)[self.value(key)]
            case ast.Attribute(value=owner, attr=name):
                return guards.guarded_getattr(self.value(owner), name)
            case ast.Call(func=ast.Attribute() as function, args=args, keywords=keywords) if all(
                k.arg for k in keywords
            ):
                options = {str(word.arg): self.value(word.value) for word in keywords}
                return self.value(function)(*map(self.value, args), **options)
        raise RefusedCall(f"an expression may not hold {ast.unparse(node)[:40]!r} here: write it in Python.")

    def named(self, name: str) -> Any:
        if name.startswith(_LOCAL) and name[len(_LOCAL) :] in self.variables:
            return self.variables[name[len(_LOCAL) :]]
        column = self.quoted[int(name[len(_QUOTED) :])] if name.startswith(_QUOTED) else name
        if column in self.frame.columns:
            return self.frame[column]
        if column in self.frame.index.names:
            return self.frame.index.get_level_values(column)
        if column == "index":
            return self.frame.index
        raise pandas.errors.UndefinedVariableError(name.removeprefix(_LOCAL), name.startswith(_LOCAL) or None)


def _compare(one: Any, op: ast.cmpop, other: Any) -> Any:
    among = isinstance(other, list) or isinstance(op, ast.In | ast.NotIn)
    if among and isinstance(op, ast.In | ast.NotIn | ast.Eq | ast.NotEq):
        found = one.isin(other if isinstance(other, list) else list(other))
        return ~found if isinstance(op, ast.NotIn | ast.NotEq) else found
    if type(op) not in _COMPARE:
        raise RefusedCall("an expression compares with ==, !=, <, <=, >, >= and in here.")
    return _COMPARE[type(op)](one, other)


def _variables() -> dict[str, Any]:
    """The variables of the program at the place that calls."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename != "<code>":
        frame = frame.f_back  # type: ignore[assignment]
    if frame is None:
        return {}
    names = {**frame.f_globals, **frame.f_locals}
    return {name: value for name, value in names.items() if not name.startswith("_")}
