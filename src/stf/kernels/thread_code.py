"""Bodies of `launch`, with numbers in place of the thread hierarchy that they get.

Compilers know no object with the methods of a hierarchy. So the body's source is read, and each use of its first
parameter is replaced: ``th.rank(1)`` by a number that each thread gets, ``th.sync()`` by a barrier, ``th.storage(1,
float)`` by memory. What the body reads of variables around it becomes an argument, too. The result is an ordinary
function of numbers and arrays.
"""

from __future__ import annotations

import ast
import functools
import inspect
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from stf.kernels.captured import Captured
from stf.kernels.hierarchy import Hierarchy, Level, hw_scope
from stf.places.partition import Part

__all__ = ["BARRIER", "MEMORY", "ThreadCode", "items_of", "name", "rank_in", "thread_code", "width_of"]

RANK, WIDTH, MEMORY, BARRIER = "_stf_rank", "_stf_width", "_stf_mem", "_stf_barrier"  # before the number of a level
OF_LEVELS: dict[str, Callable[[Level], int]] = {  # methods that tell what a level is
    "get_scope": lambda level: int(level.scope),
    "get_mem": lambda level: level.nbytes,
    "is_synchronizable": lambda level: level.is_synchronizable,
    "static_with": lambda level: (level.width or 0) if level.is_static else 0,
}
METHODS = frozenset(("rank", "size", "sync", "inner", "storage", "depth", *OF_LEVELS))
ALIASES = {"thread_id": "rank", "get_num_threads": "size"}
known: dict[Any, ThreadCode] = {}  # by the body's code and the hierarchy without its widths


class ThreadCode(NamedTuple):
    """A body in which numbers and memory stand for the hierarchy.

    Attributes
    ----------
    fn : function
        Takes the rank in each level, the arrays, further arguments, then the width of each level, the memory of those
        that have some (a row of words for each group), what their barriers need, if `how` says that they need
        something, and what the body reads of variables around it.
    barriers : frozenset of int
        The levels at which threads wait for each other.
    constants : tuple of (str, object)
        Names whose values were compiled in.
    tree : FunctionDef
        The syntax of the function.
    """

    fn: Any
    barriers: frozenset[int]
    constants: tuple[tuple[str, Any], ...]
    tree: ast.FunctionDef

    def outer(self, hierarchy: Hierarchy, where: str) -> Part:
        """Return the ranks in the outermost level; TypeError if a part of them waits for others, or shares memory."""
        level, width = hierarchy.levels[0], hierarchy.levels[0].width or 0
        found = Part((range(width),)) if hierarchy.outer is None else hierarchy.outer
        if 0 in self.barriers and found.size < width:
            raise TypeError(f"{where} waits at level 0, whose threads are at several places; wait at a level inside")
        if level.nbytes and found.size < width:
            raise TypeError(
                f"{where} shares mem({level.nbytes}) at level 0, whose threads are at several places; give mem to a "
                "level inside, or use logical data"
            )
        return found


def thread_code(body: types.FunctionType, hierarchy: Hierarchy, captured: Captured, how: Any, where: str) -> ThreadCode:
    """Return the code of a body for the threads of a hierarchy.

    Parameters
    ----------
    body : function
        Its first parameter is the hierarchy.
    hierarchy : Hierarchy
        Of which widths count that are compiled in.
    captured : Captured
        The variables around the body.
    how : module or class
        ``barrier(level)`` and ``memory(level, group, dtype, count)`` give the syntax of a barrier, and of the memory
        of a level; ``has_barriers`` is whether barriers are arguments, ``resumes`` whether a thread that waits is one
        that is left, and goes on later.
    where : str
        What messages call the body.

    Raises
    ------
    TypeError
        The body uses the hierarchy for something else than its methods, or its source is not there.
    """
    fixed = Hierarchy(tuple(one if one.is_static else one._replace(width=None) for one in hierarchy.levels))
    key = body.__code__, fixed, tuple(captured.names), how
    found = known.get(key)
    if (
        found is not None
        and found.fn.__globals__ is body.__globals__
        and all(value_of(name, body) is value for name, value in found.constants)
    ):
        return found
    tree = tree_of(body.__code__, where)
    rewriter = Rewriter(body, fixed, how, where)
    rewritten = rewriter.rewrite(tree, captured.names)
    module = ast.fix_missing_locations(ast.Module([rewritten], []))
    namespace: dict[str, Any] = {}
    exec(compile(module, body.__code__.co_filename, "exec"), namespace)
    fn = types.FunctionType(namespace[body.__name__].__code__, body.__globals__, body.__name__)
    found = known[key] = ThreadCode(fn, frozenset(rewriter.barriers), tuple(rewriter.constants.items()), rewritten)
    return found


