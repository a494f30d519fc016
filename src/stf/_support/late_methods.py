"""Methods whose module is loaded when they are first asked for, so that `import stf` goes without it."""

from __future__ import annotations

import importlib
from typing import Any


class LateMethod:
    """A method that a module of stf defines; the function takes its place in the class at the first use.

    Parameters
    ----------
    module : str
        The full name of the module.
    name : str
        The function's name there.
    """

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def __set_name__(self, owner: type, name: str) -> None:
        self.owner, self.attribute = owner, name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        function = getattr(importlib.import_module(self.module), self.name)
        setattr(self.owner, self.attribute, function)
        return function.__get__(instance, owner)
