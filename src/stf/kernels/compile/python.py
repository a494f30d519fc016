"""Python functions to machine code of a GPU, by numba-cuda."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import importlib.util
import re
import types
from collections.abc import Callable, Iterator
from typing import Any

from stf.kernels.compile import forks

__all__ = ["compile_python", "intrinsics", "must_be_there"]

MISSING = (
    "a kernel written in Python is compiled by numba-cuda for a GPU, which is not there; "
    "pip install 'numba-cuda[cu13]', or run it on the host: .on('host')"
)
ENTRY = re.compile(r"\.visible\s+\.entry\s+([\w$.]+)\s*\(")
UNUSED = re.compile(r"(?m)^\.common \.global [^\n]*NumbaEnv[^\n]*\n")
EXTERNAL = re.compile(r"(?m)^\.extern \.func\s+(?:\([^)]*\)\s*)?([\w$]+)")
OF_DRIVER = ("vprintf", "malloc", "free", "__assertfail")  # functions that are there in every device
KINDS = {  # of numba-cuda's `LinkableCode`, as cuda.core calls them
    "PTXSource": "ptx",
    "Fatbin": "fatbin",
    "Cubin": "cubin",
    "Object": "object",
    "Archive": "library",
    "LTOIR": "ltoir",
}
OF_GROUP = re.compile(r"(block|warp)_[a-z]")  # how names of cuda.coop begin, with the threads of a block in them


@functools.cache
def intrinsics() -> Any:
    """Return the module of numba-cuda, whose names kernels use: ``threadIdx``, ``syncthreads``, ``shared``.

    What needs a part of numba-cuda asks for this first. Of two threads that import parts of a package, and one the
    other's, Python lets one have what is half made.

    Raises
    ------
    ImportError
        There is no numba-cuda.
    """
    try:
        with forks.lock:
            import numba  # noqa: F401  # whole, before a part of it
            import numba_cuda  # noqa: F401  # Numba has a target of its own, which is an older one
            from numba import cuda
    except ImportError:
        raise ImportError(MISSING) from None
    return cuda


def must_be_there() -> None:
    """Raise ImportError where there is no numba-cuda, without importing it, which takes half a second."""
    if importlib.util.find_spec("numba_cuda") is None or importlib.util.find_spec("numba") is None:
        raise ImportError(MISSING)


@functools.cache
def versions() -> tuple[str, str]:
    """Return the versions of Numba and numba-cuda, if these are known without importing them."""
    try:
        return importlib.metadata.version("numba"), importlib.metadata.version("numba-cuda")
    except importlib.metadata.PackageNotFoundError:
        import numba
        import numba_cuda

        return numba.__version__, numba_cuda.__version__


def compile_python(
    make: Callable[[], tuple[Any, tuple[Any, ...]]],
    capability: tuple[int, int],
    name: str,
    key: bytes | None,
    files: tuple[str, ...] = (),
    block: int = 0,
) -> bytes:
    """Compile a kernel, or find it on disk.

    Parameters
    ----------
    make : callable
        Returns the function, in which names such as ``threadIdx`` are those of `intrinsics`, and Numba's types of its
        arguments. An array becomes 5 + 2 ndim parameters, the data at the fifth. What is on disk needs neither.
    capability : tuple of int
        The compute capability of the device.
    name : str
        What the kernel is called.
    key : bytes or None
        What the machine code depends on besides the device; None if another process cannot know it.
    files : tuple of str
        With code that the function calls.
    block : int
        The threads of a block, which call functions of cuda.coop together; 0 if a block has no threads that do.

    Returns
    -------
    bytes
        PTX, or a cubin where it had to be linked with something, as float16 arithmetic is.

    Raises
    ------
    ImportError
        There is no numba-cuda.
    NotImplementedError
        It has to be linked with something that is not there, or calls a function for other blocks than it has.
    numba.core.errors.NumbaError
        The function cannot be compiled; the message shows the user's line.
    """
    from stf.kernels.compile import cache

    kept = None if key is None else cache.key_of(("numba-cuda", *versions(), capability, name, key.hex()))
    found = None if kept is None else cache.load(kept)
    if found is None:
        cuda = intrinsics()
        from numba.core.types import void

        forks.watch()
        fn, kinds = make()
        signature = void(*kinds)
        with forks.lock, compiling_for(capability):
            (text, *others), _ = cuda.compile_all(fn, signature, device=False, abi="numba", cc=capability, output="ptx")
        missing = [symbol for symbol in EXTERNAL.findall(text) if symbol not in OF_DRIVER]
        found = renamed(text, name).encode()
        if missing and not (others or files):
            raise NotImplementedError(
                f"it calls {', '.join(missing)}, and numba-cuda does not say where that is; write the kernel without"
            )
        for symbol in missing:
            must_be_for(block, symbol)
        if missing:
            from numba.cuda import LinkableCode

            found = linked(found, [*others, *map(LinkableCode.from_path, files)], capability)
        if kept is not None:
            cache.store(kept, found)
    return found


def must_be_for(block: int, symbol: str) -> None:
    """Raise NotImplementedError for a function of cuda.coop that is for no block of so many threads."""
    of = OF_GROUP.match(symbol)
    if of is None:
        return
    name = symbol.partition("__")[0]
    if not block:
        raise NotImplementedError(
            f"threads call {name} of cuda.coop together in groups, which elements of parallel_for do not have; say "
            "ctx.launch(par(con(n)), ...), whose innermost groups are blocks"
        )
    sizes = re.findall(r"__(\d+)(?=__)", symbol)
    others = re.search(r"__(\d+)__(\d+)_[A-Za-z]", symbol)  # along y and z
    if of[1] == "block" and others is not None and others.groups() != ("1", "1"):
        raise NotImplementedError(f"{name} of cuda.coop is for blocks of several dimensions; make it for con(n)")
    if of[1] == "block" and (not sizes or int(sizes[0]) != block):
        raise NotImplementedError(
            f"{name} of cuda.coop is for blocks of {', '.join(sizes[:1]) or 'other'} threads, and here the innermost "
            f"groups have {block}, which are blocks; give both the same number"
        )


def linked(text: bytes, others: list[Any], capability: tuple[int, int]) -> bytes:
    """PTX with the code that it calls, which is compiled already."""
    from cuda.core import Linker, LinkerOptions, ObjectCode

    objects = [ObjectCode.from_ptx(text)]
    for other in others:
        if not isinstance(other, ObjectCode):
            other = getattr(ObjectCode, f"from_{KINDS[type(other).__name__]}")(other.data)
        objects.append(other)
    lto = any(item.code_type == "ltoir" for item in objects) or None
    options = LinkerOptions(arch="sm_{}{}".format(*capability), link_time_optimization=lto)
    return bytes(Linker(*objects, options=options).link("cubin").code)


@contextlib.contextmanager
def compiling_for(capability: tuple[int, int]) -> Iterator[None]:
    """Have functions that the kernel calls compiled for a device that need not be there, nor be the current one."""
    from numba.cuda import dispatcher

    current = dispatcher.get_current_device
    dispatcher.get_current_device = lambda: types.SimpleNamespace(compute_capability=capability)
    try:
        yield
    finally:
        dispatcher.get_current_device = current


def renamed(text: str, name: str) -> str:
    """PTX whose kernel has another name, without variables that only the interpreter reads."""
    entry = ENTRY.search(text)
    if entry is None:
        raise RuntimeError("numba-cuda gave no kernel")
    return re.sub(rf"(?<![\w$]){re.escape(entry[1])}(?=(_param_\d+)?(?![\w$]))", name, UNUSED.sub("", text))
