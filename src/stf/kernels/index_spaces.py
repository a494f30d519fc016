"""Index spaces of kernels: shapes, boxes with bounds, and users' own."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from stf.kernels.captured import value_key
from stf.places.partition import Part, as_space

__all__ = ["IndexSpace", "box", "space_of", "space_of_shape"]

MAX_NDIM = 4


class BoxMaker:
    """Makes boxes: ``stf.box(2, 3)`` of extents, ``stf.box[5:8, 2:4]`` of bounds.

    Raises
    ------
    TypeError
        An extent or a bound is no integer.
    ValueError
        An extent is negative, or there are not 1 to 4 axes.

    Examples
    --------
    >>> import stf
    >>> stf.box(2, 3)
    Part(range(0, 2), range(0, 3))
    >>> stf.box[5:8, 2:4]
    Part(range(5, 8), range(2, 4))
    >>> stf.box((5, 8), (2, 4)) == stf.box[5:8, 2:4]
    True
    """

    def __call__(self, *extents: Any) -> Part:
        """Return the box of some extents, or of a pair of bounds for each axis.

        Parameters
        ----------
        *extents : int, or pair of int
            The extents, also as one tuple; or ``(start, stop)`` for each axis.

        Returns
        -------
        Part
            A range for each of 1 to 4 axes.
        """
        if len(extents) == 1 and isinstance(extents[0], tuple | list):
            extents = tuple(extents[0])
        pairs = [range(*axis) if isinstance(axis, tuple | list) and len(axis) == 2 else axis for axis in extents]
        return checked(Part(as_space(tuple(pairs))))

    def __getitem__(self, axes: Any) -> Part:
        return checked(Part(as_space(axes if isinstance(axes, tuple) else (axes,))))

    def __repr__(self) -> str:
        return "stf.box"


box = BoxMaker()


class IndexSpace(NamedTuple):
    """What a kernel runs over.

    Attributes
    ----------
    part : Part
        A range for each axis that the kernel counts along.
    ndim : int
        How many indices a body gets.
    coordinates : callable or None
        A user's function from the number of an element to its indices; `part` has one axis then.
    parameters : tuple
        Further arguments of that,
    keys : tuple
        and what tells them apart, since 1, 1.0 and True are equal, and 0.0 and -0.0.
    randoms : int
        How many generators of random numbers a body gets, before its further arguments.
    views : tuple
        How a body sees each array: None, or the shape of a whole, and the index of the array's first element in it.
    """

    part: Part
    ndim: int
    coordinates: Any = None
    parameters: tuple[Any, ...] = ()
    keys: tuple[Any, ...] = ()
    randoms: int = 0
    views: tuple[Any, ...] = ()


def space_of(shape: Any) -> IndexSpace:
    """Return the index space that a user says.

    Parameters
    ----------
    shape : int, tuple of int, Part, or object with ``index_to_coords``
        Extents (a logical data's ``shape``), a box, or a space of the user's own: it has ``ndim``, ``size``, and a
        static ``index_to_coords(index, *parameters)`` for its tuple ``parameters``.
    """
    coordinates = getattr(shape, "index_to_coords", None)
    if coordinates is None:
        part = checked(shape if isinstance(shape, Part) else Part(as_space(shape)))
        return IndexSpace(part, len(part))
    missing = [name for name in ("ndim", "size", "parameters") if not hasattr(shape, name)]
    if missing:
        raise TypeError(f"an index space with index_to_coords has ndim, size and parameters; {shape!r} lacks {missing}")
    part, parameters = Part(as_space(int(shape.size))), tuple(shape.parameters)
    return IndexSpace(part, int(shape.ndim), coordinates, parameters, tuple(map(value_key, parameters)))


space_of_shape = functools.lru_cache(maxsize=1024, typed=True)(space_of)  # of extents


def checked(part: Part) -> Part:
    """Return a box of 1 to 4 axes."""
    if not 1 <= len(part) <= MAX_NDIM:
        raise ValueError(f"an index space has 1 to {MAX_NDIM} axes, got {len(part)}: {part!r}")
    return part
