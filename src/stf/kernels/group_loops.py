"""Bodies of `launch` with barriers, as loops over the threads of a group.

A thread that waits needs a place to go on from. On a CPU that was a generator for each thread: a microsecond each time
that one is made or goes on. But most bodies wait where all threads of a group do. Such a body is cut there::

    i = th.rank()                       for rank1 in range(width1):
    y[i] = 2 * x[i]                         i = rank0 * width1 + rank1
    th.sync(1)                              y[i] = 2 * x[i]
    x[i] = y[last - i]                  for rank1 in range(width1):
                                            i = rank0 * width1 + rank1
                                            x[i] = y[last - i]

The groups are the elements of an ordinary loop then, which is cut over the workers. A barrier of a level inside counts
as one of the outermost level that has a barrier: to wait for more threads changes nothing, if all of them come.

What is what:

- A statement is the *group's* if it has a barrier in it, or assigns what decides whether one is come to. It runs once
  for all threads, so what it reads must be the same for all: parameters, sizes, ranks outside of the group, and numbers
  that other statements of the group assign. An element of an array is not, since a thread may have changed it.
- The other statements, between two of the group's, are a *segment*: a loop over the threads.
- A variable that one segment assigns and another one reads is an *array* over the group. Numba infers its dtype.
- A variable that is assigned once, of ranks and sizes, is computed again in each segment: an array would hide from the
  compiler that threads beside each other have elements beside each other.
- ``for i in range(th.rank(), n, th.size())`` in a segment is a loop of the group's with a segment in it. Each thread
  does the same in the same order, and those of a group go through memory together.

A body that this cannot tell of (a barrier in a branch that differs, or in a loop whose count depends on the thread; a
``return`` in front of one; locals that are no numbers) is not cut: it stays a generator, which also says which threads
do not come. Tried and left: to infer whether an element that is read is the same for all. Threads may have changed it.
"""

from __future__ import annotations

import ast
import builtins
import copy
import functools
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from stf.kernels.thread_code import MEMORY, RANK, WIDTH, binary, name, rank_in, width_of

__all__ = ["CannotCutError", "GroupBody", "dtypes_of", "without_barriers"]

START, STOP, STEP, LOCAL, GIVEN, NUMBER, BASE = (
    f"_stf_{what}_" for what in ("start", "stop", "step", "local", "given", "number", "base")
)
SIZES = frozenset(("size", "shape", "ndim"))
FUNCTIONS = frozenset(("min", "max", "abs", "int", "float", "len", "bool"))
REFUSED = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp),
    *(ast.GeneratorExp, ast.NamedExpr, ast.Try, ast.With, ast.Delete, ast.Global, ast.Nonlocal, ast.Match),
    *(ast.Import, ast.ImportFrom, ast.YieldFrom, ast.Await, ast.Starred),
)
PLAIN = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Call, ast.Tuple)
SIGNS = (ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context)
LOOPS = (ast.For, ast.While)


class CannotCutError(Exception):
    """A body stays a generator."""


class Segment(NamedTuple):
    """Statements of each thread of the group."""

    body: list[ast.stmt]


