"""Bodies as loops on a CPU: a kernel's body in a loop over a box, compiled by Numba.

The source of the loop is generated, with a placeholder for the body. The user's code takes the placeholder's place
among the constants of the loop's code. So the compiler sees one function: it inlines the body, and errors name the
user's line. Variables of the body's closure are arguments of the loop, and so are global numbers, which its code reads
as if they were of its closure. So a new value of a captured number compiles nothing.
"""

from __future__ import annotations

import functools
import pickle
import sys
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from stf import config
from stf.kernels.captured import (
    Captured,
    NotKeptError,
    around_key,
    closed_over,
    code_key,
    is_users_module,
    text_of,
    with_functions,
)
from stf.kernels.compile.contributions import Taken, taker_of
from stf.kernels.compile.reduced_arrays import maker_of

__all__ = ["Form", "Loop", "loop_for"]

MISSING = "a kernel written in Python is compiled by Numba for a CPU, which is not there; pip install numba"
LANES = 4  # results that a loop combines side by side, since each waits for the one before
loops: dict[Any, Loop] = {}  # by code and form


class Form(NamedTuple):
    """The shape of a loop, of which one is compiled for all bodies and boxes of that shape.

    Attributes
    ----------
    ndim : int
        How many indices the body gets.
    starts : tuple of int or None
        For each loop, of those that are nested, where it begins, if that is compiled in. A compiler that knows it
        leaves out what Python's negative indices need in ``x[i - 1]``, and makes vector instructions: a third of the
        time.
    kinds : tuple of str
        For each argument that stands for data: ``"array"``, ``"value"`` for the element of a zero-dimensional one, or
        the name of the operator that reduces into the array.
    extra : int
        How many further arguments the body gets.
    operators : tuple of callable
        How each contribution that the body returns is combined.
    contributed : tuple of Taken
        How each is taken.
    strided : bool
        Whether axes may have other steps than 1, which compilers do not turn into vector instructions.
    least : int or None
        Where the first loop begins at least, of which pieces are run: the same for it as a known start.
    """

    ndim: int
    starts: tuple[int | None, ...]
    kinds: tuple[str, ...]
    extra: int = 0
    operators: tuple[Any, ...] = ()
    contributed: tuple[Taken, ...] = ()
    strided: bool = False
    least: int | None = None


class Loop:
    """A compiled loop.

    Attributes
    ----------
    call : callable
        ``call(*bounds, *arrays, *extra, *captured)``, where `bounds` are start, stop and step of each axis. With
        operators come a start value and an array of results for each, and the index of these.
    cost_ns : float
        What one element took when it was measured last; 0 if it never was.
    """

    def __init__(self, call: Any) -> None:
        self.call = call
        self.known: set[Any] = set()  # kinds of arguments that it was compiled for
        self.cost_ns = 0.0


def loop_for(
    fn: types.FunctionType, captured: Captured, form: Form, coordinates: Callable[..., Any] | None = None
) -> Loop:
    """The loop of a body; compiled for types of arguments when it is called with them.

    Raises
    ------
    ImportError
        There is no Numba.
    """
    where = None if coordinates is None else code_key(coordinates)
    operators = tuple(map(code_key, form.operators))
    key = (fn.__code__, around_key(captured), form._replace(operators=operators), where, config.validate)
    known = loops.get(key)
    if known is None:
        known = loops[key] = Loop(compiled(fn, captured, form, coordinates, key))
    return known


def compiled(
    fn: types.FunctionType, captured: Captured, form: Form, coordinates: Callable[..., Any] | None, key: Any
) -> Any:
    """Numba's dispatcher of a loop."""
    jit = compiler()
    scope = scope_of(fn, captured)
    scope.update({f"_stf_op{i}": jit(nogil=True)(operator) for i, operator in enumerate(form.operators)})
    scope.update({f"_stf_take{i}": taker_of(False, taken) for i, taken in enumerate(form.contributed)})
    reduced = {f"_stf_reduced{i}": kind for i, kind in enumerate(form.kinds) if kind not in ("array", "value")}
    scope.update({name: maker_of(False, kind, config.validate) for name, kind in reduced.items()})
    scope["_stf_range"] = range
    if coordinates is not None:
        scope["_stf_coords"] = jitted(coordinates)
    namespace: dict[str, Any] = {}
    text = source(form, captured, coordinates is not None)
    exec(compile(text, f"<loop over {fn.__name__}>", "exec"), namespace)
    code = namespace["_stf_loop"].__code__
    body = closed_over(fn.__code__, captured.variables)
    constants = tuple(body if isinstance(item, types.CodeType) else item for item in code.co_consts)
    loop = types.FunctionType(code.replace(co_consts=constants), scope, "_stf_loop")
    dispatcher = jit(nogil=True, error_model="numpy", boundscheck=config.validate)(loop)
    keep_on_disk(dispatcher, (text, key))
    return dispatcher


