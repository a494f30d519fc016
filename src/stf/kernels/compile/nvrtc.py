"""CUDA C++ to machine code of a GPU, by NVIDIA's run-time compiler: that of ``cuda.bindings``, or of CuPy."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

__all__ = ["compile_cpp"]

COMPILATION = 6  # NVRTC_ERROR_COMPILATION

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
        A cubin; for a device that is newer than the compiler PTX, which the driver compiles.

    Raises
    ------
    ImportError
        There is no NVRTC.
    SyntaxError
        The source cannot be compiled; the message is the compiler's log.
    """
    from stf.kernels.compile import cache  # which loads what few need

    release, known_capabilities, compiled = compiler()
    wanted = capability[0] * 10 + capability[1]
    kind = "sm" if wanted in known_capabilities else "compute"
    all_options = (f"-arch={kind}_{wanted if kind == 'sm' else max(known_capabilities)}", *options)
    key = cache.key_of(("nvrtc", release, *all_options, source))
    known = cache.load(key)
    if known is None:
        known = compiled(source, [option.encode() for option in all_options])
        cache.store(key, known)
    return known


def compiler() -> tuple[str, list[int], Callable[[str, list[bytes]], bytes]]:
    """Return the release of NVRTC, the compute capabilities that it knows, and what compiles with it."""
    for module, adapter in (("cuda.bindings.nvrtc", Bindings), ("cupy_backends.cuda.libs.nvrtc", Cupy)):
        try:
            nvrtc = adapter(importlib.import_module(module))
            return f"{module} {nvrtc.release()}", nvrtc.capabilities(), nvrtc.compile
        except (ImportError, RuntimeError):  # the module, or the library that it looks for
            continue
    raise ImportError(MISSING)


class Bindings:
    """NVRTC by ``cuda.bindings``."""

    def __init__(self, nvrtc: Any) -> None:
        self.nvrtc = nvrtc

    def ask(self, function: str, *arguments: Any) -> Any:
        """Call a function; return what it gives besides its error."""
        error, *result = getattr(self.nvrtc, function)(*arguments)
        if error:
            raise RuntimeError(f"{function}: {self.nvrtc.nvrtcGetErrorString(error)[1].decode()}")
        return result

    def release(self) -> tuple[int, ...]:
        """Major and minor number."""
        return tuple(self.ask("nvrtcVersion"))

    def capabilities(self) -> list[int]:
        """Return what it can compile for, as 90 for 9.0."""
        return list(self.ask("nvrtcGetSupportedArchs")[0])

    def text(self, size: str, content: str, program: Any) -> bytes:
        """Return what a function writes into memory of the size that another one tells."""
        memory = bytearray(self.ask(size, program)[0])
        self.ask(content, program, memory)
        return bytes(memory)

    def compile(self, source: str, options: list[bytes]) -> bytes:
        """Compile a source; SyntaxError with the compiler's log."""
        (program,) = self.ask("nvrtcCreateProgram", source.encode(), b"stf.cu", 0, [], [])
        try:
            (error,) = self.nvrtc.nvrtcCompileProgram(program, len(options), options)
            if error == self.nvrtc.nvrtcResult.NVRTC_ERROR_COMPILATION:
                log = self.text("nvrtcGetProgramLogSize", "nvrtcGetProgramLog", program)
                raise SyntaxError(log.decode(errors="replace").rstrip("\0\n "))
            if error:
                raise RuntimeError(f"nvrtcCompileProgram: {self.nvrtc.nvrtcGetErrorString(error)[1].decode()}")
            made = "CUBIN" if options[0].startswith(b"-arch=sm_") else "PTX"
            return self.text(f"nvrtcGet{made}Size", f"nvrtcGet{made}", program)
        finally:
            self.nvrtc.nvrtcDestroyProgram(program)


class Cupy:
    """NVRTC by CuPy."""

    def __init__(self, nvrtc: Any) -> None:
        self.nvrtc = nvrtc

    def release(self) -> tuple[int, ...]:
        """Major and minor number."""
        return tuple(self.nvrtc.getVersion())

    def capabilities(self) -> list[int]:
        """Return what it can compile for, as 90 for 9.0."""
        return list(self.nvrtc.getSupportedArchs())

    def compile(self, source: str, options: list[bytes]) -> bytes:
        """Compile a source; SyntaxError with the compiler's log."""
        program = self.nvrtc.createProgram(source, "stf.cu", [], [])
        try:
            self.nvrtc.compileProgram(program, [option.decode() for option in options])
            is_cubin = options[0].startswith(b"-arch=sm_")
            made = self.nvrtc.getCUBIN(program) if is_cubin else self.nvrtc.getPTX(program)
            return made if isinstance(made, bytes) else str(made).encode()
        except self.nvrtc.NVRTCError as error:
            if error.status != COMPILATION:
                raise RuntimeError(str(error)) from None
            raise SyntaxError(self.nvrtc.getProgramLog(program).rstrip("\0\n ")) from None
        finally:
            self.nvrtc.destroyProgram(program)
