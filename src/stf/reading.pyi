"""The host's copy of one array; compiled."""

from typing import Any

from stf.kernels.launching import Launching
from stf.places import DataPlace

class Reading(Launching):
    def wait(self, data: Any, *, data_place: DataPlace | None = None, arrays: str | None = None) -> Any: ...

def read_if_quiet(context: Any, data: Any) -> Any: ...
def read_on_host(context: Any, data: Any) -> Any: ...
