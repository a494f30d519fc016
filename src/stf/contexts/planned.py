"""Contexts that a program opens while it is planned: they are on simulated devices, whatever it asks for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from stf.contexts.next_uses import UseLog
from stf.contexts.resources import Resources
from stf.devices.make import make_driver
from stf.devices.spec import DeviceSpec
from stf.errors import PlanError

current: list[Rehearsal] = []  # the innermost comes last


class Rehearsal:
    """One run of a program on simulated devices, which all its contexts share.

    Parameters
    ----------
    spec : DeviceSpec
        The devices.
    model : Model
        How long bodies and copies take.
    values : dict
        Values of logical data that the program asks for, by name.
    observe : bool
        Record what a report shows.
    notes_uses : bool
        Note which data each task uses.
    """

    def __init__(
        self, spec: DeviceSpec, model: Any, values: dict[str, Any], observe: bool, notes_uses: bool = False
    ) -> None:
        self.spec, self.observe, self.notes_uses = spec, observe, notes_uses
        self.driver = make_driver(spec, model)
        self.driver.values = values
        self.resources = Resources()
        self.resources._drivers[spec] = self.driver
        self.contexts: list[Any] = []

    def options(self, stream: Any, graph: Any, workers: Any) -> tuple[DeviceSpec, Resources]:
        """Return the devices and what is shared, for a context with these options.

        Raises
        ------
        PlanError
            The context is on a stream, or fills a graph, of the user's.
        """
        if stream is not None or graph is not None:
            what = "graph" if stream is None else "stream"
            raise PlanError(
                f"a context with {what}= works among work of yours, which a plan does not know; leave it out"
            )
        if workers is not None:
            self.driver.set_workers(workers)
        return self.spec, self.resources

    def take_in(self, context: Any) -> None:
        """Know a context that was just opened."""
        self.contexts.append(context)
        if self.notes_uses:
            context.engine.next_uses = UseLog()

    def largest(self, needs: str) -> Any:
        """Return the context with the most tasks; PlanError, with what follows from it, if the program opened none."""
        if not self.contexts:
            raise PlanError(f"the program opens no context, so {needs}; open one with stf.context()")
        return max(self.contexts, key=lambda one: one.engine.next_task)


@contextmanager
def rehearsing(rehearsal: Rehearsal) -> Iterator[Rehearsal]:
    """Let contexts that are opened meanwhile be part of a rehearsal."""
    current.append(rehearsal)
    try:
        yield rehearsal
    finally:
        current.remove(rehearsal)
        rehearsal.resources.stop()
