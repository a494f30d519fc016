"""Custom data: objects made of several arrays, and formats of the user's own."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import numpy as np

from stf._engine.access import ACCUMULATE, MODE_NAMES, READ, WRITE
from stf._support.arguments import name_of
from stf._support.completion import Shown, public
from stf.data.logical_data import LogicalData
from stf.observe.html import lines_html, never_raises

__all__ = ["CompositeData", "register_data_interface"]

interfaces: dict[type, tuple[str, Any, Any]] = {}


def register_data_interface(
    kind: type,
    flatten: Callable[[Any], Sequence[Any]] | None = None,
    unflatten: Callable[[Any, Sequence[Any]], Any] | None = None,
    *,
    interface: Any = None,
) -> None:
    """Teach `logical_data` a type.

    Parameters
    ----------
    kind : type
        The type of object to register; subclasses too.
    flatten : callable, optional
        ``flatten(obj)`` gives the arrays that make it up.
    unflatten : callable, optional
        ``unflatten(obj, arrays)`` makes such an object of a task's arrays; `obj` is the registered one.
    interface : object, optional
        The full form, for any format: ``allocate(data_place) -> instance``, ``copy(target, source)``,
        ``view(instance)`` (what a body gets), ``to_host(instance)`` (what `wait` returns), ``nbytes(obj) -> int``.
        It receives the registered object as ``interface(obj)``, once per data; that object is the instance at home.

    Raises
    ------
    TypeError
        It is no type, or is an array itself; or the functions are missing, or are no functions.

    Examples
    --------
    >>> import scipy.sparse, stf
    >>> stf.register_data_interface(scipy.sparse.csr_array,
    ...     flatten=lambda a: (a.data, a.indices, a.indptr),
    ...     unflatten=lambda a, parts: scipy.sparse.csr_array(tuple(parts), a.shape, copy=False))
    """
    if not isinstance(kind, type):
        raise TypeError(f"register_data_interface takes a type first, got {kind!r}")
    if issubclass(np.ndarray, kind):
        raise TypeError(f"{kind.__name__} is an array itself, or a base of one; register a class of your own")
    for name, given in (("flatten", flatten), ("unflatten", unflatten), ("interface", interface)):
        if given is not None and not callable(given):
            what = "what makes one of each object, such as a class" if name == "interface" else "a function"
            raise TypeError(f"{name}= is {what}, got {given!r}")
    if interface is not None and not isinstance(interface, type) and hasattr(interface, "allocate"):
        raise TypeError(f"interface= is what makes one of each object, such as its class, got the object {interface!r}")
    if (interface is None) == (flatten is None or unflatten is None):
        raise TypeError("register_data_interface takes flatten= and unflatten=, or interface=; got both or neither")
    interfaces[kind] = ("full", interface, None) if interface is not None else ("simple", flatten, unflatten)


def find_interface(obj: Any) -> tuple[str, Any, Any] | None:
    """Return what was registered for the type of `obj`, or for a base of it."""
    if interfaces:
        for kind in type(obj).__mro__:
            if kind in interfaces:
                return interfaces[kind]
    return None


class Whole:
    """What makes the object that a body gets of its arrays; it keeps the object alive, and no data.

    `identity` says of which object and which data it is: the same object registered again has the same.
    """

    def __init__(self, obj: Any, parts: list[LogicalData], unflatten: Callable[[Any, Any], Any]) -> None:
        self.obj = obj
        self.unflatten = unflatten
        for part in parts:
            if not hasattr(part, "core"):
                raise TypeError(
                    f"flatten of {type(obj).__name__} gives arrays, got a part that is made of several: {part!r}"
                )
        self.identity = id(obj), *[part.core.id for part in parts]

    def __call__(self, arrays: Sequence[Any]) -> Any:
        """Return the object that a body gets."""
        return self.unflatten(self.obj, list(arrays))


class CompositeAccess:
    """An access to data made of several arrays."""

    def __init__(self, data: CompositeData, mode: int, data_place: Any) -> None:
        self.data = data
        self.mode = mode
        self.parts = data.expand_mode(mode, data_place)
        self.rebuild = data.rebuild

    def __repr__(self) -> str:
        return f"<{MODE_NAMES[self.mode]} access to {self.data!r}>"

    def expand(self) -> list[Any]:
        """Return the accesses to its parts."""
        return self.parts


class CompositeData(Shown):
    """Logical data made of several arrays, given to tasks as one object.

    Examples
    --------
    >>> class Pair:
    ...     def __init__(self, real, imag):
    ...         self.real, self.imag = real, imag
    >>> stf.register_data_interface(Pair, flatten=lambda p: (p.real, p.imag), unflatten=lambda p, parts: Pair(*parts))
    >>> pair = Pair(np.ones(2), np.zeros(2))
    >>> with stf.context(devices="cpu:2") as ctx:
    ...     a = ctx.logical_data(pair).set_symbol("A").set_write_back(True)
    ...     print(a.name, a.nbytes, a.readonly, a.context is ctx)
    ...     with ctx.task(1, a.rw()) as t:
    ...         t[0].imag += 4.0
    ...     ctx.task(a.read())(lambda p: print(p.imag))
    ...     a.write_back()  # refreshes `pair`
    ...     print(a.numpy().imag)
    ...     b = a.empty_like(name="B")
    ...     with ctx.task(a.read(), b.write()) as t:
    ...         t[1].real[:], t[1].imag[:] = t[0].imag, t[0].real
    ...     print(b.numpy().real, "B.0" in b.history())
    ...     b.accept()  # as of LogicalData: says that poisoned content is good
    ...     b.release()
    A 32 False True
    [4. 4.]
    [4. 4.]
    [4. 4.] True
    """

    def __init__(
        self, obj: Any, parts: list[LogicalData], unflatten: Callable[[Any, Any], Any], name: str | None
    ) -> None:
        self.obj = obj
        self.parts = parts
        self.unflatten = unflatten
        self.rebuild = Whole(obj, parts, unflatten)
        self._name = name

    def read(self, data_place: Any = None) -> CompositeAccess:
        """Return an access that reads; see `LogicalData.read`.

        Raises
        ------
        TypeError
            `data_place` is no data place.
        """
        return CompositeAccess(self, READ, data_place)

    def write(self, data_place: Any = None) -> CompositeAccess:
        """Return an access that overwrites; see `LogicalData.write`.

        Raises
        ------
        TypeError
            `data_place` is no data place.
        AccessError
            The data are read-only.
        """
        return CompositeAccess(self, WRITE, data_place)

    def rw(self, data_place: Any = None) -> CompositeAccess:
        """Return an access that reads and writes; see `LogicalData.rw`.

        Raises
        ------
        TypeError
            `data_place` is no data place.
        AccessError
            The data are read-only.
        """
        return CompositeAccess(self, READ | WRITE, data_place)

    def expand_mode(self, mode: int, data_place: Any = None) -> list[Any]:
        """Return the accesses to its parts."""
        if mode == ACCUMULATE:
            raise TypeError(f"{self!r} cannot be accumulated into; open it with rw()")
        return [getattr(part, MODE_NAMES[mode])(data_place) for part in self.parts]

    # -- properties --------------------------------------------------------------------------------------------

    @property
    def context(self) -> Any:
        """The context that it belongs to."""
        return self.parts[0].context

    @property
    def name(self) -> str | None:
        """Its name in messages; its parts are called after it, ``'A.0'`` and so on."""
        return self._name

    symbol = name

    def set_symbol(self, name: str) -> CompositeData:
        """Name the data and its parts; return it.

        Raises
        ------
        TypeError
            The name is no text.
        """
        self._name = name_of(name)
        for part, text in zip(self.parts, self.names_of_parts(name), strict=True):
            part.set_symbol(text)
        return self

    def names_of_parts(self, name: str | None) -> list[str]:
        """Return what the parts are called if this is called `name`."""
        return [f"{name or type(self.obj).__name__}.{i}" for i in range(len(self.parts))]

    @property
    def shape(self) -> Any:
        """That of the registered object; AttributeError if it has none."""
        return self.obj.shape

    @property
    def dtype(self) -> Any:
        """That of the registered object; AttributeError if it has none."""
        return self.obj.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of all parts."""
        return sum(part.nbytes for part in self.parts)

    @property
    def readonly(self) -> bool:
        """Whether it may only be read: one of its parts may."""
        return any(part.readonly for part in self.parts)

    def set_write_back(self, flag: bool) -> CompositeData:
        """Say whether the user's arrays are refreshed at the end; return the data. See `LogicalData.set_write_back`."""
        for part in sorted(self.parts, key=lambda part: part.core.home is not None):  # what is refused changes nothing
            part.set_write_back(flag)
        return self

    # -- content -----------------------------------------------------------------------------------------------

    def numpy(self) -> Any:
        """Wait and return an object made of copies; see `Context.wait`.

        Raises
        ------
        TaskFailedError
            A task failed that was to write it, or another one whose failure was not told yet.
        UninitializedDataError
            Nobody has written data that are read.
        TaskStateError
            It is called inside a task or a recording.
        ContextClosedError
            The context was finalized.
        """
        return self.context.wait(self)

    def ready(self) -> bool:
        """Return whether the content of every part is there; see `LogicalData.ready`.

        Raises
        ------
        ContextClosedError
            The context was finalized.

        Examples
        --------
        >>> class Pair:
        ...     def __init__(self, a, b):
        ...         self.a, self.b = a, b
        >>> stf.register_data_interface(Pair, flatten=lambda p: [p.a, p.b], unflatten=lambda p, parts: Pair(*parts))
        >>> with stf.context(devices="cpu") as ctx:
        ...     pair = ctx.logical_data(Pair(np.zeros(2), np.ones(3)))
        ...     print(pair.ready())
        True
        """
        return bool(self.context._are_ready(self.parts))

    def __await__(self) -> Generator[Any, None, Any]:
        return self.context.wait_async(self).__await__()

    def write_back(self) -> None:
        """Refresh your object, when the tasks so far have written the data. See `LogicalData.write_back`.

        Raises
        ------
        TaskFailedError
            A task that was to write the data has failed already.
        ContextClosedError
            The context was finalized.
        """
        for part in self.parts:
            part.write_back()

    def release(self) -> None:
        """Give all parts up.

        Raises
        ------
        TaskStateError
            A task that uses them is open, or something is recorded.
        ContextClosedError
            The context was finalized.
        """
        for part in self.parts:
            part.release()

    def accept(self) -> CompositeData:
        """Declare the poisoned content of every part good. Returns the data.

        Raises
        ------
        ContextClosedError
            The context was finalized.
        """
        for part in self.parts:
            part.accept()
        return self

    def empty_like(self, *, name: str | None = None, symbol: str | None = None) -> CompositeData:
        """Return new data with parts of the same shapes and dtypes, with no content.

        Raises
        ------
        ContextClosedError
            The context was finalized.
        """
        name = name_of(name, symbol)
        names = self.names_of_parts(name)
        parts = [part.empty_like(name=text) for part, text in zip(self.parts, names, strict=True)]
        return CompositeData(self.obj, parts, self.unflatten, name)

    # -- description -------------------------------------------------------------------------------------------------

    def history(self) -> str:
        """Return the history of each part; see `LogicalData.history`."""
        return "\n".join(part.history() for part in self.parts)

    @never_raises
    def _repr_html_(self) -> str | None:
        return lines_html(f"{repr(self).strip('<>')}\n{self.history()}")

    def __repr__(self) -> str:
        name = f" '{self._name}'" if self._name else ""
        failures = [failure for part in self.parts if (failure := part._failure()) is not None]
        spoilt = f", poisoned: {failures[0].describe().splitlines()[0]}" if failures else ""
        return f"<logical data{name} of {type(self.obj).__name__}, {len(self.parts)} arrays{spoilt}>"

    _shown = public(dir(), "expand_mode", "names_of_parts")

    # -- what it is not ----------------------------------------------------------------------------------------

    def accumulate(self, op: Any = None, data_place: Any = None) -> Any:
        """Refuse: only data of one array can be accumulated into."""
        return self.expand_mode(ACCUMULATE, data_place)

    relaxed = accumulate

    def _not_a_value(self, *_: Any, **__: Any) -> Any:
        raise TypeError(
            f"{self!r} is neither a number nor an array: open it in a task (lC.read(), lC.rw()), or wait for an object "
            "made of copies with lC.numpy()"
        )

    __float__ = __int__ = __complex__ = __bool__ = __index__ = _not_a_value
    __array__ = __getitem__ = __setitem__ = __iter__ = __len__ = _not_a_value
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _not_a_value
    __matmul__ = __rmatmul__ = __pow__ = __rpow__ = __neg__ = __iadd__ = __imul__ = __isub__ = _not_a_value
    __array_ufunc__ = None


def in_arrays(data: Mapping[Any, Any]) -> tuple[list[tuple[Any, Any]], dict[tuple[int, ...], Whole]]:
    """The pairs of a mapping from data to others, of arrays alone; and what makes wholes of these, by what it was.

    Raises
    ------
    ValueError
        Data made of several arrays stand for others, or the other way round.
    """
    pairs: list[tuple[Any, Any]] = []
    wholes = {}
    for old, new in data.items():
        if not isinstance(old, CompositeData) and not isinstance(new, CompositeData):
            pairs.append((old, new))
            continue
        kinds = {type(handle.obj) if isinstance(handle, CompositeData) else None for handle in (old, new)}
        if len(kinds) > 1 or len(old.parts) != len(new.parts):
            raise ValueError(f"{new!r} cannot stand for {old!r}: give data made of the same arrays")
        pairs += zip(old.parts, new.parts, strict=True)
        wholes[old.rebuild.identity] = new.rebuild
    return pairs, wholes
