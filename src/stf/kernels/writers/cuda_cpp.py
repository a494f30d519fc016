"""Kernels in C++, which NVRTC compiles for a GPU: the same threads, boxes and reductions as in Python.

The lambda gets arrays as objects that are called with indices, and data that are reduced into by reference.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stf.kernels.body_arguments import BodySignature, is_returned
from stf.kernels.nest import ArrayType, KernelArgument, LoopNest
from stf.kernels.writers.numba_cuda import BLOCK
from stf.kernels.writers.writer import GridWriter
from stf.values.reducers import Reducer, reducer

__all__ = ["OPERATORS", "CppWriter"]

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


class CppWriter(GridWriter):
    """Writes a translation unit.

    Parameters
    ----------
    signature : BodySignature
        Of the lambda.
    arrays : list of ArrayType
        Those of the body, then one for each operator.
    arguments : list of KernelArgument
    dtypes : list of dtype
        Of `arguments`.
    name : str
        The kernel's.

    Raises
    ------
    TypeError
        There is no such type, or operator, in C++.
    """

    indent = "  "
    quotient = "/"

    def __init__(
        self,
        nest: LoopNest,
        rows: int,
        signature: BodySignature,
        arrays: list[ArrayType],
        arguments: list[KernelArgument],
        dtypes: list[np.dtype[Any]],
        name: str,
    ) -> None:
        super().__init__(nest, rows)
        where = signature.where
        for one in arguments:
            if one.names != (one.text,):
                raise TypeError(
                    f"{where} is C++, which takes numbers that are not complex by args=, got {one.values!r}"
                )
        self.signature, self.arrays, self.name = signature, arrays, name
        self.types = [type_of(kind.dtype, where) for kind in arrays]
        self.of_results = self.types[len(arrays) - len(self.results) :]
        self.numbers = [f"{type_of(kind, where)} {one.text}" for kind, one in zip(dtypes, arguments, strict=True)]
        self.operators = [in_cpp(result.item.op, where) for result in signature.results]

    def head(self) -> None:
        parameters = [f"long long {bound}" for bound in self.nest.bounds]
        for i, (kind, of) in enumerate(zip(self.arrays, self.types, strict=True)):
            parameters += [f"void* a{i}_info", f"void* a{i}_parent", f"long long a{i}_size", f"long long a{i}_item"]
            sizes = [f"long long a{i}_{what}{axis}" for what in "ns" for axis in range(kind.ndim)]
            parameters += [f"{of}* a{i}_data", *sizes]
        self.put(ARRAY)
        for i, (op, of) in enumerate(zip(self.operators, self.of_results, strict=True)):
            self.put(f"{of} stf_op{i}({of} a, {of} b) {{ return {op}; }}")
        self.open(f'extern "C" __global__ void {self.name}({", ".join([*parameters, *self.numbers])}) {{')
        for i, (kind, of) in enumerate(zip(self.arrays, self.types, strict=True)):
            const = "const " if kind.readonly else ""
            shape, strides = [", ".join(f"a{i}_{what}{axis}" for axis in range(kind.ndim)) for what in "ns"]
            fields = f"{{a{i}_data, {{{shape}}}, {{{strides}}}}}"
            self.put(f"const stf_array<{const}{of}, {kind.ndim}, '{kind.order}'> a{i}{fields};")
        self.put(*[f"{of} r{i} = _stf_neutral{i};" for i, of in enumerate(self.of_results)])
        self.put("auto body =")
        self.lines += ['#line 1 "the body"', str(self.signature.in_cpp), '#line 1 "the kernel"']
        self.put(";")
        for what in "xyz"[: len(self.axes)]:
            times = f"{self.rows} * " if what == "y" and self.rows > 1 else ""
            self.put(
                f"const long long {what} = {times}(long long)blockIdx.{what} * blockDim.{what} + threadIdx.{what};"
            )
            if self.rows == 0:
                self.put(f"const long long all_{what} = (long long)gridDim.{what} * blockDim.{what};")

    def open_axis(self, axis: tuple[str, str]) -> None:
        what, extent = axis
        at = f"_stf_k{what}"
        if what == "y" and self.rows > 1:
            self.put(f"for (int row = 0; row < {self.rows}; ++row)")
            self.put(f"if (const long long {at} = y + row * blockDim.y; {at} < {extent})")
        elif self.rows:
            self.put(f"if (const long long {at} = {what}; {at} < {extent})")
        else:
            self.put(f"for (long long {at} = {what}; {at} < {extent}; {at} += all_{what})")

    def element(self) -> None:
        values = iter([f"a{i}()" if kind == "value" else f"a{i}" for i, kind in enumerate(self.nest.kinds)])
        results = iter([f"r{i}" for i in self.results])
        data = [next(results if is_returned(item) else values) for item in self.signature.items]
        indices = [self.index(number, axis) for number, axis in enumerate(self.nest.axes)]
        self.put(f"  body({', '.join([*indices, *data, *self.extra])});")

    def close_axis(self, axis: tuple[str, str]) -> None:
        """Write nothing: each loop has one statement."""

    def tail(self) -> None:
        if self.results:
            self.combine_in_block()
        self.lines.append("}")

    def combine_in_block(self) -> None:
        """Combine the results of the threads of a block, in a tree."""
        more = " + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)" if self.count > 1 else ""
        self.put(f"const int thread = threadIdx.x{more};")
        for i, of in enumerate(self.of_results):
            self.put(f"__shared__ {of} s{i}[{BLOCK}];", f"s{i}[thread] = r{i};")
        self.put("__syncthreads();", f"for (int half = {BLOCK // 2}; half > 0; half /= 2) {{", "  if (thread < half) {")
        self.put(*[f"    s{i}[thread] = stf_op{i}(s{i}[thread], s{i}[thread + half]);" for i in self.results])
        self.put("  }", "  __syncthreads();", "}")
        own = len(self.arrays) - len(self.results)
        if self.nest.alone:
            for i, adds in enumerate(self.nest.alone):
                value = f"stf_op{i}(s{i}[0], a{own + i}())" if adds else f"s{i}[0]"
                self.put(f"if (thread == 0) a{own + i}() = {value};")
            return
        block = "_stf_base + blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z)"
        self.put(*[f"if (thread == 0) a{own + i}({block}) = s{i}[0];" for i in self.results])


def type_of(dtype: np.dtype[Any], where: str) -> str:
    """Return the type in C++."""
    if dtype.char not in TYPES:
        raise TypeError(f"{where} is C++, which has bool, integers, float32 and float64 here, got {dtype}; use Python")
    return TYPES[dtype.char]


def in_cpp(op: Reducer, where: str) -> str:
    """Return an operator as an expression of a and b."""
    if op not in OPERATORS:
        raise TypeError(f"{where} is C++, and {op!r} is written in Python; write the body in Python, too")
    return OPERATORS[op]
