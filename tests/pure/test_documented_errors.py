"""The errors that docstrings name under Raises: a small program for each, which raises it."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import gc
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from test_docs import DOCS, PUBLIC, docstring

import stf

pytestmark = pytest.mark.filterwarnings("ignore")  # of tasks that get no body

HOST, GONE = stf.data_place.host(), stf.exec_place.device(7)
SUM = stf.reducer.sum
RAISES = re.compile(r"^Raises\n-+\n(.*?)(?=^\w[\w ]*\n-+\n|\Z)", re.MULTILINE | re.DOTALL)

# Not shown here: what needs a GPU, another package or an environment of its own; the tests of these rooms show it.
ELSEWHERE = {
    "Context.event": {"CaptureError"},
    "Context.check_errors": {"DriverError"},
    "Context.checkpoint": {"CaptureError"},
    "Context.cuda_kernel": {"PlaceError"},
    "Context.launch": {"ImportError"},
    "Context.launch_kernel": {"TypeError"},
    "Context.logical_data": {"OverflowError"},
    "Context.parallel_for": {"ImportError"},
    "Context.restore": {"CaptureError"},
    "TaskGraph.exec_handle": {"CaptureError", "DriverError"},
    "TaskGraph.handle": {"CaptureError"},
    "TaskGraph.launch": {"CaptureError"},
    "config.reload": {"ValueError"},
    "exec_place.cuda_stream": {"PlaceError", "TypeError", "ValueError"},
    "exec_place.from_context": {"PlaceError", "TypeError", "ValueError"},
    "exec_place.green_ctx": {"TypeError"},
    "green_places": {"ImportError", "PlaceError"},
    "kernel": {"TypeError"},
    "progress": {"ImportError"},
}


@pytest.fixture(scope="module", autouse=True)
def no_task_is_left() -> Iterator[None]:
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


def filled(ctx: stf.Context) -> None:
    ctx.fill(ctx.logical_data_empty(3), 1.0)


@stf.task
def increment(x: stf.ReadWrite) -> None:
    x += 1


@stf.task
def fail(x: stf.ReadWrite) -> None:
    raise ZeroDivisionError


def annotated(x: stf.ReadWrite) -> None:
    x += 1


def element(i: int, x: Any) -> None:
    x[i] = 1.0


def thread(th: Any, x: Any) -> None:
    x[th.rank()] = 1.0


def with_event(ctx: stf.Context, use: Callable[[stf.Event], Any]) -> None:
    event = ctx.event()
    try:
        use(event)
    finally:
        event.cancel()


def cancelled_event(ctx: stf.Context) -> stf.Event:
    event = ctx.event()
    event.cancel()
    return event


def given_data(x: stf.Data):
    pass


class Pair:
    """Two arrays."""

    def __init__(self, n: int) -> None:
        self.arrays = np.zeros(n), np.zeros(n)


stf.register_data_interface(Pair, flatten=lambda pair: pair.arrays, unflatten=lambda pair, parts: tuple(parts))


class World:
    """A context with data in all states, another one, and one that was finalized."""

    def __init__(self) -> None:
        self.opened: list[stf.Context] = []
        self.ctx, self.other, self.closed = ctx, other, closed = [self.open() for _ in range(3)]
        self.late, self.late_scalar = closed.logical_data_zeros(3), closed.logical_data_zeros(())
        self.late_parts = closed.logical_data(Pair(2))
        place = stf.data_place.composite(closed.devices, stf.partition("blocked"))
        self.late_cut = closed.logical_data(np.zeros(4), data_place=place)
        closed.finalize()
        self.x, self.y = ctx.logical_data(np.zeros(3)), ctx.logical_data_zeros(3)
        self.four, self.integers = ctx.logical_data_zeros(4), ctx.logical_data_zeros(3, np.int8)
        self.empty, self.nothing, self.token = ctx.logical_data_empty(3), ctx.logical_data_empty(()), ctx.token()
        self.s, self.small = ctx.logical_data_zeros(()), ctx.logical_data_zeros((), np.int8)
        self.fixed = ctx.logical_data(np.zeros(3), readonly=True)
        self.fixed_scalar = ctx.logical_data(np.zeros(()), readonly=True)
        self.whole = ctx.logical_data(np.zeros(4))
        self.tiles = self.whole.tiles(2)
        self.parts, self.fixed_parts = ctx.logical_data(Pair(2)), ctx.logical_data(Pair(2), readonly=True)
        self.place = stf.data_place.composite(ctx.devices, stf.partition("blocked"))
        self.cut = ctx.logical_data(np.zeros(4), data_place=self.place)
        self.fixed_cut = ctx.logical_data(np.zeros(4), readonly=True, data_place=self.place)
        self.theirs, self.their_scalar = other.logical_data_zeros(3), other.logical_data_zeros(())

    def open(self, **options: Any) -> stf.Context:
        self.opened.append(stf.context(devices="cpu:2", **options))
        return self.opened[-1]

    def close(self) -> None:
        for ctx in self.opened:
            with contextlib.suppress(stf.Error, ExceptionGroup):
                ctx.finalize()


def recorded(ctx: Any, do: Callable[[], Any]) -> None:
    with ctx.task_graph():
        do()


def in_block(block: Any, do: Callable[[], Any]) -> None:
    with block:
        do()


def open_task(ctx: Any, x: Any) -> None:
    with ctx.task(x.rw()):
        pass


def in_task(w: Any, do: Callable[[], Any]) -> None:
    with w.ctx.task(w.x.rw()):
        do()


def failed(w: Any, *more: Any) -> Any:
    """A context in which a task has failed, or several for different causes."""
    fail.on("host")(w.x)
    for error in more:

        def body(y: Any, error: Any = error) -> None:
            raise error

        w.ctx.host_launch(w.y.rw())(body)
    w.ctx.fence().synchronize()
    return w.ctx


def replayed(w: Any, do: Callable[[], Any], data: Any, decorator: Any = stf.replay) -> None:
    """The second call is recorded."""

    @decorator
    def step(x: Any) -> None:
        do()

    for _ in range(2):
        step(data)


def graph_of(w: Any) -> Any:
    g = w.ctx.task_graph("g")
    with g:
        increment(w.x)
    return g


def closed_graph(w: Any) -> Any:
    g = graph_of(w)
    g.close()
    return g


def twice(do: Callable[[], Any]) -> None:
    do()
    do()


def closed_array() -> Any:
    array = stf.data_place.host().allocate(1)
    array.close()
    return array


def readonly_cut(w: Any) -> Any:
    return w.ctx.logical_data(np.zeros(4), data_place=w.place, readonly=True)


def cases_of_data(name: str, submit: Callable[[Any, Any], Any], *kinds: str) -> dict[str, Callable[[Any], Any]]:
    """The errors of data that cannot be used, for an entry that uses them."""
    data = {
        "UninitializedDataError": "empty",
        "AccessError": "whole",
        "ContextMismatchError": "theirs",
    }
    return {kind: (lambda w, which=data[kind]: submit(w, getattr(w, which))) for kind in kinds or data}


def parallel(w: Any, x: Any) -> None:
    w.ctx.parallel_for((3,), x.rw())(element)


def launched(w: Any, x: Any) -> None:
    w.ctx.launch(stf.par(3), x.rw())(thread)


def host(w: Any, x: Any) -> None:
    w.ctx.host_launch(x.rw())(lambda x: None)


CASES: dict[str, dict[str, Callable[[Any], Any]]] = {
    # contexts
    "context": {
        "PlaceError": lambda w: stf.context(devices="cuda:999"),
        "TypeError": lambda w: stf.context(devices="cpu", resources=3),
        "ValueError": lambda w: stf.context(devices="nothing"),
    },
    "Resources.close": {"TaskStateError": lambda w: (r := stf.Resources(), w.open(resources=r), r.close())},
    "Context.check_errors": {
        "TaskFailedError": lambda w: failed(w).check_errors(),
        "ExceptionGroup": lambda w: failed(w, KeyError()).check_errors(),
    },
    "Context.cancel": {
        "TaskStateError": lambda w: recorded(w.ctx, w.ctx.cancel),
        "ContextClosedError": lambda w: w.closed.cancel(),
    },
    "Context.finalize": {
        "TaskFailedError": lambda w: failed(w).finalize(),
        "ExceptionGroup": lambda w: failed(w, KeyError()).finalize(),
    },
    "Context.submit": {
        "TaskStateError": lambda w: recorded(w.ctx, w.ctx.submit),
        "ContextClosedError": lambda w: w.closed.submit(),
    },
    "Context.fence": {
        "TaskStateError": lambda w: recorded(w.ctx, w.ctx.fence),
        "ContextClosedError": lambda w: w.closed.fence(),
    },
    "as_completed": {
        "TimeoutError": lambda w: waiting(w, lambda: list(stf.as_completed([w.x], timeout=0.001))),
        "TypeError": lambda w: stf.as_completed([3]),
        "TaskStateError": lambda w: recorded(w.ctx, lambda: stf.as_completed([w.x])),
    },
    "Context.map": {
        "TypeError": lambda w: w.ctx.map(3, [w.x]),
    },
    "map": {
        "TypeError": lambda w: stf.map(lambda x: None, [3]),
        "ContextMismatchError": lambda w: stf.map(lambda x: None, [w.x, w.other.logical_data_zeros(3)]),
    },
    "reduce": {
        "TypeError": lambda w: stf.reduce(lambda a, b: a, [w.x, w.x]),
        "ValueError": lambda w: stf.reduce(lambda a, b: a, []),
        "ContextMismatchError": lambda w: stf.reduce(lambda a, b: a, [w.x, w.other.logical_data_zeros(3)]),
    },
    "Context.synchronize": {
        "TaskFailedError": lambda w: failed(w).synchronize(),
        "ExceptionGroup": lambda w: failed(w, KeyError()).synchronize(),
        "TimeoutError": lambda w: waiting(w, lambda: w.ctx.synchronize(timeout=0.001)),
        "TaskStateError": lambda w: recorded(w.ctx, w.ctx.synchronize),
        "TypeError": lambda w: w.ctx.synchronize(timeout="a"),
        "ValueError": lambda w: w.ctx.synchronize(timeout=-1),
        "ContextClosedError": lambda w: w.closed.synchronize(),
    },
    "Context.wait": {
        "TaskFailedError": lambda w: failed(w).wait(w.x),
        **cases_of_data("wait", lambda w, x: w.ctx.wait(x)),
        "TaskStateError": lambda w: recorded(w.ctx, lambda: w.ctx.wait(w.x)),
        "TypeError": lambda w: w.ctx.wait(3),
        "ContextClosedError": lambda w: w.closed.wait(w.late),
    },
    "Context.wait_async": {
        "TaskFailedError": lambda w: asyncio.run(failed(w).wait_async(w.x)),
        "UninitializedDataError": lambda w: asyncio.run(w.ctx.wait_async(w.empty)),
        "ContextClosedError": lambda w: asyncio.run(w.closed.wait_async(w.late)),
    },
    # data
    "Context.logical_data": {
        "TypeError": lambda w: w.ctx.logical_data(object()),
        "ValueError": lambda w: (x := np.zeros(4), d := w.ctx.logical_data(x[:3]), w.ctx.logical_data(x[1:]), d),
        "AccessError": lambda w: (x := np.zeros(4), d := w.other.logical_data(x), increment(d), w.ctx.logical_data(x)),
        "ContextClosedError": lambda w: w.closed.logical_data(np.zeros(3)),
    },
    **{
        f"Context.logical_data_{name}": {
            "TypeError": lambda w, name=name: getattr(w.ctx, f"logical_data_{name}")(3, dtype=object),
            "ValueError": lambda w, name=name: getattr(w.ctx, f"logical_data_{name}")(-3),
            "ContextClosedError": lambda w, name=name: getattr(w.closed, f"logical_data_{name}")(3),
        }
        for name in ("empty", "zeros", "ones")
    },
    "Context.logical_data_full": {
        "TypeError": lambda w: w.ctx.logical_data_full("abc", 1.0),
        "ValueError": lambda w: w.ctx.logical_data_full(-3, 1.0),
        "OverflowError": lambda w: w.ctx.logical_data_full(3, 300, np.int8),
        "ContextClosedError": lambda w: w.closed.logical_data_full(3, 1.0),
    },
    "Context.token": {
        "TypeError": lambda w: w.ctx.token(name=3),
        "ContextClosedError": lambda w: w.closed.token(),
    },
    "Context.event": {
        "TypeError": lambda w: w.ctx.event(name=3),
        "TaskStateError": lambda w: in_block(w.ctx.task_graph(), w.ctx.event),
        "AccessError": lambda w: w.ctx.event(w.fixed.write()),
        "ContextMismatchError": lambda w: w.ctx.event(w.other.logical_data(np.zeros(3)).write()),
        "ContextClosedError": lambda w: w.closed.event(),
    },
    "Event.exception": {"TimeoutError": lambda w: with_event(w.ctx, lambda event: event.exception(timeout=0.001))},
    "StreamEvent.elapsed_time": {
        "TypeError": lambda w: in_task_itself(w, lambda t: t.record_event().elapsed_time(3.0)),
        "ValueError": lambda w: in_task_itself(
            w, lambda t: t.record_event().elapsed_time(stf.StreamEvent(None, ordinal=0))
        ),
    },
    "Event.fail": {"TypeError": lambda w: with_event(w.ctx, lambda event: event.fail("no"))},
    "Event.result": {
        "TimeoutError": lambda w: with_event(w.ctx, lambda event: event.result(timeout=0.001)),
        "TaskFailedError": lambda w: cancelled_event(w.ctx).result(),
    },
    "Context.copy": {
        "TypeError": lambda w: w.ctx.copy(np.zeros(3), w.y),
        "ValueError": lambda w: w.ctx.copy(w.x, w.four),
        **cases_of_data("copy", lambda w, x: w.ctx.copy(x, w.whole if x is w.whole else w.y)),
        "ContextClosedError": lambda w: w.closed.copy(w.late, w.late),
    },
    "Context.fill": {
        "TypeError": lambda w: w.ctx.fill(w.token, 1),
        "ValueError": lambda w: w.ctx.fill(w.x, np.zeros(4)),
        "OverflowError": lambda w: w.ctx.fill(w.integers, 300),
        "AccessError": lambda w: w.ctx.fill(w.fixed, 1),
        "ContextMismatchError": lambda w: w.ctx.fill(w.theirs, 1),
        "ContextClosedError": lambda w: w.closed.fill(w.late, 1),
    },
    "Context.prefetch": {
        "TypeError": lambda w: w.ctx.prefetch(w.x, 0),
        "PlaceError": lambda w: w.ctx.prefetch(w.x, stf.data_place.device(7)),
        **cases_of_data("prefetch", lambda w, x: w.ctx.prefetch(x, HOST)),
        "ContextClosedError": lambda w: w.closed.prefetch(w.late, HOST),
    },
    "Context.freeze": {
        "AccessError": lambda w: w.ctx.freeze(w.whole),
        "ValueError": lambda w: w.ctx.freeze(w.x, "r"),
        "UninitializedDataError": lambda w: w.ctx.freeze(w.empty),
        "TaskStateError": lambda w: recorded(w.ctx, lambda: w.ctx.freeze(w.x)),
        "ContextMismatchError": lambda w: w.ctx.freeze(w.theirs),
        "ContextClosedError": lambda w: w.closed.freeze(w.late),
    },
    "Context.checkpoint": {
        "TypeError": lambda w: w.ctx.checkpoint("state", {"x": 3}),
        "ValueError": lambda w: w.ctx.checkpoint("state", w.x),
        "NotADirectoryError": lambda w: w.ctx.checkpoint(__file__, {"x": w.x}),
        "TaskFailedError": lambda w: failed(w).checkpoint("state", {"x": w.x}),
        **cases_of_data("checkpoint", lambda w, x: w.ctx.checkpoint("state", {"x": x})),
        "TaskStateError": lambda w: recorded(w.ctx, lambda: w.ctx.checkpoint("state", {"x": w.x})),
        "ContextClosedError": lambda w: w.closed.checkpoint("state", {"x": w.late}),
    },
    "Context.restore": {
        "FileNotFoundError": lambda w: w.ctx.restore("state"),
        "ValueError": lambda w: restored(w, {"y": w.x}),
        "TypeError": lambda w: w.ctx.restore("state", data=3),
        "AccessError": lambda w: restored(w, {"x": w.fixed}),
        "TaskStateError": lambda w: recorded(w.ctx, lambda: w.ctx.restore("state")),
        "ContextMismatchError": lambda w: w.ctx.restore("state", data={"x": w.theirs}),
        "ContextClosedError": lambda w: w.closed.restore("state"),
    },
    "Checkpoint.result": {
        "TaskFailedError": lambda w: late_checkpoint(w, fail),
        "TimeoutError": lambda w: waiting(w, lambda: w.ctx.checkpoint("state", {"x": w.x}, wait=False).result(0.001)),
        "TaskStateError": lambda w: (s := late_checkpoint(w, increment), in_task(w, s.result)),
    },
    "Frozen.unfreeze": {
        "TaskStateError": lambda w: twice(w.ctx.freeze(w.x).unfreeze),
        "ContextClosedError": lambda w: (f := w.ctx.freeze(w.x), w.ctx.finalize(), f.unfreeze()),
    },
    "Frozen.get": {"PlaceError": lambda w: w.ctx.freeze(w.x).get(stream=5)},
    "DataPart.read": {
        "TypeError": lambda w: w.cut.parts[0].read("gpu"),
        "ValueError": lambda w: w.cut.parts[0].read(halo=3),
        "AccessError": lambda w: (
            w.ctx.task(w.cut.parts[0].read())(lambda a: None),
            graph := w.ctx.task_graph(),
            in_block(graph, lambda: w.ctx.task(w.cut.parts[0].rw())(lambda a: None)),
            w.cut.parts[0].read(halo=1),
            graph,
        ),
        "TaskStateError": lambda w: in_block(w.ctx.task(w.cut.parts[0].rw()), lambda: w.cut.parts[0].read(halo=1)),
    },
    **{
        f"DataPart.{verb}": {
            "AccessError": lambda w, verb=verb: getattr(w.cut.parts[0], verb)(halo=1),
            "TypeError": lambda w, verb=verb: getattr(w.cut.parts[0], verb)("gpu"),
        }
        for verb in ("write", "rw")
    },
    "Parts.read": {
        "TypeError": lambda w: w.cut.parts.read(halo="one"),
        "ValueError": lambda w: w.cut.parts.read(halo=3),
        "AccessError": lambda w: (
            w.ctx.task(w.cut.parts[0].read())(lambda a: None),
            graph := w.ctx.task_graph(),
            in_block(graph, lambda: w.ctx.task(w.cut.parts[0].rw())(lambda a: None)),
            w.cut.parts.read(halo=1),
            graph,
        ),
    },
    **{
        f"Parts.{verb}": {"AccessError": lambda w, verb=verb: getattr(w.fixed_cut.parts, verb)()}
        for verb in ("write", "rw")
    },
    "DataPart.accept": {"ContextClosedError": lambda w: w.late_cut.parts[0].accept()},
    "PartitionedData.accept": {"ContextClosedError": lambda w: w.late_cut.accept()},
    "PartitionedData.ready": {"ContextClosedError": lambda w: w.late_cut.ready()},
    "PartitionedData.release": {
        "AccessError": lambda w: (lent := w.ctx.freeze(w.cut), w.cut.release(), lent),
        "TaskStateError": lambda w: in_block(w.ctx.task(w.cut.parts[0].rw()), w.cut.release),
        "ContextClosedError": lambda w: w.late_cut.release(),
    },
    "LogicalData.read": {"TypeError": lambda w: w.x.read("gpu")},
    **{
        f"{owner}.{name}": {
            "TypeError": lambda w, data=data, name=name: getattr(getattr(w, data), name)("gpu"),
            "AccessError": lambda w, fixed=fixed, name=name: getattr(getattr(w, fixed), name)(),
        }
        for owner, data, fixed in (("LogicalData", "x", "fixed"), ("CompositeData", "parts", "fixed_parts"))
        for name in ("write", "rw")
    },
    "CompositeData.read": {"TypeError": lambda w: w.parts.read("gpu")},
    **{
        f"LogicalData.{name}": {
            "TypeError": lambda w, name=name: getattr(w.x, name)("sum"),
            "AccessError": lambda w, name=name: getattr(w.fixed, name)(SUM),
        }
        for name in ("accumulate", "relaxed", "reduce")
    },
    "LogicalData.numpy": {
        "TaskFailedError": lambda w: (failed(w), w.x.numpy()),
        "UninitializedDataError": lambda w: w.empty.numpy(),
        "AccessError": lambda w: w.whole.numpy(),
        "TaskStateError": lambda w: in_task(w, w.y.numpy and w.x.numpy),
        "ContextClosedError": lambda w: w.late.numpy(),
    },
    "CompositeData.numpy": {
        "TaskFailedError": lambda w: (w.ctx.host_launch(w.parts.rw())(lambda p: 1 / 0), w.parts.numpy()),
        "UninitializedDataError": lambda w: w.parts.empty_like().numpy(),
        "TaskStateError": lambda w: recorded(w.ctx, w.parts.numpy),
        "ContextClosedError": lambda w: w.late_parts.numpy(),
    },
    **{
        f"{owner}.{name}": {"ContextClosedError": lambda w, data=data, name=name: getattr(getattr(w, data), name)()}
        for owner, data in (("LogicalData", "late"), ("CompositeData", "late_parts"))
        for name in ("accept", "empty_like", "ready")
    },
    "LogicalData.set_symbol": {"TypeError": lambda w: w.x.set_symbol(3)},
    "CompositeData.set_symbol": {"TypeError": lambda w: w.parts.set_symbol(3)},
    "LogicalData.release": {
        "AccessError": lambda w: w.whole.release(),
        "TaskStateError": lambda w: in_task(w, w.x.release),
        "ContextClosedError": lambda w: w.late.release(),
    },
    "CompositeData.release": {
        "TaskStateError": lambda w: recorded(w.ctx, w.parts.release),
        "ContextClosedError": lambda w: w.late_parts.release(),
    },
    "LogicalData.set_write_back": {"ValueError": lambda w: w.y.set_write_back(True)},
    "LogicalData.write_back": {
        "TaskFailedError": lambda w: (failed(w), w.x.write_back()),
        "ContextClosedError": lambda w: w.late.write_back(),
    },
    "CompositeData.write_back": {
        "TaskFailedError": lambda w: (
            w.ctx.host_launch(w.parts.rw())(lambda p: 1 / 0),
            w.ctx.fence().synchronize(),
            w.parts.write_back(),
        ),
        "ContextClosedError": lambda w: w.late_parts.write_back(),
    },
    "LogicalData.tiles": {
        "TypeError": lambda w: w.x.tiles("a"),
        "ValueError": lambda w: w.x.tiles(0),
        "AccessError": lambda w: w.whole.tiles(2),
        "TaskStateError": lambda w: recorded(w.ctx, lambda: w.x.tiles(2)),
        "ContextClosedError": lambda w: w.late.tiles(2),
    },
    "LogicalData.assign": {
        "TypeError": lambda w: w.s.assign("a"),
        "OverflowError": lambda w: w.small.assign(300),
        "UninitializedDataError": lambda w: w.s.assign(w.nothing + 1),
        "AccessError": lambda w: w.fixed_scalar.assign(w.s + 1),
        "ContextMismatchError": lambda w: w.s.assign(w.their_scalar + 1),
    },
    "register_data_interface": {"TypeError": lambda w: stf.register_data_interface(3)},
    "view": {"TypeError": lambda w: stf.view("a", 3, float)},
    # tasks
    "task": {
        "TypeError": lambda w: stf.task(lambda_that_forgets),
        "ValueError": lambda w: stf.task(annotated, arrays="nothing"),
        **cases_of_data("task", lambda w, x: increment(x) if x is not w.theirs else two_data(w.x, x)),
        "ContextClosedError": lambda w: increment(w.late),
    },
    "Data": {
        "TypeError": lambda w: stf.Data(3),
        "CaptureError": lambda w: recorded(w.ctx, lambda: w.ctx.submit_task(given_data, w.x, place="host")),
    },
    "Like": {"TypeError": lambda w: stf.Like[3]},
    "New": {"TypeError": lambda w: stf.New["m,k"]},
    "Result": {"TypeError": lambda w: stf.Result()},
    "Context.task": {
        "TypeError": lambda w: w.ctx.task(0, 1, w.x.rw()),
        "PlaceError": lambda w: w.ctx.task(GONE, w.x.rw()),
    },
    "Context.host_launch": {
        "PlaceError": lambda w: w.ctx.host_launch(0, w.x.rw()),
        "TypeError": lambda w: w.ctx.host_launch(w.x),
        **cases_of_data("host_launch", host),
        "ContextClosedError": lambda w: w.closed.host_launch(w.late.rw())(lambda x: None),
    },
    "Context.submit_task": {
        "TypeError": lambda w: w.ctx.submit_task(annotated, np.zeros(3)),
        "PlaceError": lambda w: w.ctx.submit_task(annotated, w.x, place=7),
        **cases_of_data("submit_task", lambda w, x: w.ctx.submit_task(annotated, x)),
        "ContextClosedError": lambda w: w.closed.submit_task(annotated, w.late),
    },
    "Task.start": {"TaskStateError": lambda w: in_task(w, w.ctx.task(w.x.rw()).start)},
    "Task.get": {"TypeError": lambda w: in_task_itself(w, lambda task: task.get(0, "int8"))},
    "Task.result": {
        "TaskFailedError": lambda w: fail(w.x).result(),
        "TimeoutError": lambda w: waiting(w, lambda: increment.on("host")(w.x).result(0.001)),
    },
    "Task.exception": {
        "TimeoutError": lambda w: waiting(w, lambda: increment.on("host")(w.x).exception(0.001)),
        "TaskStateError": lambda w: w.ctx.task(w.x.rw()).exception(),
    },
    # kernels
    "Context.parallel_for": {
        "TypeError": lambda w: w.ctx.parallel_for((3,), w.x.rw())(lambda i: None),
        "PlaceError": lambda w: w.ctx.parallel_for(GONE, (3,), w.x.rw())(element),
        **cases_of_data("parallel_for", parallel),
        "ContextClosedError": lambda w: w.closed.parallel_for((3,), w.late.rw())(element),
    },
    "Context.launch": {
        "TypeError": lambda w: w.ctx.launch(stf.par(3), w.x.rw())(element_without_arguments),
        "ValueError": lambda w: w.ctx.launch(stf.con(4, stf.mem(1 << 60)), w.x.rw())(thread_with_memory),
        "PlaceError": lambda w: w.ctx.launch(stf.par(3), GONE, w.x.rw())(thread),
        **cases_of_data("launch", launched),
        "ContextClosedError": lambda w: w.closed.launch(stf.par(3), w.late.rw())(thread),
    },
    "Context.launch_kernel": {"PlaceError": lambda w: w.ctx.launch_kernel(3, (1, 32), w.x.rw())},
    "Context.cuda_kernel": {"TypeError": lambda w: w.ctx.cuda_kernel(w.x)},
    "kernel": {"PlaceError": lambda w: stf.kernel("nothing")[1, 32](w.x.rw())},
    # graphs
    "algorithm": {
        "TypeError": lambda w: stf.algorithm(3),
        "ValueError": lambda w: stf.algorithm(mode="fast"),
        "TaskStateError": lambda w: replayed(w, w.x.numpy, w.x, stf.algorithm),
        "ContextClosedError": lambda w: stf.algorithm(annotated_twice)(w.late),
    },
    "replay": {
        "ValueError": lambda w: stf.replay(annotated_twice, backend="fast"),
        "TypeError": lambda w: stf.replay(3),
        "TaskStateError": lambda w: replayed(w, w.x.numpy, w.x),
        "ContextClosedError": lambda w: stf.replay(annotated_twice)(w.late),
    },
    "Context.task_graph": {
        "TypeError": lambda w: w.ctx.task_graph(3),
        "ValueError": lambda w: w.ctx.task_graph(backend="fast"),
        "ContextClosedError": lambda w: w.closed.task_graph(),
    },
    "TaskGraph.param": {
        "ValueError": lambda w: (g := w.ctx.task_graph(), twice(lambda: g.param("a", 1.0))),
        "TaskStateError": lambda w: graph_of(w).param("a", 1.0),
    },
    "TaskGraph.launch": {
        "TypeError": lambda w: graph_of(w).launch(a=1.0),
        "ValueError": lambda w: graph_of(w).launch({w.x: w.four}),
        "TaskStateError": lambda w: closed_graph(w).launch(),
    },
    "TaskGraph.handle": {"TaskStateError": lambda w: closed_graph(w).handle},
    "TaskGraph.exec_handle": {"TaskStateError": lambda w: closed_graph(w).exec_handle},
    "TaskGraph.stream": {
        "TaskStateError": lambda w: closed_graph(w).stream,
        "PlaceError": lambda w: graph_of(w).stream,
    },
    "Context.graph_scope": {
        "TaskStateError": lambda w: in_block(w.ctx.graph_scope(), w.x.numpy),
        "ContextClosedError": lambda w: in_block(w.closed.graph_scope(), lambda: None),
    },
    "Context.while_loop": {
        "TypeError": lambda w: in_block(w.ctx.while_loop(3), lambda: None),
        "TaskStateError": lambda w: in_block(w.ctx.while_loop(), lambda: increment(w.x)),
        "CaptureError": lambda w: in_block(w.ctx.while_loop(w.s < 1), lambda: open_task(w.ctx, w.x)),
        "UninitializedDataError": lambda w: in_block(w.ctx.while_loop(w.nothing < 1), lambda: increment(w.x)),
        "ContextClosedError": lambda w: in_block(w.closed.while_loop(w.late_scalar < 1), lambda: None),
    },
    "Context.repeat": {
        "TypeError": lambda w: in_block(w.ctx.repeat("a"), lambda: None),
        "ValueError": lambda w: in_block(w.ctx.repeat(-1), lambda: None),
        "TaskStateError": lambda w: in_block(w.ctx.repeat(2), w.x.numpy),
        "CaptureError": lambda w: in_block(w.ctx.repeat(2), lambda: open_task(w.ctx, w.x)),
        "ContextClosedError": lambda w: in_block(w.closed.repeat(2), lambda: None),
    },
    "Context.if_": {
        "TypeError": lambda w: in_block(w.ctx.if_(3), lambda: None),
        "TaskStateError": lambda w: in_block(w.ctx.if_(w.s < 1), w.x.numpy),
        "CaptureError": lambda w: in_block(w.ctx.if_(w.s < 1), lambda: open_task(w.ctx, w.x)),
        "UninitializedDataError": lambda w: in_block(w.ctx.if_(w.nothing < 1), lambda: increment(w.x)),
        "ContextClosedError": lambda w: in_block(w.closed.if_(w.late_scalar < 1), lambda: None),
    },
    # what ran
    "Context.dot": {"TaskStateError": lambda w: w.ctx.dot()},
    "Context.dot_section": {"TypeError": lambda w: w.ctx.dot_section(3)},
    "Context.report": {"TaskStateError": lambda w: w.ctx.report("nothing.html")},
    "Context.trace": {
        "TaskStateError": lambda w: w.ctx.trace("nothing.json"),
        "ValueError": lambda w: w.open(observe="trace").trace("nothing.txt"),
    },
    "Context.why": {
        "TaskStateError": lambda w: w.ctx.why("nobody"),
        "ValueError": lambda w: w.open(observe="dot").why("nobody"),
        "TypeError": lambda w: w.ctx.why(1.5),
    },
    "why": {"TypeError": lambda w: stf.why(3)},
    # plans
    "remote": {
        "PlaceError": lambda w: stf.remote(SimpleNamespace(nthreads=dict)),
        "TypeError": lambda w: stf.remote("tcp://127.0.0.1:8786"),
        "ValueError": lambda w: stf.remote(SimpleNamespace(nthreads=dict), gpus="some"),
    },
    "plan": {
        "PlanError": lambda w: stf.plan(lambda ctx: ctx.wait(ctx.logical_data_zeros(3)), devices="1xH200"),
        "OutOfMemoryError": lambda w: stf.plan(filled, devices="1xH200", memory=8),
        "ValueError": lambda w: stf.plan(filled, devices="many"),
        "TypeError": lambda w: stf.plan(3, devices="1xH200"),
    },
    "Plan.report": {"PlanError": lambda w: stf.plan(lambda: None, devices="1xH200").report("nothing.html")},
    "Plan.uses": {"PlanError": lambda w: stf.plan(lambda: None, devices="1xH200").uses()},
    "Calibration.load": {"ValueError": lambda w: stf.Calibration.load(__file__)},
    "Context.calibrate": {
        "TaskStateError": lambda w: in_task(w, lambda: w.ctx.calibrate()),
        "ContextClosedError": lambda w: w.closed.calibrate(),
    },
    "Context.capsule": {
        "TypeError": lambda w: w.ctx.capsule(5, "one.stf"),
        "FileNotFoundError": lambda w: w.ctx.capsule("step", "/no/such/folder/one.stf"),
    },
    "Context.random": {
        "TypeError": lambda w: w.ctx.random(1.5),
        "ValueError": lambda w: [w.ctx.random(1, "same") for _ in range(2)],
        "ContextClosedError": lambda w: w.closed.random(1),
    },
    "Random.uniform": {"TypeError": lambda w: w.ctx.random(2).uniform(w.ctx.logical_data_empty(3, int))},
    "Random.normal": {"TypeError": lambda w: w.ctx.random(3).normal(np.zeros(3))},
    "Random.context": {"ContextClosedError": lambda w: random_of_nobody().context},
    "Random.state": {"ValueError": lambda w: setattr(w.ctx.random(4), "state", {})},
    "diff": {
        "TypeError": lambda w: stf.diff(5, {}, {}),
        "ValueError": lambda w: stf.diff(lambda: None, {}, {}, every=0),
    },
    "config.check": {"ValueError": lambda w: with_bad_setting(stf.config.check)},
    # places and values
    **{
        f"{space}.device": {
            "TypeError": lambda w, space=space: getattr(stf, space).device("a"),
            "PlaceError": lambda w, space=space: getattr(stf, space).device(-1),
        }
        for space in ("exec_place", "data_place")
    },
    **{
        f"placement.{rule}": {
            "TypeError": lambda w, rule=rule: getattr(stf.placement, rule)(move_weight="2"),
            "ValueError": lambda w, rule=rule: getattr(stf.placement, rule)(move_weight=-1),
        }
        for rule in ("eft", "owner", "planned")
    },
    "exec_place.n_devices": {
        "TypeError": lambda w: stf.exec_place.n_devices("a"),
        "PlaceError": lambda w: stf.exec_place.n_devices(0),
    },
    "exec_place.locality_domain_count": {
        "TypeError": lambda w: stf.exec_place.locality_domain_count("a"),
        "PlaceError": lambda w: stf.exec_place.locality_domain_count(99),
    },
    "exec_place.locality_domains": {
        "TypeError": lambda w: stf.exec_place.locality_domains("a"),
        "PlaceError": lambda w: stf.exec_place.locality_domains(99),
        "ValueError": lambda w: stf.exec_place.locality_domains(0, "coarse"),
    },
    "exec_place.locality_domain": {
        "TypeError": lambda w: stf.exec_place.locality_domain(0, "a"),
        "PlaceError": lambda w: stf.exec_place.locality_domain(0, 1),
        "ValueError": lambda w: stf.exec_place.locality_domain(0, 0, "coarse"),
    },
    "data_place.locality_domain": {
        "TypeError": lambda w: stf.data_place.locality_domain("a", 0),
        "PlaceError": lambda w: stf.data_place.locality_domain(0, 1),
    },
    "ExecPlace.pick_stream": {"PlaceError": lambda w: stf.exec_place.auto().pick_stream()},
    "ExecPlace.stream_pool": {
        "PlaceError": lambda w: stf.exec_place.device(0).stream_pool(2),
        "ValueError": lambda w: stf.exec_place.host().stream_pool(0),
    },
    "exec_place.grid": {
        "TypeError": lambda w: stf.exec_place.grid([stf.exec_place.host()], partition=3),
        "PlaceError": lambda w: stf.exec_place.grid([]),
    },
    "ExecPlace.get_dim": {"IndexError": lambda w: stf.exec_place.host().get_dim(4)},
    "Grid.pick_stream": {"PlaceError": lambda w: w.ctx.devices.pick_stream()},
    "Grid.stream_pool": {
        "PlaceError": lambda w: w.ctx.devices.stream_pool(2),
        "ValueError": lambda w: w.ctx.devices.stream_pool(0),
    },
    "Grid.get_dim": {"IndexError": lambda w: w.ctx.devices.get_dim(4)},
    "ExecPlace.priorities": {"PlaceError": lambda w: stf.exec_place.device(0).priorities},
    "ExecPlace.reshape": {"PlaceError": lambda w: stf.exec_place.host().reshape(2)},
    "Grid.reshape": {
        "PlaceError": lambda w: w.ctx.devices.reshape(3),
        "TypeError": lambda w: w.ctx.devices.reshape("a"),
        "ValueError": lambda w: w.ctx.devices.reshape(-2),
    },
    "Grid.collapse_axes": {"IndexError": lambda w: w.ctx.devices.collapse_axes(0, 1)},
    "data_place.composite": {
        "TypeError": lambda w: stf.data_place.composite(w.ctx.devices, 3),
        "PlaceError": lambda w: stf.data_place.composite(stf.exec_place.grid([stf.exec_place.current_device()])),
    },
    "DataPlace.allocate": {
        "OutOfMemoryError": lambda w: stf.data_place.host().allocate(1 << 62),
        "PlaceError": lambda w: stf.data_place.affine().allocate(8),
        "TypeError": lambda w: stf.data_place.host().allocate((2, 2)),
        "ValueError": lambda w: stf.data_place.host().allocate(-1),
    },
    "OwnedArray.from_host": {
        "PlaceError": lambda w: stf.OwnedArray.from_host([1], stf.data_place.affine()),
        "TypeError": lambda w: stf.OwnedArray.from_host([None], stf.data_place.host()),
    },
    "OwnedArray.ptr": {"AccessError": lambda w: closed_array().ptr},
    "OwnedArray.copy_to_host": {"AccessError": lambda w: closed_array().copy_to_host()},
    "OwnedArray.copy_to_device": {
        "AccessError": lambda w: closed_array().copy_to_device([1]),
        "ValueError": lambda w: stf.data_place.host().allocate(2).copy_to_device([1]),
        "OverflowError": lambda w: stf.data_place.host().allocate(1).copy_to_device([300]),
    },
    "ExecPlace.attributes": {"PlaceError": lambda w: w.ctx.devices.attributes},
    "PartitionedData.read": {
        "TypeError": lambda w: w.cut.read("gpu"),
        "PlaceError": lambda w: w.cut.read(stf.data_place.composite(stf.exec_place.grid([0, 0]))),
    },
    **{
        f"PartitionedData.{verb}": {
            "AccessError": lambda w, verb=verb: getattr(readonly_cut(w), verb)(),
            "TypeError": lambda w, verb=verb: getattr(w.cut, verb)("gpu"),
            "PlaceError": lambda w, verb=verb: getattr(w.cut, verb)(
                stf.data_place.composite(stf.exec_place.grid([0, 0]))
            ),
        }
        for verb in ("write", "rw")
    },
    "data_place.replicated": {"TypeError": lambda w: stf.data_place.replicated(0)},
    "partition": {"TypeError": lambda w: stf.partition(3), "ValueError": lambda w: stf.partition("rows")},
    "Grid.with_partition": {"TypeError": lambda w: w.ctx.devices.with_partition(3)},
    "Grid.affine_data_place": {"PlaceError": lambda w: w.ctx.devices.affine_data_place},
    "Grid.parts": {
        "PlaceError": lambda w: list(w.ctx.devices.parts(3)),
        "TypeError": lambda w: list(w.ctx.devices.with_partition(stf.blocked_partition()).parts("a")),
        "ValueError": lambda w: list(w.ctx.devices.with_partition(stf.blocked_partition()).parts(-1)),
    },
    "Grid.owner": {
        "PlaceError": lambda w: w.ctx.devices.owner((1,), (3,)),
        "IndexError": lambda w: w.ctx.devices.with_partition(stf.blocked_partition()).owner((9,), (3,)),
        "TypeError": lambda w: w.ctx.devices.with_partition(stf.blocked_partition()).owner("a", (3,)),
    },
    "box": {"TypeError": lambda w: stf.box("a"), "ValueError": lambda w: stf.box(-1)},
    **{
        name: {
            "TypeError": lambda w, name=name: getattr(stf, name)("a"),
            "ValueError": lambda w, name=name: getattr(stf, name)(0),
        }
        for name in ("con", "par")
    },
    "mem": {"ValueError": lambda w: stf.mem(-1)},
    "tiled_partition": {
        "TypeError": lambda w: stf.tiled_partition("a"),
        "ValueError": lambda w: stf.tiled_partition(0),
    },
    "blocked_partition": {"TypeError": lambda w: stf.blocked_partition("a")},
    "equal": {"TypeError": lambda w: stf.equal(1, 2)},
    "reducer.define": {"TypeError": lambda w: stf.reducer.define(0, 3)},
}
ALIASES = {"Context.logical_token": "Context.token", "Context.task_fence": "Context.fence"}


# Those of the methods of tasks, which stand in a table of the reference.
TASKS: dict[str, list[Callable[[Any], Any]]] = {
    "TaskStateError": [
        lambda w: w.ctx.task(w.x.rw()).arrays(),
        lambda w: w.ctx.task(w.x.rw()).stream,
        lambda w: w.ctx.task(w.x.rw()).get_arg(0),
        lambda w: ended(w).numpy(),
        lambda w: ended(w).add_deps(w.y.read()),
        lambda w: ended(w).on(0),
        lambda w: ended(w).start(),
        lambda w: ended(w).end(),
        lambda w: w.ctx.task(w.x.rw()).add_done_callback(print),
        lambda w: w.ctx.task(w.x.rw()).result(),
    ],
    "PlaceError": [
        lambda w: in_task_itself(w, lambda t: t.cupy()),
        lambda w: in_task_itself(w, lambda t: t.numba()),
        lambda w: in_task_itself(w, lambda t: t.args_cai()),
        lambda w: in_task_itself(w, lambda t: t.get_arg_cai(0)),
        lambda w: in_task_itself(w, lambda t: t.stream_ptr()),
        lambda w: in_task_itself(w, lambda t: t.graph),
        lambda w: w.ctx.task(w.x.rw()).on(7),
    ],
    "IndexError": [
        lambda w: in_task_itself(w, lambda t: t[5]),
        lambda w: in_task_itself(w, lambda t: t.get(5)),
        lambda w: in_task_itself(w, lambda t: t.get_arg(5)),
        lambda w: in_task_itself(w, lambda t: t.get_arg_cai(5)),
    ],
    "TypeError": [
        lambda w: w.ctx.task().add_deps(w.x),
        lambda w: w.ctx.task().on("gpu"),
        lambda w: w.ctx.task().set_symbol(3),
        lambda w: increment(w.x).add_done_callback(3),
    ],
    "UninitializedDataError": [lambda w: w.ctx.task(w.empty.read()).start()],
    "AccessError": [lambda w: w.ctx.task(w.whole.read()).start()],
    "ContextMismatchError": [lambda w: w.ctx.task(w.x.read(), w.theirs.read()).start()],
    "ContextClosedError": [lambda w: w.closed.task(w.late.read()).start()],
    "TaskFailedError": [
        lambda w: failed(w).task(w.x.read()).start(),
        lambda w: fail(w.x).result(),
    ],
}


def ended(w: Any) -> Any:
    task = w.ctx.task(w.x.rw())
    task.start()
    task.end()
    return task


def in_task_itself(w: Any, do: Callable[[Any], Any]) -> None:
    with w.ctx.task(w.x.rw()) as task:
        do(task)


@stf.task
def two_data(x: stf.Read, y: stf.ReadWrite) -> None:
    y += x


def annotated_twice(x: Any) -> None:
    increment(x)


def element_without_arguments(th: Any) -> None:
    th.rank()


def thread_with_memory(th: Any, x: Any) -> None:
    x[th.rank()] = th.storage(0, np.float64)[0]


def lambda_that_forgets(x: stf.Read, y: stf.Write) -> None:
    np.add(x, 1)


def restored(w: Any, data: Any) -> None:
    w.ctx.checkpoint("state", {"x": w.x})
    w.ctx.restore("state", data=data)


def late_checkpoint(w: Any, task: Any) -> stf.Checkpoint:
    """A checkpoint of what a task writes that has not run when it is submitted."""
    go = threading.Event()
    w.ctx.host_launch(w.x.rw())(lambda x: go.wait(30) and None)
    task.on("host")(w.x)
    saved = w.ctx.checkpoint("state", {"x": w.x}, wait=False)
    go.set()
    if task is fail:
        saved.result()
    return saved


def waiting(w: Any, do: Callable[[], Any]) -> None:
    """While a task waits for what follows."""
    go = threading.Event()
    w.ctx.host_launch(w.x.rw())(lambda x: go.wait(30) and None)
    try:
        do()
    finally:
        go.set()


def with_bad_setting(do: Callable[[], Any]) -> None:
    before = stf.config.cpu_workers
    stf.config.cpu_workers = "a"  # type: ignore[assignment]
    try:
        do()
    finally:
        stf.config.cpu_workers = before


def documented(name: str) -> set[str]:
    """The errors that a docstring names."""
    found = RAISES.search(docstring(name))
    text = found[1] if found else ""
    return {error.strip() for line in text.splitlines() if line[:1].isalpha() for error in line.split(",")}


DOCUMENTED = {name: errors for name in PUBLIC if (errors := documented(name)) and name not in ALIASES}
SHOWN = [(name, error) for name, programs in CASES.items() for error in programs]


def test_each_documented_error_has_a_program_and_nothing_else_has() -> None:
    shown = {name: set(CASES.get(name, {})) | ELSEWHERE.get(name, set()) for name in {**CASES, **ELSEWHERE}}
    assert len(DOCUMENTED) > 95
    assert {
        name: errors ^ shown.get(name, set()) for name, errors in DOCUMENTED.items() if errors != shown.get(name)
    } == {}
    assert set(shown) - set(DOCUMENTED) == set()


def random_of_nobody() -> Any:
    """A generator whose context is gone."""
    ctx = stf.context(devices="cpu")
    rng = ctx.random(1)
    ctx.finalize()
    del ctx
    gc.collect()
    return rng


def is_raised(error: str, program: Callable[[Any], Any]) -> None:
    w = World()
    kind: Any = getattr(stf, error, None) or getattr(builtins, error)
    try:
        with pytest.raises(kind) as caught:
            program(w)
        assert len(str(caught.value)) > 15
    finally:
        w.close()


@pytest.mark.parametrize(("name", "error"), SHOWN)
def test_a_documented_error_is_raised(name: str, error: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    is_raised(error, CASES[name][error])


@pytest.mark.parametrize("error", TASKS)
def test_errors_of_tasks_are_raised(error: str) -> None:
    for program in TASKS[error]:
        is_raised(error, program)


def test_errors_of_tasks_stand_in_the_table() -> None:
    page = (DOCS / "reference" / "tasks.md").read_text()
    table = page.split("These methods raise:")[1].split("Other names:")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| ")][1:]
    named = {name for row in rows for name in re.findall(r"\b[A-Z]\w+Error\b", row)}
    assert named == {*TASKS, "ImportError", "CaptureError"}  # the last of these on GPUs alone
