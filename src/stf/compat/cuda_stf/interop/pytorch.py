"""PyTorch: the arrays of a task as tensors, and tensors whose memory is divided among places."""

from __future__ import annotations

import contextlib
import math
import sys
import types
import weakref
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stf.compat.cuda_stf.device_array import DeviceArray
from stf.compat.cuda_stf.partitions import cute_partition, placement_evaluate, placement_stats
from stf.compat.cuda_stf.places import data_place
from stf.compat.cuda_stf.streams import NoStream
from stf.compat.cuda_stf.views import each, tensor, torch_module

__all__ = ["pytorch_task", "tensor_arg", "tensor_arguments"]

LIFETIMES = ("pinned", "gc")
MARK = "_cuda_stf_localized"


def tensor_arg(task: Any, index: int) -> Any:
    """Return one array of a task."""
    return tensor(task.get_arg_cai(index))


def tensor_arguments(task: Any) -> Any:
    """Return all arrays of a task: None, one tensor, or a tuple of them."""
    return each(task.args_cai(), tensor)


class pytorch_task:
    """A with-block of a task, whose stream is torch's current one; it gives a tuple of tensors, or None."""

    def __init__(self, ctx: Any, *args: Any) -> None:
        self.torch = torch_module()
        self.task = ctx.task(*args)
        self.stack = contextlib.ExitStack()

    def __enter__(self) -> tuple[Any, ...] | None:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.task)
            pointer = self.task.stream_ptr()
            if not isinstance(pointer, NoStream):
                cuda = self.torch.cuda
                stack.enter_context(cuda.stream(cuda.ExternalStream(pointer)))
            found = tensor_arguments(self.task)
            self.stack = stack.pop_all()
        return found if found is None or isinstance(found, tuple) else (found,)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.stack.__exit__(kind, error, trace)


# -- tensors whose memory is divided among places --------------------------------------------------------------------


@dataclass
class LocalizedMeta:
    """How a tensor was divided."""

    shape: tuple[int, ...]
    dtype: Any
    grid: Any
    partition: Any = None
    mapper: Any = None
    lifetime: str = "pinned"
    _keepalive: list[Any] = field(default_factory=list, repr=False)


@dataclass
class ReplicatedMeta:
    """Which places read a tensor as copies of their own."""

    shape: tuple[int, ...]
    dtype: Any
    grid: Any
    lifetime: str = "pinned"
    _keepalive: list[Any] = field(default_factory=list, repr=False)


_known: dict[int, Any] = {}  # by the address of a tensor's memory


def storage_dtype(dtype: Any) -> tuple[np.dtype[Any], bool]:
    """Return the NumPy dtype that a torch dtype is stored as, and whether that is another one of the same size."""
    torch = torch_module()
    if not isinstance(dtype, torch.dtype):
        return np.dtype(dtype), False
    name = str(dtype).removeprefix("torch.")
    try:
        return np.dtype("bool" if name == "bool" else name), False
    except TypeError:
        size = torch.empty((), dtype=dtype).element_size()
        if size not in (1, 2):
            raise TypeError(f"unsupported dtype {dtype!r} for localized allocation") from None
        return np.dtype(f"u{size}"), True


def check_lifetime(lifetime: str) -> None:
    """Raise ValueError for a lifetime that is unknown."""
    if lifetime not in LIFETIMES:
        raise ValueError(f'lifetime must be "pinned" or "gc", got {lifetime!r}')


def made(buffer: DeviceArray, meta: Any, dtype: Any) -> Any:
    """Return a tensor over memory, which is remembered."""
    torch = torch_module()
    on_host = not buffer._on_device
    found = torch.from_dlpack(buffer) if meta.lifetime == "gc" or on_host else torch.as_tensor(buffer)
    if storage_dtype(dtype)[1]:
        found = found.view(dtype)
    found = found.view(meta.shape)
    base = found.untyped_storage().data_ptr()
    _known[base] = meta
    if meta.lifetime == "gc":
        weakref.finalize(buffer, forget, base, meta)
    else:
        meta._keepalive.append(buffer)
    return found


