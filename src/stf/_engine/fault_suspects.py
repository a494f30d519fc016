"""Who may have lost a device: the tasks that were in flight on it, as far as the engine can tell.

Only what it keeps anyway is asked: the last writers of each data, the last tasks that wrote nothing, what is known to
be complete, and the open tasks. So tasks that were complete may be among them, but not one whose results were written
again.
"""

from __future__ import annotations

from stf._engine import lost_workers
from stf._engine.versions import outermost, writer_text
from stf._port.events import sequence_of


class Suspects:
    """What of an engine is asked when a driver loses a device.

    Parameters
    ----------
    engine : Engine
        Whose tasks.
    """

    __slots__ = ("engine",)

    def __init__(self, engine):
        self.engine = engine

    def on(self, device):
        """Return the tasks that may have been in flight on a device of the driver, the last ones first; -1: on any."""
        engine = self.engine
        asking = [engine.coherency.asking] if engine.coherency.asking is not None else []
        begun = [task for task in asking + engine.opened() if self.is_there(task.where, device)]
        found = [f"task {task.label()} at {task.call_site}" for task in begun]
        for data in sorted(engine.coherency.data.values(), key=newest, reverse=True):
            version = outermost(data.version)  # outside of all recordings, which nothing runs for
            if any(self.is_in_flight(event, device) for event in version.writers.tolist()):
                found.append(writer_text(version.wrote, version.wrote_code, version.wrote_lasti))
        for event, name, code, lasti in reversed(engine.readers):
            if self.is_in_flight(event, device):
                found.append(writer_text(name, code, lasti))
        return list(dict.fromkeys(found))

    def lose_worker(self, device, error):
        """Know that a remote worker, a device of the driver, is lost."""
        lost_workers.lose(self.engine, device + 1, error)

    def regain_worker(self, device, action):
        """Do ``action()`` while no task is open there, for a worker that took the place of a lost one."""
        return lost_workers.regain(self.engine, device + 1, action)

    def give_up(self):
        """The driver will call none of the bodies that are left in graphs."""
        for calls in list(self.engine.calling.values()):
            calls.give_up()

    def is_in_flight(self, event, device):
        """Return whether an event on a device is not known to be complete."""
        place = self.engine.root.place_in_flight(event)
        return place >= 0 and self.is_there(place, device)

    def is_there(self, place, device):
        """Whether a place of the engine's is that device of the driver, or a stream or context of the user's there."""
        return device + 1 in (place, self.engine.places[place].memory) or (device < 0 and place > 0)


def newest(data):
    """Data whose last writer has the highest number in its lane come first."""
    events = outermost(data.version).writers.tolist()
    return max(map(sequence_of, events), default=0)
