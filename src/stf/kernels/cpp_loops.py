"""Bodies in C++ as kernels for a GPU, compiled by NVRTC: the same threads, boxes and reductions as in `gpu_loops`.

The lambda gets arrays as objects that are called with indices, and data that are reduced into by reference.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stf.kernels.arguments import Kernel
from stf.kernels.compile.nvrtc import compile_cpp
from stf.kernels.gpu_loops import (
    BLOCK,
    Argument,
    bounds_of,
    counter,
    dtype_of,
    extents,
    kernel_of,
    keys_of,
    symbol_of,
    values_of,
)
from stf.kernels.loops import ArrayType, Form
from stf.values.reducers import Reducer, reducer

__all__ = ["kernel_for"]

OPTIONS = ("-std=c++17", "-default-device")
NAMES = "bool, signed char, unsigned char, short, unsigned short, int, unsigned, long, unsigned long, long long"
TYPES = dict(zip("?bBhHiIlLqQfd", [*NAMES.split(", "), "unsigned long long", "float", "double"], strict=True))
OPERATORS: dict[Any, str] = {
    reducer.sum: "a + b",
    reducer.product: "a * b",
    reducer.minval: "b < a || b != b ? b : a",
    reducer.maxval: "b > a || b != b ? b : a",
    reducer.logical_and: "a != 0 && b != 0",
    reducer.logical_or: "a != 0 || b != 0",
    reducer.bitwise_and: "a & b",
    reducer.bitwise_or: "a | b",
    reducer.bitwise_xor: "a ^ b",
}
ARRAY = """
template <class T> struct stf_plain { using type = T; };
template <class T> struct stf_plain<const T> { using type = T; };

template <class T, int N, char ORDER>
struct stf_array {
  T* data;
  long long shape[N ? N : 1], strides[N ? N : 1];  // strides in bytes