def forget(base: int, meta: Any) -> None:
    """Forget memory that is gone, unless another tensor has it now."""
    if _known.get(base) is meta:
        del _known[base]


def dims_of(shape: Any) -> tuple[int, ...]:
    """Return a shape as a tuple."""
    return (shape,) if isinstance(shape, int) else tuple(int(n) for n in shape)


def localized_empty(
    shape: Any, dtype: Any, grid: Any, *, spec: Any = None, mapper: Any = None, lifetime: str = "pinned"
) -> Any:
    """Return a tensor whose memory is divided among the places of a grid, along axis 0 by default.

    Parameters
    ----------
    spec : sequence or cute_partition, optional
        How, as of `cute_partition.from_spec`.
    mapper : callable, optional
        Or by a function of byte positions.
    lifetime : str
        ``"pinned"``: until `release`; ``"gc"``: as long as the tensor.
    """
    torch_module()
    dims = dims_of(shape)
    if spec is not None and mapper is not None:
        raise ValueError("pass either spec= or mapper=, not both")
    check_lifetime(lifetime)
    kind = storage_dtype(dtype)[0]
    meta = LocalizedMeta(dims, dtype, grid, mapper=mapper, lifetime=lifetime)
    if mapper is not None:
        count = math.prod(dims)
        place = data_place.composite(grid, mapper, data_rank=1)
        return made(DeviceArray(count, kind, place, dims=(count * kind.itemsize,), elemsize=1), meta, dtype)
    if isinstance(spec, cute_partition):
        if spec.true_dims != dims:
            raise ValueError(f"partition true_dims {spec.true_dims} do not match shape {dims}")
        meta.partition = spec
    else:
        chosen = (("blocked", 0), *[None] * (len(dims) - 1)) if spec is None else spec
        meta.partition = cute_partition.from_spec(dims, chosen, grid.dims)
    return made(DeviceArray(dims, kind, data_place.composite_cute(grid, meta.partition)), meta, dtype)


def localized_parameter(
    shape: Any,
    dtype: Any,
    grid: Any,
    *,
    spec: Any = None,
    mapper: Any = None,
    requires_grad: bool = False,
    lifetime: str = "gc",
) -> Any:
    """Return `localized_empty` as a parameter of a module."""
    found = localized_empty(shape, dtype, grid, spec=spec, mapper=mapper, lifetime=lifetime)
    return torch_module().nn.Parameter(found, requires_grad=requires_grad)


def localized_full(shape: Any, fill_value: Any, dtype: Any, grid: Any, **options: Any) -> Any:
    """Return `localized_empty`, filled with a value."""
    found = localized_empty(shape, dtype, grid, **options)
    found.fill_(fill_value)
    return found


def localized_zeros(shape: Any, dtype: Any, grid: Any, **options: Any) -> Any:
    """Return `localized_empty`, filled with 0."""
    return localized_full(shape, 0, dtype, grid, **options)


def localized_ones(shape: Any, dtype: Any, grid: Any, **options: Any) -> Any:
    """Return `localized_empty`, filled with 1."""
    return localized_full(shape, 1, dtype, grid, **options)


def localized_empty_like(tensor: Any, *, dtype: Any = None, lifetime: str | None = None) -> Any:
    """Return a tensor that is divided as another one."""
    meta = get_meta(tensor)
    if not isinstance(meta, LocalizedMeta):
        raise ValueError("tensor is not a localized allocation; make one with localized_empty")
    return localized_empty(
        meta.shape,
        meta.dtype if dtype is None else dtype,
        meta.grid,
        spec=meta.partition,
        mapper=meta.mapper,
        lifetime=meta.lifetime if lifetime is None else lifetime,
    )


def localized_full_like(tensor: Any, fill_value: Any, **options: Any) -> Any:
    """Return `localized_empty_like`, filled with a value."""
    found = localized_empty_like(tensor, **options)
    found.fill_(fill_value)
    return found


def localized_zeros_like(tensor: Any, **options: Any) -> Any:
    """Return `localized_empty_like`, filled with 0."""
    return localized_full_like(tensor, 0, **options)


