"""Bodies as kernels for a GPU: a thread for each element of a box, compiled by numba-cuda.

The text of the kernel is generated, with a placeholder for the body, as for a CPU (see `loops`). Numbers of the body's
closure, and global ones, are parameters of the kernel.
"""

from __future__ import annotations

import functools
import re
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from stf.kernels.arguments import ARRAY_FIELDS, Kernel
from stf.kernels.body_arguments import default_of, must_be_real
from stf.kernels.captured import (
    Captured,
    NotKeptError,
    around_key,
    closed_over,
    code_key,
    is_users_module,
    text_of,
    value_key,
    with_functions,
)
from stf.kernels.compile.contributions import taker_of
from stf.kernels.compile.python import compile_python, intrinsics
from stf.kernels.compile.reduced_arrays import maker_of, whole_of
from stf.kernels.loops import ArrayType, Form, Key
from stf.kernels.reductions import Contribution
from stf.places.table import cuda_context_at
from stf.values.params import Param

__all__ = ["BLOCK", "Argument", "argument", "combining_kernel", "kernel_for", "kernel_of"]

BLOCK = 256  # threads, a power of two
NOT_NEGATIVE = (1 << 62) - 1  # so that the compiler leaves out what Python's negative indices need
known: dict[Any, Kernel] = {}


class Argument(NamedTuple):
    """A value of the body's as parameters of a kernel.

    Attributes
    ----------
    text : str
        The expression that builds it of them.
    names : tuple of str
        The parameters.
    values : tuple
        Numbers, or parameters of a graph.
    constants : tuple of (str, object)
        What the expression names besides, which is compiled in.
    """

    text: str
    names: tuple[str, ...]
    values: tuple[Any, ...]
    constants: tuple[tuple[str, Any], ...] = ()