def tree_of(code: types.CodeType, where: str) -> ast.FunctionDef:
    """Return the syntax tree of a function, with the lines of its file."""
    try:
        text = inspect.getsource(code)
        is_inside = text[:1].isspace()  # a text of several lines in it may begin at the margin
        tree: Any = ast.parse(f"if 1:\n{text}" if is_inside else text).body[0]
        tree = tree.body[0] if is_inside else tree
    except (OSError, SyntaxError):
        raise TypeError(f"{where}: its source is not there, which launch reads; write it in a file or a cell") from None
    if not isinstance(tree, ast.FunctionDef):
        raise TypeError(f"{where}: launch takes a function written with def")
    ast.increment_lineno(tree, code.co_firstlineno - 1 - is_inside)
    tree.decorator_list = []
    return tree


def value_of(name: str, fn: types.FunctionType) -> Any:
    """Return what a name with dots is in a function.

    Of its closure, a global variable, or a builtin; None if nothing.
    """
    first, *attributes = name.split(".")
    if first in fn.__code__.co_varnames:
        return None
    cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
    if first in cells:
        value = cells[first].cell_contents
    else:
        around = fn.__globals__
        value = around.get(first, vars(__import__("builtins")).get(first))
    for attribute in attributes:
        value = getattr(value, attribute, None)
    return value


