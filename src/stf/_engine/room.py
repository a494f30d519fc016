"""What an action of the engine waits for that had to stop: memory, or an end that is not known yet."""

from __future__ import annotations

import time
from typing import Any

from stf._engine import host_waits, recording_caches, thread_turns

BODY_STEP_S = 0.0005  # how often a context that ends looks whether a body of another one still uses it
PATIENT = 16  # pauses without a sleep


def end_pause(engine: Any, events: Any, retries: int) -> None:
    """Let what a pause was for come about; no gate may be held."""
    recording_caches.give_up_left(engine)
    wait_outside(engine, events, retries)


def find_room(engine: Any, task: Any, reason: Exception) -> bool:
    """Let go of memory that a task lacked, or wait for it; False if that is no use."""
    if recording_caches.make_room(engine) or thread_turns.waits_for_room(task, reason):
        return True
    if engine.gathering is not None:
        engine.gathering.take_back()
    return False


def wait_outside(engine: Any, events: Any, retries: int) -> None:
    """Wait for what a pause was for; no gate may be held.

    On a device that is lost no wait takes time, and bodies on other threads need some to end.
    """
    if events.count:
        host_waits.wait(engine.root, events)
    if events.count == 0 or retries >= PATIENT:
        time.sleep(BODY_STEP_S)
