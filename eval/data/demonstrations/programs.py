"""Small changes to recorded programs: names of files, random names, and the statements of earlier ones they need."""

from __future__ import annotations

import ast
import re
import symtable
from collections.abc import Iterable, Sequence

from codev_env.python_text import parse

_UUID_IMPORT = re.compile(r"^[ \t]*(?:import uuid|from uuid import uuid4)[ \t]*(?:#.*)?\n?", re.MULTILINE)
_CALL = r"(?:uuid\.)?uuid4\(\)(?:\.hex\b)?"
_CUT = r"(?:\[:\d+\])?"
_UUID = re.compile(rf"(?P<field>\{{(?:str\({_CALL}\)|{_CALL}){_CUT}\}})|\bstr\({_CALL}\){_CUT}|\b{_CALL}{_CUT}")
_RESULTS = ("result", "output", "processed_image", "img", "image")
_SHOWS = frozenset(("save", "show", "imwrite", "imsave", "savefig"))


def rename_file(text: str, path: str, name: str) -> str:
    """Replace a path, and any other path to a file of the same name, by `name`."""
    base = re.split(r"[/\\]", path)[-1]
    if not base or base not in text:
        return text
    text = text.replace(path, name)
    return re.sub(
        rf"(?:[^\s\"'`(){{}}<>=,]{{0,300}}[/\\])?(?<![\w.\-]){re.escape(base)}(?!\w)", lambda _found: name, text
    )


def first_opened_path(code: str) -> str | None:
    """Return the path that a program gives to `image_path`, `None` if it does not."""
    found = re.search(r"\bimage_path\s*=\s*[\"']([^\"'\n]+)[\"']", code)
    return found[1] if found else None


def fix_random_names(code: str, taken: int) -> tuple[str, int]:
    """Replace `uuid4()`, which the sandbox does not have, by texts numbered from `"view1"` on.

    Args:
        code: A program.
        taken: How many such texts earlier programs have.

    Returns:
        The program and how many there are now.
    """
    if "uuid4()" not in code:
        return code, taken
    count = taken

    def number(found: re.Match[str]) -> str:
        nonlocal count
        count += 1
        # A replacement field of an f-string becomes part of its text.
        return f"view{count}" if found["field"] else f'"view{count}"'

    return _UUID.sub(number, _UUID_IMPORT.sub("", code)), count


