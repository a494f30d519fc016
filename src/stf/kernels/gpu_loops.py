"""Bodies as kernels for a GPU, a thread for each element of a box: Python by numba-cuda, C++ by NVRTC.

A writer makes the text of the kernel. In Python it has a placeholder for the body, as for a CPU (see `loops`). Numbers
of the body's closure, and global ones, are parameters of the kernel.
"""

from __future__ import annotations

import functools
import re
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stf._port.native import NotNativeError
from stf.kernels.arguments import ARRAY_FIELDS, Kernel
from stf.kernels.body_arguments import BodySignature, default_of, must_be_real
from stf.kernels.captured import NotKeptError, around_key, code_key, is_linked, linked_files, text_of, value_key
from stf.kernels.compile.nvrtc import compile_cpp
from stf.kernels.compile.python import compile_python, intrinsics
from stf.kernels.compile.reduced_arrays import atomic_of, whole_of
from stf.kernels.device_loops import LoopBody, kinds_of
from stf.kernels.kernel_handles import KernelSource
from stf.kernels.loops import Key, callable_copy, scope_of_nest, with_body
from stf.kernels.nest import ArrayType, Contribution, KernelArgument, LoopNest
from stf.kernels.writers.cuda_cpp import CppWriter
from stf.kernels.writers.numba_cuda import ElementWriter, combining_text
from stf.values.params import Param

__all__ = [
    "argument",
    "combining_kernel",
    "described",
    "function_in",
    "kernel_for",
    "kernel_of",
    "scope_for",
    "values_of",
]

INT64 = np.dtype(np.int64)
CPP_OPTIONS = ("-std=c++17", "-default-device")
known: dict[Any, Kernel] = {}


def argument(name: str, value: Any, where: str) -> KernelArgument:
    """Return the parameters that stand for a value, named after it: complex numbers and tuples are several.

    Raises
    ------
    TypeError
        A kernel takes no such value.
    """
    if isinstance(value, Param):
        must_be_real(value, where)
    number = default_of(value)
    if isinstance(number, complex | np.complexfloating):
        kind = "complex64" if isinstance(number, np.complex64) else "complex128"
        parts = (number.real, number.imag)
        return KernelArgument(
            f"_stf_numpy.{kind}(_stf_complex({name}_re, {name}_im))", (f"{name}_re", f"{name}_im"), parts
        )
    if isinstance(number, bool | int | float | np.number | np.bool_):
        return KernelArgument(name, (name,), (value,))
    if isinstance(value, tuple):
        items = [argument(f"{name}_{i}", item, where) for i, item in enumerate(value)]
        text = "".join(f"{item.text}, " for item in items)
        constants = tuple(constant for item in items for constant in item.constants)
        if hasattr(value, "_fields"):
            text, constants = f"_stf_kind_{name}({text})", (*constants, (f"_stf_kind_{name}", type(value)))
        else:
            text = f"({text})"
        names = tuple(one for item in items for one in item.names)
        return KernelArgument(text, names, tuple(one for item in items for one in item.values), constants)
    if isinstance(value, types.FunctionType | types.ModuleType | type) or is_linked(value):
        return KernelArgument(f"_stf_kind_{name}", (), (), ((f"_stf_kind_{name}", value),))
    raise TypeError(f"{where}: a kernel takes numbers, tuples of these and functions, got {name} = {value!r}")


def values_of(arguments: list[KernelArgument]) -> tuple[Any, ...]:
    """Return the numbers that a kernel gets for values."""
    return tuple(value for one in arguments for value in one.values)


def dtype_of(value: Any) -> np.dtype[Any]:
    """Return the type of a parameter."""
    number = value.default if isinstance(value, Param) else value
    return np.dtype(np.uint64) if type(number) is int and number >= 1 << 63 else np.asarray(number).dtype


