"""Logical data whose content goes back to the user: written back, released, or accepted as it is."""

from __future__ import annotations

from typing import Any

from stf import config
from stf._engine import adoption, recording_caches, retiring
from stf.tasks import validation
from stf.tasks.checks import must_be_outside, must_be_settled, must_not_be_in_a_body
from stf.tasks.task import ContextCore


def write_back(context: ContextCore, data: Any) -> None:
    """What `LogicalData.write_back` does."""
    must_be_outside(context, "write_back")
    must_be_settled(context, data)
    if data.core.home is None:
        raise ValueError(f"{data.core.describe()} was made from a shape; there is no array to write back to")
    context.engine.patiently(retiring.refresh, data.core)
    retiring.raise_if_poisoned(data.core)


def release(context: ContextCore, data: Any) -> None:
    """What `LogicalData.release` does."""
    must_be_settled(context, data)
    recording_caches.give_up_recordings(context.engine, data.core)
    if config.validate:
        validation.await_home(context.engine, data.core)
    context.engine.patiently(retiring.release_data, data.core)


def accept(context: ContextCore, data: Any) -> None:
    """What `LogicalData.accept` does."""
    must_not_be_in_a_body(context, "accept")
    must_be_settled(context, data)
    context.engine.patiently(retiring.accept, data.core)


def know_layout(data: Any) -> Any:
    """Return how data lie; wait for the task that finds it."""
    core = data.core
    if core.is_result and core.layout.dtype is None:
        context: ContextCore = data.context
        must_be_outside(context, "a wait for the shape of data", False, waits_for_one=True)
        context.engine.patiently(adoption.know_layout, core)
        retiring.raise_if_poisoned(core)
    return core.layout
