"""Thread hierarchies of `launch`: groups of threads in groups, and what the threads of a group share."""

from __future__ import annotations

import enum
import math
import operator
from typing import Any, NamedTuple

from stf.places.partition import Part

__all__ = ["GroupMemory", "Hierarchy", "Level", "con", "hw_scope", "mem", "par"]

MAX_DEPTH = 3


class hw_scope(enum.IntFlag):  # the name that users write
    """Which parts of a machine a level of a hierarchy may be spread over; they combine with ``|``.

    Examples
    --------
    >>> import stf
    >>> stf.par(stf.hw_scope.device | stf.hw_scope.block, stf.par(128, stf.hw_scope.thread)).depth
    2
    """

    thread = 1
    block = 2
    device = 4
    machine = 8
    all = 15


class GroupMemory(NamedTuple):
    """Bytes that the threads of a group share; see `mem`."""

    nbytes: int


def mem(nbytes: int) -> GroupMemory:
    """Give each group of a level memory that its threads share.

    Parameters
    ----------
    nbytes : int
        Bytes for each group; ``th.storage(level, dtype)`` is an array over them.

    Raises
    ------
    ValueError
        It is no integer, or negative.

    Examples
    --------
    >>> import stf
    >>> stf.con(256, stf.mem(64))
    con(256, mem(64))
    """
    if isinstance(nbytes, bool) or not hasattr(nbytes, "__index__") or nbytes < 0:
        raise ValueError(f"mem takes a number of bytes, got {nbytes!r}")
    return GroupMemory(operator.index(nbytes))


class Level(NamedTuple):
    """One level of a hierarchy.

    Attributes
    ----------
    is_synchronizable : bool
        Whether the threads of a group may wait for each other.
    width : int or None
        How many groups, or threads, the level has; None: as many as suit the place.
    is_static : bool
        Whether the width is compiled in.
    scope : hw_scope
        What the level may be spread over.
    nbytes : int
        GroupMemory that each group shares.
    """

    is_synchronizable: bool
    width: int | None = None
    is_static: bool = False
    scope: hw_scope = hw_scope.all
    nbytes: int = 0


class Hierarchy(NamedTuple):
    """Levels of threads, the outermost first: what `par` and `con` return.

    Attributes
    ----------
    levels : tuple of Level
    outer : Part or None
        The ranks in the outermost level that a place of a grid has; None for all.
    """

    levels: tuple[Level, ...]
    outer: Part | None = None

    @property
    def depth(self) -> int:
        """How many levels it has."""
        return len(self.levels)

    def with_widths(self, widths: tuple[int, ...]) -> Hierarchy:
        """Return the same, with a width for each level."""
        levels = tuple(level._replace(width=width) for level, width in zip(self.levels, widths, strict=True))
        return self._replace(levels=levels)

    def groups(self, level: int) -> int:
        """Return how many groups a level has; its threads are those with the same ranks in the levels before."""
        return math.prod(int(one.width or 0) for one in self.levels[:level])

    def __repr__(self) -> str:
        text = ""
        for level in reversed(self.levels):
            static = f"[{level.width}]" if level.is_static else ""
            parts = [str(level.width)] if level.width is not None and not level.is_static else []
            parts += [str(level.scope)] if level.scope != hw_scope.all else []
            parts += [f"mem({level.nbytes})"] if level.nbytes else []
            parts += [text] if text else []
            text = f"{'con' if level.is_synchronizable else 'par'}{static}({', '.join(parts)})"
        return text


class LevelMaker:
    """Makes hierarchies: ``par(128)``, ``con(256, mem(64))``; ``con[32]()`` has a width that is compiled in.

    Raises
    ------
    TypeError
        An argument is none of a width, an `hw_scope`, a `mem` and a hierarchy, or there are two of a kind.
    ValueError
        A width is not positive, or there are more than three levels.
    """

    def __init__(self, name: str, level: Level) -> None:
        self.name = name
        self.level = level

    def __getitem__(self, width: int) -> LevelMaker:
        return LevelMaker(self.name, self.level._replace(width=checked(width, self.name), is_static=True))

    def __call__(self, *parts: Any) -> Hierarchy:
        """Return a hierarchy with this level outermost.

        Parameters
        ----------
        *parts
            In any order, each at most once: the width (as many groups as suit the place by default), an `hw_scope`,
            a `mem`, and the hierarchy inside, up to three levels in all.

        Examples
        --------
        >>> import stf
        >>> stf.par(128, stf.con(256, stf.mem(64)))
        par(128, con(256, mem(64)))
        """
        key = (self.name, self.level, parts, tuple(map(type, parts)))
        try:
            found = made.get(key)
        except TypeError:  # an argument that cannot be hashed, of which the error speaks
            found = None
        if found is None:
            found = self.with_parts(parts)
            if len(made) < MOST_MADE:
                made[key] = found
        return found

    def with_parts(self, parts: tuple[Any, ...]) -> Hierarchy:
        """Return a hierarchy with this level outermost, made of what a call gets."""
        level, inner = self.level, None
        seen: set[str] = set()
        for part in parts:
            if isinstance(part, hw_scope):
                kind, level = "hw_scope", level._replace(scope=part)
            elif isinstance(part, GroupMemory):
                kind, level = "mem", level._replace(nbytes=part.nbytes)
            elif isinstance(part, Hierarchy):
                kind, inner = "inner hierarchy", part
            elif hasattr(part, "__index__") and not isinstance(part, bool):
                if level.is_static:
                    raise TypeError(f"{self.name}[{level.width}] has its width, got {part!r} too")
                kind, level = "width", level._replace(width=checked(part, self.name))
            else:
                raise TypeError(f"{self.name} takes a width, an hw_scope, a mem and a hierarchy, got {part!r}")
            if kind in seen:
                raise TypeError(f"{self.name} takes one {kind}, got {part!r} too")
            seen.add(kind)
        levels = (level, *(inner.levels if inner is not None else ()))
        if len(levels) > MAX_DEPTH:
            raise ValueError(f"a hierarchy has up to {MAX_DEPTH} levels, got {len(levels)}: {Hierarchy(levels)!r}")
        return Hierarchy(levels)

    def __repr__(self) -> str:
        return f"stf.{self.name}" + (f"[{self.level.width}]" if self.level.is_static else "")


def checked(width: Any, name: str) -> int:
    """Return a width."""
    if isinstance(width, bool) or not hasattr(width, "__index__") or width < 1:
        raise ValueError(f"{name} takes a width of at least 1, got {width!r}")
    return operator.index(width)


made: dict[Any, Hierarchy] = {}  # hierarchies that are written in a loop, by what they are made of
MOST_MADE = 256
par = LevelMaker("par", Level(False))
con = LevelMaker("con", Level(True))