def argument(name: str, value: Any, where: str) -> Argument:
    """The parameters that stand for a value, named after it: complex numbers and tuples are several.

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
        return Argument(f"_stf_numpy.{kind}(complex({name}_re, {name}_im))", (f"{name}_re", f"{name}_im"), parts)
    if isinstance(number, bool | int | float | np.number | np.bool_):
        return Argument(name, (name,), (value,))
    if isinstance(value, tuple):
        items = [argument(f"{name}_{i}", item, where) for i, item in enumerate(value)]
        text = "".join(f"{item.text}, " for item in items)
        constants = tuple(constant for item in items for constant in item.constants)
        if hasattr(value, "_fields"):
            text, constants = f"_stf_kind_{name}({text})", (*constants, (f"_stf_kind_{name}", type(value)))
        else:
            text = f"({text})"
        names = tuple(one for item in items for one in item.names)
        return Argument(text, names, tuple(one for item in items for one in item.values), constants)
    if isinstance(value, types.FunctionType | types.ModuleType | type):
        return Argument(f"_stf_kind_{name}", (), (), ((f"_stf_kind_{name}", value),))
    raise TypeError(f"{where}: a kernel takes numbers, tuples of these and functions, got {name} = {value!r}")


def values_of(arguments: list[Argument]) -> tuple[Any, ...]:
    """Return the numbers that a kernel gets for values."""
    return tuple(value for one in arguments for value in one.values)


def in_kernels(value: Any) -> Any:
    """NumPy and its functions as kernels see them; other values as they are."""
    from stf.kernels.compile import scalar_numpy  # which needs numba-cuda

    return scalar_numpy.in_kernels(value)


def dtype_of(value: Any) -> np.dtype[Any]:
    """The type of a parameter."""
    number = value.default if isinstance(value, Param) else value
    return np.dtype(np.uint64) if type(number) is int and number >= 1 << 63 else np.asarray(number).dtype


class Source:
    """Where a kernel comes from: it is compiled for each kind of device, and loaded by each CUDA context, once."""

    def __init__(self, image: Callable[[tuple[int, int]], bytes], name: str) -> None:
        self.image = functools.lru_cache(maxsize=None)(image)
        self.name = name

    def function_at(self, context: Any, where: int) -> int:
        """The address of the CUDA function at an execution place."""
        driver, ordinal = context._driver, context.engine.places[where].ordinal
        image = self.image(driver.capability(ordinal))
        return int(driver.load_function(image, self.name.encode(), ordinal, cuda_context_at(context, where)))


def kernel_for(
    fn: types.FunctionType,
    captured: Captured,
    form: Form,
    coordinates: Callable[..., Any] | None,
    arrays: list[ArrayType],
    arguments: list[Argument],
    name: str,
    rows: int,
) -> Kernel:
    """The kernel of a body.

    Parameters
    ----------
    fn : function
        The body.
    captured : Captured
        The variables around it.
    form : Form
        With a known start or None for each axis. Its `extra` arguments come first among `arguments`, then the variables
        around the body, the parameters of `coordinates`, and what is neutral for each operator.
    coordinates : callable or None
        A user's function from the number of an element to its indices.
    arrays : list of ArrayType
        Those of the body, then one for each operator, of the results of blocks.
    arguments : list of Argument
        The numbers.
    name : str
        What profilers call the kernel.
    rows : int
        How many elements along the last axis but one a thread has, beside each other; 0 for as many elements as there
        are, a grid apart along each axis.
    """
    operators = tuple(map(code_key, form.operators))
    key: Any = (
        *(rows, name, fn.__code__, around_key(captured), form._replace(operators=operators)),
        *(None if coordinates is None else code_key(coordinates), tuple(arrays)),
        keys_of(arguments),
    )
    found = known.get(key)
    if found is None:
        found = known[key] = made(fn, captured, form, coordinates, arrays, arguments, symbol_of(name), rows, key)
    return found


def keys_of(arguments: list[Argument]) -> tuple[Any, ...]:
    """What of arguments is compiled in."""
    return tuple((one.text, *map(dtype_of, one.values), *[value_key(v) for _, v in one.constants]) for one in arguments)


def symbol_of(name: str) -> str:
    """A name that a kernel may have."""
    return re.sub(r"\W", "_", name, flags=re.ASCII).lstrip("0123456789") or "kernel"


def made(
    fn: types.FunctionType,
    captured: Captured,
    form: Form,
    coordinates: Any,
    arrays: list[ArrayType],
    arguments: list[Argument],
    name: str,
    rows: int,
    key: Any,
) -> Kernel:
    """Make a kernel."""
    scope = scope_of(fn, captured)
    scope.update({f"_stf_op{i}": device_function(operator) for i, operator in enumerate(form.operators)})
    scope.update({f"_stf_take{i}": taker_of(True, taken) for i, taken in enumerate(form.contributed)})
    reduced = {f"_stf_reduced{i}": kind for i, kind in enumerate(form.kinds) if kind not in ("array", "value")}
    scope.update({what: maker_of(True, kind) for what, kind in reduced.items()})
    if reduced:
        scope["_stf_whole"] = whole_of(True)
    results = arrays[len(arrays) - len(form.operators) :]
    scope.update({f"_stf_dtype{i}": kind.dtype for i, kind in enumerate(results)})
    scope.update({what: device_function(value) for one in arguments for what, value in one.constants})
    scope |= {"_stf_cuda": intrinsics(), "_stf_numpy": np}
    if coordinates is not None:
        scope["_stf_coords"] = device_function(coordinates)
    text = source(form, captured, coordinates is not None, len(arrays) - len(form.operators), arguments, rows)
    namespace: dict[str, Any] = {}
    exec(compile(text, f"<kernel of {fn.__name__}>", "exec"), namespace)
    code = namespace["_stf_kernel"].__code__
    body = closed_over(fn.__code__, captured.variables)
    constants = tuple(body if isinstance(item, types.CodeType) else item for item in code.co_consts)
    kernel = types.FunctionType(code.replace(co_consts=constants), scope, "_stf_kernel")
    bounds = [np.dtype(np.int64)] * len(bounds_of(form))
    numbers = map(dtype_of, values_of(arguments))
    return described(kernel, [*bounds, *arrays, *numbers], name, kept_key((text, key)))


def scope_of(fn: types.FunctionType, captured: Captured) -> dict[str, Any]:
    """The global variables of a function as kernels see them."""
    known_to_kernels = {
        name: with_functions(value, captured.attributes, device_function)
        if is_users_module(value)
        else in_kernels(value)
        for name, value in captured.constants.items()
    }
    functions = {name: device_function(helper) for name, helper in captured.functions.items()}
    return {**fn.__globals__, **known_to_kernels, **functions}


def device_function(value: Any) -> Any:
    """A function of the user's for calls from a kernel, with those that it calls; other values as kernels see them."""
    return device_function_for(Key(value)) if isinstance(value, types.FunctionType) else in_kernels(value)


