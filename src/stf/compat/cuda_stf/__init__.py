"""The names of NVIDIA's `cuda.stf._experimental` over stf: a program changes one import.

``import stf.compat.cuda_stf as stf``, or `stf.compat.install`, after which ``import cuda.stf._experimental as stf``
works as it stands. Contexts run on CUDA devices, or on this CPU where there are none; ``STF_DEVICES`` says otherwise.
"""

from __future__ import annotations

import stf as _stf
from stf.compat.cuda_stf import interop, paths
from stf.compat.cuda_stf._stf_bindings import (
    AccessMode,
    CudaStream,
    LaunchableGraph,
    async_resources,
    cond,
    context,
    cuda_kernel,
    cute_partition,
    data_place,
    dep,
    exec_place,
    exec_place_grid,
    exec_place_resources,
    green_context_helper,
    green_ctx_view,
    locality_domain_count,
    logical_data,
    machine_init,
    partition_fn_blocked,
    partition_fn_cyclic,
    placement_evaluate,
    placement_stats,
    read,
    rw,
    stackable_context,
    stackable_logical_data,
    stackable_task,
    stf_cai,
    task,
    write,
)
from stf.compat.cuda_stf.bundles import bundle, constant
from stf.compat.cuda_stf.device_array import DeviceArray
from stf.compat.cuda_stf.green_places import green_places
from stf.compat.cuda_stf.interop.numba import jit
from stf.compat.cuda_stf.paths import get_include_paths, get_library_dir, get_library_path, get_stf_include_dir
from stf.compat.cuda_stf.task_graph import TaskGraph, task_graph

__version__ = _stf.__version__

__all__ = [
    "AccessMode",
    "CudaStream",
    "DeviceArray",
    "LaunchableGraph",
    "TaskGraph",
    "__version__",
    "async_resources",
    "bundle",
    "cond",
    "constant",
    "context",
    "cuda_kernel",
    "cute_partition",
    "data_place",
    "dep",
    "exec_place",
    "exec_place_grid",
    "exec_place_resources",
    "get_include_paths",
    "get_library_dir",
    "get_library_path",
    "get_stf_include_dir",
    "green_context_helper",
    "green_ctx_view",
    "green_places",
    "interop",
    "jit",
    "locality_domain_count",
    "logical_data",
    "machine_init",
    "partition_fn_blocked",
    "partition_fn_cyclic",
    "paths",
    "placement_evaluate",
    "placement_stats",
    "read",
    "rw",
    "stackable_context",
    "stackable_logical_data",
    "stackable_task",
    "stf_cai",
    "task",
    "task_graph",
    "write",
]


def __dir__() -> list[str]:
    return __all__
