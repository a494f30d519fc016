"""What launches a trivial kernel, and nothing else: the launchers of other libraries, on a stream of their own."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from typing import Any

Launcher = tuple[Callable[[int], None], Callable[[], object], Any]  # launches n times; waits; and the kernel itself


def is_installed(name: str) -> bool:
    """Whether a module can be imported."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def launchers() -> dict[str, Launcher]:
    """Those of the libraries that are installed, by name."""
    makers = {"cuda_core": ("cuda.core", of_cuda_core), "cupy": ("cupy", of_cupy), "numba": ("numba.cuda", of_numba)}
    return {name: make() for name, (module, make) in makers.items() if is_installed(module)}


def of_cuda_core() -> Launcher:
    """``cuda.core.launch``."""
    from cuda import core

    device = core.Device(0)
    device.set_current()
    options = core.ProgramOptions(arch=f"sm_{device.arch}")
    program = core.Program('extern "C" __global__ void touch(void* p) {}', code_type="c++", options=options)
    kernel = program.compile("cubin").get_kernel("touch")
    stream, config = device.create_stream(), core.LaunchConfig(grid=1, block=1)

    def launch(n: int) -> None:
        for _ in range(n):
            core.launch(stream, config, kernel, 0)

    return launch, stream.sync, kernel


def of_cupy() -> Launcher:
    """A ``cupy.RawKernel``."""
    import cupy

    kernel = cupy.RawKernel('extern "C" __global__ void touch(double* p) {}', "touch")
    stream, array = cupy.cuda.Stream(non_blocking=True), cupy.zeros(1)
    grid, arguments = (1,), (array,)

    def launch(n: int) -> None:
        with stream:
            for _ in range(n):
                kernel(grid, grid, arguments)

    return launch, stream.synchronize, kernel


def of_numba() -> Launcher:
    """A ``numba.cuda.jit`` function."""
    from numba import cuda

    warnings.filterwarnings("ignore", message=".*Grid size")

    @cuda.jit
    def touch(p: Any) -> None:
        pass

    stream = cuda.stream()
    array, configured = cuda.device_array(1), touch[1, 1, stream]

    def launch(n: int) -> None:
        for _ in range(n):
            configured(array)

    return launch, stream.synchronize, touch