class GroupBody:
    """A body that is cut at its barriers.

    Parameters
    ----------
    tree : FunctionDef
        Of a thread, as `thread_code` makes it.
    barriers : frozenset of int
    memory : list of int
        The bytes of the memory of each level, 0 for none.
    numbers : list of str
        Parameters that are arrays with no axes, of which the body gets the number.
    arrays : set of str
        Parameters that are arrays in the body.
    is_builtin : callable
        Whether a name means Python's own function in the body.

    Attributes
    ----------
    first : int
        The level whose groups the loops are over.

    Raises
    ------
    CannotCutError
        It cannot be cut.
    """

    def __init__(
        self,
        tree: ast.FunctionDef,
        barriers: frozenset[int],
        memory: list[int],
        numbers: list[str],
        arrays: set[str],
        is_builtin: Callable[[str], bool],
    ) -> None:
        self.tree = copy.deepcopy(tree)
        self.first = min(barriers)
        self.memory = memory
        self.depth = len(memory)
        self.is_builtin = is_builtin
        refuse_rarer(self.tree)
        self.ranks = {f"{RANK}{level}": level for level in range(self.depth)}
        self.parameters = {arg.arg for arg in self.tree.args.args}
        self.numbers = numbers
        self.arrays = set(arrays)
        self.body = self.with_own_parameters()
        self.assigned = stored(self.body)
        self.again = self.found_again()
        self.body = [s for s in self.body if not (isinstance(s, ast.Assign) and target_of(s) in self.again)]
        self.hoisted = {known for known in self.again if self.is_uniform(self.expanded(name(known)), set())}
        self.of_group = self.group_variables()
        self.strides: set[str] = set()
        self.bases = 0
        self.items = self.cut(self.body, False)
        self.segments = list(segments_of(self.items))
        own = self.assigned - self.of_group - set(self.again)
        self.crossing = own & {known for segment in self.segments for known in Flow(segment.body).exposed}
        self.unset = Flow(self.body).exposed & self.crossing
        if self.crossing & self.strides:
            raise CannotCutError("a variable of a loop with a stride is read behind it")
        if any(has_return(segment.body) for segment in self.segments[:-1]):
            raise CannotCutError("a thread returns before others come to a loop with a stride")

    def with_own_parameters(self) -> list[ast.stmt]:
        """Return the statements, where parameters that the body assigns to are variables."""
        changed = sorted(self.parameters & stored(self.tree.body))
        self.parameters -= set(changed)
        self.given = {known: f"{GIVEN}{known}" for known in changed}
        self.parameters |= set(self.given.values())
        self.arrays |= {given for known, given in self.given.items() if known in self.arrays}
        return [*[assign(known, name(given)) for known, given in self.given.items()], *self.tree.body]

    # -- what is the same for all threads of a group ---------------------------------------------------------------

    def found_again(self) -> dict[str, ast.expr]:
        """Return the variables that are computed again where they are read: assigned once, of what does not change."""
        count: dict[str, int] = {}
        for node in nodes_of(self.body):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                count[node.id] = count.get(node.id, 0) + 1
        found: dict[str, ast.expr] = {}
        for statement in self.body:
            known = target_of(statement)
            if known is None or count[known] > 1 or not isinstance(statement, ast.Assign):
                continue
            value = statement.value
            is_array = self.is_memory(value) or (isinstance(value, ast.Name) and value.id in self.arrays)
            if is_array or self.is_pure(value, lambda other: other in found or other in self.ranks):
                found[known] = value
            if is_array:
                self.arrays.add(known)
        return found

    def is_pure(self, node: ast.AST, suits: Callable[[str], bool]) -> bool:
        """Return whether an expression computes numbers, of parameters and of names that suit, and sizes of arrays.

        It reads no elements of arrays, which change, and makes no array: each thread has its own.
        """
        if isinstance(node, ast.Name):
            return node.id not in self.arrays and self.is_fixed(node.id, suits)
        if isinstance(node, ast.Attribute):
            return node.attr in SIZES and isinstance(node.value, ast.Name) and node.value.id in self.parameters
        if isinstance(node, ast.Subscript):
            is_shape = isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
            is_item = isinstance(node.value, ast.Tuple)  # a rank, of a level that the body computes
            return (is_shape or is_item) and self.is_pure(node.value, suits) and self.is_pure(node.slice, suits)
        if isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else ""
            if name not in FUNCTIONS or not self.is_builtin(name) or node.keywords:
                return False
            if name == "len" and len(node.args) == 1 and isinstance(node.args[0], ast.Name):
                return self.is_fixed(node.args[0].id, suits)
            return all(self.is_pure(item, suits) for item in node.args)
        if isinstance(node, PLAIN):
            return all(self.is_pure(one, suits) for one in ast.iter_child_nodes(node) if not isinstance(one, SIGNS))
        return False

    def is_fixed(self, known: str, suits: Callable[[str], bool]) -> bool:
        """Return whether a name is a parameter other than a rank, or suits."""
        return (known in self.parameters and known not in self.ranks) or suits(known)

    def is_memory(self, node: ast.AST) -> bool:
        """Return whether an expression is the memory of a group, as `OnCpu` makes it, or a part of it."""
        if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Call):
            return False
        called = node.value.func
        return isinstance(called, ast.Attribute) and called.attr == "view" and level_of_memory(called.value) is not None

    def is_uniform(self, node: ast.AST, known: set[str]) -> bool:
        """Return whether an expression is the same for all threads of a group, as the names `known` are."""
        if self.is_memory(node):
            row: Any = node.value.func.value.slice  # type: ignore[attr-defined]
            return self.is_uniform(row, known)
        return self.is_pure(node, lambda other: other in known or self.ranks.get(other, self.first) < self.first)

    def expanded(self, node: Any) -> Any:
        """Return an expression in which definitions stand for the variables that are computed again."""

        def known(name: ast.Name) -> ast.AST:
            is_again = name.id in self.again and isinstance(name.ctx, ast.Load)
            return self.expanded(self.again[name.id]) if is_again else name

        return replaced(node, ast.Name, known)

    def group_variables(self) -> set[str]:
        """Return the variables that decide whether barriers are come to, and what decides of these."""
        found: set[str] = set()
        while True:
            self.of_group = found
            needed: set[str] = set()
            self.needs(self.body, False, needed)
            needed &= self.assigned - set(self.again)
            if needed <= found:
                return found
            found = found | needed

    def needs(self, body: list[ast.stmt], in_loop: bool, needed: set[str]) -> None:
        """Add what the group's statements read and assign."""
        for statement in body:
            if not self.is_groups(statement, in_loop):
                continue
            if isinstance(statement, ast.For):
                needed |= loaded(statement.iter) | stored([statement.target])
            elif isinstance(statement, ast.If | ast.While):
                needed |= loaded(statement.test)
            elif isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign):
                needed |= loaded(statement)
            for inner in blocks_of(statement):
                self.needs(inner, in_loop or isinstance(statement, LOOPS), needed)

    def is_groups(self, statement: ast.stmt, in_loop: bool) -> bool:
        """Return whether a statement is the group's; `in_loop`: it stands in one of the group's loops."""
        if any(map(is_barrier, ast.walk(statement))) or stored([statement]) & self.of_group:
            return True
        if has_return([statement]):
            loops = [node for node in ast.walk(statement) if isinstance(node, LOOPS)]
            return has_return(loops) or not self.is_behind_all(statement)
        return in_loop and has_jump(statement, (ast.Break, ast.Continue))

    def is_behind_all(self, statement: ast.stmt) -> bool:
        """Return whether a statement comes behind all of the group's, in no block of another one."""
        for other in reversed(self.body):
            if any(map(is_barrier, ast.walk(other))) or stored([other]) & self.of_group:
                return False
            if other is statement:
                return True
        return False

    # -- cutting ---------------------------------------------------------------------------------------------------

    def cut(self, body: list[ast.stmt], in_loop: bool) -> list[Any]:
        """Return statements of the group, whose blocks are cut likewise, with segments between them."""
        found: list[Any] = []
        run: list[ast.stmt] = []

        def flush() -> None:
            if any(not isinstance(statement, ast.Pass) for statement in run):
                found.append(Segment(run[:]))
            run.clear()

        for statement in body:
            if self.is_groups(statement, in_loop):
                flush()
                if not is_barrier(statement):
                    found.append(self.of_all(statement, in_loop))
                continue
            strided = self.strided(statement)
            if strided is None:
                run.append(statement)
            else:
                flush()
                found.append(strided)
        flush()
        return found

    def of_all(self, statement: Any, in_loop: bool) -> ast.stmt:
        """Return a statement of the group, with its blocks cut."""
        known = self.of_group | self.hoisted
        if isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign):
            target = target_of(statement)
            if target is None or statement.value is None or not self.is_uniform(statement.value, known):
                raise CannotCutError("what decides of a barrier differs between threads")
            return statement
        if isinstance(statement, ast.Return):
            if in_loop:
                raise CannotCutError("it returns within a loop")
            return ast.copy_location(ast.Continue(), statement)
        if isinstance(statement, ast.Break | ast.Continue) and in_loop:
            return statement
        if isinstance(statement, ast.If) and self.is_uniform(statement.test, known):
            body, others = self.cut(statement.body, in_loop), self.cut(statement.orelse, in_loop)
            return ast.copy_location(ast.If(statement.test, body, others), statement)
        if not isinstance(statement, LOOPS) or statement.orelse:
            raise CannotCutError("a barrier is in a block that not all threads run")
        if isinstance(statement, ast.While):
            if not self.is_uniform(statement.test, known):
                raise CannotCutError("a barrier is in a loop whose count differs")
            return ast.copy_location(ast.While(statement.test, self.cut(statement.body, True), []), statement)
        arguments = self.range_of(statement)
        if arguments is None or not all(self.is_uniform(item, known) for item in arguments):
            raise CannotCutError("a barrier is in a loop whose count differs")
        body = self.cut(statement.body, True)
        return ast.copy_location(ast.For(statement.target, statement.iter, body, [], None), statement)

    def range_of(self, statement: ast.For) -> list[ast.expr] | None:
        """Return the arguments of `range` in a loop of one variable; None for other loops."""
        call = statement.iter
        if not isinstance(statement.target, ast.Name) or not isinstance(call, ast.Call) or call.keywords:
            return None
        is_range = isinstance(call.func, ast.Name) and call.func.id == "range" and self.is_builtin("range")
        return call.args if is_range else None

    def strided(self, statement: ast.stmt) -> ast.stmt | None:
        """Return a loop of each thread's, a stride apart, as a loop of the group's; None for other statements."""
        if not isinstance(statement, ast.For) or statement.orelse:
            return None
        arguments = self.range_of(statement)
        if arguments is None or len(arguments) != 3 or has_return([statement]):
            return None
        if any(has_jump(inner, (ast.Break, ast.Continue)) for inner in statement.body):
            return None
        start, stop, step = map(self.expanded, arguments)
        index = statement.target.id  # type: ignore[attr-defined]
        is_positive = is_made_of(step, 1, lambda known: known.startswith(WIDTH))
        if not (self.is_uniform(stop, set()) and is_positive and self.rises(start)):
            return None
        if index in stored(statement.body):
            return None
        self.strides.add(index)
        base = f"{BASE}{self.bases}"
        self.bases += 1
        begin = self.at_first(start)
        moved = binary(start, ast.Add(), binary(name(base), ast.Sub(), begin))
        inside = ast.Compare(name(index), [ast.Lt()], [stop])
        segment = Segment([assign(index, moved), ast.If(inside, statement.body, [])])
        counted = ast.Call(name("_stf_range"), [begin, stop, step], [])
        loop = ast.For(ast.Name(base, ast.Store()), counted, [segment], [], None)  # type: ignore[list-item]
        return ast.copy_location(loop, statement)

    def rises(self, node: ast.AST) -> bool:
        """Return whether a number is least for the first thread of a group, which shows in the source."""
        if self.is_uniform(node, set()):
            return True
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self.rises(node.left) and self.rises(node.right)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            return self.is_rank(node.left) and self.is_rank(node.right)
        return self.is_rank(node)

    def is_rank(self, node: ast.AST) -> bool:
        """Return whether a number is a sum of products of ranks and widths, which is never negative."""
        return is_made_of(node, 0, lambda known: known in self.ranks or known.startswith(WIDTH))

    def at_first(self, node: ast.expr) -> ast.expr:
        """Return an expression as it is for the first thread of a group."""
        ranks, first = self.ranks, self.first
        return replaced(node, ast.Name, lambda one: ast.Constant(0) if ranks.get(one.id, -1) >= first else one)

    # -- the function ----------------------------------------------------------------------------------------------

    def function(self, dtypes: dict[str, str]) -> ast.Module:
        """Return the definition of a function that runs groups.

        It takes start, stop and step of the ranks in each level outside of the groups (of one group 0, 1, 1), the
        arrays, further arguments, the widths, the memory of levels outside, and the variables around the body.
        """
        outside = max(self.first, 1)
        bounds = [f"{what}{level}" for level in range(outside) for what in (START, STOP, STEP)]
        inside = {f"{MEMORY}{level}" for level in range(self.first, self.depth)}
        given = [arg.arg for arg in self.tree.args.args if arg.arg not in self.ranks and arg.arg not in inside]
        renamed = [f"{NUMBER}{known}" if known in self.numbers else self.given.get(known, known) for known in given]
        head: list[ast.stmt] = []
        for known in self.numbers:
            number = ast.Subscript(name(f"{NUMBER}{known}"), ast.Tuple([], ast.Load()), ast.Load())
            head.append(assign(self.given.get(known, known), number))
        size = self.threads_in(self.first, self.depth)
        head += [assign(f"{LOCAL}{known}", room(size, dtypes[known])) for known in sorted(self.crossing)]
        for level in range(self.first, self.depth):
            if self.memory[level]:
                shape = ast.Tuple([self.threads_in(self.first, level), ast.Constant(self.memory[level])], ast.Load())
                head.append(assign(f"{MEMORY}{level}", room(shape, "uint8")))
        body: list[ast.stmt] = [assign(known, self.again[known]) for known in self.again if known in self.hoisted]
        body += [cleared(f"{LOCAL}{known}") for known in sorted(self.unset)]
        body += self.lowered(self.items)
        for level in reversed(range(outside)):
            rank = f"{RANK}{level}" if level < self.first else "_stf_only"
            ends = [name(f"{what}{level}") for what in (START, STOP, STEP)]
            body = [loop_over(rank, ends, body)]
        arguments = ast.arguments([], [ast.arg(known) for known in (*bounds, *renamed)], None, [], [], None, [])
        made = ast.FunctionDef(self.tree.name, arguments, [*head, *body], [], None)
        self.use_own_memory(made)
        return ast.fix_missing_locations(ast.Module([ast.copy_location(made, self.tree)], []))

    def lowered(self, items: list[Any]) -> list[ast.stmt]:
        """Return statements with loops over the threads in place of segments."""
        found: list[ast.stmt] = []
        for item in items:
            if isinstance(item, Segment):
                found.append(self.loop_of(item, item is self.segments[-1]))
                continue
            if isinstance(item, ast.If | ast.For | ast.While):
                item.body = self.lowered(item.body) or [ast.Pass()]
                item.orelse = self.lowered(item.orelse)
            found.append(item)
        return found

    def loop_of(self, segment: Segment, is_last: bool) -> ast.stmt:
        """Return a loop over the threads of a group, which load and store the variables that outlive it."""
        flow = Flow(segment.body)
        read = flow.read | flow.assigned
        known = self.crossing & read
        index = rank_in(self.first, self.depth)
        body: list[ast.stmt] = [
            assign(other, self.again[other]) for other in self.again if other in self.needed_again(flow.read)
        ]
        for other in sorted(known):
            if other in flow.exposed or other not in flow.defined:
                body.append(assign(other, ast.Subscript(name(f"{LOCAL}{other}"), index, ast.Load())))
        returns = is_last and has_return(segment.body)
        body += [without_return(statement) for statement in segment.body] if returns else segment.body
        for other in sorted(known & flow.assigned) if not returns else ():
            where = ast.Subscript(name(f"{LOCAL}{other}"), index, ast.Store())
            body.append(ast.Assign([where], name(other)))
        for level in reversed(range(self.first, self.depth)):
            body = [loop_over(f"{RANK}{level}", [width_of(level)], body)]
        return body[0]

    def needed_again(self, names: set[str]) -> set[str]:
        """Return the variables that a segment computes again, of which it reads some."""
        found = {known for known in names if known in self.again and known not in self.hoisted}
        for known in list(found):
            found |= self.needed_again(loaded(self.again[known]))
        return found

    def threads_in(self, first: int, last: int) -> ast.expr:
        """Return the product of the widths of levels."""
        found: ast.expr = ast.Constant(1)
        for level in range(first, last):
            found = binary(found, ast.Mult(), width_of(level))
        return found

    def use_own_memory(self, tree: ast.AST) -> None:
        """Let memory of levels inside have a row for each of their groups in one group, as only one runs at a time."""
        for node in ast.walk(tree):
            level = level_of_memory(node)
            if level is not None and level >= self.first:
                node.slice = rank_in(self.first, level)  # type: ignore[attr-defined]


