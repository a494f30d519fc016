"""What bodies get that is made of several arrays: containers of data, and data of several arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from stf.interop import adapters
from stf.values.containers import join


def add_group(groups: Any, accesses: list[Any], several: Any) -> list[Any]:
    """Add the accesses to data made of several arrays; return which accesses belong together."""
    known = [(i, 1, None) for i in range(len(accesses))] if groups is None else groups
    parts = several.expand()
    known.append((len(accesses), len(parts), several.rebuild))
    accesses.extend(parts)
    return known


class Parts:
    """The arrays of one object, which `shape` describes; it is built when the body runs: its content counts by then.

    A shape is None for one array, or (kind, what, the shapes of its parts); see `rebuild`. A "flat" one is a list or
    tuple of arrays alone, and says how many.
    """

    def __init__(self, views: list[Any], shape: Any) -> None:
        self.views = views
        self.shape = shape

    def __call__(self) -> Any:
        return rebuild(iter(self.views), self.shape)

    def like(self, wholes: Mapping[tuple[int, ...], Any]) -> Parts:
        """Return the same, whose arrays may be changed.

        `wholes` make objects of them, in place of those of an identity.
        """
        return Parts(list(self.views), with_others(self.shape, wholes) if wholes else self.shape)


def built(views: Iterable[Any]) -> list[Any]:
    """Return what a body gets: objects in place of their `Parts`."""
    return [view() if isinstance(view, Parts) else view for view in views]


def rebuild(values: Iterator[Any], shape: Any) -> Any:
    """Build a container again, of arrays this time, from the iterator `values`."""
    if shape is None:
        return adapters.drop_token(next(values))
    kind, what, parts = shape
    if kind == "plain":
        return what
    if kind == "flat":
        return what([adapters.drop_token(next(values)) for _ in range(parts)])
    if kind == "parts":
        return parts([next(values) for _ in range(what)])
    return join(kind, what, [rebuild(values, part) for part in parts])


def leaves(shape: Any) -> int:
    """Return how many accesses a container takes."""
    if shape is None:
        return 1
    kind, what, parts = shape
    if kind == "plain":
        return 0
    if kind == "flat":
        return int(parts)
    return what if kind == "parts" else sum(leaves(part) for part in parts)


def replaced_in(whole: Any, views: list[Any], shape: Any) -> str | None:
    """Say where a container that a body was given has something else in the place of a value; None if nowhere."""
    if shape is None or shape[0] == "parts":
        return None
    if shape[0] == "plain":
        return None if whole is shape[1] else ""
    kind, _, parts = shape
    places, added = places_in(whole, shape)
    if added is not None:
        return added
    first = 0
    for (name, item), part in zip(places, [None] * parts if kind == "flat" else parts, strict=False):
        count = leaves(part)
        if part is not None:
            inner = replaced_in(item, views[first : first + count], part)
            if inner is not None:
                return name + inner
        elif item is not views[first] and not (item is None and adapters.drop_token(views[first]) is None):
            return name
        first += count
    return None


def places_in(whole: Any, shape: Any) -> tuple[list[tuple[str, Any]], str | None]:
    """Return the items of a container with their places, and the place of one that was added; none if it is apart."""
    kind, what, parts = shape
    if kind == "dict":
        return [(f"[{key!r}]", whole.get(key)) for key in what], None
    if kind == "dataclass":
        known = getattr(whole, "__dict__", ())
        added = [name for name in known if name not in what[1] and name not in vars(what[0])]
        items = [(f".{name}", getattr(whole, name, None)) for name in what[1]]
        return items, f".{added[0]}" if added else None
    count = parts if kind == "flat" else len(parts)
    if kind not in ("flat", "sequence") or not isinstance(whole, (list, tuple)) or len(whole) < count:
        return [], None
    return [(f"[{i}]", item) for i, item in enumerate(whole)], f"[{count}]" if len(whole) > count else None


def libraries(shape: Any, outside: Any, within: Any) -> list[Any]:
    """Return what says which library each array of a container is of.

    `within` for those of objects of several arrays.
    """
    if shape is None:
        return [outside]
    kind, what, parts = shape
    if kind == "plain":
        return []
    if kind == "flat":
        return [outside] * parts
    return [within] * what if kind == "parts" else [one for part in parts for one in libraries(part, outside, within)]


def with_others(shape: Any, wholes: Mapping[tuple[int, ...], Any]) -> Any:
    """Return the shape with other data of several arrays in place of some."""
    if shape is None or shape[0] in ("plain", "flat"):
        return shape
    kind, what, parts = shape
    if kind != "parts":
        return (kind, what, [with_others(part, wholes) for part in parts])
    return (kind, what, wholes.get(parts.identity, parts))
