"""Where a task runs: the one module of the API that writes `TaskCore.where`. Compiled.

A task gets its place in two steps::

    the task is made    wanted(context, argument)    a number, or a word below 0 that stands for what is not known yet
    it begins           settle(task)                 its accesses are known: a number, for good

In between, `where` may be a word, and nothing may look a place up by it: the engine indexes its places, unchecked. So
whoever begins a task calls `settle` before anything else. From then on the place stays, as the task's arrays and
streams are of it; also when the task begins again, after it had to wait for memory. A recording keeps the places that
were chosen while it was recorded, since its nodes have addresses and streams of these.
"""

from __future__ import annotations

import cython

from stf.places import places
from stf.places.places import Grid, is_auto
from stf.places.table import current_place_code, place_code, where_code

active_places: list = places.active_places


class PlacingContext:
    """What of a context says where its tasks run."""

    def attach(self, engine, default_code, codes=None, ordinal_of_current=None):
        """Give the context its engine, and say what its places and its default place are."""
        self.engine, self.default_code = engine, default_code
        self.ordinal_of_current, self.codes = ordinal_of_current, codes or {}

    def choose_places(self, placement, by_default):
        """Let `placement` choose the places of tasks that are automatic: also of those that name none, `by_default`."""
        self.placement, self.is_automatic = placement, by_default
        self.codes = {**self.codes, "auto": AUTO}

    def hold_tasks(self, window):
        """Let a window hold tasks until they are planned."""
        engine = self.engine
        self.window = engine.window = window

    def look_for_repeats(self, finder):
        """Let a finder look at the tasks whose bodies are known."""
        engine = self.engine
        self.finder = engine.window = finder

    def default_place(self):
        """Return the place outside of any ``with place``: the current device, if there are several, or the first."""
        ask = self.ordinal_of_current
        return self.default_code if ask is None else self.codes.get(ask(), self.default_code)

    def default_place_code(self):
        """Do as `default_place`, for modules that are not compiled."""
        return self.default_place()

    def place_here(self):
        """Return the place of a task of this thread that names none."""
        if active_places[0]:  # some thread is in a ``with place``
            stack = places.defaults()
            if stack:
                return wanted(self, stack[len(stack) - 1])
        return AUTO if self.is_automatic else self.default_place()


def wanted(context, place):
    """Return what a place argument means to a task: the number of a place, or a word below 0.

    `place` is what users call a place, or None for the default place of this thread.
    """
    return context.place_here() if place is None else named(context, place)


def named(context, place):
    """Return what a place that is given means to a task; None is no place."""
    if is_auto(place):
        return context.default_place() if context.placement is None else AUTO
    return place_code(context, place)


def settle(task):
    """Choose the place of a task that is about to begin, unless it has one."""
    if task.where == AUTO:
        context = cython.cast(PlacingContext, task.context)
        task.where = context.placement.choose(task, context)
    return 0


def can_be_held(task):
    """Return whether a task waits until it is planned where it runs: then `hold` it instead of beginning it."""
    if task.where != AUTO:
        return False
    window = cython.cast(PlacingContext, task.context).window
    return window is not None and window.takes()


def hold(task, submit):
    """Hold a task until it is planned; ``submit(task)`` is the rest of its call."""
    task.is_held = True
    cython.cast(PlacingContext, task.context).window.hold(task, submit)
    return 0


def takes_pure(task, function, fn, values, shapes):
    """Return whether a call of a pure function is held for a window that comes again, or submitted in its turn."""
    finder: RepeatFinder = cython.cast(PlacingContext, task.context).finder
    return finder is not None and finder.takes_call(task, function, fn, values, shapes)


def take_back_place(task):
    """Let a task that could not begin count for nothing where places are chosen."""
    if task.placed and task.context is not None:
        cython.cast(PlacingContext, task.context).placement.take_back(task)
    return 0


def place_as_planned(task, place):
    """Let a task that was held begin at a place of the engine's."""
    task.is_held = False
    task.where = place
    return 0


def place_by_number(task, place):
    """Let a task run at a place of the engine's, whatever would choose it."""
    task.where = place
    return 0


def place_here(task, context):
    """Let a task run at the default place of this thread."""
    if active_places[0] or context.is_automatic or context.ordinal_of_current is not None:
        task.where = context.place_here()
    else:
        task.where = context.default_code
    return 0


def place_launch(task, context):
    """Let a launch be at the default place of this thread: the places of its tasks are recorded.

    Where other processes keep recordings, it begins and ends here, which saves a way to one of them and back.
    """
    if task.engine.root.parcels is not None:
        return place_on_host(task)
    task.where = current_place_code(context) if active_places[0] else context.default_place()
    return 0


def place_at(task, context, place):
    """Let a task run at `place`."""
    task.where = named(context, place)
    return 0


def place_as_argument(task, context, place):
    """Let a task run at `place`, which may be a grid of several: `SEVERAL`."""
    task.where = SEVERAL if isinstance(place, Grid) and place.size > 1 else named(context, place)
    return 0


def place_on_host(task):
    """Let a task run on the host."""
    task.where = 0
    return 0


def place_as_function(task, context, place, is_fixed):
    """Let a call of a task function run where its ``.on(place)`` says, or at the default place; data are places, too.

    One that `is_fixed` is a number or a word, which the context knows without a look at what it means.
    """
    if place is None:
        task.where = context.place_here()
        return 0
    code = context.codes.get(place) if is_fixed else None
    if code is None:
        code = named(context, place) if is_auto(place) else where_code(context, place)
    task.where = code
    return 0