@functools.lru_cache(maxsize=1024)
def device_function_for(key: Key) -> Any:
    """`device_function` for each function once."""
    fn = key.fn
    captured = Captured(fn, f"the function '{fn.__name__}'")
    cells = tuple(types.CellType(device_function(value)) for value in captured.values[: captured.free])
    copy = types.FunctionType(fn.__code__, scope_of(fn, captured), fn.__name__, fn.__defaults__, cells or None)
    return intrinsics().jit(device=True)(copy)


def kept_key(key: Any) -> bytes | None:
    """A key that another process finds again; None if there is none."""
    try:
        return text_of(key)
    except NotKeptError:
        return None


def described(fn: Any, parameters: list[Any], name: str, key: bytes | None) -> Kernel:
    """A kernel of arrays and numbers in Python."""
    from numba.np.numpy_support import from_dtype

    kinds = tuple(p.numba_type() if isinstance(p, ArrayType) else from_dtype(p) for p in parameters)
    return kernel_of(lambda capability: compile_python(fn, kinds, capability, name, key), parameters, name)


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
    kernel = Kernel(Source(image, name), places, [], name)
    ndims = [p.ndim if isinstance(p, ArrayType) else -1 for p in parameters]
    kernel.describe_arrays(ndims, [None if isinstance(p, ArrayType) else p for p in parameters])
    return kernel


def bounds_of(form: Form) -> list[str]:
    """The integers that a kernel gets first.

    These are for each axis its start, if that is not compiled in, its extent, and its step, if there are steps; then
    where the results of the blocks of this launch begin.
    """
    found = []
    for axis, start in enumerate(form.starts):
        found += [f"_stf_start{axis}"] if start is None else []
        found += [f"_stf_n{axis}"] + ([f"_stf_step{axis}"] if form.strided else [])
    return found + (["_stf_base"] if form.operators else [])


