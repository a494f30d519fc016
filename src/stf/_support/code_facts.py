"""Facts on the code of functions: what each step does, and with which values. The one module that reads opcodes.

Tasks, kernels and replayed calls ask what a user's function does before it runs: which variables it reads, whether it
loses a result, whether it writes what it only reads. Often there is no source to ask, so its bytecode is read. That
differs in each version of Python, so it is read here alone, once per code object, and turned into steps, which are the
same in all versions. Other modules ask questions about steps.

A step takes values that earlier steps computed (`parts`), and may give one, which a later step takes (`user`).
``y[0] = 2 * x`` is

    load constant 2;  load local x;  compute binary * (2, x);  load local y;  load constant 0;  store item (_, y, 0)

A stack like the interpreter's finds the parts. At a jump, and at the target of one, each value that lies there becomes
a step that does ``"join"``, of which little is certain; where two ways meet it has two parts. A value that is not known
is `NOTHING`. An instruction that is not in the tables takes as many values as `dis.stack_effect` says. A new version of
Python needs new lines in the tables, and a look at `code_writing`.

Tried instead: patterns of adjacent instructions, in each module that asks. Each had to know what the versions put
between two of them, and a value that went through a swap, a copy or a pair of variables was lost.
"""

from __future__ import annotations

import dis
import functools
import inspect
from collections.abc import Iterable, Iterator
from types import CodeType
from typing import Any, NamedTuple

__all__ = ["NOTHING", "CodeFacts", "Step", "codes_in", "facts_of", "values_in"]

SILENT = frozenset(("CACHE", "COPY_FREE_VARS", "EXTENDED_ARG", "KW_NAMES", "MAKE_CELL", "NOP", "PRECALL", "RESUME"))
JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))
ALWAYS = frozenset(("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"))
LEAVES = ("return", "raise", "raise again")
GIVES_NOTHING = ("STORE_", "DELETE_", "POP_", "RETURN_", "RAISE_", "RERAISE", "END_FOR")
VERBS = ("LOAD", "STORE", "DELETE")  # of local variables; an instruction may have two
LOCALS = {name: [verb.lower() for verb in name.split("_") if verb in VERBS] for name in dis.opmap if "_FAST" in name}
FREE = -1  # takes so many values as the effect on the stack says
KINDS: dict[str, tuple[str, str, int]] = {  # what an instruction does, with what, and how many values it takes
    **dict.fromkeys(("LOAD_CONST", "LOAD_SMALL_INT"), ("load", "constant", 0)),
    **dict.fromkeys(("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"), ("load", "cell", FREE)),
    **dict.fromkeys(("LOAD_ATTR", "LOAD_METHOD"), ("load", "attribute", 1)),
    **dict.fromkeys(("STORE_SUBSCR", "STORE_SLICE"), ("store", "item", FREE)),
    **dict.fromkeys(("BINARY_SUBSCR", "BINARY_SLICE"), ("load", "item", FREE)),
    **dict.fromkeys(("UNARY_POSITIVE", "UNARY_NEGATIVE", "UNARY_NOT", "UNARY_INVERT"), ("compute", "unary", 1)),
    **dict.fromkeys(("BEFORE_WITH", "LOAD_SPECIAL"), ("enter", "__enter__", 1)),
    **dict.fromkeys(("UNPACK_SEQUENCE", "UNPACK_EX"), ("unpack", "", 1)),
    **dict.fromkeys(("FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC"), ("build", "text", FREE)),
    "LOAD_GLOBAL": ("load", "global", 0),
    "LOAD_NAME": ("load", "name", 0),
    "LOAD_CLOSURE": ("load", "closure", 0),
    "LOAD_SUPER_ATTR": ("load", "super", 3),
    "STORE_GLOBAL": ("store", "global", 1),
    "STORE_DEREF": ("store", "cell", 1),
    "STORE_ATTR": ("store", "attribute", 2),
    "DELETE_GLOBAL": ("delete", "global", 0),
    "DELETE_DEREF": ("delete", "cell", 0),
    "DELETE_ATTR": ("delete", "attribute", 1),
    "DELETE_SUBSCR": ("delete", "item", 2),
    "BINARY_OP": ("compute", "binary", 2),
    "COMPARE_OP": ("compute", "compare", 2),
    "IS_OP": ("compute", "is", 2),
    "CONTAINS_OP": ("compute", "in", 2),
    "BUILD_TUPLE": ("build", "tuple", FREE),
    "BUILD_SLICE": ("build", "slice", FREE),
    "CALL": ("call", "", FREE),
    "CALL_KW": ("call", "keywords", FREE),
    "CALL_FUNCTION_EX": ("call", "spread", FREE),
    "GET_ITER": ("enter", "__iter__", 1),
    "IMPORT_NAME": ("import", "module", 2),
    "IMPORT_FROM": ("import", "name", FREE),
    "POP_TOP": ("drop", "", 1),
    "RETURN_VALUE": ("return", "", 1),
    "RAISE_VARARGS": ("raise", "", FREE),
    "RERAISE": ("raise again", "", FREE),
    "PUSH_EXC_INFO": ("catch", "", FREE),
}