class Flow:
    """What statements read of variables, in the order in which they run.

    Attributes
    ----------
    exposed : set of str
        What may be read before it is assigned.
    read, assigned : set of str
    defined : set of str
        What is assigned in any case.
    """

    def __init__(self, body: list[ast.stmt]) -> None:
        self.read = {known for statement in body for known in loaded(statement)}
        self.assigned = stored(body)
        self.exposed: set[str] = set()
        self.defined = self.block(body, set())

    def block(self, body: list[ast.stmt], defined: set[str]) -> set[str]:
        """Go through statements, before which some variables are assigned; return those that are behind them."""
        for statement in body:
            defined = self.statement(statement, defined)
        return defined

    def statement(self, statement: ast.stmt, defined: set[str]) -> set[str]:
        """Go through a statement."""
        if isinstance(statement, ast.If):
            self.expose(loaded(statement.test), defined)
            return self.block(statement.body, defined) & self.block(statement.orelse, defined)
        if isinstance(statement, ast.For):
            self.expose(loaded(statement.iter), defined)
            self.block(statement.body, defined | stored([statement.target]))
            self.block(statement.orelse, defined)
            return defined
        if isinstance(statement, ast.While):
            self.expose(loaded(statement.test), defined)
            self.block(statement.body, defined)
            self.block(statement.orelse, defined)
            return defined
        self.expose(loaded(statement), defined)
        if isinstance(statement, ast.Break | ast.Continue | ast.Return | ast.Raise):
            return defined | self.assigned  # nothing comes behind it
        return defined | stored([statement])

    def expose(self, names: set[str], defined: set[str]) -> None:
        """Note what is read."""
        self.exposed |= names - defined


