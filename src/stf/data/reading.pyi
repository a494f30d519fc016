"""The host's copy of one array; compiled."""

from typing import Any

from stf.places.places import DataPlace
from stf.tasks.task import ContextCore

def wait(context: ContextCore, data: Any, *, data_place: DataPlace | None = None, arrays: str | None = None) -> Any: ...
def read_if_quiet(context: Any, data: Any) -> Any: ...
def read_on_host(context: Any, data: Any) -> Any: ...
