"""Who uses which data when: noted while a program is planned, and followed while it runs.

A plan runs the program on simulated devices. Its tasks begin in the same order as in a run, and data are numbered as
they are made. So the numbers of the data that each task uses are all that has to be kept::

    planned   UseLog.begun(task)      notes the numbers of its data
    run       NextUses.begun(task)    compares them, and tells the engine which task uses each of them next

What the engine is told decides which replica goes when memory runs out, and which data are brought ahead of the next
task, and nothing else. So a program that differs from its plan computes the same values. It is followed as far as it is
the same; from the first task on that is not, eviction goes by last use, as without a plan. Looks at results are not
compared: they use nothing on a device.
"""

from __future__ import annotations

import logging
from array import array
from typing import Any

from stf._engine.access import AFFINE, READ

__all__ = ["Foreseen", "NextUses", "UseLog"]

log = logging.getLogger("stf")
NEVER = 0x3FFFFFFE  # as the engine has it


class Foreseen:
    """What knows a program ahead: a plan."""

    def uses(self) -> UseLog:
        """Return which data each task uses, in the order in which the tasks begin."""
        raise NotImplementedError


class UseLog:
    """The numbers of the data that tasks use, one task after the other."""

    def __init__(self) -> None:
        self.numbers = array("q")  # of the data of all tasks
        self.places = array("q")  # the memories where tasks read them; -1 for those that they do not read
        self.ends = array("q")  # where the data of each task end in these
        self.after_looks: set[int] = set()  # tasks before which the host looks at a result

    def begun(self, task: Any) -> None:
        """Note a task."""
        if task.kind == "wait":
            self.after_looks.add(len(self.ends))
            return
        memory = task.engine.places[task.where].memory
        for use in task.uses:
            place = memory if use.place == AFFINE else use.place
            self.places.append(place if use.mode & READ and not use.core.token else -1)
        self.numbers.extend(use.core.id for use in task.uses)
        self.ends.append(len(self.numbers))

    def next_uses(self) -> array[int]:
        """Return for each of `numbers` which task uses the data next: the first task is 0. `NEVER` for none."""
        found = array("q", bytes(8 * len(self.numbers)))
        following: dict[int, int] = {}
        end = len(self.numbers)
        for task in range(len(self.ends) - 1, -1, -1):
            start = self.ends[task - 1] if task else 0
            for i in range(start, end):
                found[i] = following.get(self.numbers[i], NEVER)
                following[self.numbers[i]] = task
            end = start
        return found


class NextUses:
    """Follows a program, and tells its engine when data are used next."""

    def __init__(self, engine: Any, planned: UseLog) -> None:
        self.engine, self.planned = engine, planned
        self.following = planned.next_uses()
        self.task = self.start = 0

    def begun(self, task: Any) -> None:
        """Tell the engine when the data of a task are used next.

        If the host looks at a result then, the data of the task behind that come meanwhile.
        """
        if task.kind == "wait":
            return
        if self.task == len(self.planned.ends):
            self.engine.forget_next_uses()  # the plan has no looks at results, for one
            return
        end, start = self.planned.ends[self.task], self.start
        uses = task.uses
        numbers = self.planned.numbers[start:end]
        differing = next((use for use, number in zip(uses, numbers, strict=False) if use.core.id != number), None)
        if differing is not None:
            self.leave(task, f"it uses {differing.core.label()}, which the plan does not have there")
        elif len(numbers) != len(uses):
            self.leave(task, f"it uses {len(uses)} data, and the plan has {len(numbers)}")
        else:
            for i, use in enumerate(uses, start):
                self.engine.next_use(use.core, self.following[i])
            self.task, self.start = self.task + 1, end
            if self.task in self.planned.after_looks and self.task < len(self.planned.ends):
                after = slice(end, self.planned.ends[self.task])
                self.engine.prefetch(self.planned.numbers[after], self.planned.places[after], self.task)

    def leave(self, task: Any, reason: str) -> None:
        """Follow the plan no longer."""
        log.warning(
            "task %s is not what the plan has as task %d: %s; from here on eviction goes by last use; plan the program "
            "that runs, with the same arguments",
            task.label(),
            self.task,
            reason,
        )
        self.engine.forget_next_uses()
