"""`logical_data`, `dep`, and `cond`, as names over stf's logical data, accesses and conditions."""

from __future__ import annotations

import numbers
import operator
from collections.abc import Callable, Iterator
from enum import IntFlag
from typing import Any

import numpy as np

import stf
from stf.compat.cuda_stf.places import data_place

MOST_TERMS = 8
OPERATORS = {">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le}
CONDITION_TYPES = tuple(map(np.dtype, (np.float32, np.float64, np.int32, np.int64)))


class AccessMode(IntFlag):
    """How a task uses data."""

    NONE = 0
    READ = 1
    WRITE = 2
    RW = 3


class dep:
    """A dependence of a task: data, a mode, and perhaps a data place."""

    __slots__ = ("dplace", "ld", "mode")

    def __init__(self, ld: Any, mode: int, dplace: Any = None) -> None:
        if isinstance(mode, bool) or not isinstance(mode, (int, np.integer)):
            raise TypeError(f"a mode is an AccessMode, got {mode!r}")
        if int(mode) not in (AccessMode.READ, AccessMode.WRITE, AccessMode.RW):
            raise ValueError(f"a mode is AccessMode.READ, WRITE or RW, got {mode!r}")
        if getattr(dplace, "_kind", "") == "replicated" and mode != AccessMode.READ:
            raise ValueError("data_place.replicated is for read dependences; write the data at another place")
        self.ld = ld
        self.mode = int(mode)
        self.dplace = dplace

    def __iter__(self) -> Iterator[Any]:
        yield self.ld
        yield self.mode
        yield self.dplace

    def get_ld(self) -> Any:
        """Return the data."""
        return self.ld

    def __repr__(self) -> str:
        return f"dep({self.ld!r}, {self.mode}, {self.dplace!r})"


def access_of(one: dep, affine: data_place | None) -> Any:
    """Return the access of stf's that a dependence is; `affine` is what an affine data place means."""
    place = one.dplace
    if place is not None and not isinstance(place, data_place):
        raise TypeError(f"the data place of a dependence is a data_place, got {place!r}")
    if place is None or (place._place is None and place._kind == "affine"):
        place = affine
    inner = None if place is None else place._place
    data = one.ld._data
    mode = (None, data.read, data.write, data.rw)[one.mode]
    assert mode is not None
    return mode() if inner is None or data.is_token else mode(inner)


def read(ld: Any, dplace: Any = None) -> dep:
    """Return a dependence that reads."""
    return dep(ld, AccessMode.READ, dplace)


def write(ld: Any, dplace: Any = None) -> dep:
    """Return a dependence that overwrites."""
    return dep(ld, AccessMode.WRITE, dplace)


def rw(ld: Any, dplace: Any = None) -> dep:
    """Return a dependence that reads and writes."""
    return dep(ld, AccessMode.RW, dplace)


class Data:
    """What logical data of both kinds of contexts have."""

    __slots__ = ("__weakref__", "_data", "_readonly")

    _data: Any  # of stf
    _readonly: bool  # from now on, whatever its memory allows

    @classmethod
    def _of(cls, data: Any) -> Any:
        made = cls.__new__(cls)
        made._data, made._readonly = data, False
        return made

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The extents; None of a token."""
        shape: tuple[int, ...] | None = self._data.shape
        return shape

    @property
    def dtype(self) -> Any:
        """The element type; None of a token."""
        return self._data.dtype

    @property
    def symbol(self) -> str | None:
        """The name."""
        name: str | None = self._data.name
        return name

    def set_symbol(self, name: str) -> None:
        """Name the data."""
        self._data.set_symbol(name)

    @property
    def readonly(self) -> bool:
        """Whether it may only be read."""
        return self._readonly or bool(self._data.readonly)

    @property
    def _is_token(self) -> bool:
        return bool(self._data.is_token)

    def read(self, dplace: Any = None) -> dep:
        """Return a dependence that reads."""
        return dep(self, AccessMode.READ, dplace)

    def write(self, dplace: Any = None) -> dep:
        """Return a dependence that overwrites.

        Raises
        ------
        ValueError
            The data are read-only.
        """
        self._must_be_writeable("write()")
        return dep(self, AccessMode.WRITE, dplace)

    def rw(self, dplace: Any = None) -> dep:
        """Return a dependence that reads and writes.

        Raises
        ------
        ValueError
            The data are read-only.
        """
        self._must_be_writeable("rw()")
        return dep(self, AccessMode.RW, dplace)

    def _must_be_writeable(self, what: str) -> None:
        if self.readonly:
            raise stf.AccessError(
                f"{what} of {self!r}, which is read-only: its array cannot be written; register an array that can"
            )

    def empty_like(self) -> Any:
        """Return data of the same shape and dtype without content."""
        return self._of(self._data.empty_like())

    like_empty = empty_like

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(shape={self.shape}, dtype={self.dtype}, is_token={self._is_token}, "
            f"symbol={self.symbol!r})"
        )


class logical_data(Data):
    """Data of a `context`: made by its ``logical_data`` methods."""

    __slots__ = ("_borrow",)

    _borrow: Callable[[Any], Any]  # makes a context of the one that is borrowed

    def __new__(cls, ctx: Any = None, buf: Any = None, dplace: Any = None, name: str | None = None) -> Any:
        """Register an array in a context, as ``ctx.logical_data`` does."""
        if ctx is None or buf is None:
            return super().__new__(cls)
        return ctx.logical_data(buf, dplace, name)

    @staticmethod
    def token(ctx: Any) -> Any:
        """Return a token of a context."""
        return ctx.token()

    @staticmethod
    def init_by_shape(ctx: Any, shape: Any, dtype: Any, name: str | None = None) -> Any:
        """Return data of a context without content."""
        return ctx.logical_data_empty(shape, dtype, name)

    def empty_like(self) -> Any:
        """Return data of the same shape and dtype without content."""
        made = super().empty_like()
        made._borrow = self._borrow
        return made

    like_empty = empty_like

    def borrow_ctx_handle(self) -> Any:
        """Return the context as one that submits, and cannot be finalized."""
        return self._borrow(self._data.context)


class stackable_logical_data(Data):
    """Data of a `stackable_context`: made by its ``logical_data`` methods."""

    __slots__ = ()
    __array_ufunc__ = None  # so that a comparison with a number of NumPy's is ours

    def set_read_only(self) -> None:
        """Refuse dependences that write, from now on."""
        self._readonly = True

    def push(self, mode: Any, dplace: Any = None) -> None:
        """Say how a scope uses the data, which it finds out by itself.

        Raises
        ------
        ValueError
            The data are read-only and the mode writes, or the mode is unknown.
        """
        checked = dep(self, mode, dplace)
        if checked.mode != AccessMode.READ:
            self._must_be_writeable(f"push({AccessMode(checked.mode)!r})")

    def __gt__(self, other: Any) -> cond:
        return cond(self, ">", threshold_of(other))

    def __lt__(self, other: Any) -> cond:
        return cond(self, "<", threshold_of(other))

    def __ge__(self, other: Any) -> cond:
        return cond(self, ">=", threshold_of(other))

    def __le__(self, other: Any) -> cond:
        return cond(self, "<=", threshold_of(other))


def threshold_of(value: Any) -> Any:
    """Return a real number; TypeError for anything else."""
    if isinstance(value, Data):
        raise TypeError("comparing two logical data is not supported here; stf itself does: ctx.while_loop(lX > lY)")
    if isinstance(value, np.ndarray) and value.shape == ():
        value = value[()]
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (numbers.Real, np.floating, np.integer)):
        raise TypeError(f"the threshold of a condition is a real scalar, got {value!r}")
    return value


class cond:
    """A condition of a loop: ``cond(lX, ">", 0.1)``, or ``lX > 0.1``; ``&``, ``|`` and ``~`` join them."""

    __slots__ = ("joint", "terms")

    def __init__(self, ld: Any, op: str, threshold: Any) -> None:
        if op not in OPERATORS:
            raise ValueError(f"unsupported comparison operator {op!r}; it is one of {', '.join(OPERATORS)}")
        if not isinstance(ld, stackable_logical_data):
            raise TypeError(f"a condition is of stackable logical_data, got {ld!r}")
        if ld.dtype not in CONDITION_TYPES:
            raise ValueError(f"Unsupported dtype for a condition: {ld.dtype}; it is float32, float64, int32 or int64")
        self.terms = ((ld, op, threshold_of(threshold), False),)  # the last: whether it is negated
        self.joint = ""  # "&" or "|", of several terms

    @classmethod
    def _joined(cls, terms: tuple[Any, ...], joint: str) -> cond:
        made = cls.__new__(cls)
        made.terms, made.joint = terms, joint
        return made

    def _join(self, other: Any, joint: str) -> Any:
        if not isinstance(other, cond):
            return NotImplemented
        if {self.joint, other.joint} - {"", joint}:
            raise NotImplementedError(
                "mixed & and | in a condition: one of them joins all terms; stf itself takes any mixture: "
                "ctx.while_loop((a > 0) & (b > 0) | (c > 0))"
            )
        terms = self.terms + other.terms
        if len(terms) > MOST_TERMS:
            raise ValueError(f"a condition has at most {MOST_TERMS} terms, got {len(terms)}")
        return cond._joined(terms, joint)

    def __and__(self, other: Any) -> Any:
        return self._join(other, "&")

    def __or__(self, other: Any) -> Any:
        return self._join(other, "|")

    def __invert__(self) -> cond:
        terms = tuple((*term, not negated) for *term, negated in self.terms)  # x <= t is not ~(x > t), of NaN
        return cond._joined(terms, {"": "", "&": "|", "|": "&"}[self.joint])

    def __bool__(self) -> bool:
        raise TypeError("a condition has no truth value while a program is submitted; join them by &, | and ~")

    def __repr__(self) -> str:
        words = [f"{'~' * no}({ld.symbol or 'data'} {op} {value!r})" for ld, op, value, no in self.terms]
        return f"cond({f' {self.joint} '.join(words)})"

    def _for_stf(self) -> Any:
        """Return the condition as stf's loops take it."""
        found = []
        for ld, op, value, negated in self.terms:
            term = OPERATORS[op](ld._data, np.float64(value))  # compared as doubles, whatever the data are
            found.append(~term if negated else term)
        join = operator.or_ if self.joint == "|" else operator.and_
        whole = found[0]
        for one in found[1:]:
            whole = join(whole, one)
        return whole


# -- arguments of the methods that make data -------------------------------------------------------------------------


def check_array(buf: Any) -> None:
    """Raise ValueError for an array that is not packed in C order: these data are packed, and stf's own need not be."""
    if hasattr(buf, "__cuda_array_interface__"):
        check_interface(buf.__cuda_array_interface__)
    elif isinstance(buf, np.ndarray):
        if not buf.flags.c_contiguous:
            raise ValueError(f"the array is not C-contiguous: shape {buf.shape}, strides {buf.strides}; {OWN_WAY}")
    else:
        try:
            view = memoryview(buf)
        except (TypeError, BufferError):
            return  # stf knows whether it is an array
        with view:
            if not view.c_contiguous:
                raise ValueError(f"the buffer is not C-contiguous; {OWN_WAY}")


OWN_WAY = "copy it, or register it with stf.context(), which takes any strides"


def check_interface(cai: dict[str, Any]) -> None:
    """Raise ValueError for a CUDA array interface that is malformed, or not packed in C order."""
    shape = tuple(int(n) for n in cai["shape"])
    if any(n < 0 for n in shape):
        raise ValueError(f"the extents of a CUDA array interface must be non-negative, got {shape}")
    stream = cai.get("stream")
    if stream is not None and not isinstance(stream, bool) and int(stream) == 0:
        raise ValueError("stream 0 is disallowed in a CUDA array interface: it is None, 1, 2, or an address")
    strides = cai.get("strides")
    if strides is None:
        return
    if len(strides) != len(shape):
        raise ValueError(f"the strides {tuple(strides)} must match the number of dimensions of shape {shape}")
    expected = np.dtype(cai["typestr"]).itemsize
    for n, stride in zip(reversed(shape), reversed(strides), strict=True):
        if n > 1 and int(stride) != expected and 0 not in shape:
            raise ValueError(f"the array is not C-contiguous: shape {shape}, strides {tuple(strides)}; {OWN_WAY}")
        expected *= n


def shape_of(shape: Any) -> tuple[int, ...]:
    """Return at least one positive extent.

    Raises
    ------
    TypeError
        They are no integers.
    ValueError
        One is 0 or negative, or there is none.
    """
    try:
        dims = tuple(shape)
    except TypeError:
        raise TypeError(f"shape must be an iterable of integers, got {shape!r}") from None
    if any(isinstance(n, (bool, np.bool_)) or not hasattr(n, "__index__") for n in dims):
        raise TypeError(f"shape dimensions must be integers, got {dims!r}")
    if any(n.__index__() <= 0 for n in dims):
        raise ValueError(f"all shape dimensions must be positive integers, got {dims}; stf.context() takes 0, too")
    if not dims:
        raise ValueError("shape must contain at least one dimension; stf.context() takes (), too")
    return tuple(n.__index__() for n in dims)
