"""Types of the compiled module."""

import types
from collections.abc import Callable
from typing import Any

from stf.kernels.arguments import Kernel
from stf.kernels.captured import Captured
from stf.kernels.launching import Config

class Plan:
    is_for: Callable[[Any], bool] | None
    def __init__(
        self,
        task: Any,
        body: types.FunctionType,
        construct: Any,
        items: tuple[Any, ...],
        extra: tuple[Any, ...],
        submit: Callable[[Any, tuple[Any, ...], tuple[Any, ...]], None] | None,
    ) -> None: ...
    def launches(self, kernel: Kernel, shape: Config, before: tuple[Any, ...], after: tuple[Any, ...]) -> Plan: ...

def remember(plan: Plan, body: types.FunctionType, captured: Captured) -> None: ...