class Step:
    """One thing that code does.

    `does` and `of` are its kind, as ``"load"`` and ``"attribute"``; `name` is of the variable, attribute or module, the
    operator, the target of a jump, or the constant itself. `parts` gave the values that it takes, in the order of the
    stack; of a call the function comes first. `user` takes its value. `is_called` tells that it is loaded to be called.
    `given` are the parameters that may still be what the function was given.
    """

    __slots__ = ("does", "given", "is_called", "line", "name", "of", "offset", "parts", "user")

    def __init__(self, does: str, of: str, name: Any, parts: tuple[Step, ...], line: int, offset: int) -> None:
        self.does, self.of, self.name, self.parts, self.line, self.offset = does, of, name, parts, line, offset
        self.user: Step = NOTHING if does else self
        self.is_called = False
        self.given: frozenset[str] = frozenset()
        for part in parts:
            if part.does and part.user.does != "copy":
                part.user = self

    @property
    def original(self) -> Step:
        """The step whose value this is, not a copy of it, nor the same value behind a jump."""
        step = self
        while step.does in ("copy", "join") and len(step.parts) == 1:
            step = step.parts[0]
        return step

    @property
    def root(self) -> Step:
        """The variable, or else the value, where a path of attributes, items and calls begins."""
        step = self.original
        while step.does == "call" or step.is_load("attribute", "item"):
            step = step.parts[0].original
        return step

    @property
    def is_none(self) -> bool:
        """Return whether it loads None."""
        return self.of == "constant" and self.name is None

    @property
    def is_in_place(self) -> bool:
        """Return whether it computes what ``+=`` and the like do."""
        return self.of == "binary" and bool(self.name.endswith("="))

    def is_load(self, *of: str) -> bool:
        """Return whether it loads something of these kinds."""
        return self.does == "load" and self.of in of

    def is_plain_call(self, count: int) -> bool:
        """Return whether it calls something with so many arguments, none of them by name."""
        return self.does == "call" and not self.of and len(self.parts) == count + 1


NOTHING = Step("", "", None, (), 0, 0)


class CodeFacts(NamedTuple):
    """What one code object does, without the functions inside of it."""

    steps: tuple[Step, ...]
    parameters: tuple[str, ...]  # those of ``*args`` and ``**kwargs`` last
    returns: bool  # something else than None

    def loads(self, *of: str) -> list[Step]:
        """Return the steps that load something of these kinds."""
        return [step for step in self.steps if step.does == "load" and step.of in of]


@functools.lru_cache(maxsize=256)
def facts_of(code: CodeType) -> CodeFacts:
    """Return the facts on a code object."""
    others = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + others]
    steps = Reader(code).read(frozenset(parameters))
    returns = any([step.does == "return" and not step.parts[0].is_none for step in steps])
    return CodeFacts(tuple(steps), parameters, returns)


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """Return code, and code in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_in(constant)


def values_in(step: Step) -> Iterator[Step]:
    """Return the steps that a value was computed by, in their order, and the value's own last."""
    for part in step.parts:
        yield from values_in(part)
    yield step


