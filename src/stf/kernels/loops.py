"""Bodies as loops on a CPU: a kernel's body in a loop over a box, compiled by Numba.

`LoopWriter` makes the source of the loop, with a placeholder for the body. The user's code takes the place of that
among the constants of the loop's code. So the compiler sees one function: it inlines the body, and errors name the
user's line. Variables of the body's closure are arguments of the loop, and so are global numbers, which its code reads
as if they were of its closure. So a new value of a captured number compiles nothing.
"""

from __future__ import annotations

import functools
import logging
import pickle
import sys
import types
from collections.abc import Callable
from typing import Any

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
from stf.kernels.compile import forks
from stf.kernels.compile.contributions import taker_of
from stf.kernels.compile.random_numbers import generator_maker
from stf.kernels.compile.reduced_arrays import maker_of
from stf.kernels.nest import ArrayType, LoopNest
from stf.kernels.writers.numba_cpu import LoopWriter

__all__ = [
    "CompiledLoop",
    "Key",
    "callable_copy",
    "compiler",
    "jitted",
    "kind_of",
    "loop_for",
    "scope_of",
    "thread_for",
    "with_body",
]

MISSING = "a kernel written in Python is compiled by Numba for a CPU, which is not there; pip install numba"
log = logging.getLogger("stf")
loops: dict[Any, CompiledLoop] = {}  # by code and form


class CompiledLoop:
    """A compiled loop.

    Attributes
    ----------
    call : callable
        ``call(*bounds, *arrays, *extra, *captured)``, where `bounds` are start, stop and step of each axis. With
        operators come a start value and an array of results for each, and the index of these.
    cost_ns : float
        What one element takes, as far as is known; 0 if it never ran.
    """

    def __init__(self, call: Any, fn: Any, nest: LoopNest | None) -> None:
        self.call = call
        self.made_of = fn, nest
        self.known: set[Any] = set()  # kinds of arguments that it was compiled for
        self.cost_ns = 0.0

    def took(self, ns: float) -> None:
        """Note what one element took.

        Where another thread gets the core, or the GIL, a call that takes a microsecond seems to take a hundred. Then
        the next would be cut for the workers. So what is known rises by a quarter at most, and falls at once.
        """
        self.cost_ns = min(ns, 1.25 * self.cost_ns) if self.cost_ns else ns

    def __reduce__(self) -> Any:
        fn, nest = self.made_of
        if nest is not None:  # without the data of the task that it was made for
            nest = nest._replace(results=tuple([result._replace(item=None) for result in nest.results]))
        return remade, (fn, nest)


def remade(fn: types.FunctionType, nest: LoopNest | None) -> CompiledLoop:
    """Return the loop of a body that came from another process, which compiles it again."""
    captured = Captured(fn, f"the body '{fn.__name__}'")
    return thread_for(fn, captured) if nest is None else loop_for(fn, captured, nest)


def loop_for(fn: types.FunctionType, captured: Captured, nest: LoopNest) -> CompiledLoop:
    """Return the loop of a body; compiled for types of arguments when it is called with them.

    Raises
    ------
    ImportError
        There is no Numba.
    """
    key = (fn.__code__, around_key(captured), nest.key, config.validate)
    known = loops.get(key)
    if known is None:
        known = loops[key] = CompiledLoop(compiled(fn, captured, nest, key), fn, nest)
    return known


def compiled(fn: types.FunctionType, captured: Captured, nest: LoopNest, key: Any) -> Any:
    """Return Numba's dispatcher of a loop."""
    jit = compiler()
    scope = scope_of_nest(nest, fn, captured, jitted, False)
    scope.update({f"_stf_op{i}": jit(nogil=True)(result.function) for i, result in enumerate(nest.results)})
    scope["_stf_range"] = range
    text = LoopWriter(nest, captured.variables).written()
    dispatcher = dispatcher_of(with_body(text, f"<loop over {fn.__name__}>", fn, captured, scope))
    keep_on_disk(dispatcher, (text, key))
    return dispatcher


def thread_for(fn: types.FunctionType, captured: Captured) -> CompiledLoop:
    """Return a function of numbers and arrays that is no loop's body, such as a generator, compiled as it is."""
    key = (fn.__code__, around_key(captured), config.validate)
    known = loops.get(key)
    if known is None:
        scope = scope_of(fn, captured, jitted) | {"_stf_range": range}
        dispatcher = dispatcher_of(types.FunctionType(fn.__code__, scope, fn.__name__))
        keep_on_disk(dispatcher, ("thread", key))
        known = loops[key] = CompiledLoop(dispatcher, fn, None)
    return known


def with_body(
    text: str, file: str, fn: types.FunctionType, captured: Captured, scope: dict[str, Any]
) -> types.FunctionType:
    """Return the function that a text defines, with the code of a body in place of its placeholder."""
    namespace: dict[str, Any] = {}
    exec(compile(text, file, "exec"), namespace)
    (made,) = [value for name, value in namespace.items() if name.startswith("_stf_")]
    body = closed_over(fn.__code__, captured.variables)
    constants = tuple(body if isinstance(item, types.CodeType) else item for item in made.__code__.co_consts)
    return types.FunctionType(made.__code__.replace(co_consts=constants), scope, made.__name__)


