"""`context`, and what it shares with `stackable_context`, as names over `stf.context`."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

import stf
from stf.compat.cuda_stf.bundles import bundle
from stf.compat.cuda_stf.data import access_of, check_array, logical_data, shape_of
from stf.compat.cuda_stf.places import async_resources, data_place, exec_place, exec_place_resources
from stf.compat.cuda_stf.streams import get_stream_pointer
from stf.compat.cuda_stf.tasks import TaskBase, cuda_kernel, must_be_dep, must_be_of, task


class Callback:
    """A function of `host_launch` with its further arguments; what it returns is nobody's."""

    __slots__ = ("__name__", "args", "fn")

    def __init__(self, fn: Any, args: tuple[Any, ...]) -> None:
        self.fn, self.args = fn, args
        self.__name__ = getattr(fn, "__name__", "host_launch")

    def __call__(self, *arrays: Any) -> None:
        self.fn(*arrays, *self.args)


class ContextBase:
    """What contexts of both kinds have. `_context` is stf's."""

    _data_type: type
    _task_type: type
    _context: Any = None
    _engine: Any = None  # of `_context`, by which data are known as its own
    _is_borrowed = False
    _is_finalized = False

    def _own(self, inner: Any) -> None:
        self._context, self._engine = inner, inner.engine
        self._errors: list[BaseException] = []  # of callbacks, to be raised one by one
        self._resources: exec_place_resources | None = None

    # -- data ------------------------------------------------------------------------------------------------------

    def _new(self, inner: Any) -> Any:
        return self._data_type._of(inner)  # type: ignore[attr-defined]

    def logical_data(self, buf: Any, dplace: data_place | None = None, name: str | None = None) -> Any:
        """Register an array: anything that stf takes, packed in C order.

        Raises
        ------
        ValueError
            The array is not C-contiguous, or does not lie at `dplace`.
        TypeError
            It is no array.
        """
        if dplace is not None and not isinstance(dplace, data_place):
            raise TypeError(f"dplace is a data_place, got {dplace!r}")
        check_array(buf)
        where = None if dplace is None else dplace._place
        return self._new(self._open_inner("logical_data").logical_data(buf, where, name=name))

    def logical_data_empty(
        self, shape: Any, dtype: Any = None, name: str | None = None, *, no_export: bool = False
    ) -> Any:
        """Return data without content; float64 by default.

        Raises
        ------
        TypeError
            The shape is no sequence of integers.
        ValueError
            An extent is not positive, or there is none.
        """
        inner = self._open_inner("logical_data_empty")
        return self._new(inner.logical_data_empty(shape_of(shape), dtype, name=name))

    def logical_data_full(
        self,
        shape: Any,
        fill_value: Any,
        dtype: Any = None,
        where: data_place | None = None,
        exec_place: exec_place | None = None,
        name: str | None = None,
        *,
        no_export: bool = False,
    ) -> Any:
        """Return data filled with a value, whose dtype is the default.

        Raises
        ------
        TypeError, ValueError
            As of `logical_data_empty`.
        NotImplementedError
            `exec_place` is the host.
        """
        if exec_place is not None and exec_place.kind == "host":
            raise NotImplementedError(
                "exec_place.host() is not supported for logical_data_full; leave it out, or fill by a task: "
                "ctx.host_launch(ld.write(), fn=...)"
            )
        inner = self._open_inner("logical_data_full")
        made = inner.logical_data_full(
            shape_of(shape),
            fill_value,
            np.array(fill_value).dtype if dtype is None else dtype,
            where=None if where is None else where._place,
            exec_place=None if exec_place is None else exec_place._place,
            name=name,
        )
        return self._new(made)

    def logical_data_zeros(self, shape: Any, dtype: Any = None, *args: Any, **options: Any) -> Any:
        """Return data filled with 0; float64 by default. See `logical_data_full`."""
        return self.logical_data_full(shape, 0, np.float64 if dtype is None else dtype, *args, **options)

    def logical_data_ones(self, shape: Any, dtype: Any = None, *args: Any, **options: Any) -> Any:
        """Return data filled with 1; float64 by default. See `logical_data_full`."""
        return self.logical_data_full(shape, 1, np.float64 if dtype is None else dtype, *args, **options)

    def logical_data_by_shape(self, shape: Any, dtype: Any, name: str | None = None) -> Any:
        """Return data without content, by the older name of `logical_data_empty`."""
        return self.logical_data_empty(shape, dtype, name)

    def token(self) -> Any:
        """Return data without content that order tasks."""
        return self._new(self._open_inner("token").token())

    def bundle(self, **fields: Any) -> bundle:
        """Return data that tasks use together; see `bundle`."""
        return bundle(self, **fields)

    # -- tasks -----------------------------------------------------------------------------------------------------

    def task(self, *args: Any, symbol: str | None = None) -> Any:
        """Return a task of dependences and at most one place.

        Raises
        ------
        TypeError
            An argument is neither.
        ValueError
            There are two places, or data of another context.
        """
        return self._task_type(self)._take(args, symbol)

    def _before(self, one: TaskBase) -> None:
        """Prepare for a task whose body runs where it stands."""

    def host_launch(self, *deps: Any, fn: Any, args: Any = None, symbol: str | None = None) -> None:
        """Run ``fn(*arrays, *args)`` on the host when its data are there; `wait` and `finalize` raise its errors.

        Raises
        ------
        TypeError
            An argument is no dependence, or of the other kind of context.
        ValueError
            Data belong to another context.
        """
        for d in deps:
            must_be_dep(d, self._data_type, "host_launch()")
            must_be_of(d.ld, self)
        accesses = [access_of(type(d)(d.ld, d.mode), None) for d in deps]
        body = Callback(fn, () if args is None else tuple(args))
        self._open_inner("host_launch").host_launch(*accesses, fn=body, name=symbol)

    # -- waiting ---------------------------------------------------------------------------------------------------

    def _open_inner(self, what: str) -> Any:
        """Return stf's context, which is not finalized."""
        if self._is_finalized or self._context is None:
            raise stf.ContextClosedError(
                f"{what} on a context that has been finalized (context handle is NULL); read data before, or make a "
                "new context"
            )
        return self._context

    def fence(self) -> int:
        """Return a stream that comes after all work so far; on a CPU 0, when that work is done."""
        fence = self._open_inner("fence").fence()
        if self._context.on_cuda:
            return int(fence.ptr)
        fence.synchronize()
        return 0

    def check_errors(self) -> None:
        """Raise the first error of a function of `host_launch` that nobody was told yet."""
        self._collect(self._context.check_errors)
        if self._errors:
            raise self._errors.pop(0)

    def _collect(self, call: Any, *args: Any) -> Any:
        """Call something of stf's; keep what tasks failed with, as their functions raised it."""
        try:
            return call(*args)
        except stf.TaskFailedError as error:
            self._errors.append(own_error(error))
        except ExceptionGroup as group:
            self._errors += [own_error(error) for error in group.exceptions]
        return None

    def finalize(self) -> None:
        """Run everything, write arrays back, and end; once more does nothing."""
        self._must_be_finalizable()
        if not self._is_finalized:
            self._is_finalized = True
            try:
                self._collect(self._context.finalize)
            except stf.TaskStateError:
                self._is_finalized = False  # it can be called again
                raise
        if self._errors:
            raise self._errors.pop(0)

    def _must_be_finalizable(self) -> None:
        if self._is_borrowed:
            raise RuntimeError("cannot finalize borrowed context; finalize the one that it was borrowed from")

    def __enter__(self) -> Any:
        if not self._is_borrowed:  # whose owner has entered it, and leaves it
            self._context.__enter__()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self._is_borrowed:
            return
        if error is None:
            self._must_be_finalizable()
        if self._is_finalized or error is not None:
            self._is_finalized = True
            self._context.__exit__(kind, error, trace)
            return
        self._is_finalized = True
        self._collect(self._context.__exit__, None, None, None)
        if self._errors:
            raise self._errors.pop(0)

    def __del__(self) -> None:
        inner, self._context = self._context, None
        if inner is None or self._is_borrowed or self._is_finalized:
            return
        try:
            warnings.warn(
                f"{type(self).__name__} was garbage-collected without an explicit finalize(); use `with "
                f"{type(self).__name__}() as ctx:`, or call ctx.finalize()",
                ResourceWarning,
                stacklevel=2,
            )
        finally:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)  # stf's own, of the same
                del inner

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._context!r}, borrowed={self._is_borrowed})"


