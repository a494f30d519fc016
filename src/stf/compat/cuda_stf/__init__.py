"""The names of NVIDIA's `cuda.stf._experimental` over stf: a program changes one import.

``import stf.compat.cuda_stf as stf``, or `stf.compat.install`, after which ``import cuda.stf._experimental as stf``
works as it stands. Contexts run on CUDA devices, or on this CPU where there are none; ``STF_DEVICES`` says otherwise.
"""

from __future__ import annotations

import stf as _stf
from stf.compat.cuda_stf import _stf_bindings, interop, paths
from stf.compat.cuda_stf._stf_bindings import *  # noqa: F403
from stf.compat.cuda_stf.bundles import bundle, constant
from stf.compat.cuda_stf.device_array import DeviceArray
from stf.compat.cuda_stf.green_places import green_places
from stf.compat.cuda_stf.interop.numba import jit
from stf.compat.cuda_stf.paths import get_include_paths, get_library_dir, get_library_path, get_stf_include_dir
from stf.compat.cuda_stf.task_graph import TaskGraph, task_graph

__version__ = _stf.__version__

__all__ = [
    "DeviceArray",
    "TaskGraph",
    "__version__",
    "bundle",
    "constant",
    "get_include_paths",
    "get_library_dir",
    "get_library_path",
    "get_stf_include_dir",
    "green_places",
    "interop",
    "jit",
    "paths",
    "task_graph",
]
__all__ += _stf_bindings.__all__


def __dir__() -> list[str]:
    return __all__
