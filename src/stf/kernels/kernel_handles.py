"""The CUDA function behind a kernel of ours, or of another library."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from stf.errors import DriverError

known: dict[int, Any] = {}
KNOWN_LIMIT = 4096


class KernelSource:
    """Where a kernel comes from: it is compiled for each kind of device, and loaded by each CUDA context, once."""

    def __init__(self, image: Callable[[tuple[int, int]], bytes], name: str) -> None:
        self.image = functools.lru_cache(maxsize=None)(image)
        self.name = name

    def function_at(self, context: Any, where: int) -> int:
        """Return the address of the CUDA function at an execution place."""
        kernels = context.engine.root.kernels.at(where)
        return int(kernels.function(self.image(kernels.capability()), self.name))


def remember(thing: Any, kernel: Any) -> None:
    """Keep what was found out of a kernel; it keeps the kernel alive."""
    if len(known) >= KNOWN_LIMIT:
        known.clear()
    known[id(thing)] = kernel


def function_of_kernel(kernel: int, context: Any, where: int) -> int:
    """Return the function, at an execution place, of a kernel that belongs to no CUDA context."""
    return int(context.engine.root.kernels.at(where).function_of(kernel))


def function_at(thing: Any, context: Any, where: int) -> int:
    """Return the CUDA function of a kernel at an execution place.

    Raises
    ------
    TypeError
        It is no kernel that we know.
    """
    if isinstance(thing, int) and not isinstance(thing, bool):
        if not 0 < thing < 1 << 64:
            raise ValueError(f"the address of a kernel is a positive number of 64 bits, got {thing}")
        return function_of_address(thing, context, where)
    if hasattr(thing, "function_at"):
        return int(thing.function_at(context, where))
    module = type(thing).__module__.partition(".")[0]
    if module == "cupy" and hasattr(thing, "kernel"):
        import cupy

        with cupy.cuda.Device(context.engine.places[where].ordinal):
            return int(thing.kernel.ptr)
    handle = getattr(thing, "handle", None) if module == "cuda" else None
    if handle is not None:
        return function_of_kernel(int(handle), context, where)
    if hasattr(thing, "ptr") and isinstance(thing.ptr, int):  # cupy.cuda.Function
        return int(thing.ptr)
    if module == "cupyx":
        raise TypeError(
            "a kernel of cupyx.jit is compiled when it is called, so it cannot be launched from outside; "
            "call it in the body of a task, on the arrays there: kernel[grid, block](x, y)"
        )
    raise TypeError(
        f"a kernel is needed, got {type(thing).__name__}; give a cuda.core.Kernel, a cupy.RawKernel, or the address of "
        "a CUfunction or a CUkernel as int"
    )


def function_of_address(address: int, context: Any, where: int) -> int:
    """Return the function that an address means, which is that of a CUfunction, or of a CUkernel.

    CUDA launches both by the same call, and tells the parameters of a CUfunction alone; of one without parameters it
    is asked whether it is a CUkernel.
    """
    if context.engine.root.kernels.at(where).parameters(address):
        return address
    try:
        return function_of_kernel(address, context, where)
    except DriverError:
        return address


def is_cooperative(thing: Any) -> bool:
    """Return whether a kernel is cooperative whatever its launches say (CuPy's ``enable_cooperative_groups``)."""
    return getattr(thing, "enable_cooperative_groups", False) is True


def name_of(thing: Any) -> str:
    """Return what pictures and messages call a kernel."""
    function = getattr(thing, "_pyfunc", None) or getattr(thing, "base_fn", thing)  # cuda.tile's, Triton's autotuner's
    name = getattr(thing, "name", None) or getattr(function, "__name__", None)
    return str(name) if isinstance(name, str) else "kernel"