def source(
    form: Form, captured: Captured, has_coordinates: bool, count: int, arguments: list[Argument], rows: int
) -> str:
    """The text of the kernel of `count` arrays, with a placeholder for the body that reads the same variables."""
    free = captured.variables
    axes = len(form.starts)
    arrays = [f"_stf_a{i}" for i in range(count)]
    extra = [f"_stf_x{i}" for i in range(form.extra)]
    operators = range(len(form.operators))
    numbers = [name for one in arguments for name in one.names]
    parameters = [*bounds_of(form), *arrays, *[f"_stf_out{i}" for i in operators], *numbers]
    values = [f"_stf_a{i}" if kind == "array" else f"_stf_v{i}" for i, kind in enumerate(form.kinds)]
    indices = [f"_stf_i{axis}" for axis in range(axes)]
    given = [f"_stf_c{i}" for i in range(form.ndim)] if has_coordinates else indices
    lines = [f"def _stf_kernel({', '.join(parameters)}):"]
    bound = [*extra, *free, *(["_stf_parameters"] if has_coordinates else []), *[f"_stf_neutral{i}" for i in operators]]
    lines += [f"    {name} = {one.text}" for name, one in zip(bound, arguments, strict=True) if name != one.text]
    lines.append(f"    def _stf_body({', '.join([*given, *values, *extra])}):")
    lines.append(f"        return ({''.join(f'{name}, ' for name in free)})")
    for i, kind in enumerate(form.kinds):
        if kind != "array":
            how = f"_stf_a{i}[()]" if kind == "value" else f"_stf_reduced{i}(_stf_a{i})"
            lines.append(f"    _stf_v{i} = {how}")
    for what in "xyz"[: min(axes, 3)]:
        times = f"{rows} * " if what == "y" and rows > 1 else ""
        place = f"{times}_stf_cuda.blockIdx.{what} * _stf_cuda.blockDim.{what} + _stf_cuda.threadIdx.{what}"
        lines.append(f"    _stf_{what} = ({place}) & {NOT_NEGATIVE}")
        lines.append(f"    _stf_all_{what} = _stf_cuda.gridDim.{what} * _stf_cuda.blockDim.{what}")
    lines += [f"    _stf_r{i} = _stf_neutral{i}" for i in operators]
    indent = "    "
    for what, extent in extents(axes):
        if what == "y" and rows > 1:
            lines.append(f"{indent}for _stf_row in range({rows}):")
            indent += "    "
            lines.append(f"{indent}_stf_ky = _stf_y + _stf_row * _stf_cuda.blockDim.y")
        else:
            lines.append(f"{indent}_stf_k{what} = _stf_{what}")
        lines.append(f"{indent}{'if' if rows else 'while'} _stf_k{what} < {extent}:")
        indent += "    "
    for axis in range(axes):
        step = f" * _stf_step{axis}" if form.strided else ""
        start = form.starts[axis]
        begin = f"_stf_start{axis} + " if start is None else f"{start} + " if start else ""
        lines.append(f"{indent}_stf_i{axis} = {begin}{counter(axis, axes)}{step}")
    if has_coordinates:
        lines.append(f"{indent}_stf_c = _stf_coords({indices[-1]}, *_stf_parameters)")
        lines += [f"{indent}_stf_c{i} = _stf_c{f'[{i}]' if form.ndim > 1 else ''}" for i in range(form.ndim)]
    call = f"_stf_body({', '.join([*given, *values, *extra])})"
    contributed = ", ".join(f"_stf_found{i}" for i in operators)
    lines.append(f"{indent}{f'{contributed} = ' if contributed else ''}{call}")
    lines += [f"{indent}_stf_r{i} = _stf_op{i}(_stf_r{i}, _stf_take{i}(_stf_found{i}))" for i in operators]
    for what, _ in reversed(extents(axes)):
        lines += [] if rows else [f"{indent}_stf_k{what} += _stf_all_{what}"]
        indent = indent[4:]
    # numba-cuda takes stores to something for dead that is no argument, and that nobody uses later
    lines += [f"    _stf_whole(_stf_v{i})" for i, kind in enumerate(form.kinds) if kind not in ("array", "value")]
    if form.operators:
        lines += in_block(len(form.operators), axes)
        number = "_stf_cuda.blockIdx.y + _stf_cuda.gridDim.y * _stf_cuda.blockIdx.z"
        number = f"_stf_base + _stf_cuda.blockIdx.x + _stf_cuda.gridDim.x * ({number})"
        lines.append("    if _stf_t == 0:")
        lines += [f"        _stf_out{i}[{number}] = _stf_s{i}[0]" for i in operators]
    return "\n".join(lines) + "\n"


def extents(axes: int) -> list[tuple[str, str]]:
    """The axes of a grid, the slowest first, and how far each counts: the last axis of a box along x."""
    found = {1: [("x", "_stf_n0")], 2: [("y", "_stf_n0"), ("x", "_stf_n1")]}
    found[3] = [("z", "_stf_n0"), ("y", "_stf_n1"), ("x", "_stf_n2")]
    found[4] = [("z", "_stf_n0 * _stf_n1"), ("y", "_stf_n2"), ("x", "_stf_n3")]
    return found[axes]


