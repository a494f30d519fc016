# cython: binding=True
"""Launches of what was recorded, as tasks of their own: what of graphs and their replay every call goes through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import cython

from stf._engine.access import DataHandle
from stf._port.late_values import UNASKED
from stf._recording import launches
from stf.tasks.checks import must_be_open
from stf.values.params import Param

if TYPE_CHECKING:
    from stf.data.logical_data import LogicalData
    from stf.tasks.task import Task


def submit_routine(context, routine, name, values=None, rebinding=None):
    """Submit a routine as one task, and return it. A gathering scope launches its tasks before this one begins."""
    task = context.make_launch(name)
    launches.submit(context.engine, task, routine, values, rebinding)
    return task


@cython.cclass
class GraphCore:
    """What of a graph every launch needs; `TaskGraph` is the whole."""

    def __init__(self, name, context_ref):
        self.name = name
        self.launches = 0
        self._context_ref = context_ref
        self._recording: Any = None
        self._params = {}
        self._in_kernels = []  # parameters that kernels take, as such or computed from them
        self._draws = []  # parameters that are keys of random numbers, and the generators
        self._derived = []  # what else is computed from parameters
        self._handed_out = None

    def launch(self, data: Mapping[LogicalData, LogicalData] | None = None, /, **values: Any) -> Task:
        """Run the graph once, after and before all other tasks that use its data.

        Parameters
        ----------
        data : mapping, optional
            Other logical data, of the same shape, dtype and strides, to use in this launch in place of some that were
            recorded: ``g.launch({lX: lY})``. With-blocks on a device were recorded as they stood, and cannot.
        **values
            Of its parameters; those that are not given have their defaults.

        Raises
        ------
        TypeError
            There is no such parameter, or the value is none of the type that a kernel takes; or `data` maps what is no
            logical data.
        ValueError
            Data cannot stand for others: they differ in shape or dtype, or are used in the graph themselves.
        CaptureError
            A task of the graph cannot be done with other data, or the launch is itself recorded.
        TaskStateError
            Nothing was recorded, or the graph is closed.

        Examples
        --------
        >>> with stf.context(devices="cpu") as ctx:
        ...     x, y = ctx.logical_data_zeros(3), ctx.logical_data_zeros(3)
        ...     g = ctx.task_graph()
        ...     a = g.param("a", 1.0)
        ...     with g:
        ...         ctx.fill(x, a)
        ...     g.launch(a=5.0)
        ...     g.launch({x: y}, a=7.0)
        ...     print(x.numpy(), y.numpy())
        [5. 5. 5.] [7. 7. 7.]
        """
        if self._recording is None:
            self._must_be_recorded()
        if values:
            self._must_know(values)
            for value in values.values():
                if isinstance(value, Param):
                    value.must_be_recorded()
                elif isinstance(value, DataHandle):
                    raise TypeError(
                        f"a parameter takes a number, got {value!r}; pass {{recorded: other}} to launch with other data"
                    )
        context: ContextCore = self._context_ref()
        if context is None:
            context = self._context
        if context.engine.closed is not None:
            must_be_open(context)
        if data:
            return self._launch_with_other(data, context, values)
        return self.launch_with(context, values)

    def launch_rebound(self, context, values, rebinding):
        """As `launch_with`, for modules that are not compiled; private."""
        return self.launch_with(context, values, rebinding)

    def draw_at_launch(self, rng):
        """Return a parameter that is the next key of a generator at each launch; private."""
        name = f"_draw {len(self._draws)}"
        self._draws.append((name, rng))
        return self.param(name, rng.key_at(0))

    def launch_with(self, context, values, rebinding=None):
        """Launch what is recorded, in its context, with values of parameters that there are; private."""
        recording: Routine = self._recording  # which another thread may close
        if recording is None:
            self._must_be_recorded()
        if self._draws:  # keys of random numbers, in the order of the tasks that take them
            values = {**(values or {}), **{name: rng.draw().key for name, rng in self._draws}}
        if self._handed_out is not None:
            self._handed_out.wait()
        if values:
            for param in self._derived:  # before anything begins: what cannot be is no failure of a task
                param.value_in(values)
        try:
            for param in self._in_kernels:
                param.number_in(values)
            task = submit_routine(context, recording, self.name, values, rebinding)
        finally:
            for param in self._in_kernels:
                param.asked = UNASKED
        self.launches += 1
        return task
