"""Windows: arrays over the memory of several parts, where these lie under one address.

A driver may map memory of several devices under one address (`Port.reserve`). Each part of a whole is then at home in
its own pages, and an array over all parts, or over one part and its neighbours' edges, is in place without a copy::

    pages      of device 0     │  of device 1     │  of device 2
    parts      ├── part 0 ─────┼── part 1 ────────┼── part 2 ──┤
    windows    ├──────────────── the whole ────────────────────┤
                              ├─ part 1, halo 1 ───┤

A window is data of its own, whose home is a range of that memory. A task that uses it uses the parts in it, too, all in
the same mode: `use_parts` adds them when the task begins. The parts order the task, bring their content home, and carry
its outcome. So a window is always valid, its version has no outcome, and nothing has to know which is newer.

A task that is recorded uses the parts in the recording, so a launch has them among its accesses already.

Rejected: the memory of the whole as one more replica of the whole. A copy to such a replica overwrites parts that were
written since, and a copy from it reads them. Rejected, too: a task that gets the parts as its arguments, put together
by the API. Each way to run a body would have had to know that several accesses make up one array.
"""

from __future__ import annotations

import cython

from stf._engine import parts
from stf._engine.claims import join_duplicates, resolved
from stf.errors import AccessError


def make_window(data: Data, whole: Data, neighbours):
    """Make data a window of a whole, in which the parts `neighbours` lie."""
    relation: Relation = parts.Relation(data, WINDOW, whole, None, None)
    relation.neighbours = neighbours
    data.linked = relation


def needs_parts(task: TaskCore, use: Access):
    """Return whether a task uses a window, and not yet the parts in it; a launch uses all that was recorded."""
    relation = relation_of(use.core)
    if relation.kind != WINDOW or task.kind == "graph":
        return False
    for item in relation.neighbours:
        known = use_of(task, item)
        if known is None or use.mode & ~known.mode:
            return True
    return False


def use_parts(engine: EngineState, task: TaskCore):
    """Let a task use the parts in its windows, where these are at home.

    Raises
    ------
    AccessError
        It uses a part twice, by itself or in windows, and writes it.
    ValueError
        It asks for a part elsewhere.
    """
    join_duplicates(engine, task)
    uses = list(task.uses)
    for item in task.uses:
        use: Access = item
        relation: Relation = use.core.linked
        if relation is None or relation.kind != WINDOW:
            continue
        for part in relation.neighbours:
            data: Data = part
            known: Access = next((other for other in uses if cython.cast(Access, other).core is data), None)
            if known is None:
                mine: Access = make_access_like(use, use.mode)
                mine.core = data
                mine.place = data.home.place
                uses.append(mine)
            elif known.mode != READ or use.mode != READ:
                raise AccessError(
                    f"task {task.label()} uses {data.describe()} twice, by itself and in a larger array, and writes "
                    "it; use either"
                )
            elif resolved(engine, task, known) != data.home.place:
                raise ValueError(
                    f"task {task.label()} asks for {data.describe()} at two data places at once; ask for one"
                )
    task.uses = tuple(uses)
    return 0


def use_of(task: TaskCore, data: Data):
    """Return how a task uses data; None if it does not."""
    for item in task.uses:
        use: Access = item
        if use.core is data:
            return use
    return None