class Reader:
    """Reads the instructions of code, with the steps whose values would lie on the stack."""

    def __init__(self, code: CodeType) -> None:
        self.bytecode = dis.Bytecode(code)
        self.cells = frozenset((*code.co_cellvars, *code.co_freevars))
        self.first_line = code.co_firstlineno
        self.line = self.offset = 0
        self.steps: list[Step] = []
        self.stack: list[Step] = []
        self.waiting: dict[int, list[Step]] = {}  # stacks at targets, by offset
        self.at: dict[int, int] = {}  # numbers of steps, by offset
        self.falls = True  # into the next instruction

    def read(self, parameters: frozenset[str]) -> list[Step]:
        """Return all steps."""
        has_keywords = False
        for one in self.bytecode:
            name, self.offset = one.opname, one.offset
            self.at[self.offset] = len(self.steps)
            if one.is_jump_target:
                self.arrive()
            if name in SILENT:
                has_keywords = has_keywords or name == "KW_NAMES"
                continue
            self.line = (one.positions.lineno if one.positions is not None else None) or self.first_line
            if name in LOCALS:
                self.use_locals(one)
            elif name == "PUSH_NULL":
                self.stack.append(NOTHING)
            elif name in ("SWAP", "COPY"):
                place = one.arg or 1
                self.stack[:0] = [NOTHING] * (place - len(self.stack))
                if name == "SWAP":
                    self.stack[-place], self.stack[-1] = self.stack[-1], self.stack[-place]
                else:
                    self.stack.append(self.add("copy", "", None, [self.stack[-place]]))
            elif name == "RETURN_CONST":
                self.add("return", "", None, [self.add("load", "constant", one.argval, [])])
                self.falls = False
            else:
                self.do(one, has_keywords)
                has_keywords = False
        if parameters.isdisjoint([step.name for step in self.steps if step.of == "local" and step.does != "load"]):
            for step in self.steps:
                step.given = parameters
        else:
            self.note_given(parameters, getattr(self.bytecode, "exception_entries", ()))
        return self.steps

    def add(self, does: str, of: str, name: Any, parts: list[Step]) -> Step:
        """Add a step."""
        self.steps.append(Step(does, of, name, tuple(parts), self.line, self.offset))
        return self.steps[-1]

    def take(self, count: int) -> list[Step]:
        """Take the topmost values from the stack; of those that are not there, nothing is known."""
        rest = max(len(self.stack) - count, 0)
        found = self.stack[rest:]
        del self.stack[rest:]
        return [NOTHING] * (count - len(found)) + found

    def arrive(self) -> None:
        """Come to the target of a jump, from the instruction before or from elsewhere."""
        there = self.waiting.pop(self.offset, [])
        here = self.stack if self.falls else there
        self.stack = list(map(joined, here, there if len(there) == len(here) else here))
        self.falls = True

    def use_locals(self, one: dis.Instruction) -> None:
        """Load, store or delete local variables."""
        names = one.argval if isinstance(one.argval, tuple) else (one.argval,)
        for verb, name in zip(LOCALS[one.opname], names, strict=False):
            of = "closure" if name in self.cells else "cleared" if "CLEAR" in one.opname else "local"
            step = self.add(verb, of, name, self.take(verb == "store"))
            if verb == "load":
                self.stack.append(step)

    def do(self, one: dis.Instruction, has_keywords: bool) -> None:
        """Do what the tables say, or what the effect on the stack says."""
        effect, is_jump = dis.stack_effect(one.opcode, one.arg, jump=False), one.opcode in JUMPS
        does, of, count = KINDS.get(one.opname, ("build" if one.opname.startswith("BUILD_") else "other", "", FREE))
        if is_jump:
            does, of = "jump", "always" if one.opname in ALWAYS else "none" if "NONE" in one.opname else "if"
        if does == "call" and of != "spread":  # the effect of a call is said of two instructions in Python 3.11
            effect, of = -(one.arg or 0) - 1 - (of == "keywords"), "keywords" if has_keywords else of
        if count == FREE:
            count = max(0, -effect if is_jump or one.opname.startswith(GIVES_NOTHING) else 1 - effect)
        parts = self.take(count)
        if does == "call":  # below the arguments lie a function and what it is called on, or one of these and nothing
            parts = [*([part for part in parts[:2] if part is not NOTHING] or [NOTHING]), *parts[2:]]
        name = one.argrepr if does == "compute" else one.argval
        if name == "[]":  # an operator from Python 3.14 on
            does, of = "load", "item"
        step = self.add(does, of, name, parts)
        if effect + count > 0:
            others = [NOTHING] * (effect + count - 1)
            self.stack += [*others, step] if of == "global" else [step, *others]
            step.is_called = len(others) > 0 and of in ("global", "attribute")
        if is_jump:
            depth = len(self.stack) - effect + dis.stack_effect(one.opcode, one.arg, jump=True)
            self.stack = [joined(value, value) for value in self.stack]
            kept = [joined(value, value) for value in parts[: max(depth - len(self.stack), 0)]]
            self.waiting[one.argval] = [*self.stack, *kept][: max(depth, 0)]
        self.falls = of != "always" and does not in LEAVES

    def note_given(self, parameters: frozenset[str], entries: Iterable[Any]) -> None:
        """Follow the jumps to see what each parameter may be where; a handler may come before each step it is for."""
        handlers: dict[int, int] = {}
        for entry in entries:
            numbers = range(self.at[entry.start], self.at.get(entry.end, len(self.steps)))
            handlers.update(dict.fromkeys(numbers, self.at[entry.target]))
        seen = set()
        left = [(0, parameters)]
        while left:
            number, given = left.pop()
            step = self.steps[number]
            if number in seen and given <= step.given:
                continue
            seen.add(number)
            step.given = given = step.given | given
            if number in handlers:
                left.append((handlers[number], given))
            if step.of == "local" and step.does != "load":
                given -= {step.name}
            if step.does == "jump":
                left.append((self.at[step.name], given))
            if step.of != "always" and step.does not in LEAVES:
                left.append((number + 1, given))


def joined(one: Step, other: Step) -> Step:
    """Return a join of values that lie at the same place of the stack, whichever it is."""
    if one is other and one.does in ("", "join"):
        return one
    known = one if one.does else other
    return Step("join", "", None, (one,) if one is other else (one, other), known.line, known.offset)