  template <class... I>
  T& operator()(I... indices) const {
    static_assert(sizeof...(I) == N, "an array is called with an index for each of its dimensions");
    const long long at[] = {static_cast<long long>(indices)..., 0};
    long long offset = 0;
    if (ORDER == 'A') {
      for (int k = 0; k < N; ++k) offset += at[k] * strides[k];
      char* bytes = reinterpret_cast<char*>(const_cast<typename stf_plain<T>::type*>(data));
      return *reinterpret_cast<T*>(bytes + offset);
    }
    for (int k = 0; k < N; ++k) {
      const int axis = ORDER == 'C' ? k : N - 1 - k;
      offset = offset * shape[axis] + at[axis];
    }
    return data[offset];
  }
  T& operator[](long long i) const { return (*this)(i); }
  T& operator*() const { return *data; }
  T* data_handle() const { return data; }
  static constexpr int rank() { return N; }
  long long extent(int axis) const { return shape[axis]; }
  long long size() const {
    long long n = 1;
    for (int k = 0; k < N; ++k) n *= shape[k];
    return n;
  }
};
"""
known: dict[Any, Kernel] = {}


def kernel_for(
    text: str,
    form: Form,
    order: tuple[bool, ...],
    operators: tuple[Reducer, ...],
    arrays: list[ArrayType],
    arguments: list[Argument],
    name: str,
    rows: int,
    where: str,
) -> Kernel:
    """The kernel of a lambda.

    Parameters
    ----------
    text : str
        The lambda.
    form, arrays, arguments, name, rows
        As in `gpu_loops.kernel_for`.
    order : tuple of bool
        For each access or reduction, as the lambda gets them, whether it is a scalar that is reduced into.
    operators : tuple of Reducer
        Of these scalars.
    where : str
        What messages call the body.

    Raises
    ------
    TypeError
        There is no such type, or operator, in C++.
    """
    key = (text, form, order, operators, tuple(arrays), keys_of(arguments), name, rows)
    found = known.get(key)
    if found is None:
        symbol = symbol_of(name)
        for one in arguments:
            if one.names != (one.text,):
                raise TypeError(
                    f"{where} is C++, which takes numbers that are not complex by args=, got {one.values!r}"
                )
        numbers = list(map(dtype_of, values_of(arguments)))
        types = [type_of(kind.dtype, where) for kind in arrays]
        parameters = [f"{type_of(dtype, where)} {one.text}" for dtype, one in zip(numbers, arguments, strict=True)]
        made = source(
            text, form, order, [in_cpp(op, where) for op in operators], arrays, types, parameters, symbol, rows
        )
        bounds = [np.dtype(np.int64)] * len(bounds_of(form))
        found = known[key] = kernel_of(
            lambda capability: compile_cpp(made, capability, OPTIONS), [*bounds, *arrays, *numbers], symbol
        )
    return found


def type_of(dtype: np.dtype[Any], where: str) -> str:
    """The type in C++."""
    if dtype.char not in TYPES:
        raise TypeError(f"{where} is C++, which has bool, integers, float32 and float64 here, got {dtype}; use Python")
    return TYPES[dtype.char]


def in_cpp(op: Reducer, where: str) -> str:
    """An operator as an expression of a and b."""
    if op not in OPERATORS:
        raise TypeError(f"{where} is C++, and {op!r} is written in Python; write the body in Python, too")
    return OPERATORS[op]


def source(
    text: str,
    form: Form,
    order: tuple[bool, ...],
    operators: list[str],
    arrays: list[ArrayType],
    types: list[str],
    numbers: list[str],
    name: str,
    rows: int,
) -> str:
    """The translation unit: `numbers` are the parameters after the arrays."""
    axes, whole = len(form.starts), [f"long long {bound}" for bound in bounds_of(form)]
    for i, (kind, of) in enumerate(zip(arrays, types, strict=True)):
        whole += [f"void* a{i}_{field}" for field in ("info", "parent")] + [
            f"long long a{i}_{n}" for n in ("size", "item")
        ]
        whole += [f"{of}* a{i}_data", *[f"long long a{i}_{what}{axis}" for what in "ns" for axis in range(kind.ndim)]]
    lines = [ARRAY]
    for i, (op, of) in enumerate(zip(operators, types[len(types) - len(operators) :], strict=True)):
        lines.append(f"{of} stf_op{i}({of} a, {of} b) {{ return {op}; }}")
    lines.append(f'extern "C" __global__ void {name}({", ".join([*whole, *numbers])}) {{')
    lines += [view(i, kind, of) for i, (kind, of) in enumerate(zip(arrays, types, strict=True))]
    for i, of in enumerate(types[len(types) - len(operators) :]):
        lines.append(f"  {of} r{i} = _stf_neutral{i};")
    values = iter([f"a{i}()" if kind == "value" else f"a{i}" for i, kind in enumerate(form.kinds)])
    results = iter([f"r{i}" for i in range(len(operators))])
    data = [next(results) if is_returned else next(values) for is_returned in order]
    lines += ["  auto body =", '#line 1 "the body"', text, '#line 1 "the kernel"', "  ;"]
    for what in "xyz"[: min(axes, 3)]:
        times = f"{rows} * " if what == "y" and rows > 1 else ""
        lines.append(
            f"  const long long {what} = {times}(long long)blockIdx.{what} * blockDim.{what} + threadIdx.{what};"
        )
        if rows == 0:
            lines.append(f"  const long long all_{what} = (long long)gridDim.{what} * blockDim.{what};")
    for what, extent in extents(axes):
        if what == "y" and rows > 1:
            lines.append(f"  for (int row = 0; row < {rows}; ++row)")
            lines.append(f"  if (const long long _stf_ky = y + row * blockDim.y; _stf_ky < {extent})")
        elif rows:
            lines.append(f"  if (const long long _stf_k{what} = {what}; _stf_k{what} < {extent})")
        else:
            lines.append(
                f"  for (long long _stf_k{what} = {what}; _stf_k{what} < {extent}; _stf_k{what} += all_{what})"
            )
    indices = []
    for axis, start in enumerate(form.starts):
        begin = f"_stf_start{axis} + " if start is None else f"{start} + " if start else ""
        step = f" * _stf_step{axis}" if form.strided else ""
        indices.append(f"{begin}{counter(axis, axes).replace('//', '/')}{step}")
    lines.append(f"    body({', '.join([*indices, *data, *[f'_stf_x{i}' for i in range(form.extra)]])});")
    if operators:
        lines += in_block(types[len(types) - len(operators) :], axes, len(arrays) - len(operators))
    return "\n".join([*lines, "}", ""])


def view(i: int, kind: ArrayType, of: str) -> str:
    """The line that makes an array of its parameters."""
    const = "const " if kind.readonly else ""
    shape, strides = [", ".join(f"a{i}_{what}{axis}" for axis in range(kind.ndim)) for what in "ns"]
    return f"  const stf_array<{const}{of}, {kind.ndim}, '{kind.order}'> a{i}{{a{i}_data, {{{shape}}}, {{{strides}}}}};"


def in_block(types: list[str], axes: int, first: int) -> list[str]:
    """The lines that combine the results of the threads of a block, in a tree; arrays from `first` on get them."""
    more = " + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)" if axes > 1 else ""
    lines = [f"  const int thread = threadIdx.x{more};"]
    for i, of in enumerate(types):
        lines += [f"  __shared__ {of} s{i}[{BLOCK}];", f"  s{i}[thread] = r{i};"]
    lines += [
        "  __syncthreads();",
        f"  for (int half = {BLOCK // 2}; half > 0; half /= 2) {{",
        "    if (thread < half) {",
    ]
    lines += [f"      s{i}[thread] = stf_op{i}(s{i}[thread], s{i}[thread + half]);" for i in range(len(types))]
    lines += ["    }", "    __syncthreads();", "  }"]
    block = "_stf_base + blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z)"
    lines += [f"  if (thread == 0) a{first + i}({block}) = s{i}[0];" for i in range(len(types))]
    return lines
