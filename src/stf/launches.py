"""Launches of what was recorded, submitted as tasks of their own."""

from __future__ import annotations

import threading

from stf._engine import playing


def submit_routine(context, routine, name, values=None, rebinding=None):
    """Submit a routine as one task, of its own even where an epoch gathers tasks."""
    mine: ContextCore = context
    engine: Engine = mine.engine
    epoch = engine.epoch
    task = mine.make_launch(name)
    if epoch is None or not epoch.implicit or (engine.scope is not None and engine.scope is not epoch.scope):
        playing.submit(engine, task, routine, values, rebinding)
        return
    with epoch.lock:
        before, epoch.launcher = epoch.launcher, threading.get_ident()  # nobody gathers tasks meanwhile
        try:
            epoch.flush()
            playing.submit(engine, task, routine, values, rebinding)
        finally:
            epoch.launcher = before