def kernel_for(
    signature: BodySignature,
    nest: LoopNest,
    arrays: list[ArrayType],
    arguments: list[KernelArgument],
    name: str,
    rows: int,
) -> Kernel:
    """Return the kernel of a body, in either language.

    Parameters
    ----------
    signature : BodySignature
    nest : LoopNest
    arrays : list of ArrayType
        Those of the body, then one for each operator, of the results of blocks.
    arguments : list of KernelArgument
        The further arguments of the body, the variables around it, the parameters of `nest.coordinates`, and what is
        neutral for each operator.
    name : str
        What profilers call the kernel.
    rows : int
        How many elements along the last axis but one a thread has, beside each other; 0 for as many elements as there
        are, a grid apart along each axis.
    """
    key: Any = (rows, name, nest.key, tuple(arrays), keys_of(arguments), signature.key)
    found = known.get(key)
    if found is not None:
        return found
    body, variables, symbol = signature.body, signature.captured.variables, symbol_of(name)
    numbers = list(map(dtype_of, values_of(arguments)))
    parameters = [*[INT64] * len(nest.bounds), *arrays, *numbers]
    if signature.in_cpp is not None:
        text = CppWriter(nest, rows, signature, arrays, arguments, numbers, symbol).written()
        found = kernel_of(lambda capability: compile_cpp(text, capability, CPP_OPTIONS), parameters, symbol)
    else:
        text = ElementWriter(nest, rows, variables, len(arrays) - len(nest.results), arguments).written()
        make = maker_of_kernel(signature, nest, arguments)
        found = described(make, text, parameters, symbol, key, body, linked_files(body, *signature.extra))
    known[key] = found
    return found


def maker_of_kernel(
    signature: BodySignature, nest: LoopNest, arguments: list[KernelArgument]
) -> Callable[[str], types.FunctionType]:
    """Return what makes a function of the text of a kernel, and keeps no data and no arrays alive."""
    captured = signature.captured.without_values()
    nest = nest._replace(results=without_data(nest.results))
    given = [one._replace(values=()) for one in arguments]
    code, name = signature.body.__code__, signature.body.__name__
    cells = tuple(types.CellType() for _ in code.co_freevars)  # it is only compiled
    bare = types.FunctionType(code, signature.body.__globals__, name, None, cells or None)
    reduced: dict[str, Any] = {}
    for i, _ in nest.private:
        op, dtype = signature.parameters[i].op, signature.parameters[i].access.data.core.layout.dtype
        reduced |= {f"_stf_kind{i}": dtype, f"_stf_zero{i}": dtype.type(op.neutral(dtype))}

    def make(text: str) -> types.FunctionType:
        scope = scope_of_nest(nest, bare, captured, device_function, True) | scope_for(given, nest.results) | reduced
        if nest.reduced:
            scope["_stf_whole"] = whole_of(True)
        scope |= {f"_stf_atomic{i}": atomic_of(nest.kinds[i]) for i, _ in nest.private}
        return with_body(text, f"<kernel of {name}>", bare, captured, scope)

    return if_unchanged(make, lambda: (nest.key, around_key(captured), keys_of(given)))


def if_unchanged(make: Callable[[str], Any], seen: Callable[[], Any]) -> Callable[[str], Any]:
    """Return what makes a function as long as what is compiled in, which `seen` returns, is as it is now.

    A kernel may be compiled later than it was submitted: for another device, or in a loop on a device.
    """
    before = seen()

    def made(text: str) -> Any:
        if seen() != before:
            raise NotNativeError("a function that a body calls, or a variable that it reads, has changed since then")
        return make(text)

    return made


def without_data(results: Sequence[Contribution]) -> tuple[Contribution, ...]:
    """Return what is known of contributions, but for the data that they go to."""
    return tuple(result._replace(item=None) for result in results)


def scope_for(arguments: list[KernelArgument], results: Sequence[Contribution] = ()) -> dict[str, Any]:
    """Return the global variables of the text of a kernel, but for those of its body."""
    scope: dict[str, Any] = {"_stf_cuda": intrinsics(), "_stf_numpy": np, "_stf_complex": complex}
    scope.update({f"_stf_op{i}": device_function(result.function) for i, result in enumerate(results)})
    scope.update({f"_stf_dtype{i}": result.dtype for i, result in enumerate(results)})
    scope.update({what: device_function(value) for one in arguments for what, value in one.constants})
    return scope


