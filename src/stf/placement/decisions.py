"""Decisions of a run, kept in a file and repeated: ``STF_PLACEMENT=record:FILE``, then ``replay:FILE``.

Places are chosen by measured times, so two runs of a program may place its tasks differently. A file has the places of
one run, by context and by the order in which its tasks were submitted. A run that repeats them must submit the same
tasks; the first one that differs is an error. Where several threads submit, their order is not repeated.
"""

from __future__ import annotations

from typing import Any

from stf._support.whole_file import whole_file
from stf.errors import PlaceError

__all__ = ["Decisions", "decisions_for"]

RECORD, REPLAY = "record", "replay"
recorded: dict[str, list[Decisions]] = {}  # by file, in the order in which the contexts of this process were opened


class Decisions:
    """The places that were chosen for the automatic tasks of a context.

    Parameters
    ----------
    path : str
        The file.
    places : list of (str, int), optional
        The names of the tasks of an earlier run, and their places, which are repeated.
    """

    def __init__(self, path: str, places: list[tuple[str, int]] | None = None) -> None:
        self.path, self.repeated = path, places
        self.made: dict[int, tuple[str, int]] = {}  # by the number of the task

    def place_of(self, number: int, task: Any, count: int) -> int:
        """Return the place of a task, by its number; 0 where it is chosen.

        Raises
        ------
        PlaceError
            The earlier run had another task, or a place that is not there.
        """
        if self.repeated is None:
            return 0
        name, place = self.repeated[number - 1] if number <= len(self.repeated) else ("none", 0)
        if name != name_of(task) or not 1 <= place <= count:
            raise PlaceError(
                f"STF_PLACEMENT repeats {self.path}, where automatic task {number} is {name} at place {place}, and "
                f"here it is {task.label()} ({task.call_site}) with {count} places; record this program again"
            )
        return place

    def note(self, number: int, task: Any, place: int) -> None:
        """Keep the place that was chosen for a task."""
        if self.repeated is None:
            self.made[number] = name_of(task), place

    def write(self) -> None:
        """Write what the contexts of this process have chosen so far, where that is recorded."""
        if self.repeated is None:
            import json  # which few programs need, and which takes its time

            contexts = [[one.made[number] for number in sorted(one.made)] for one in recorded[self.path]]
            with whole_file(self.path) as partial:
                partial.write_text(json.dumps({"format": 1, "contexts": contexts}), encoding="utf-8")


def name_of(task: Any) -> str:
    """Return by what a task is known again."""
    return str(task.symbol or task.kind)


def decisions_for(setting: str | None) -> Decisions | None:
    """Return the decisions of the next context, by the setting ``STF_PLACEMENT``.

    Raises
    ------
    ValueError
        The setting is malformed, or the file has no decisions, or fewer contexts.
    """
    if setting is None:
        return None
    import json
    from pathlib import Path

    what, _, path = setting.partition(":")
    if what not in (RECORD, REPLAY) or not path:
        raise ValueError(f"STF_PLACEMENT is record:FILE or replay:FILE, got {setting!r}")
    earlier = recorded.setdefault(path, [])
    places = None
    if what == REPLAY:
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            places = [(str(name), int(place)) for name, place in content["contexts"][len(earlier)]]
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise ValueError(
                f"STF_PLACEMENT: {path} has no decisions of context {len(earlier) + 1}: {error!r}; write it with "
                f"STF_PLACEMENT=record:{path}"
            ) from None
    earlier.append(Decisions(path, places))
    return earlier[-1]
