"""CUDA C++ to machine code of a GPU, by NVIDIA's run-time compiler: that of ``cuda.bindings``, or of CuPy."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from stf.kernels.compile import cache

__all__ = ["compile_cpp"]

MISSING = (
    "a kernel written in C++ is compiled by NVRTC, which neither cuda.bindings nor CuPy has here; "
    "pip install 'cuda-bindings[all]'"
)


def compile_cpp(source: str, capability: tuple[int, int], options: tuple[str, ...] = ()) -> bytes:
    """Compile a translation unit.

    Parameters
    ----------
    source : str
        CUDA C++.
    capability : tuple of int
        The compute capability of the device.
    options : tuple of str
        Further options of NVRTC.

    Returns
    -------
    bytes
        A cubin.

    Raises
    ------
    ImportError
        There is no NVRTC.
    SyntaxError
        The source cannot be compiled; the message is the compiler's log.
    """
    release, compiled = compiler()
    all_options = (f"-arch=sm_{capability[0]}{capability[1]}", *options)
    key = cache.key_of(("nvrtc", release, *all_options, source))
    known = cache.load(key)
    if known is None:
        known = compiled(source, [option.encode() for option in all_options])
        cache.store(key, known)
    return known


def compiler() -> tuple[str, Callable[[str, list[bytes]], bytes]]:
    """The release of NVRTC and what compiles with it."""
    for module, compiled in (("cuda.bindings.nvrtc", by_bindings), ("cupy_backends.cuda.libs.nvrtc", by_cupy)):
        try:
            nvrtc = importlib.import_module(module)
            release = nvrtc.getVersion() if compiled is by_cupy else checked(nvrtc, nvrtc.nvrtcVersion())
        except (ImportError, RuntimeError):  # the module, or the library that it looks for
            continue
        return f"{module} {release}", lambda source, options, by=compiled, nvrtc=nvrtc: by(nvrtc, source, options)
    raise ImportError(MISSING)


def by_bindings(nvrtc: Any, source: str, options: list[bytes]) -> bytes:
    """Compile with ``cuda.bindings``."""
    (program,) = checked(nvrtc, nvrtc.nvrtcCreateProgram(source.encode(), b"stf.cu", 0, [], []))
    try:
        if nvrtc.nvrtcCompileProgram(program, len(options), options)[0]:
            (size,) = checked(nvrtc, nvrtc.nvrtcGetProgramLogSize(program))
            log = b" " * size
            checked(nvrtc, nvrtc.nvrtcGetProgramLog(program, log))
            raise SyntaxError(log.decode(errors="replace").rstrip("\0\n "))
        (size,) = checked(nvrtc, nvrtc.nvrtcGetCUBINSize(program))
        cubin = b" " * size
        checked(nvrtc, nvrtc.nvrtcGetCUBIN(program, cubin))
        return cubin
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def checked(nvrtc: Any, result: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a call gave besides its error."""
    if result[0]:
        raise RuntimeError(f"NVRTC: {nvrtc.nvrtcGetErrorString(result[0])[1].decode()}")
    return result[1:]


def by_cupy(nvrtc: Any, source: str, options: list[bytes]) -> bytes:
    """Compile with CuPy."""
    program = nvrtc.createProgram(source, "stf.cu", [], [])
    try:
        nvrtc.compileProgram(program, [option.decode() for option in options])
        return bytes(nvrtc.getCUBIN(program))
    except nvrtc.NVRTCError:
        raise SyntaxError(nvrtc.getProgramLog(program).rstrip("\0\n ")) from None
    finally:
        nvrtc.destroyProgram(program)
