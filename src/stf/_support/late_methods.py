"""Methods whose module is loaded when they are first asked for, so that `import stf` goes without it."""

from __future__ import annotations

import importlib
from typing import Any


class LateMethod:
    """A method that a module of stf defines; the function takes its place in the class at the first use."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def __set_name__(self, owner: type, name: str) -> None:
        self.owner, self.attribute = owner, name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        function = getattr(importlib.import_module(self.module), self.name)
        setattr(self.owner, self.attribute, function)
        return function.__get__(instance, owner)


class LateModule:
    """A module of stf by its full name, for the body of a class: what it defines is a `LateMethod` there."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> LateMethod:
        return LateMethod(self._name, name)
