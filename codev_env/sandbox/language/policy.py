"""The Python that programs may use: RestrictedPython, extended by constructs that models write every day.

The transformer refuses other constructs with one line that names an alternative. It rewrites attribute access,
attribute and item assignment and class definitions to calls of the guards in `guards`.
"""

from __future__ import annotations

import ast
import sys
import types
from dataclasses import dataclass
from typing import Any

from RestrictedPython.transformer import INSPECT_ATTRIBUTES, RestrictingNodeTransformer

from codev_env.sandbox.language.refusals import Refused
from codev_env.sandbox.wire.limits import Limits

MAGIC_METHODS = frozenset(
    f"__{name}__"
    for name in (
        "init post_init repr str len bool iter next contains getitem setitem delitem call eq ne lt le gt ge hash "
        "add radd iadd sub rsub isub mul rmul imul truediv rtruediv floordiv rfloordiv mod rmod pow rpow matmul neg "
        "pos abs invert and or xor int float index round enter exit format reversed"
    ).split()
)
"""Methods with a double underscore that a program's class may define."""

CLASS_NAME = "__class__ __name__"
"""The name passed to the guard for `x.__class__.__name__`; no attribute has such a name."""

READABLE_DUNDERS = frozenset({"__name__", "__doc__", "__version__", "__dict__", "__cause__", "__context__"})
"""Attributes with a double underscore that a program may read, of the objects that `guards` allows."""

HIDDEN_ATTRIBUTES = set(
    "im fp font obj core canvas base ctypes data pyfunc func mro bit_generator tofile dump dumps getfield setfield "
    "view with_traceback format_map format open save show load".split()
)
"""Attributes with a rule in `guards` for some type; a class pattern would read them unguarded."""

_INSTEAD = {
    "AsyncFor": "write a plain for loop",
    "AsyncWith": "write a plain with statement",
    "TryStar": "write `except`",
    "TypeAlias": "assign the type to a name",
    "TypeVar": "leave the type parameters out",
    "ParamSpec": "leave the type parameters out",
    "TypeVarTuple": "leave the type parameters out",
    "TemplateStr": "write an f-string",
}
_LOAD = ast.Load()
_GUARD_NAMES = frozenset({"_getattr_", "_write_", "_write_item_", "_print_", "_print", "_getitem_", "_getiter_"})


def _kinds(group: type[ast.AST]) -> set[type[ast.AST]]:
    return set(group.__subclasses__())


_LEAVES = frozenset(
    {ast.Constant}
    | {kind for group in (ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop) for kind in _kinds(group)}
)
"""Nodes without children, all of which are allowed."""


