"""cuBLAS, cuSOLVER and cuSOLVERMg by ctypes, where the CUDA wheels or a toolkit have them."""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Iterator
from ctypes import byref, c_double, c_int, c_int32, c_int64, c_size_t, c_void_p
from pathlib import Path

__all__ = ["Library", "cublas", "cusolver", "cusolver_mg"]

LOWER, UPPER = 0, 1  # cublasFillMode_t
PLAIN, TRANSPOSED = 0, 1  # cublasOperation_t
LEFT, RIGHT = 0, 1  # cublasSideMode_t
FLOAT64 = 1  # CUDA_R_64F

_H, _P, _I, _L = c_void_p, c_void_p, c_int, c_int64
_SIGNATURES = {
    "cublas": {
        "cublasCreate_v2": [_P],
        "cublasDestroy_v2": [_H],
        "cublasSetStream_v2": [_H, _P],
        "cublasSetWorkspace_v2": [_H, _P, c_size_t],
        "cublasDgemm_v2": [_H, _I, _I, _I, _I, _I, _P, _P, _I, _P, _I, _P, _P, _I],
        "cublasDsyrk_v2": [_H, _I, _I, _I, _I, _P, _P, _I, _P, _P, _I],
        "cublasDtrsm_v2": [_H, _I, _I, _I, _I, _I, _I, _P, _P, _I, _P, _I],
    },
    "cusolver": {
        "cusolverDnCreate": [_P],
        "cusolverDnDestroy": [_H],
        "cusolverDnSetStream": [_H, _P],
        "cusolverDnDpotrf_bufferSize": [_H, _I, _I, _P, _I, _P],
        "cusolverDnDpotrf": [_H, _I, _I, _P, _I, _P, _I, _P],
        "cusolverDnCreateParams": [_P],
        "cusolverDnDestroyParams": [_P],
        "cusolverDnXpotrf_bufferSize": [_H, _P, _I, _L, _I, _P, _L, _I, _P, _P],
        "cusolverDnXpotrf": [_H, _P, _I, _L, _I, _P, _L, _I, _P, c_size_t, _P, c_size_t, _P],
    },
    "cusolverMg": {
        "cusolverMgCreate": [_P],
        "cusolverMgDestroy": [_H],
        "cusolverMgDeviceSelect": [_H, _I, _P],
        "cusolverMgCreateDeviceGrid": [_P, c_int32, c_int32, _P, _I],
        "cusolverMgDestroyGrid": [_P],
        "cusolverMgCreateMatrixDesc": [_P, _L, _L, _L, _L, _I, _P],
        "cusolverMgDestroyMatrixDesc": [_P],
        "cusolverMgPotrf_bufferSize": [_H, _I, _I, _P, _I, _I, _P, _I, _P],
        "cusolverMgPotrf": [_H, _I, _I, _P, _I, _I, _P, _I, _P, _L, _P],
    },
}
_VERSIONS = {"cublas": (13, 12), "cusolver": (12, 11), "cusolverMg": (12, 11)}
_loaded: dict[str, Library] = {}


class Library:
    """A library's functions, each of which raises on a status that is not success.

    ctypes lets go of the GIL during a call, and passes the integers on without looking at them: about 2 µs a call.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.path, self._library = find(name)
        for function, types in _SIGNATURES[name].items():
            entry = getattr(self._library, function)
            entry.argtypes, entry.restype = types, c_int
            entry.errcheck = check
            setattr(self, function.removesuffix("_v2"), entry)

    def new(self, create: str, *arguments: object) -> int:
        """Call a function whose first argument is where a handle goes; return the handle."""
        handle = c_void_p()
        getattr(self, create)(byref(handle), *arguments)
        return handle.value or 0


def check(status: int, function: object, arguments: tuple[object, ...]) -> int:
    if status:
        raise RuntimeError(f"{function.__name__} returned status {status}")
    return status


def cublas() -> Library:
    return load("cublas")


def cusolver() -> Library:
    return load("cusolver")


def cusolver_mg() -> Library:
    return load("cusolverMg")


def load(name: str) -> Library:
    """The library, loaded once; OSError where it is not."""
    if name not in _loaded:
        _loaded[name] = Library(name)
    return _loaded[name]


def find(name: str) -> tuple[str, ctypes.CDLL]:
    """Load the newest version there is: by its name, which finds what the process has already, else in the folders."""
    for version in _VERSIONS[name]:
        for path in [f"lib{name}.so.{version}", *(str(p / f"lib{name}.so.{version}") for p in folders())]:
            try:
                return path, ctypes.CDLL(path)
            except OSError:
                continue
    raise OSError(
        f"no lib{name} in {', '.join(map(str, folders()))}; pip install nvidia-{name.lower()[:8].rstrip('m')}"
    )


def folders() -> Iterator[Path]:
    """Where CUDA's wheels and toolkits put libraries."""
    spec = importlib.util.find_spec("nvidia")
    for folder in [] if spec is None else list(spec.submodule_search_locations or []):
        yield from sorted(Path(folder).glob("*/lib"))
    for root in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"):
        if root:
            yield from (Path(root) / "lib64", Path(root) / "targets/x86_64-linux/lib")


def size_of(function: object, *arguments: object, kind: type = c_int) -> int:
    """Call a function whose last argument is where a size goes; return the size."""
    size = kind()
    function(*arguments, byref(size))
    return int(size.value)


ONE, MINUS_ONE = c_double(1.0), c_double(-1.0)
ONE_AT, MINUS_ONE_AT = ctypes.addressof(ONE), ctypes.addressof(MINUS_ONE)