def thread_for(fn: types.FunctionType, captured: Captured) -> Loop:
    """A function of numbers and arrays that is no loop's body, such as a generator, compiled as it is."""
    key = (fn.__code__, around_key(captured), config.validate)
    known = loops.get(key)
    if known is None:
        copy = types.FunctionType(fn.__code__, scope_of(fn, captured), fn.__name__)
        dispatcher = compiler()(nogil=True, error_model="numpy", boundscheck=config.validate)(copy)
        keep_on_disk(dispatcher, ("thread", key))
        known = loops[key] = Loop(dispatcher)
    return known


def scope_of(fn: types.FunctionType, captured: Captured) -> dict[str, Any]:
    """The global variables of a function, with the functions that it calls compiled."""
    functions = {name: jitted(function) for name, function in captured.functions.items()}
    modules = {name: module for name, module in captured.constants.items() if is_users_module(module)}
    modules = {name: with_functions(module, captured.attributes, jitted) for name, module in modules.items()}
    return {**fn.__globals__, **functions, **modules, "_stf_numpy": np}


def source(form: Form, captured: Captured, has_coordinates: bool) -> str:
    """The text of the loop, with a placeholder for the body that reads the same variables around it."""
    free = captured.variables
    bounds = [f"_stf_{what}{axis}" for axis in range(len(form.starts)) for what in ("start", "stop", "step")]
    arrays = [f"_stf_a{i}" for i in range(len(form.kinds))]
    extra = [f"_stf_x{i}" for i in range(form.extra)]
    results = [f"_stf_{what}{i}" for i in range(len(form.operators)) for what in ("neutral", "out")]
    results += ["_stf_block"] if results else []
    space = ["_stf_parameters"] if has_coordinates else []
    arguments = [*bounds, *arrays, *extra, *free, *space, *results]
    indices = [f"_stf_i{axis}" for axis in range(len(form.starts))]
    values = [f"_stf_a{i}" if kind == "array" else f"_stf_v{i}" for i, kind in enumerate(form.kinds)]
    given = [f"_stf_c{i}" for i in range(form.ndim)] if has_coordinates else indices
    lines = [f"def _stf_loop({', '.join(arguments)}):"]
    lines.append(f"    def _stf_body({', '.join([*given, *values, *extra])}):")
    lines.append(f"        return ({''.join(f'{name}, ' for name in free)})")
    for i, kind in enumerate(form.kinds):
        if kind != "array":
            lines.append(f"    _stf_v{i} = {f'_stf_a{i}[()]' if kind == 'value' else f'_stf_reduced{i}(_stf_a{i})'}")
    operators = range(len(form.operators))
    lanes = LANES if operators and not form.strided else 1
    lines += [f"    _stf_r{i}_{lane} = _stf_neutral{i}" for i in operators for lane in range(lanes)]
    indent = "    "
    for axis, index in enumerate(indices):
        first, stop, known = f"_stf_first{axis}", f"_stf_stop{axis}", form.starts[axis]
        lines.append(f"{indent}{first} = {f'_stf_start{axis}' if known is None else known}")
        if axis == 0 and form.least is not None:
            lines.append(f"{indent}{first} = {first} if {first} > {form.least} else {form.least}")
        if lanes > 1 and index == indices[-1]:
            lines.append(f"{indent}for _stf_k in _stf_range(({stop} - {first}) // {lanes}):")
            for lane in range(lanes):
                lines += element(
                    form, f"{first} + {lanes} * _stf_k + {lane}", given, values, extra, lane, indent + "    "
                )
            lines.append(f"{indent}{first} += ({stop} - {first}) // {lanes} * {lanes} if {stop} > {first} else 0")
        if form.strided:
            lines.append(f"{indent}for {index} in _stf_range({first}, {stop}, _stf_step{axis}):")
        else:  # compilers make vector instructions of numbers that are counted from 0 alone
            lines.append(f"{indent}for _stf_k{axis} in _stf_range({stop} - {first}):")
            lines.append(f"{indent}    {index} = {first} + _stf_k{axis}")
        indent += "    "
    lines += element(form, indices[-1], given, values, extra, 0, indent)
    for i in operators:
        pairs = [(0, 1), (2, 3), (0, 2)] if lanes > 1 else []
        lines += [f"    _stf_r{i}_{a} = _stf_op{i}(_stf_r{i}_{a}, _stf_r{i}_{b})" for a, b in pairs]
        lines.append(f"    _stf_out{i}[_stf_block] = _stf_r{i}_0")
    return "\n".join(lines) + "\n"


def element(
    form: Form, index: str, given: list[str], values: list[str], extra: list[str], lane: int, indent: str
) -> list[str]:
    """The lines that run the body for one element, whose last index is `index`, and combine what it returns."""
    lines = []
    if given[0].startswith("_stf_c"):
        lines.append(f"{indent}_stf_c = _stf_coords({index}, *_stf_parameters)")
        lines += [f"{indent}_stf_c{i} = _stf_c{f'[{i}]' if form.ndim > 1 else ''}" for i in range(form.ndim)]
        where = given
    else:
        where = [*given[:-1], index]
    call = f"_stf_body({', '.join([*where, *values, *extra])})"
    found = ", ".join(f"_stf_found{i}" for i in range(len(form.operators)))
    lines.append(f"{indent}{f'{found} = ' if found else ''}{call}")
    for i in range(len(form.operators)):
        lines.append(f"{indent}_stf_r{i}_{lane} = _stf_op{i}(_stf_r{i}_{lane}, _stf_take{i}(_stf_found{i}))")
    return lines