class Rewriter(ast.NodeTransformer):
    """Replaces the uses of a hierarchy in a body."""

    def __init__(self, body: types.FunctionType, hierarchy: Hierarchy, how: Any, where: str) -> None:
        self.body = body
        self.levels = hierarchy.levels
        self.how = how
        self.where = where
        self.barriers: set[int] = set()
        self.constants: dict[str, Any] = {}
        self.compiles_widths = True
        self.names: dict[str, int] = {}  # of hierarchies, with the levels that were taken off

    def rewrite(self, tree: ast.FunctionDef, captured: list[str]) -> ast.FunctionDef:
        """Return the definition of the function, with other parameters."""
        if self.how.resumes:  # compilers lose what such a thread keeps, where a known width makes a loop run never
            self.compiles_widths = not any(isinstance(n, ast.Attribute) and n.attr == "sync" for n in ast.walk(tree))
        given = tree.args.args
        self.names = {given[0].arg: 0}
        statements = [self.visit(statement) for statement in tree.body]
        ranks = [f"{RANK}{i}" for i in range(len(self.levels))]
        widths = [f"{WIDTH}{i}" for i in range(len(self.levels))]
        memory = [f"{MEMORY}{i}" for i, level in enumerate(self.levels) if level.nbytes]
        first = [ast.arg(name) for name in ranks]
        barriers = [f"{BARRIER}{i}" for i in sorted(self.barriers)] if self.how.has_barriers else []
        last = [ast.arg(name) for name in (*widths, *memory, *barriers, *captured)]
        tree.args = ast.arguments([], [*first, *given[1:], *last], None, [], [], None, [])
        tree.body = statements
        return tree

    def fail(self, node: ast.AST, reason: str) -> TypeError:
        line = f"{self.body.__code__.co_filename}:{getattr(node, 'lineno', 0)}"
        return TypeError(f"{self.where} ({line}): {reason}")

    def depth_of(self, node: ast.AST) -> int | None:
        """Return how many levels an expression has taken off a hierarchy; None if it is none."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "inner":
            above = self.depth_of(node.func.value)
            if above is None:
                return None
            if above + 1 >= len(self.levels):
                raise self.fail(node, f"inner() of a hierarchy with {len(self.levels) - above} level(s)")
            return above + 1
        return None

    # -- statements ------------------------------------------------------------------------------------------------

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        above = self.depth_of(node.value)
        if above is None:
            return self.generic_visit(node)
        if len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
            raise self.fail(node, "a thread hierarchy is given one name")
        self.names[node.targets[0].id] = above
        return ast.copy_location(ast.Pass(), node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        call = node.value
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "sync":
            above = self.depth_of(call.func.value)
            if above is not None:
                level = self.level_of(call, above)
                if level is None:
                    raise self.fail(node, "the level of a barrier is a number in the source: th.sync(1)")
                if not self.levels[level].is_synchronizable:
                    raise self.fail(node, f"level {level} is par, whose threads cannot wait for each other; use con")
                self.barriers.add(level)
                return located(self.how.barrier(level), node)
        return self.generic_visit(node)

    # -- expressions -----------------------------------------------------------------------------------------------

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in self.names:
            raise self.fail(node, "a thread hierarchy is used by its methods alone; pass th.rank() and th.size()")
        return self.constant_or(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        found = self.constant_or(node)
        return self.generic_visit(node) if found is node else found

    def constant_or(self, node: Any) -> ast.AST:
        """Return the number in place of a name with dots that is an `hw_scope`."""
        name = dotted(node)
        value = None if name is None or not isinstance(node.ctx, ast.Load) else value_of(name, self.body)
        if not isinstance(value, hw_scope):
            return node
        self.constants[str(name)] = value
        return located(ast.Constant(int(value)), node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        above = self.depth_of(node.func.value) if isinstance(node.func, ast.Attribute) else None
        if above is None:
            return self.generic_visit(node)
        method = ALIASES.get(node.func.attr, node.func.attr)  # type: ignore[attr-defined]
        if method not in METHODS:
            raise self.fail(node, f"a thread hierarchy has no '{method}'; it has {', '.join(sorted(METHODS))}")
        if method in ("inner", "sync"):
            raise self.fail(node, f"{method}() stands alone: ti = th.inner(), or th.sync()")
        if method in OF_LEVELS:
            values: list[ast.expr] = [ast.Constant(OF_LEVELS[method](level)) for level in self.levels]
            return located(self.by_level(node, above, values), node)
        return located(getattr(self, method)(node, above), node)

    def level_of(self, node: ast.Call, above: int) -> int | None:
        """Return the level that a call names, counted from the outermost of all.

        None if it is no number in the source.
        """
        given = given_to(node)
        if not given:
            return above
        try:
            level = ast.literal_eval(given[0])
        except ValueError:
            return None
        if not isinstance(level, int) or not 0 <= level < len(self.levels) - above:
            raise self.fail(node, f"the hierarchy has levels 0 to {len(self.levels) - above - 1}, got {level!r}")
        return above + level

    def by_level(self, node: ast.Call, above: int, values: list[ast.expr]) -> ast.expr:
        """Return the value of the level that a call names; of a number that the body computes, an item of all."""
        level = self.level_of(node, above)
        if level is not None:
            return values[level]
        return ast.Subscript(ast.Tuple(values[above:], ast.Load()), self.visit(given_to(node)[0]), ast.Load())

    def width(self, level: int) -> ast.expr:
        one = self.levels[level]
        return ast.Constant(one.width) if one.is_static and self.compiles_widths else width_of(level)

    def rank(self, node: ast.Call, above: int) -> ast.expr:
        levels = range(len(self.levels))
        if node.args or node.keywords:
            return self.by_level(node, above, [name(f"{RANK}{level}") for level in levels])
        return rank_in(above, len(self.levels), self.width)

    def size(self, node: ast.Call, above: int) -> ast.expr:
        widths = [self.width(level) for level in range(len(self.levels))]
        if node.args or node.keywords:
            return self.by_level(node, above, widths)
        return functools.reduce(lambda a, b: binary(a, ast.Mult(), b), widths[above:])

    def storage(self, node: ast.Call, above: int) -> ast.expr:
        level = self.level_of(node, above)
        given = given_to(node)
        if level is None or len(given) != 2:
            raise self.fail(node, "storage takes a level, which is a number in the source, and a dtype")
        text = dotted(given[1])
        value: Any = given[1].value if isinstance(given[1], ast.Constant) else value_of(text or "", self.body)
        try:
            dtype: np.dtype[Any] = np.dtype(value)
        except TypeError:
            dtype = np.dtype(np.void)
        if value is None or dtype.kind not in "biufc":
            raise self.fail(node, "storage takes a dtype of numbers by its name, such as np.float64")
        if text is not None:
            self.constants[text] = value
        nbytes = self.levels[level].nbytes
        if nbytes < dtype.itemsize:
            raise self.fail(node, f"level {level} has {nbytes} bytes, too few for {dtype}; say mem({dtype.itemsize})")
        return self.how.memory(level, rank_in(0, level, self.width), dtype, nbytes // dtype.itemsize)

    def depth(self, node: ast.Call, above: int) -> ast.expr:
        return ast.Constant(len(self.levels) - above)


def given_to(node: ast.Call) -> list[ast.expr]:
    """Return the arguments of a call, those by keyword last."""
    return [*node.args, *[keyword.value for keyword in node.keywords]]


def name(text: str) -> ast.Name:
    """Return a variable that is read."""
    return ast.Name(text, ast.Load())


def binary(left: ast.expr, operator: ast.operator, right: ast.expr) -> ast.expr:
    """Two numbers combined."""
    return ast.BinOp(left, operator, right)


def width_of(level: int) -> ast.expr:
    """Return the width of a level, as an argument."""
    return name(f"{WIDTH}{level}")


def rank_in(first: int, last: int, width: Callable[[int], ast.expr] = width_of) -> ast.expr:
    """Return the rank in the levels from `first` on, before `last`, as one number."""
    found: ast.expr = ast.Constant(0) if first == last else name(f"{RANK}{first}")
    for level in range(first + 1, last):
        found = binary(binary(found, ast.Mult(), width(level)), ast.Add(), name(f"{RANK}{level}"))
    return found


def items_of(row: ast.expr, dtype: np.dtype[Any], count: int) -> ast.expr:
    """So many items of memory, as an array."""
    kind = ast.Attribute(name("_stf_numpy"), dtype.type.__name__, ast.Load())
    whole = ast.Call(ast.Attribute(row, "view", ast.Load()), [kind], [])
    return ast.Subscript(whole, ast.Slice(None, ast.Constant(count)), ast.Load())


def dotted(node: Any) -> str | None:
    """Return a name with dots; None for other expressions."""
    if isinstance(node, ast.Name):
        return node.id
    before = dotted(node.value) if isinstance(node, ast.Attribute) else None
    return None if before is None else f"{before}.{node.attr}"


def located(new: Any, old: ast.AST) -> Any:
    """New syntax in the line of the old."""
    for node in ast.walk(new):
        if not hasattr(node, "lineno") and isinstance(node, ast.expr | ast.stmt):
            ast.copy_location(node, old)
    return new