def segments_of(items: list[Any]) -> Iterator[Segment]:
    """All segments among statements of the group, in order."""
    for item in items:
        if isinstance(item, Segment):
            yield item
        elif isinstance(item, ast.If | ast.For | ast.While):
            yield from segments_of(item.body)
            yield from segments_of(item.orelse)


# -- syntax ------------------------------------------------------------------------------------------------------------


def nodes_of(body: list[Any]) -> Iterator[ast.AST]:
    """All syntax of some statements."""
    for statement in body:
        yield from ast.walk(statement)


def stored(body: list[Any]) -> set[str]:
    """Return the variables that statements assign to."""
    return {node.id for node in nodes_of(body) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def loaded(node: ast.AST) -> set[str]:
    """Return the variables that a statement, or an expression, reads."""
    found = {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)}
    for each in ast.walk(node):
        if isinstance(each, ast.AugAssign) and isinstance(each.target, ast.Name):
            found.add(each.target.id)
    return found


def target_of(statement: ast.stmt) -> str | None:
    """Return the one variable that a statement assigns to; None for other statements."""
    if isinstance(statement, ast.Assign):
        target: Any = statement.targets[0] if len(statement.targets) == 1 else None
    else:
        target = statement.target if isinstance(statement, ast.AugAssign | ast.AnnAssign) else None
    return target.id if isinstance(target, ast.Name) else None