def localized_ones_like(tensor: Any, **options: Any) -> Any:
    """Return `localized_empty_like`, filled with 1."""
    return localized_full_like(tensor, 1, **options)


def replicated_empty(
    shape: Any, dtype: Any, grid: Any, *, device: int = 0, canonical: Any = None, lifetime: str = "pinned"
) -> Any:
    """Return a tensor on one device, which tasks read at `replicated_dplace`: each place as a copy of its own."""
    torch_module()
    check_lifetime(lifetime)
    dims = dims_of(shape)
    place = data_place.device(device) if canonical is None else canonical
    meta = ReplicatedMeta(dims, dtype, grid, lifetime)
    return made(DeviceArray(dims, storage_dtype(dtype)[0], place), meta, dtype)


def replicated_dplace(tensor: Any) -> data_place:
    """Return the data place of reads of a replicated tensor."""
    meta = get_meta(tensor)
    if meta is None:
        raise ValueError("tensor is not a registered allocation; make one with replicated_empty")
    if not isinstance(meta, ReplicatedMeta):
        raise TypeError("tensor is a localized allocation, not a replicated one")
    return data_place.replicated(meta.grid)


def release(tensor: Any) -> None:
    """Give the memory of a pinned tensor up, once no tensor uses it."""
    meta = _known.pop(tensor.untyped_storage().data_ptr(), None)
    if meta is None:
        raise ValueError("tensor is not a live localized allocation")
    meta._keepalive.clear()


def get_meta(tensor: Any) -> Any:
    """Return how a tensor was divided; None of others."""
    try:
        return _known.get(tensor.untyped_storage().data_ptr())
    except (AttributeError, RuntimeError):
        return None


def live_metas() -> list[Any]:
    """Return how each tensor was divided that lives."""
    return list(_known.values())


def placement_report(tensor: Any, probes: int = 4096) -> placement_stats:
    """Return how the memory of a tensor lies; see `placement_evaluate`."""
    meta = get_meta(tensor)
    if not isinstance(meta, LocalizedMeta):
        raise ValueError("tensor is not a localized allocation: there is nothing to report")
    size = storage_dtype(meta.dtype)[0].itemsize
    if meta.partition is not None:
        return placement_evaluate(meta.grid, meta.partition, None, size, probes)
    return placement_evaluate(meta.grid, meta.mapper, (math.prod(meta.shape) * size,), 1, probes)


FACTORIES = {
    "empty": localized_empty,
    "zeros": localized_zeros,
    "ones": localized_ones,
    "full": localized_full,
    "parameter": localized_parameter,
    "empty_like": localized_empty_like,
    "zeros_like": localized_zeros_like,
    "ones_like": localized_ones_like,
    "full_like": localized_full_like,
    "release": release,
    "get_meta": get_meta,
    "live_metas": live_metas,
    "placement_report": placement_report,
}


def named(name: str) -> types.ModuleType:
    """Return the factories as a module."""
    module = types.ModuleType(name, "Tensors whose memory is divided among places.")
    vars(module).update(FACTORIES, **{MARK: True})
    return module


def namespace() -> types.ModuleType:
    """Return the factories as a module; torch stays as it is."""
    return named("cuda.stf.localized")


def install(name: str = "localized") -> types.ModuleType:
    """Give torch the factories as ``torch.localized``.

    Raises
    ------
    RuntimeError
        torch has something else of that name.
    """
    torch = torch_module()
    existing = getattr(torch, name, None)
    if existing is not None and not getattr(existing, MARK, False):
        raise RuntimeError(f"torch.{name} already exists and does not belong to cuda.stf; install(name=...)")
    module = named(f"torch.{name}")
    setattr(torch, name, module)
    sys.modules[f"torch.{name}"] = module
    return module


def uninstall(name: str = "localized") -> None:
    """Take from torch what `install` gave it."""
    torch = torch_module()
    existing = getattr(torch, name, None)
    if existing is None:
        return
    if not getattr(existing, MARK, False):
        raise RuntimeError(f"torch.{name} does not belong to cuda.stf; not removing it")
    delattr(torch, name)
    sys.modules.pop(f"torch.{name}", None)