def scope_of(fn: types.FunctionType, captured: Captured, seen: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the global variables of a function as kernels see them: `seen` of each, also of those of its modules."""
    constants = {
        name: with_functions(value, captured.attributes, seen) if is_users_module(value) else seen(value)
        for name, value in captured.constants.items()
    }
    functions = {name: seen(helper) for name, helper in captured.functions.items()}
    return {**fn.__globals__, **constants, **functions, "_stf_numpy": np}


def scope_of_nest(
    nest: LoopNest, fn: types.FunctionType, captured: Captured, seen: Callable[[Any], Any], of_gpu: bool
) -> dict[str, Any]:
    """Return the global variables of a body, and what converts between them and the loops around."""
    scope = scope_of(fn, captured, seen)
    scope.update({f"_stf_take{i}": taker_of(of_gpu, result.taken) for i, result in enumerate(nest.results)})
    checks = config.validate and not of_gpu
    scope.update({f"_stf_reduced{i}": maker_of(of_gpu, kind, checks) for i, kind in nest.reduced})
    if nest.randoms:
        scope["_stf_random"] = generator_maker(of_gpu)
    if nest.coordinates is not None:
        scope["_stf_coords"] = seen(nest.coordinates)
    return scope


def callable_copy(fn: types.FunctionType, seen: Callable[[Any], Any]) -> types.FunctionType:
    """Return a function of the user's to be compiled for calls from a kernel, with what it calls as `seen` there."""
    captured = Captured(fn, f"the function '{fn.__name__}'")
    cells = tuple(types.CellType(seen(value)) for value in captured.values[: captured.free])
    return types.FunctionType(fn.__code__, scope_of(fn, captured, seen), fn.__name__, fn.__defaults__, cells or None)


class Key:
    """A function, equal to others that are compiled to the same."""

    def __init__(self, fn: types.FunctionType) -> None:
        self.fn = fn
        self.key = code_key(fn)

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.key == other.key


def jitted(value: Any) -> Any:
    """Return a function of the user's, compiled for calls from a kernel; other values as they are."""
    return jitted_for(Key(value), config.validate) if isinstance(value, types.FunctionType) else value


@functools.lru_cache(maxsize=1024)
def jitted_for(key: Key, boundscheck: bool) -> Any:
    """Return `jitted` of each function once."""
    return dispatcher_of(callable_copy(key.fn, jitted))


def dispatcher_of(fn: types.FunctionType) -> Any:
    """Return Numba's dispatcher of a function, which checks indices with ``STF_VALIDATE``."""
    return compiler()(nogil=True, error_model="numpy", boundscheck=config.validate)(fn)


def compiler() -> Any:
    """Numba's `njit`."""
    try:
        import numba
    except ImportError:
        raise ImportError(MISSING) from None
    forks.watch()
    if numba.config.DISABLE_JIT:
        raise RuntimeError(
            "kernels written in Python are compiled by Numba, which NUMBA_DISABLE_JIT=1 forbids; unset it (to debug a "
            "body, call it in a plain loop)"
        )
    return numba.njit


def keep_on_disk(dispatcher: Any, key: Any) -> None:
    """Let another process find what a dispatcher compiles."""
    import llvmlite.binding as llvm
    import numba
    from numba.core import compiler as numba_compiler
    from numba.core import serialize
    from numba.core.caching import NullCache
    from numba.core.runtime import rtsys

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
            name = self.name_for(signature, context.codegen())
            known = None if name is None else cache.load(name)
            if known is None:
                return None
            try:
                needed, result = pickle.loads(known)
                rtsys.initialize(context)
                if not all(map(llvm.address_of_symbol, needed)):
                    context.refresh()  # load all of Numba, which takes most of a second
                return numba_compiler.CompileResult._rebuild(context, *result)
            except Exception as error:  # whatever is wrong with it: it is compiled, and written, anew
                log.info("a compiled kernel on disk is of no use: %s: %s", type(error).__name__, error)
                return None

        def save_overload(self, signature: Any, result: Any) -> None:
            name = self.name_for(signature, result.codegen)
            if name is not None and not result.lifted and not result.library.has_dynamic_globals:
                try:
                    content = serialize.dumps((symbols_of(result.library), result._reduce()))
                except Exception as error:  # a function of no module takes all variables around it along
                    log.info("a compiled kernel is not kept: %s: %s", type(error).__name__, error)
                else:
                    cache.store(name, content)

    dispatcher._cache = OnDisk()


def symbols_of(library: Any) -> list[str]:
    """Return what compiled code of Numba's calls in other libraries, which must be there before it is loaded."""
    module = library._final_module
    found = [item.name for item in (*module.functions, *module.global_variables) if item.is_declaration]
    return [name for name in found if not name.startswith("llvm.")]


def fields_of(kind: Any) -> Any:
    """Return the names of fields of a type of named tuples, in its order, and of those in it; None for most types."""
    import numba

    if not isinstance(kind, numba.types.BaseTuple):
        return None
    return (getattr(kind, "fields", None), *map(fields_of, kind.types))


def types_of(arguments: list[Any]) -> tuple[Any, ...]:
    """Numba's types of arguments; for an array that is not there yet `ArrayType` says what it will be."""
    import numba

    return tuple(a.numba_type() if isinstance(a, ArrayType) else numba.typeof(a) for a in arguments)


def kind_of(value: Any) -> Any:
    """Return what of an argument decides its type in Numba, as something to look up; the argument's type for most."""
    kind = type(value)
    if kind is int:
        return kind, -(1 << 63) <= value < 1 << 63
    if kind is np.ndarray:
        return value.dtype, value.ndim, value.flags.num
    if isinstance(value, tuple):
        return kind, *map(kind_of, value)
    return value if callable(value) else kind
