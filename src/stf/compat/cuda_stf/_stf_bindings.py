"""All names of the compiled module of `cuda.stf`, where programs import them from it."""

from __future__ import annotations

from stf.compat.cuda_stf.contexts import context
from stf.compat.cuda_stf.data import AccessMode, cond, dep, logical_data, read, rw, stackable_logical_data, write
from stf.compat.cuda_stf.device_array import DeviceArray
from stf.compat.cuda_stf.partitions import (
    cute_partition,
    partition_fn_blocked,
    partition_fn_cyclic,
    placement_evaluate,
    placement_stats,
)
from stf.compat.cuda_stf.places import (
    async_resources,
    data_place,
    exec_place,
    exec_place_grid,
    exec_place_resources,
    green_context_helper,
    green_ctx_view,
    locality_domain_count,
    machine_init,
)
from stf.compat.cuda_stf.stackable import LaunchableGraph, stackable_context
from stf.compat.cuda_stf.streams import CudaStream
from stf.compat.cuda_stf.tasks import cuda_kernel, stackable_task, task
from stf.compat.cuda_stf.views import stf_cai

__all__ = [
    "AccessMode",
    "CudaStream",
    "LaunchableGraph",
    "async_resources",
    "cond",
    "context",
    "cuda_kernel",
    "cute_partition",
    "data_place",
    "dep",
    "dlpack_export",
    "exec_place",
    "exec_place_grid",
    "exec_place_resources",
    "green_context_helper",
    "green_ctx_view",
    "locality_domain_count",
    "logical_data",
    "machine_init",
    "partition_fn_blocked",
    "partition_fn_cyclic",
    "placement_evaluate",
    "placement_stats",
    "read",
    "rw",
    "stackable_context",
    "stackable_logical_data",
    "stackable_task",
    "stf_cai",
    "task",
    "write",
]


def dlpack_export(array: DeviceArray, **options: object) -> object:
    """Return the DLPack capsule of a `DeviceArray`."""
    return array.__dlpack__(**options)
