"""What completion shows of public classes and of their objects: the names that the reference documents."""

from __future__ import annotations

from typing import Any


class ShownClass(type):
    """The class of public classes, so that completion leaves machinery out of these, too."""

    _shown: Any

    def __dir__(cls) -> list[str]:
        names = list(type.__dir__(cls))
        return [name for name in names if name.startswith("__") or name in cls._shown] if is_ours(cls) else names


class Shown(metaclass=ShownClass):
    """A public class; ``_shown`` are the names that completion shows. A user's class that extends it shows all."""

    __slots__ = ()
    _shown: Any = ()

    def __dir__(self) -> list[str]:
        return sorted(self._shown) if is_ours(type(self)) else list(object.__dir__(self))


def is_ours(cls: type) -> bool:
    """Return whether a class is defined in stf."""
    return cls.__module__.partition(".")[0] == "stf"


def public(names: list[str], *hidden: str) -> list[str]:
    """Return those of the names in a class, its ``dir()``, that completion shows: not what begins with ``_``."""
    return [name for name in names if not name.startswith("_") and name not in hidden]
