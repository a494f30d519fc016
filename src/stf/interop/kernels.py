"""Kernels of other libraries: the CUDA function behind each, and its parameters."""

from __future__ import annotations

from typing import Any

known: dict[int, Any] = {}
KNOWN_LIMIT = 4096


def remember(thing: Any, kernel: Any) -> None:
    """Keep what was found out of a kernel; it keeps the kernel alive."""
    if len(known) >= KNOWN_LIMIT:
        known.clear()
    known[id(thing)] = kernel


def function_of(thing: Any, ordinal: int, driver: Any) -> int:
    """The CUDA function of a kernel for a device; `driver` finds it for kernels that belong to no context.

    Raises
    ------
    TypeError
        It is no kernel that we know.
    """
    if isinstance(thing, int) and not isinstance(thing, bool):
        return thing
    module = type(thing).__module__.partition(".")[0]
    if module == "cupy" and hasattr(thing, "kernel"):
        import cupy

        with cupy.cuda.Device(ordinal):
            return int(thing.kernel.ptr)
    handle = getattr(thing, "handle", None) if module == "cuda" else None
    if handle is not None:
        return int(driver.function_on(int(handle), ordinal))
    if hasattr(thing, "ptr") and isinstance(thing.ptr, int):  # cupy.cuda.Function
        return int(thing.ptr)
    raise TypeError(
        f"a kernel is needed, got {type(thing).__name__}; give a cuda.core.Kernel, a cupy.RawKernel, or the address of "
        "a CUfunction as int"
    )


def name_of(thing: Any) -> str:
    """What pictures and messages call a kernel."""
    name = getattr(thing, "name", None) or getattr(thing, "__name__", None)
    return str(name) if isinstance(name, str) else "kernel"