def blocks_of(statement: ast.stmt) -> list[list[ast.stmt]]:
    """Return the blocks of a compound statement."""
    return [getattr(statement, part) for part in ("body", "orelse") if getattr(statement, part, None)]


def is_made_of(node: ast.AST, least: int, suits: Callable[[str], bool]) -> bool:
    """Return whether a number is made by + and * of integers from `least` on, and of names that suit."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mult):
        return is_made_of(node.left, least, suits) and is_made_of(node.right, least, suits)
    if isinstance(node, ast.Constant):
        return type(node.value) is int and node.value >= least
    return isinstance(node, ast.Name) and suits(node.id)


def is_barrier(node: ast.AST) -> bool:
    """Return whether a statement is a barrier."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Yield)


def level_of_memory(node: ast.AST) -> int | None:
    """Return the level of which an expression is a row of the memory; None for others."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
        return None
    text = node.value.id
    return int(text[len(MEMORY) :]) if text.startswith(MEMORY) and text[len(MEMORY) :].isdigit() else None


def has_jump(statement: ast.stmt, kinds: tuple[type, ...], through_loops: bool = False) -> bool:
    """Return whether a statement has a jump of such a kind, which leaves it: those of loops inside stay there."""
    if isinstance(statement, kinds):
        return True
    if isinstance(statement, LOOPS) and not through_loops:
        return any(has_jump(inner, kinds) for inner in statement.orelse)
    return any(has_jump(inner, kinds, through_loops) for block in blocks_of(statement) for inner in block)


def has_return(body: Sequence[ast.stmt]) -> bool:
    """Return whether statements return."""
    return any(has_jump(statement, (ast.Return,), through_loops=True) for statement in body)


def refuse_rarer(tree: ast.FunctionDef) -> None:
    """Raise CannotCutError for syntax that is not looked into."""
    allowed = {id(node.value) for node in ast.walk(tree) if is_barrier(node)}  # type: ignore[attr-defined]
    for node in nodes_of(tree.body):
        if isinstance(node, REFUSED) or (isinstance(node, ast.Yield) and id(node) not in allowed):
            raise CannotCutError(f"it has a {type(node).__name__}")
        if isinstance(node, ast.AnnAssign) and node.value is None:  # which looks like an assignment
            raise CannotCutError("it declares a variable")


def without_barriers(tree: ast.FunctionDef) -> ast.Module:
    """Return the definition of a thread that never waits, which has variables of the same types."""
    plain = replaced(tree, ast.Expr, lambda one: ast.copy_location(ast.Pass(), one) if is_barrier(one) else one)
    return ast.fix_missing_locations(ast.Module([plain], []))


def without_return(statement: ast.stmt) -> ast.stmt:
    """Return a statement of the last segment, which goes on with the next thread where it returned."""
    return replaced(statement, ast.Return, lambda one: ast.copy_location(ast.Continue(), one))


def replaced(node: Any, kind: Any, other: Callable[[Any], ast.AST]) -> Any:
    """Return a copy of syntax with what `other` makes of each part of a kind in place of it."""

    class Replacing(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> Any:
            return other(node) if isinstance(node, kind) else self.generic_visit(node)

    return Replacing().visit(copy.deepcopy(node))


def assign(known: str, value: ast.expr) -> ast.Assign:
    """``known = value``."""
    return ast.Assign([ast.Name(known, ast.Store())], copy.deepcopy(value))


def cleared(known: str) -> ast.Assign:
    """``known[:] = 0``: what Numba has in a variable that is read before it is assigned."""
    return ast.Assign([ast.Subscript(name(known), ast.Slice(), ast.Store())], ast.Constant(0))


def loop_over(known: str, ends: list[Any], body: list[ast.stmt]) -> ast.For:
    """``for known in range(*ends): body``."""
    return ast.For(ast.Name(known, ast.Store()), ast.Call(name("_stf_range"), ends, []), body, [], None)


def room(shape: ast.expr, dtype: str) -> ast.expr:
    """An array of such a shape."""
    kind = ast.Attribute(name("_stf_numpy"), dtype, ast.Load())
    return ast.Call(ast.Attribute(name("_stf_numpy"), "empty", ast.Load()), [shape, kind], [])


# -- types -------------------------------------------------------------------------------------------------------------


def dtypes_of(fn: types.FunctionType, arguments: tuple[Any, ...], names: set[str], jit: Any) -> dict[str, str]:
    """Return the dtypes of variables of a function, as Numba infers them for such arguments.

    Raises
    ------
    CannotCutError
        A variable is no number, or is of several types, other than an integer of the source and floating point numbers.
    """
    from numba.core import types as kinds

    found = {}
    typemap = inferred(fn, arguments, jit)
    for known in names:
        seen = {
            kinds.boolean if isinstance(kind, kinds.Boolean) else kind
            for key, kind in typemap.items()
            if version_of(key) == known
        }
        numbers = {kind for kind in seen if not isinstance(kind, kinds.IntegerLiteral)}
        if numbers < seen and not numbers:
            numbers = {kinds.intp}
        literals_fit = seen == numbers or numbers <= {kinds.intp} or numbers < {kinds.float64, kinds.complex128}
        if len(numbers) != 1 or not literals_fit:
            raise CannotCutError(f"'{known}' is of the types {seen}")
        (kind,) = numbers
        if not isinstance(kind, kinds.Number | kinds.Boolean):
            raise CannotCutError(f"'{known}' is a {kind}")
        found[known] = "bool_" if isinstance(kind, kinds.Boolean) else str(kind)
    return found


def version_of(key: str) -> str:
    """Return the variable that Numba has a version of by this name, which may be one of a version: ``x.1.2``."""
    known, *numbers = key.split(".")
    return known if all(number.isdigit() for number in numbers) else key


def inferred(fn: types.FunctionType, arguments: tuple[Any, ...], jit: Any) -> dict[str, Any]:
    """Return the types of all variables of a function, of which nothing else is compiled."""
    from numba.core.compiler_lock import global_compiler_lock

    dispatcher = jit(nogil=True, error_model="numpy", pipeline_class=types_alone())(fn)
    with global_compiler_lock:
        result = dispatcher._compiler.compile(arguments, None)
    return result[1].typemap if isinstance(result, tuple) else result.typemap


@functools.cache
def types_alone() -> Any:
    """Return Numba's compiler as far as to types; once, since Numba keeps each pass that it is told of."""
    from numba.core import compiler, typed_passes
    from numba.core.compiler_machinery import AnalysisPass, PassManager, register_pass

    @register_pass(mutates_CFG=False, analysis_only=True)
    class KeepTypes(AnalysisPass):  # type: ignore[misc]
        """The last pass of all."""

        _name = "stf_keep_types"

        def __init__(self) -> None:
            super().__init__()

        def run_pass(self, state: Any) -> bool:
            state.cr = types.SimpleNamespace(typing_error=None, typemap=dict(state.typemap))
            return False

    class TypesAlone(compiler.CompilerBase):  # type: ignore[misc]
        def define_pipelines(self) -> list[Any]:
            passes = PassManager("types")
            passes.passes.extend(compiler.DefaultPassBuilder.define_untyped_pipeline(self.state).passes)
            passes.add_pass(typed_passes.NopythonTypeInference, "types")
            passes.add_pass(KeepTypes, "keep types")
            passes.finalize()
            return [passes]

    return TypesAlone


def is_builtin(known: str, fn: types.FunctionType) -> bool:
    """Return whether a name means Python's own function in a function."""
    return fn.__globals__.get(known) is None and known not in fn.__code__.co_varnames and hasattr(builtins, known)