def keys_of(arguments: list[KernelArgument]) -> tuple[Any, ...]:
    """Return what of arguments is compiled in."""
    return tuple((one.text, *map(dtype_of, one.values), *[value_key(v) for _, v in one.constants]) for one in arguments)


def symbol_of(name: str) -> str:
    """Return a name that a kernel may have."""
    return re.sub(r"\W", "_", name, flags=re.ASCII).lstrip("0123456789") or "kernel"


def device_function(value: Any) -> Any:
    """Return a function of the user's for calls from a kernel, with those that it calls.

    Other values as kernels see them.
    """
    if isinstance(value, types.FunctionType):
        return device_function_for(Key(value))
    from stf.kernels.compile.scalar_numpy import in_kernels  # which needs numba-cuda

    return in_kernels(value)


@functools.lru_cache(maxsize=1024)
def device_function_for(key: Key) -> Any:
    """Return `device_function` of each function once."""
    return intrinsics().jit(device=True)(callable_copy(key.fn, device_function))


def described(
    make: Callable[[str], Any],
    text: str,
    parameters: list[Any],
    name: str,
    key: Any,
    body: Any = None,
    files: tuple[str, ...] = (),
    block: int = 0,
) -> Kernel:
    """Return a kernel of arrays and numbers in Python, of a text of which `make` makes a function, with a user's body.

    Other processes find it by the text and `key`, if these say all. The code of what it calls may be in files; what all
    threads of a block call together has a block of `block` threads.
    """
    try:
        kept = text_of((text, key, tuple(parameters)))
    except NotKeptError:
        kept = None
    found = kernel_of(
        lambda capability: compile_python(
            lambda: (make(text), kinds_of(parameters)), capability, name, kept, files, block
        ),
        parameters,
        name,
    )
    if not files:  # else it is linked by itself
        found.loop_body = LoopBody(text, make, parameters, found.offsets, kept, body)
    return found


def function_in(scope: Callable[[], dict[str, Any]], file: str) -> Callable[[str], Any]:
    """Return what makes a function of the text of a kernel, which has the global variables that `scope` returns."""

    def make(text: str) -> Any:
        namespace = scope()
        exec(compile(text, file, "exec"), namespace)
        return namespace["_stf_kernel"]

    return make


def kernel_of(image: Callable[[tuple[int, int]], bytes], parameters: list[Any], name: str) -> Kernel:
    """A kernel of arrays and numbers, whose machine code `image` gives for a device, and where its parameters lie."""
    places: list[tuple[int, int]] = []
    offset = 0
    for parameter in parameters:
        count = ARRAY_FIELDS + 2 * parameter.ndim if isinstance(parameter, ArrayType) else 1
        size = 8 if isinstance(parameter, ArrayType) else parameter.itemsize
        for _ in range(count):
            offset = -(-offset // size) * size
            places.append((offset, size))
            offset += size
    kernel = Kernel(KernelSource(image, name), places, [], name)
    ndims = [p.ndim if isinstance(p, ArrayType) else -1 for p in parameters]
    kernel.describe_arrays(ndims, [None if isinstance(p, ArrayType) else p for p in parameters])
    return kernel


def combining_kernel(contributions: tuple[Contribution, ...], results: list[ArrayType]) -> Kernel:
    """Return the kernel of one block that combines the results of blocks into scalars.

    It takes the number of blocks, the results of these, the scalars, and what is neutral for each operator.
    """
    accumulates = tuple(one.item.accumulates for one in contributions)
    partials = [one.partials for one in contributions]
    key: Any = (tuple(code_key(one.function) for one in contributions), accumulates, tuple(partials), tuple(results))
    found = known.get(key)
    if found is None:
        neutral = [argument(f"_stf_neutral{i}", kind.dtype.type(0), "") for i, kind in enumerate(partials)]
        text, bare = combining_text(accumulates, neutral), without_data(contributions)
        parameters = [INT64, *partials, *results, *map(dtype_of, values_of(neutral))]
        make = if_unchanged(
            function_in(lambda: scope_for([], bare), "<what combines>"),
            lambda: [code_key(one.function) for one in bare],
        )
        found = described(make, text, parameters, "combine", key)
        known[key] = found
    return found