def jitted(fn: Any) -> Any:
    """A function of the user's, compiled for calls from a kernel; with the functions that it calls."""
    if not isinstance(fn, types.FunctionType):
        return fn
    return jitted_for(Key(fn), config.validate)


class Key:
    """A function, equal to others that are compiled to the same."""

    def __init__(self, fn: types.FunctionType) -> None:
        self.fn = fn
        self.key = code_key(fn)

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.key == other.key


@functools.lru_cache(maxsize=1024)
def jitted_for(key: Key, boundscheck: bool) -> Any:
    """`jitted` for each function once."""
    fn = key.fn
    captured = Captured(fn, f"the function '{fn.__name__}'")
    scope = scope_of(fn, captured)
    cells = tuple(types.CellType(jitted(value)) for value in captured.values[: captured.free])
    copy = types.FunctionType(fn.__code__, scope, fn.__name__, fn.__defaults__, cells or None)
    return compiler()(nogil=True, error_model="numpy", boundscheck=boundscheck)(copy)


def compiler() -> Any:
    """Numba's `njit`."""
    try:
        import numba
    except ImportError:
        raise ImportError(MISSING) from None
    if numba.config.DISABLE_JIT:
        raise RuntimeError(
            "kernels written in Python are compiled by Numba, which NUMBA_DISABLE_JIT=1 forbids; unset it (to debug a "
            "body, call it in a plain loop)"
        )
    return numba.njit


def keep_on_disk(dispatcher: Any, key: Any) -> None:
    """Let another process find what a dispatcher compiles."""
    import numba
    from numba.core import compiler as numba_compiler
    from numba.core import serialize
    from numba.core.caching import NullCache

    from stf.kernels.compile import cache

    try:
        text = text_of(key)
    except NotKeptError:
        return

    class OnDisk(NullCache):  # type: ignore[misc]
        """Numba's compiled functions in the files of `cache`, one for each signature and processor.

        A function among the arguments is one by its address here, which says nothing in another process.
        """

        def name_for(self, signature: Any, codegen: Any) -> str | None:
            if any(isinstance(kind, numba.types.Dispatcher) for kind in signature):
                return None
            fields = [fields_of(kind) for kind in signature]  # which the signature's text does not have
            versions = (numba.__version__, np.__version__, sys.version)
            return cache.key_of(("numba", *versions, signature, fields, codegen.magic_tuple(), text.hex()))

        def load_overload(self, signature: Any, context: Any) -> Any:
            context.refresh()
            name = self.name_for(signature, context.codegen())
            known = None if name is None else cache.load(name)
            try:
                return None if known is None else numba_compiler.CompileResult._rebuild(context, *pickle.loads(known))
            except Exception:  # such as of a module that is not there in this process
                return None

        def save_overload(self, signature: Any, result: Any) -> None:
            name = self.name_for(signature, result.codegen)
            if name is not None and not result.lifted and not result.library.has_dynamic_globals:
                cache.store(name, serialize.dumps(result._reduce()))

    dispatcher._cache = OnDisk()


def fields_of(kind: Any) -> Any:
    """The names of fields of a type of named tuples, in its order, and of those in it; None for most types."""
    import numba

    if not isinstance(kind, numba.types.BaseTuple):
        return None
    return (getattr(kind, "fields", None), *map(fields_of, kind.types))


def types_of(arguments: list[Any]) -> tuple[Any, ...]:
    """Numba's types of arguments; for an array that is not there yet `ArrayType` says what it will be."""
    import numba

    return tuple(a.numba_type() if isinstance(a, ArrayType) else numba.typeof(a) for a in arguments)


def kind_of(value: Any) -> Any:
    """What of an argument decides its type in Numba, as something to look up; the argument's type for most."""
    kind = type(value)
    if kind is int:
        return kind, -(1 << 63) <= value < 1 << 63
    if kind is np.ndarray:
        return kind, value.dtype, value.ndim, value.flags.c_contiguous
    if isinstance(value, tuple):
        return kind, *map(kind_of, value)
    return value if callable(value) else kind


class ArrayType(NamedTuple):
    """The dtype, number of axes and order of an array, and whether it may be written to."""

    dtype: np.dtype[Any]
    ndim: int
    order: str
    readonly: bool

    def numba_type(self) -> Any:
        """What Numba calls it."""
        from numba import types as kinds
        from numba.np import numpy_support

        return kinds.Array(numpy_support.from_dtype(self.dtype), self.ndim, self.order, readonly=self.readonly)