def own_error(error: Any) -> BaseException:
    """Return what a function raised, with a note of the task; an error of another kind as it is."""
    cause = error.__cause__ if isinstance(error, stf.TaskFailedError) else None
    if not isinstance(cause, BaseException):
        assert isinstance(error, BaseException)
        return error
    note = f"raised in task {error.task}, submitted at {error.call_site}"
    if note not in getattr(cause, "__notes__", ()):
        cause.add_note(note)
    return cause


class context(ContextBase):
    """A context, on all CUDA devices or on this CPU (``STF_DEVICES`` says otherwise).

    Parameters
    ----------
    use_graph : bool
        Gather tasks and launch them as graphs.
    stream : int or object with ``__cuda_stream__``, optional
        A CUDA stream whose work comes before, and which goes on after `finalize`.
    handle : async_resources, optional
        What contexts share.
    """

    _data_type = logical_data
    _task_type = task

    def __init__(
        self,
        use_graph: bool = False,
        borrowed: bool = False,
        stream: Any = None,
        handle: async_resources | None = None,
    ) -> None:
        if handle is not None and not isinstance(handle, async_resources):
            raise TypeError(f"handle is an async_resources, got {handle!r}")
        if borrowed:
            self._is_borrowed = True
            return
        if stream is not None:
            get_stream_pointer(stream)  # or it is none
        resources = None if handle is None else handle._resources
        self._own(stf.context(bool(use_graph), stream=stream, resources=resources))

    @classmethod
    def _borrowed_from(cls, inner: Any) -> context:
        made = cls(borrowed=True)
        made._own(inner)
        return made

    def _new(self, inner: Any) -> Any:
        made = super()._new(inner)
        made._borrow = self._borrowed_from
        return made

    @property
    def place_resources(self) -> exec_place_resources:
        """The streams of places, as long as the context lives."""
        self._open_inner("place_resources")
        if self._resources is None:
            self._resources = exec_place_resources()
        return self._resources

    def wait(self, ld: Any) -> np.ndarray[Any, Any]:
        """Wait for everything, and return the content of data as a new NumPy array.

        Raises
        ------
        TypeError
            It is no logical data of this kind of context.
        ValueError
            The data belong to another context.
        """
        inner = self._open_inner("wait")
        if not isinstance(ld, logical_data):
            raise TypeError(f"wait() requires a logical_data object, got {ld!r}")
        must_be_of(ld, self)
        self._collect(inner.synchronize)
        if self._errors:
            raise self._errors.pop(0)
        try:
            content = inner.wait(ld._data)
        except stf.TaskFailedError as error:  # who was told of it already is told again: these data are poisoned
            failure = own_error(error)
        else:
            return np.array(content, ld.dtype)
        raise failure

    def cuda_kernel(self, *args: Any, symbol: str | None = None) -> cuda_kernel:
        """Return a task of kernel launches; arguments as of `task`."""
        return cuda_kernel(self)._take(args, symbol)  # type: ignore[no-any-return]