def carry(code: str, earlier: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Make a program run without the variables that earlier programs left.

    The statements of earlier programs that it depends on are put before it, as they were written. Calls that save or
    show are left out.

    Args:
        code: A program.
        earlier: The programs before it, oldest first.

    Returns:
        The program and the names that were carried over. Where it is not Python, it is returned as it is.
    """
    try:
        return _carry(code, earlier)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # of tables of symbols as well
        return code, ()


def _carry(code: str, earlier: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    tree = parse(code)
    trees = [(text, _parse(text)) for text in earlier]
    known = {name for _text, old in trees if old for statement in old.body for name in _bound(statement)}
    wanted = _free(tree.body) & known
    if not wanted:
        return code, ()
    needed, kept = set(wanted), list[str]()
    for text, old in reversed(trees):
        for statement in reversed(old.body if old else []):
            bound = _bound(statement)
            if bound & needed:
                if isinstance(statement, (ast.Assign, ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)):
                    needed -= bound
            elif not _changes(statement, needed):
                continue
            needed |= _free([statement])
            kept.append(ast.get_source_segment(text, statement) or ast.unparse(statement))
    return "\n".join([*reversed(kept), code]), tuple(sorted(wanted))


def with_file(code: str, source: str, target: str) -> str:
    """Make a program of a tool that hands over `image` and takes `result` into one that opens and saves files.

    Args:
        code: Works on `image` (or `img`, `draw`) and assigns the new image to a variable such as `result`.
        source: Name of the file that `image` is read from.
        target: Name of the file that the result is saved under and that is printed.
    """
    tree = _parse(code)
    head = ["from PIL import Image", f'image = Image.open("{source}")']
    words = set(re.findall(r"\w+", code))
    if "img" in words:
        head.append("img = image")
    if "draw" in words:
        head += ["from PIL import ImageDraw", "draw = ImageDraw.Draw(image)"]
    names = {name for statement in (tree.body if tree else []) for name in _bound(statement)}
    result = next((name for name in _RESULTS if name in names), "image" if "draw" in words else None)
    lines = [*head, code]
    if result is not None:
        value = f"Image.fromarray({result})" if tree and _is_array(tree, result) else result
        lines += [f'{value}.save("{target}")', f'print("{target}")']
    return "\n".join(lines)


def _is_array(tree: ast.Module, name: str) -> bool:
    """Guess whether the last value a program assigns to a name is an array: a call of OpenCV or NumPy, or a slice."""
    values = [
        statement.value
        for statement in tree.body
        if isinstance(statement, ast.Assign)
        and any(isinstance(t, ast.Name) and t.id == name for t in statement.targets)
    ]
    if not values:
        return False
    value = values[-1]
    if isinstance(value, ast.Name) and value.id != name:
        return _is_array(ast.Module([s for s in tree.body if not _assigns(s, name)], []), value.id)
    return isinstance(value, ast.Subscript) or (isinstance(value, ast.Call) and _root(value) in ("cv2", "np", "numpy"))


def _assigns(statement: ast.stmt, name: str) -> bool:
    return name in _bound(statement)


def _parse(code: str) -> ast.Module | None:
    try:
        return parse(code)
    except ValueError:
        return None


def _bound(statement: ast.stmt) -> set[str]:
    """Names that a statement binds in the program's own namespace."""
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
        return {statement.name}
    names: set[str] = set()
    for node in _own(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
    return names


def _own(statement: ast.stmt) -> Iterable[ast.AST]:
    """The nodes of a statement outside of functions, classes and comprehensions within it."""
    waiting: list[ast.AST] = [statement]
    inner = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.comprehension)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, inner):
            waiting += ast.iter_child_nodes(node)


def _free(statements: Sequence[ast.stmt]) -> set[str]:
    """Names of the program's own namespace that statements read before they bind them; rather one too many."""
    free: set[str] = set()
    bound: set[str] = set()
    for statement in statements:
        free |= _read(statement) - bound
        bound |= _bound(statement)
    return free


def _read(statement: ast.stmt) -> set[str]:
    if isinstance(statement, (ast.For, ast.AsyncFor)):
        # The loop's variables are bound before its body reads them.
        targets = {node.id for node in ast.walk(statement.target) if isinstance(node, ast.Name)}
        body = set[str]().union(*(_read(inner) for inner in [*statement.body, *statement.orelse]))
        return _referenced(ast.Expr(statement.iter)) | (body - targets)
    names = _referenced(statement)
    for node in _own(statement):
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


def _referenced(statement: ast.stmt) -> set[str]:
    """Names that a statement, or a function or comprehension in it, looks up in the program's own namespace."""
    names: set[str] = set()
    waiting = [symtable.symtable(ast.unparse(ast.fix_missing_locations(statement)), "<program>", "exec")]
    top = True
    while waiting:
        table = waiting.pop()
        names |= {s.get_name() for s in table.get_symbols() if s.is_referenced() and (top or s.is_global())}
        waiting += table.get_children()
        top = False
    return names


def _changes(statement: ast.stmt, names: set[str]) -> bool:
    """Return whether a statement is a call of a method, or an assignment to a part, of one of the names."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        function = statement.value.func
        if isinstance(function, ast.Attribute):
            drawn = {n.id for a in statement.value.args[:1] for n in ast.walk(a) if isinstance(n, ast.Name)}
            return function.attr not in _SHOWS and (_root(function) in names or bool(drawn & names))
    if isinstance(statement, (ast.Assign, ast.AugAssign)):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return any(isinstance(t, (ast.Subscript, ast.Attribute)) and _root(t) in names for t in targets)
    return False


def _root(node: ast.AST) -> str:
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""
