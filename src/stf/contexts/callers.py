"""Callers' streams: what users hand in as ``stream=``, and what it means for a context."""

from __future__ import annotations

from typing import Any, NamedTuple

from stf import config
from stf._engine.access import DataHandle
from stf.contexts.resources import Resources
from stf.devices.make import configured_devices, cuda, cuda_devices, stream_device, stream_is_captured
from stf.devices.spec import DeviceSpec, known_on_cuda
from stf.errors import CaptureError, PlaceError
from stf.interop.streams import pointer_of

NO_CUDA = "{0}= takes a CUDA {0}, and this context runs on the CPU; leave it out, or use devices='cuda'"

ENDS_WITH_GRAPH = "{}, and what a context uses then belongs to the graph, not to resources=; leave resources out"

shared = Resources()  # of contexts on callers' streams: they end before their work does


class Caller(NamedTuple):
    """A caller's stream, its object, its device, and whether it is being captured.

    `filling` is the stream of ours that is captured into a caller's graph, where that was given.
    """

    pointer: int
    owner: Any
    ordinal: int
    captured: bool
    filling: Any = None


def graph_pointer_of(graph: Any) -> int:
    """Return the address of a CUDA graph: an int, or what an object has as ``handle`` (cuda.core) or ``graph`` (CuPy).

    Raises
    ------
    TypeError
        `graph` is no graph.
    """
    known = graph
    for name in ("handle", "graph"):
        if not hasattr(known, "__int__"):
            known = getattr(known, name, known)
    if type(known).__name__ == "CUgraphExec":
        raise TypeError(f"an executable graph cannot be filled; give the graph that it is made from, got {graph!r}")
    if isinstance(known, (bool, float, DataHandle)) or not hasattr(known, "__int__") or not 0 < int(known) < 1 << 64:
        raise TypeError(
            f"graph= takes a CUDA graph: the address of a CUgraph as int, or an object that has it as handle; got "
            f"{graph!r}"
        )
    return int(known)


def must_be_on_cuda(devices: Any, what: str) -> None:
    """Raise PlaceError where a caller's stream or graph is given, and the context cannot be on CUDA devices."""
    asked = config.devices if devices is None else devices
    if cuda_devices() <= 0 or (isinstance(asked, str) and asked.startswith("cpu")):
        raise PlaceError(NO_CUDA.format(what))


def filler_of(graph: Any, devices: Any, resources: Any) -> tuple[Caller, DeviceSpec]:
    """Return who fills a caller's graph: a stream that is captured into it until the context is finalized.

    Raises
    ------
    PlaceError
        There is no CUDA.
    TypeError, ValueError
        `graph` is no graph that CUDA knows.
    """
    pointer = graph_pointer_of(graph)
    must_be_on_cuda(devices, "graph")
    spec = configured_devices(devices)
    filling = cuda("graphs").Filling(spec.numbers[0], pointer, graph)
    try:
        if resources is not None:
            raise CaptureError(ENDS_WITH_GRAPH.format("graph= is to be filled"))
        caller, spec = caller_of(filling.pointer, list(spec.numbers), None)
    except BaseException:
        filling.end()
        raise
    assert caller is not None
    return caller._replace(filling=filling), spec


def caller_of(stream: Any, devices: Any, resources: Any, graph: Any = None) -> tuple[Caller | None, DeviceSpec]:
    """Return who ``stream=`` or ``graph=`` is, and the devices of a context on it: its own, if none are asked for.

    Raises
    ------
    PlaceError
        There is no CUDA, or the stream is of a device that is not among those asked for.
    CaptureError
        The stream is being captured, and `resources` are given; or it is the stream of a task that is being recorded.
    """
    if graph is not None:
        return filler_of(graph, devices, resources)
    if stream is None:
        return None, configured_devices(devices)
    pointer = pointer_of(stream)
    must_be_on_cuda(devices, "stream")
    ordinal = stream_device(pointer)
    if devices is None:
        spec = known_on_cuda([ordinal], devices, "devices", cuda_devices())
    else:
        spec = configured_devices(devices)
    if spec.driver != "cuda":
        raise PlaceError(NO_CUDA.format("stream"))
    if ordinal not in spec.numbers:
        raise PlaceError(
            f"stream= is a stream of device({ordinal}), and devices={devices!r} does not name it; add it, or leave "
            "devices out"
        )
    captured = stream_is_captured(pointer)
    if captured and cuda("graphs").is_recorded_on(pointer):
        raise CaptureError(
            "stream= is the stream of a task that is being recorded, so that a context there would have to be recorded "
            "with it; submit these tasks beside that one, or nest a graph: with ctx.task_graph()"
        )
    if captured and resources is not None:
        raise CaptureError(ENDS_WITH_GRAPH.format("stream= is being captured"))
    return Caller(pointer, stream, ordinal, captured), spec