class LanguagePolicy(RestrictingNodeTransformer):
    """The rules of the sandbox's Python; also collects the names that a program reads and binds.

    Raises `Refused` at once if a program is too deep or too long, before its depth can exhaust the compiler.
    """

    def __init__(self, limits: Limits) -> None:
        super().__init__()
        self.reads: set[str] = set()
        self.binds: set[str] = set()
        self.words: set[str] = set()
        self.imports: set[str] = set()
        self._limits = limits
        self._nodes_left = limits.code_nodes
        self._depth_left = limits.code_depth

    def visit(self, node: ast.AST) -> Any:
        """Check a node and its children."""
        if type(node) in _LEAVES:
            return node
        self._nodes_left -= 1
        if self._nodes_left < 0:
            raise Refused(
                f"the code has more than {self._limits.code_nodes} syntax nodes: split it into several steps."
            )
        if not self._depth_left:
            raise Refused(
                f"the code is nested more than {self._limits.code_depth} levels deep: "
                "split long expressions over several lines."
            )
        self._depth_left -= 1
        try:
            return super().visit(node)
        finally:
            self._depth_left += 1

    def node_contents_visit(self, node: Any) -> Any:
        """Visit the children of a node and insert replacements; refused ones stay, since any error ends the run."""
        for field in node._fields:
            old = getattr(node, field, None)
            if isinstance(old, list):
                for index, item in enumerate(old):
                    if isinstance(item, ast.AST):
                        old[index] = self.visit(item) or item
            elif isinstance(old, ast.AST):
                setattr(node, field, self.visit(old) or old)
        return node

    def check_name(self, node: ast.AST, name: str | None, allow_magic_methods: bool = False) -> None:
        """Refuse names that could reach or replace a guard; collect the names that are bound."""
        if name is not None and not (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)):
            self.binds.add(name.partition(".")[0])
        if name is None or not name.startswith("_") or not name.strip("_"):
            return
        if allow_magic_methods and name in MAGIC_METHODS:
            return
        loads = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        if name in ("__name__", "__file__") and loads or name == "__slots__" and isinstance(node, ast.Name):
            return
        if name.startswith("__") or name in _GUARD_NAMES or (name.endswith("_") and len(name) > 2):
            self.error(node, f"the name {name!r} is reserved: choose one without leading and trailing underscores.")

    def check_import_names(self, node: Any) -> ast.AST:
        """Check the names that an import binds; collect what is imported."""
        if isinstance(node, ast.ImportFrom):
            self.imports.add(node.module or "")
            self.words.update(name.name for name in node.names)
        else:
            self.imports.update(name.name for name in node.names)
        if any(name.name == "*" for name in node.names):
            module = getattr(node, "module", None) or "math"
            self.error(node, f"`import *` is not available here: name what you use, as in `from {module} import …`.")
            return node
        return super().check_import_names(node)

    def not_allowed(self, node: ast.AST) -> None:
        """Refuse a kind of statement."""
        kind = type(node).__name__
        instead = _INSTEAD.get(kind)
        self.error(node, f"{kind} is not available here{f': {instead}' if instead else ''}.")

    def error(self, node: ast.AST, info: str) -> None:
        """Record a refusal, with its line."""
        self.errors.append(f"line {getattr(node, 'lineno', '?')}: {info}")

    def inject_print_collector(self, node: ast.Module | ast.FunctionDef, position: int = 0) -> None:
        """Nothing to inject: `print` is an ordinary builtin here."""

    def guard_iter(self, node: ast.For | ast.comprehension) -> ast.AST:
        """Iteration needs no guard: no object that programs reach has an access policy of its own."""
        return self.node_contents_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Check names."""
        self.check_name(node, node.id, allow_magic_methods=True)
        if isinstance(node.ctx, ast.Load):
            self.reads.add(node.id)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Read through `_getattr_`, write through `_write_`."""
        reading = isinstance(node.ctx, ast.Load)
        if node.attr == "__name__" and isinstance(node.value, ast.Attribute) and node.value.attr == "__class__":
            node.value, node.attr = node.value.value, CLASS_NAME
        self._check_attribute(node, node.attr, reading)
        node = self.node_contents_visit(node)
        if reading:
            at = _place(node)
            guard = ast.Name("_getattr_", _LOAD, **at)
            return ast.Call(guard, [node.value, ast.Constant(node.attr, **at)], [], **at)
        return self._guard_target(node, "_write_")

    def _check_attribute(self, node: ast.AST, name: str, reading: bool) -> None:
        self.words.add("__name__" if name == CLASS_NAME else name)
        if name in INSPECT_ATTRIBUTES:
            self.error(node, f"the attribute {name!r} is not available here.")
        elif name.startswith("__") and name.strip("_"):
            if not reading or name not in READABLE_DUNDERS | MAGIC_METHODS | {CLASS_NAME}:
                self.error(node, f"the attribute {name!r} is not available here.")

    def _guard_target(self, node: ast.Attribute | ast.Subscript, guard: str) -> ast.AST:
        at = _place(node.value)
        node.value = ast.Call(ast.Name(guard, _LOAD, **at), [node.value], [], **at)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """Read directly, but parts of images through `_getitem_`, which records them; write through `_write_item_`."""
        node = self.node_contents_visit(node)
        if not isinstance(node.ctx, ast.Load):
            return self._guard_target(node, "_write_item_")
        first = node.slice.elts[:2] if isinstance(node.slice, ast.Tuple) else [node.slice]
        if not first or not all(isinstance(part, ast.Slice) for part in first):
            return node
        at = _place(node)
        return ast.Call(ast.Name("_getitem_", _LOAD, **at), [node.value, node.slice], [], **at)

    def _visit_children(self, node: ast.AST) -> ast.AST:
        """Constructs that are allowed as they are; targets of assignments are guarded when they are visited."""
        return self.node_contents_visit(node)

    visit_Call = visit_Assign = visit_AugAssign = visit_AnnAssign = visit_With = visit_Await = _visit_children
    visit_Match = visit_match_case = visit_MatchSingleton = visit_MatchSequence = visit_MatchOr = _visit_children

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        """Arguments by name."""
        if node.arg in (None, "where"):
            self.words.add("**" if node.arg is None else "where=")
        return self.node_contents_visit(node)

    def visit_Global(self, node: ast.Global | ast.Nonlocal) -> ast.AST:
        """`global x` and `nonlocal x`."""
        for name in node.names:
            self.check_name(node, name)
        return node

    visit_Nonlocal = visit_Global

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Functions; also methods with the allowed double underscores."""
        self.check_name(node, node.name, allow_magic_methods=node.col_offset > 0)
        self.check_function_argument_names(node)
        return self.node_contents_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """Classes are made by the metaclass that checks their bases."""
        self.check_name(node, node.name)
        node = self.node_contents_visit(node)
        if node.keywords:
            self.error(node, "keyword arguments of a class are not available here.")
        at = _place(node)
        node.keywords = [ast.keyword("metaclass", ast.Name("__metaclass__", _LOAD, **at), **at)]
        return node

    # `except*`, as in RestrictedPython (CVE-2025-22153), and template strings, which nothing in the sandbox can render.
    visit_TryStar = visit_TemplateStr = not_allowed

    def visit_MatchValue(self, node: ast.MatchValue) -> ast.AST:
        """`case 1` and `case Colour.RED`."""
        node.value = self._case(node.value)
        return node

    def _case(self, value: ast.expr) -> ast.expr:
        """A value to compare with. The compiler requires an attribute here, so the object gets the guard."""
        if not isinstance(value, ast.Attribute):
            return self.visit(value)
        self._check_attribute(value, value.attr, reading=False)
        owner = value.value
        value.value = ast.Call(ast.Name("_case_", ast.Load()), [self.visit(owner)], [])
        ast.copy_location(value.value, owner)
        ast.fix_missing_locations(value.value)
        return value

    def visit_MatchAs(self, node: ast.MatchAs | ast.MatchStar) -> ast.AST:
        """`case x`, `case … as x` and `case [x, *rest]`."""
        self.check_name(node, node.name)
        return self.node_contents_visit(node)

    visit_MatchStar = visit_MatchAs

    def visit_MatchMapping(self, node: ast.MatchMapping) -> ast.AST:
        """`case {"a": x, **rest}`."""
        self.check_name(node, node.rest)
        node.keys = [self._case(key) for key in node.keys]
        node.patterns = [self.visit(pattern) for pattern in node.patterns]
        return node

    def visit_MatchClass(self, node: ast.MatchClass) -> ast.AST:
        """`case Point(x=0)`, which reads attributes without the guard, so only harmless names are allowed."""
        self.words.update(node.kwd_attrs)
        for name in node.kwd_attrs:
            if name.startswith("_") or name in INSPECT_ATTRIBUTES or name in HIDDEN_ATTRIBUTES:
                self.error(node, f"the attribute {name!r} is not available in a pattern: read it with `.{name}`.")
        # A class pattern loads the class by its dotted name, for which the compiler accepts no call.
        for part in ast.walk(node.cls):
            if isinstance(part, ast.Name):
                self.check_name(part, part.id)
                self.reads.add(part.id)
            elif isinstance(part, ast.Attribute):
                self._check_attribute(part, part.attr, reading=False)
        for pattern in [*node.patterns, *node.kwd_patterns]:
            self.visit(pattern)
        return node


def _place(node: Any) -> dict[str, Any]:
    return {
        "lineno": node.lineno,
        "col_offset": node.col_offset,
        "end_lineno": node.end_lineno,
        "end_col_offset": node.end_col_offset,
    }


@dataclass(frozen=True)
class Program:
    """A compiled program.

    Attributes:
        code: The code object to execute.
        reads: Names that it reads, at any level.
        binds: Names that it assigns, imports or defines, at any level.
        words: Attributes that it reads or assigns, and names that it imports from modules; `"where="` for a call with
            that argument, which leaves parts of its result as they were, and `"**"` for arguments from a dict.
        imports: Modules that it imports.
    """

    code: types.CodeType
    reads: frozenset[str]
    binds: frozenset[str]
    words: frozenset[str] = frozenset()
    imports: frozenset[str] = frozenset()


def parse(source: str) -> ast.Module:
    """Parse a program.

    Raises:
        Refused: It is too deep.
        SyntaxError: It is not Python.
    """
    if "\0" in source:
        raise SyntaxError("the code holds a null character")
    try:
        return ast.parse(source, "<code>")
    except UnicodeEncodeError:
        raise SyntaxError("the code holds halves of characters (lone surrogates)") from None
    except (RecursionError, MemoryError, ValueError) as error:
        raise Refused(f"the code is nested too deeply ({type(error).__name__}): write shorter expressions.") from None


def compile_program(tree: ast.Module, limits: Limits) -> Program:
    """Compile a program under the policy; changes the tree.

    Raises:
        Refused: It breaks a rule or is too deep or too long.
        SyntaxError: It is not Python.
    """
    policy = LanguagePolicy(limits)
    ordinary = sys.getrecursionlimit()
    sys.setrecursionlimit(max(ordinary, 60 * limits.code_depth))
    try:
        policy.visit(tree)
        if policy.errors:
            raise Refused("\n".join(dict.fromkeys(policy.errors[:5])))
        code = compile(tree, "<code>", "exec", dont_inherit=True)
    finally:
        sys.setrecursionlimit(ordinary)
    return Program(code, *map(frozenset, (policy.reads, policy.binds, policy.words, policy.imports)))
