"""Arguments of kernels: values as the parameters of a kernel take them, packed in one block.

The kernel's own parameters say the offset and the size of each, so that a value of another size is an error, and no
memory is read past an argument.
"""

from __future__ import annotations

import ctypes
import math
from typing import NamedTuple

import cython
import numpy as np

from stf._engine.access import ArrayAccess, SliceAccess
from stf._port.native import loop_bodies
from stf.errors import PlaceError
from stf.kernels import kernel_handles as foreign

POINTER_BYTES = 8
ARRAY_FIELDS = 5  # of an array of Numba's, before its extents and strides
MEMREF_FIELDS = 3  # of one of numba-cuda-mlir, whose strides are elements
BLOCK_BYTES = 32764  # the parameters of a kernel, at most (CUDA C++ Programming Guide, "Function Parameters")
TWO_63, TWO_64 = 1 << 63, 1 << 64
FLOAT64, INT64 = np.dtype(np.float64), np.dtype(np.int64)
HINTS = {  # what a parameter of so many bytes takes
    1: "np.int8 or bool",
    2: "np.float16 or np.int16",
    4: "np.float32 or np.int32",
    8: "np.float64 or np.int64",
}
DOUBLE: object = np.float64
INTEGER: object = np.int64


class Kernel:
    """A kernel and what its parameters are: (offset, size) in bytes each; one CUDA function per device."""

    def __init__(self, user_object, parameters, functions, name):
        self.user_object = user_object
        self.functions = functions
        self.name = name
        self.offsets = [offset for offset, _ in parameters]
        self.sizes = [size for _, size in parameters]
        self.count = len(parameters)
        self.ndims = self.dtypes = self.codes = self.layouts = self.images = None
        self.cooperative = False
        self.loop_body = None
        self.nbytes = max([offset + size for offset, size in parameters], default=0)
        if self.nbytes > BLOCK_BYTES:
            raise TypeError(
                f"kernel '{name}' has {self.nbytes} bytes of parameters, and CUDA passes {BLOCK_BYTES} at most; pass "
                "data for what is large"
            )

    def describe_arrays(self, ndims, dtypes, fields=ARRAY_FIELDS):
        """Say that arrays are passed as Numba does: several parameters each, of which `fields` come before the extents.

        `ndims` is -1 for other arguments; these have `dtypes`, None where NumPy has no such type.
        """
        self.ndims, self.fields = ndims, fields
        self.count = len(ndims)
        self.dtypes = []
        for ndim, dtype in zip(ndims, dtypes, strict=True):
            self.dtypes += [dtype] if ndim < 0 else [None] * (fields + 2 * ndim)
        codes = {FLOAT64: AS_DOUBLE, INT64: AS_INTEGER}
        self.codes = bytes([0 if dtype is None else codes.get(dtype, 0) for dtype in self.dtypes])
        self.layouts, self.images = [None] * self.count, [None] * self.count
        if len(self.dtypes) != len(self.sizes):
            raise TypeError(
                f"kernel '{self.name}' has {len(self.sizes)} parameters for CUDA, and its arguments are passed as "
                f"{len(self.dtypes)}"
            )

    def image_of(self, index, access, layout):
        """Return the parameters of an array that lies so, but for its address.

        They are (meminfo, parent, number of items, item size, data, *shape, *strides), each of 8 bytes (numba-cuda,
        ``_Kernel._prepare_args``). With numba-cuda-mlir they are (allocated, data, offset, *shape, *strides), a memref
        of MLIR's, whose strides are elements. Other data that lie alike have the same.
        """
        known: Layout = self.layouts[index]
        if (
            known is not None
            and known.shape == layout.shape
            and known.strides == layout.strides
            and known.itemsize == layout.itemsize
        ):
            self.layouts[index] = layout
            return self.images[index]
        unit = layout.itemsize if self.fields == MEMREF_FIELDS else 1
        if [stride for stride in layout.strides if stride % unit]:
            refuse_argument(self, index, access, "an array whose strides are whole elements")
        first = [0, 0, math.prod(layout.shape), layout.itemsize, 0]
        if self.fields == MEMREF_FIELDS:
            first = [0] * MEMREF_FIELDS
        words = [*first, *layout.shape, *[stride // unit for stride in layout.strides]]
        image = b"".join([word.to_bytes(8, "little", signed=True) for word in words])
        self.layouts[index], self.images[index] = layout, image
        return image

    def function_at(self, context, where):
        """Return the CUDA function for the device, or the user's CUDA context, at an execution place."""
        key = context.engine.place(where).functions
        if key < len(self.functions) and self.functions[key]:
            return self.functions[key]
        if where == 0:
            raise PlaceError(f"kernel '{self.name}' runs on a device, got the host; give place=exec_place.device(i)")
        self.remember(key, foreign.function_at(self.user_object, context, where))
        return self.functions[key]

    def remember(self, key, function):
        """Remember the function for places of a key."""
        while len(self.functions) <= key:
            self.functions.append(0)
        self.functions[key] = function
        loop_bodies[function] = self.loop_body


class Measure(NamedTuple):
    """An extent, or a stride in bytes, of the array that the kernel got a pointer to just before."""

    axis: int
    is_stride: bool


class LaunchBlock:
    """The arguments of one launch, where the kernel's parameters lie; the uncompiled form puts nothing there."""

    def put_integer(self, offset, size, value):
        memcpy(cython.address(self.data[offset]), cython.address(value), size)
        return 0

    def put_double(self, offset, value):
        memcpy(cython.address(self.data[offset]), cython.address(value), 8)
        return 0

    def content(self, count):
        """Return the first bytes."""
        return cython.cast("char*", cython.address(self.data[0]))[:count]

    def put_bytes(self, offset, raw):
        memcpy(cython.address(self.data[offset]), cython.cast("char*", raw), len(raw))
        return 0


def take_block():
    """Room for the arguments of a launch."""
    global spare_block
    block = spare_block
    if block is None:
        return LaunchBlock()
    spare_block = None
    return block


def give_block(block: LaunchBlock):
    """The launch has been given to the port."""
    global spare_block
    spare_block = block
    return 0


def put_number(kernel, index, value, block):
    """Pack a Python int or float."""
    size: cython.int = kernel.sizes[index]
    if type(value) is int:
        number: cython.longlong = integer_of(kernel, index, value, size)
        block.put_integer(kernel.offsets[index], size, number)
    elif size == 8:
        block.put_double(kernel.offsets[index], value)
    else:
        refuse(kernel, index, value)
    return 0


def put_value(kernel: Kernel, index, value, block: LaunchBlock):
    """Pack a value that is no access."""
    if type(value) is DOUBLE and cython.cast(cython.int, kernel.sizes[index]) == 8:
        return block.put_double(kernel.offsets[index], value)
    if isinstance(value, int) and not isinstance(value, bool):
        return put_number(kernel, index, int(value), block)
    if isinstance(value, float) and not isinstance(value, np.generic):
        return put_number(kernel, index, float(value), block)
    return block.put_bytes(kernel.offsets[index], raw_value(kernel, index, value))


def refuse_argument(kernel: Kernel, index, value, wanted):
    raise TypeError(f"argument {index} of kernel '{kernel.name}' is {wanted}, got {value!r}")


def put_described_value(kernel: Kernel, position, value, block: LaunchBlock):
    """Pack a number as the type that the kernel was compiled for: as Numba does, a float becomes no integer."""
    code: cython.int = kernel.codes[position]
    kind: type = type(value)
    if code == AS_DOUBLE and (kind is float or kind is DOUBLE):
        return block.put_double(kernel.offsets[position], value)
    if code == AS_INTEGER and (kind is int or kind is INTEGER):
        try:
            return block.put_integer(kernel.offsets[position], 8, value)
        except OverflowError:  # which the rest says with the parameter's name
            pass
    dtype = kernel.dtypes[position]
    if dtype is None:
        raw = described_value(value)
    else:
        number = np.asarray(value)
        fits: cython.bint = number.shape == () and is_of_kind(number.dtype, dtype)
        if fits and dtype.kind in "iu":
            fits = int(number) == int(number.astype(dtype))
        if not fits:
            raise TypeError(
                f"a parameter of kernel '{kernel.name}' is {dtype}, and takes no {value!r} ({number.dtype})"
            )
        raw = number.astype(dtype).tobytes()
    if len(raw) != kernel.sizes[position]:
        refuse(kernel, position, value)
    block.put_bytes(kernel.offsets[position], raw)
    return 0


def is_of_kind(one, other):
    """Return whether numbers of a dtype are passed where another one is declared: a float is no integer."""
    return np.can_cast(one, other, "same_kind") or (one.kind == "i" and other.kind == "u")


def described_value(value):
    """Return the bytes of a value that tells its type itself."""
    if isinstance(value, (bool, np.bool_)):
        return bytes([bool(value)])
    if isinstance(value, np.generic):
        return value.tobytes()
    if isinstance(value, int):
        return np.int64(value).tobytes() if value < TWO_63 else np.uint64(value).tobytes()
    if isinstance(value, float):
        return np.float64(value).tobytes()
    if isinstance(value, complex):
        return np.complex128(value).tobytes()
    raise TypeError(f"a kernel takes accesses, numbers and NumPy scalars, got {type(value).__name__}")


def raw_value(kernel: Kernel, index, value):
    """Return the bytes of a value that is no Python int or float."""
    size = kernel.sizes[index]
    if isinstance(value, np.generic):
        raw = value.tobytes()
    elif isinstance(value, bool):
        raw = bytes([value])
    elif isinstance(value, np.ndarray):  # by value, where it cannot be meant for a pointer
        raw = value.tobytes() if size != POINTER_BYTES or value.ndim == 0 or value.dtype.names else b""
    elif isinstance(value, (bytes, ctypes._SimpleCData, ctypes.Structure, ctypes.Union, ctypes.Array)):
        raw = bytes(value)
    elif hasattr(value, "_as_parameter_"):
        return raw_value(kernel, index, value._as_parameter_)
    elif isinstance(value, int):  # as which another object is passed
        raw = (integer_of(kernel, index, value, size) & ((1 << (8 * size)) - 1)).to_bytes(size, "little")
    else:
        raw = b""
    if len(raw) != size:
        refuse(kernel, index, value)
    return raw


def refuse(kernel: Kernel, index, value):
    size = kernel.sizes[index]
    if isinstance(value, DataHandle):
        told = f"got {value.core.describe()}; say how the kernel uses it: lX.read(), lX.write() or lX.rw()"
    elif isinstance(value, Access) and cython.cast(Access, value).core.token:
        told = f"got {value!r}, which has no memory; leave it out, or give it to ctx.cuda_kernel, for the order alone"
    elif isinstance(value, Access):
        told = f"is {size} bytes, which is no pointer, got {value!r}; are the arguments in the order of the parameters?"
    elif isinstance(value, SliceAccess):
        told = f"got {value.access!r} as a slice, which its library does not know; pass the access itself"
    elif isinstance(value, ArrayAccess):
        told = (
            f"got {value.access!r} as an array, which takes a pointer, the extents and the strides; pass the access "
            "itself for the pointer alone"
        )
    elif hasattr(value, "__cuda_array_interface__") or getattr(value, "shape", ()):
        told = (
            f"got an array, {type(value).__name__}; register it with ctx.logical_data and pass an access, such as "
            "lX.rw(), or its bytes if a struct is meant"
        )
    elif hasattr(value, "expand"):
        told = f"got data made of several arrays, {value.data!r}; pass accesses to its parts, as in lA.parts[0].rw()"
    else:
        told = f"is {size} bytes, got {type(value).__name__}; pass {HINTS.get(size, f'{size} bytes')}"
    raise TypeError(f"parameter {index} of kernel '{kernel.name}' {told}")


def refuse_gaps(kernel: Kernel, index, args, layout: Layout):
    """Raise if an array has gaps of which the kernel is not told; extents of 0 and 1 make none."""
    if index + 1 < len(args) and type(args[index + 1]) is Measure:
        return 0
    steps = zip(layout.shape, layout.strides, layout.packed().strides, strict=True)
    if 0 in layout.shape or all(n == 1 or step == packed for n, step, packed in steps):
        return 0
    access: Access = args[index]
    raise ValueError(
        f"parameter {index} of kernel '{kernel.name}' is a pointer, and {access.core.describe()} lies with gaps "
        "there; register a packed array, or pass pointer, extents and strides: lX.read().array, or .slice as a struct"
    )


def slice_image(kernel: Kernel, index, access, layout: Layout):
    """Return the struct that a slice is for a kernel, but for its address: words of 8 bytes.

    They are a pointer, the extents, and the strides in elements, in the order of the axes.
    """
    ndim, itemsize = len(layout.shape), layout.itemsize
    nbytes = 8 * (1 + 2 * ndim)
    if kernel.sizes[index] != nbytes:
        raise TypeError(
            f"parameter {index} of kernel '{kernel.name}' is {kernel.sizes[index]} bytes, and {access!r} as a slice of "
            f"{ndim} axes is {nbytes}: a pointer, {ndim} extents and {ndim} strides of 8 bytes each"
        )
    if any([stride % itemsize for stride in layout.strides]):
        raise ValueError(
            f"parameter {index} of kernel '{kernel.name}' is a slice, and the strides of {access.core.describe()} are "
            f"no whole elements there, got {layout.strides} bytes; pass pointer, extents and strides: lX.read().array"
        )
    words = [0, *layout.shape, *[stride // itemsize for stride in layout.strides]]
    return b"".join([word.to_bytes(8, "little", signed=True) for word in words])


def integer_of(kernel, index, value, size):
    """Return an integer that the parameter can hold, signed or not, as 64 bits."""
    if size == 8:
        if not -TWO_63 <= value < TWO_64:
            raise OverflowError(f"parameter {index} of kernel '{kernel.name}' is 8 bytes, got {value}")
        return value if value < TWO_63 else value - TWO_64
    if size > 8:
        refuse(kernel, index, value)
    limit: cython.longlong = cython.cast(cython.longlong, 1) << (8 * size)
    if not -(limit // 2) <= value < limit:
        raise OverflowError(f"parameter {index} of kernel '{kernel.name}' is {size} bytes, got {value}")
    return value


spare_block = LaunchBlock()
