"""How a context is wired: a backend on a driver, an engine on the backend, and what both are told of the context.

Compiled, since programs open contexts by the thousand: the fields of the engine are set as fields.
"""

from __future__ import annotations

import weakref

import cython

from stf import config
from stf._backends.closed import ClosedPort
from stf._backends.graph import GraphBackend
from stf._backends.timed import TimedBackend
from stf._engine import ends
from stf._engine.fault_suspects import Suspects
from stf._support.profilers import shows_ranges
from stf.contexts import arguments, observing
from stf.data.registry import Registry
from stf.devices.lanes import lanes_of
from stf.devices.make import cuda
from stf.interop.arrays import producer_of
from stf.values.reducers import KEEP_PREVIOUS

MOST_SPARE: cython.longlong = 1 << 28  # bytes for each place: memory of dropped data that new data take over


def wire(context, driver, arrays, memory_limit, max_pending, observe, use_graph):
    """Make what orders the tasks of a context, on a driver; it is the context's if that shares none.

    Parameters
    ----------
    context : Context
        It knows its devices and its caller.
    driver : Driver
        What does the work.
    arrays : str or None
        Library of the arrays that bodies get.
    memory_limit : int or None
        Bytes of each device.
    max_pending : int
        Bodies in flight.
    observe : str or bool
        What is recorded of the tasks.
    use_graph : bool
        Whether tasks are gathered.
    """
    spec, caller = context._spec, context._caller
    count: cython.int = spec.count
    backend = TimedBackend if driver.stamps is not None and observing.observes_times(observe) else StreamBackend
    port: Port = backend(driver, lanes_of(spec), context._resources is None)
    bound: cython.longlong = 0 if memory_limit is None else arguments.memory_bound(memory_limit)
    limits = [bound] * (count + 1)
    if not spec.shares_host:
        limits[0] = 0
    engine: Engine = Engine(port, spec.places(driver), limits, driver.max_workers, max_pending)
    engine.keep_previous = KEEP_PREVIOUS
    engine.context, engine.arrays = weakref.ref(context), arrays
    engine.make_graph_port, engine.ask_producer = GraphBackend, producer_of
    if config.validate or config.hostile is not None:
        engine.validate = engine.watches = driver.values is None and spec.driver != "remote"
    if not engine.validate and caller is None:
        for item in engine.coherency.pools:
            cython.cast(Pool, item).most_spare = MOST_SPARE
    engine.adopts = driver.adopts and bound == 0 and caller is None
    engine.blocking = config.blocking and not (caller is not None and caller.captured)
    ordinal_of_current = cuda("devices").current_ordinal if context.on_cuda and count > 1 else None
    context.attach(engine, 1 if count else 0, spec.codes, ordinal_of_current)
    if caller is not None:
        start_after(context, caller)
    context.registry = Registry()
    context._more_places, context._graphs, context.randoms = {}, {}, {}
    if use_graph:
        from stf.graphs.graph_scope import GatheringScope

        engine.gathering = GatheringScope(context, True, "the graph of this context")
    if observe is not False or config.dot_file or shows_ranges():
        observing.setup_observers(context, observe)
    context._suspects = Suspects(engine)
    driver.watch_loss(context._suspects)
    return 0


def cut_off(context: ContextCore, reason):
    """In the child of a fork: let nothing of a context reach what its parent has."""
    ends.abandon(context.engine, ClosedPort(f"{context!r} {reason}"), reason)


def start_after(context: ContextCore, caller):
    """Begin on a caller's stream; its device is the default place."""
    context.attach(context.engine, context.codes[caller.ordinal], context.codes)
    try:
        context.engine.port.callers.start_after(context.default_code, caller.pointer, caller.captured)
    except BaseException:
        context.engine.port.shutdown()
        raise
