"""Names of a package and methods of a class, whose module is loaded when they are first asked for.

A program pays for what it uses, and `import stf` goes without the rest.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def late_names(package: str, modules: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package.

    Parameters
    ----------
    package : str
        Its full name.
    modules : mapping of str to sequence of str
        By module, relative to the package, the names that it defines. The module itself is a name, too.
    """
    module_of = {name: module for module, names in modules.items() for name in names}

    def find(name: str) -> Any:
        if name in module_of:
            value = getattr(import_module(f"{package}.{module_of[name]}"), name)
        elif name in modules:
            value = import_module(f"{package}.{name}")
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        setattr(sys.modules[package], name, value)
        return value

    return find


class LateMethod:
    """A method that a module of stf defines; the function takes its place in the class at the first use."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def __set_name__(self, owner: type, name: str) -> None:
        self.owner, self.attribute = owner, name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        function = getattr(import_module(self.module), self.name)
        setattr(self.owner, self.attribute, function)
        return function.__get__(instance, owner)


class LateModule:
    """A module of stf by its full name, for the body of a class: what it defines is a `LateMethod` there."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> LateMethod:
        return LateMethod(self._name, name)