def counter(axis: int, axes: int) -> str:
    """Which element along an axis of a box a thread has."""
    if axes == 4 and axis < 2:
        return "_stf_kz // _stf_n1" if axis == 0 else "_stf_kz % _stf_n1"
    return f"_stf_k{'xyz'[min(axes, 4) - 1 - axis]}"


def in_block(operators: int, axes: int) -> list[str]:
    """The lines that combine the results of the threads of a block, in a tree."""
    lines = ["    _stf_t = _stf_cuda.threadIdx.x"]
    if axes > 1:
        lines[0] += " + _stf_cuda.blockDim.x * (_stf_cuda.threadIdx.y + _stf_cuda.blockDim.y * _stf_cuda.threadIdx.z)"
    for i in range(operators):
        lines.append(f"    _stf_s{i} = _stf_cuda.shared.array({BLOCK}, _stf_dtype{i})")
        lines.append(f"    _stf_s{i}[_stf_t] = _stf_r{i}")
    lines += ["    _stf_cuda.syncthreads()", f"    _stf_half = {BLOCK // 2}", "    while _stf_half > 0:"]
    lines.append("        if _stf_t < _stf_half:")
    for i in range(operators):
        lines.append(f"            _stf_s{i}[_stf_t] = _stf_op{i}(_stf_s{i}[_stf_t], _stf_s{i}[_stf_t + _stf_half])")
    return [*lines, "        _stf_cuda.syncthreads()", "        _stf_half //= 2"]


def combining_kernel(
    contributions: tuple[Contribution, ...], partials: list[ArrayType], results: list[ArrayType]
) -> Kernel:
    """Return the kernel of one block that combines the results of blocks into scalars; its arrays alternate.

    It takes the number of blocks, the results of these, the scalars, and what is neutral for each operator.
    """
    operators = [one.function for one in contributions]
    accumulates = tuple(one.item.accumulates for one in contributions)
    key: Any = (tuple(map(code_key, operators)), accumulates, tuple(partials), tuple(results))
    found = known.get(key)
    if found is not None:
        return found
    neutral = [argument(f"_stf_neutral{i}", kind.dtype.type(0), "") for i, kind in enumerate(partials)]
    every = range(len(operators))
    numbers = [name for one in neutral for name in one.names]
    parameters = ["_stf_n", *[f"_stf_a{i}" for i in every], *[f"_stf_out{i}" for i in every], *numbers]
    lines = [f"def _stf_kernel({', '.join(parameters)}):", "    _stf_k = _stf_cuda.threadIdx.x"]
    lines += [f"    _stf_r{i} = {one.text}" for i, one in enumerate(neutral)]
    lines.append("    while _stf_k < _stf_n:")
    lines += [f"        _stf_r{i} = _stf_op{i}(_stf_r{i}, _stf_a{i}[_stf_k])" for i in every]
    lines += [f"        _stf_k += {BLOCK}", *in_block(len(operators), 1), "    if _stf_t == 0:"]
    for i in every:
        whole = f"_stf_s{i}[0]"
        if accumulates[i]:
            lines.append(f"        _stf_s{i}[0] = _stf_op{i}({whole}, _stf_out{i}[()])")
        lines.append(f"        _stf_out{i}[()] = {whole}")
    text = "\n".join(lines) + "\n"
    scope: dict[str, Any] = {"_stf_cuda": intrinsics(), "_stf_numpy": np}
    scope.update({f"_stf_op{i}": device_function(operator) for i, operator in enumerate(operators)})
    scope.update({f"_stf_dtype{i}": kind.dtype for i, kind in enumerate(partials)})
    exec(compile(text, "<what combines>", "exec"), scope)
    kinds = [np.dtype(np.int64), *partials, *results, *map(dtype_of, values_of(neutral))]
    found = known[key] = described(scope["_stf_kernel"], kinds, "combine", kept_key((text, key)))
    return found
