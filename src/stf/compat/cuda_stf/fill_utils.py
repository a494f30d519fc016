"""`init_logical_data`: fill data with a value."""

from __future__ import annotations

from typing import Any

from stf.data.filling import submit_fill


def init_logical_data(ctx: Any, ld: Any, value: Any, data_place: Any = None, exec_place: Any = None) -> None:
    """Fill data with a value, by a task; any element type will do."""
    inner = ctx._open_inner("init_logical_data")
    where = None if data_place is None else data_place._place
    submit_fill(inner, ld._data, value, where, None if exec_place is None else exec_place._place)
