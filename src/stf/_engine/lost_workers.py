"""What a context knows of data whose worker is lost.

No replica there counts as valid any more. Data that have another one go on with that; the others are poisoned, as if a
task that failed had been their last writer. A worker's own tasks fail by themselves, each at its turn: their data are
not told here. Memory stays as it is: a worker that takes the place of a lost one has it under the same numbers.
"""

from __future__ import annotations

from stf._engine.failures import Failure
from stf._engine.versions import is_open


def lose(engine: EngineState, place, error):
    """Know that a place has lost its memory."""
    engine.gate.enter()
    try:
        engine.place(place).is_lost = True
        forget_replicas(engine, place, error)
    finally:
        engine.gate.leave()


def regain(engine: EngineState, place, action):
    """Do ``action()`` while no task is open at a place, whose memory has nothing of before; return what it returns."""
    engine.gate.enter()
    try:
        if any([task.where == place for task in engine.opened()]):
            return False
        forget_replicas(engine, place, None)
        engine.place(place).is_lost = not action()
        return not engine.place(place).is_lost
    finally:
        engine.gate.leave()


def forget_replicas(engine: EngineState, place, error):
    """Take no replica at a place for valid; poison what had no other one, for an error."""
    for item in list(engine.coherency.data.values()):
        data: Data = item
        version = outermost(data.version)
        replica: Replica = version.find(place)
        if replica is None or replica.state == INVALID:
            continue
        replica.state = INVALID
        version.valid -= 1
        if version.valid or error is None:
            engine.coherency.reorder(version)
            continue
        if version.outcome is None or not is_open(version.outcome):
            failure = Failure(f"(memory of {engine.place(place).name})", "", error, [data.label()])
            version.outcome = Outcome(False, failure)
            engine.failures.append(failure)
