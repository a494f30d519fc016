"""CUDA streams and contexts of the user's as places where tasks run."""

from __future__ import annotations

from typing import Any

from stf._support.arguments import is_integer
from stf.errors import DriverError, PlaceError
from stf.interop.dlpack import DEFAULT_STREAMS
from stf.interop.streams import pointer_of
from stf.places.places import DataPlace, ExecPlace, check_index

__all__ = ["ForeignPlace", "green_places"]


class ForeignPlace(ExecPlace):
    """A CUDA stream or context of the user's. Get one from `exec_place`; equal ones are of the same stream or context.

    Attributes
    ----------
    kind : str
        ``"cuda_stream"`` or ``"context"``.
    index : int
        Ordinal of its device, whose memory is its affine data place.
    handle : int
        Address of the stream or the context.
    owner : object
        What the user gave; kept alive.
    """

    __slots__ = ("context", "context_id", "handle", "owner")

    def __init__(self, kind: str, handle: int, owner: Any) -> None:
        from stf.devices.make import cuda_places

        self.handle = handle
        self.owner = owner
        try:
            self.context = handle if kind == "context" else int(cuda_places().context_of_stream(handle))
            ordinal, self.context_id = map(int, cuda_places().device_of_context(self.context))
        except DriverError as error:
            noun = "context" if kind == "context" else "stream"
            raise PlaceError(
                f"{owner!r} is no CUDA {noun} that can be used ({error.name}); give one that was not destroyed"
            ) from error
        super().__init__(kind, ordinal, DataPlace("device", ordinal))

    @property
    def backing_context(self) -> Any:
        """What `exec_place.from_context` was given; None for a stream."""
        return self.owner if self.kind == "context" else None

    @property
    def foreign_handle(self) -> tuple[str, int, int]:
        """What the port makes the lanes of this place of, and the CUDA context of that."""
        return "stream" if self.kind == "cuda_stream" else "context", self.handle, self.context

    def _value(self) -> tuple[Any, ...]:
        return self.kind, self.handle, self.context_id

    def __repr__(self) -> str:
        maker = "cuda_stream" if self.kind == "cuda_stream" else "from_context"
        return f"exec_place.{maker}({self.handle:#x})"


def stream_place(stream: Any) -> ForeignPlace:
    """Return what `exec_place.cuda_stream` makes."""
    handle = pointer_of(stream)
    if handle in DEFAULT_STREAMS:
        raise ValueError(
            f"{stream!r} is one of CUDA's default streams, which belong to whatever context is current; make a stream "
            "of your own"
        )
    return ForeignPlace("cuda_stream", handle, stream)


def context_place(context: Any) -> ForeignPlace:
    """Return what `exec_place.from_context` makes."""
    return ForeignPlace("context", context_address(context), context)


def context_address(context: Any) -> int:
    """Return the address of a CUDA context from what users call one."""
    if context is None or isinstance(context, ExecPlace) or type(context).__module__.partition(".")[0] == "stf":
        raise TypeError(f"a CUDA context is needed, got {context!r}; give a CUcontext as int, or a cuda.core Context")
    handle = context.handle if hasattr(context, "handle") else context
    if handle is None or getattr(context, "is_closed", False):
        raise ValueError(f"{context!r} is closed; give a CUDA context that is alive")
    is_number = hasattr(handle, "__index__") or hasattr(handle, "__int__")
    if not is_number or isinstance(handle, (bool, str, bytes, float)):
        raise TypeError(f"a CUDA context is its address as int, or has .handle; got {context!r}")
    if int(handle) == 0:
        raise ValueError("the CUDA context is null; give one that was created")
    if not 0 < int(handle) < 1 << 64:
        raise ValueError(f"the address of a CUDA context is a positive number of 64 bits, got {context!r}")
    return int(handle)


def green_place(context: Any) -> ForeignPlace:
    """Return what `exec_place.green_ctx` makes."""
    if not getattr(context, "is_green", False):
        raise TypeError(
            f"a green context of cuda.core is needed, got {context!r}; make one with "
            "device.create_context(ContextOptions(resources=[...])), or use stf.green_places(sms_per_place)"
        )
    return context_place(context)


def green_places(sms_per_place: int, n_places: int | None = None, device: int = 0) -> list[ForeignPlace]:
    """Split a device into places that have some of its multiprocessors each, as green contexts.

    Parameters
    ----------
    sms_per_place : int
        Streaming multiprocessors per place; CUDA rounds up to what the device can split.
    n_places : int, optional
        How many places; by default as many as fit.
    device : int
        The ordinal of the device.

    Returns
    -------
    list of place
        Usable wherever an execution place is; the green contexts live as long as they do.

    Raises
    ------
    PlaceError
        So many do not fit, or CUDA refuses to split the device.
    ImportError
        cuda.core is missing.

    Examples
    --------
    >>> places = stf.green_places(8, 2)  # needs a GPU
    >>> with stf.context(devices="cuda:0") as ctx:
    ...     x, y = ctx.logical_data(np.ones(4)), ctx.logical_data(np.ones(4))
    ...     for place, data in zip(places, (x, y)):  # side by side, on 8 multiprocessors each
    ...         ctx.task(place, data.rw())(lambda a: a + 1)
    ...     print(x.numpy(), y.numpy())
    [2. 2. 2. 2.] [2. 2. 2. 2.]
    """
    for name, value in (("sms_per_place", sms_per_place), ("n_places", 1 if n_places is None else n_places)):
        if not is_integer(value) or value < 1:
            raise ValueError(f"{name} is a positive integer, got {value!r}")
    from stf.devices.make import keep_current_context

    try:
        from cuda.core import ContextOptions, Device
    except ImportError as error:
        raise ImportError("green_places needs cuda.core: pip install cuda-core") from error
    with keep_current_context():
        gpu = Device(check_index(device))
        gpu.set_current()
        groups = split(gpu, int(sms_per_place), n_places)
        return [green_place(gpu.create_context(ContextOptions(resources=[group]))) for group in groups]


def split(gpu: Any, sms: int, count: int | None) -> list[Any]:
    """Groups of at least `sms` multiprocessors of a device: `count`, or as many as fit."""
    from cuda.core import SMResourceOptions

    try:
        whole = gpu.resources.sm
    except Exception as error:  # whatever cuda.core makes of the driver's refusal
        raise PlaceError(f"device({int(gpu.device_id)}) cannot be split: {error}") from error
    most = whole.sm_count // sms
    refusal: Exception | None = None
    for n in [count] if count is not None else range(most, 0, -1):
        try:
            groups, _ = whole.split(SMResourceOptions(count=[sms] * n))
        except Exception as error:  # whatever cuda.core makes of the driver's refusal
            refusal = error
            continue
        if count is None or len(groups) >= count:
            return list(groups[:n])
    wanted = "one place" if count is None else f"{count} places"
    raise PlaceError(
        f"{wanted} of {sms} multiprocessors each do not fit on device({int(gpu.device_id)}), which has "
        f"{whole.sm_count}; ask for fewer or smaller ones"
    ) from refusal
