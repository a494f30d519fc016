"""`task`, `stackable_task` and `cuda_kernel`, as names over stf's tasks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import stf
from stf.compat.cuda_stf.data import access_of, dep, logical_data, stackable_logical_data
from stf.compat.cuda_stf.places import as_exec_place, exec_place
from stf.compat.cuda_stf.streams import NO_STREAM, CudaStream
from stf.compat.cuda_stf.views import HostView, each, numba_array, stf_cai, tensor


class TaskBase:
    """What tasks of all kinds have: dependences in the order of their arguments, a place, a name."""

    _data_type: type = logical_data
    _what = "context.task()"

    def __init__(self, ctx: Any) -> None:
        self._context = ctx
        self._deps: list[dep] = []
        self._slots: list[Any] = []  # of `get`: a position, or (names, positions) of a bundle
        self._place: exec_place | None = None
        self._symbol: str | None = None
        self._task: Any = None  # of stf, once it has started

    def _take(self, args: tuple[Any, ...], symbol: str | None) -> Any:
        """Take the arguments of what made it."""
        if symbol is not None:
            self.set_symbol(symbol)
        for arg in args:
            if isinstance(arg, dep) or hasattr(arg, "_stf_bundle_dep"):
                self.add_dep(arg)
            elif isinstance(arg, exec_place) or hasattr(arg, "_as_stf_exec_place"):
                if self._place is not None:
                    raise ValueError(f"Only one exec_place can be given, got a second: {arg!r}")
                self.set_exec_place(as_exec_place(arg))
            else:
                raise TypeError(f"arguments are dependences such as lX.read(), or an exec_place; got {arg!r}")
        return self

    # -- before it starts ------------------------------------------------------------------------------------------

    def add_dep(self, d: Any) -> None:
        """Add a dependence, or those of a bundle.

        Raises
        ------
        TypeError
            It is no dependence, or of data of the other kind of context.
        ValueError
            The data belong to another context.
        """
        if hasattr(d, "_stf_bundle_dep"):
            first = len(self._deps)
            for part in d.deps:
                self._add(part)
            positions = iter(range(first, len(self._deps)))
            at = [next(positions) if acquired else None for acquired in d.acquired]
            self._slots.append((tuple(d.names), tuple(at)))
        else:
            self._add(d)
            self._slots.append(len(self._deps) - 1)

    def _add(self, d: Any) -> None:
        self._must_be_new("add_dep")
        must_be_dep(d, self._data_type, self._what)
        must_be_of(d.ld, self._context)
        self._deps.append(d)

    def set_exec_place(self, exec_p: Any) -> None:
        """Say where the task runs."""
        self._must_be_new("set_exec_place")
        if not isinstance(exec_p, exec_place):
            raise TypeError(f"set_exec_place expects an exec_place argument, got {exec_p!r}")
        self._place = exec_p

    def set_symbol(self, name: str) -> None:
        """Name the task."""
        if not isinstance(name, str):
            raise TypeError(f"a symbol is text, got {name!r}")
        self._symbol = name

    def _must_be_new(self, what: str) -> None:
        if self._task is not None:
            raise stf.TaskStateError(f"{what} on a task that has started; say it before")

    # -- its life --------------------------------------------------------------------------------------------------

    def _arguments(self) -> list[Any]:
        """Return the place and the accesses, as stf takes them."""
        place = self._place
        is_grid = place is not None and place.size > 1
        affine = place._affine if place is not None and (is_grid or place._affine is not None) else None
        accesses = [access_of(d, affine) for d in self._deps]
        return accesses if place is None else [place._place, *accesses]

    def _make(self) -> Any:
        raise NotImplementedError

    def _open(self) -> Any:
        self._must_be_new("start")
        self._context._before(self)
        return self._make()

    def start(self) -> None:
        """Start the task."""
        made = self._open()
        made.start()
        self._task = made

    def end(self) -> None:
        """End the task."""
        self._started().end()

    def __enter__(self) -> Any:
        made = self._open()
        made.__enter__()
        self._task = made
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._started().__exit__(kind, error, trace)

    def _started(self) -> Any:
        if self._task is None:
            raise stf.TaskStateError("the task has not started; use it as a with-block, or call start()")
        return self._task

    # -- what its body sees ----------------------------------------------------------------------------------------

    def get_arg(self, index: int) -> int:
        """Return the address of a dependence's array.

        Raises
        ------
        RuntimeError
            It is a token.
        IndexError
            There is no such dependence.
        """
        self._must_have_array(index)
        return int(self._started().get_arg(index))

    def _must_have_array(self, index: int) -> None:
        if self._deps[index].ld._is_token:
            raise RuntimeError(f"cannot materialize a token argument: dependence {index} only orders tasks")

    def get_arg_cai(self, index: int) -> Any:
        """Return a dependence's array as an object with ``__cuda_array_interface__``; on a CPU, with NumPy's."""
        self._must_have_array(index)
        started = self._started()
        try:
            memory = started.get_arg_cai(index)
        except stf.PlaceError:
            return HostView(self._host_array(index))
        ld = self._deps[index].ld
        return stf_cai(memory.__cuda_array_interface__["data"][0], ld.shape, ld.dtype)

    def _host_array(self, index: int) -> Any:
        """Return the NumPy array of a dependence."""
        before = sum(not d.ld._is_token for d in self._deps[:index])
        return self._started().numpy()[before]

    def args_cai(self) -> Any:
        """Return all arrays: None, one object, or a tuple of them; tokens skipped."""
        views = [self.get_arg_cai(i) for i, d in enumerate(self._deps) if not d.ld._is_token]
        return None if not views else views[0] if len(views) == 1 else tuple(views)

    def get(self, index: int) -> Any:
        """Return what was submitted as argument `index`: one array, None for a token, or the arrays of a bundle."""
        slot = self._slots[index]
        if isinstance(slot, int):
            return None if self._deps[slot].ld._is_token else self.get_arg_cai(slot)
        names, positions = slot
        found = [None if at is None or self._deps[at].ld._is_token else self.get_arg_cai(at) for at in positions]
        return SimpleNamespace(**dict(zip(names, found, strict=True)))


class TaskWithStreams(TaskBase):
    """A task whose body puts work on streams."""

    def _make(self) -> Any:
        made = self._context._open_inner("a task").task(*self._arguments(), name=self._symbol)
        made.find_site_outside()
        return made

    def __call__(self, fn: Any) -> Any:
        """Submit a function as the task's body, as stf does: on a CPU it can be part of a graph."""
        self._must_be_new("call")
        self._make()(fn)
        return fn

    def arrays(self, lib: str | None = None) -> tuple[Any, ...]:
        """Return the arrays as stf gives them: NumPy's on a CPU, CuPy's on a device, or those of a library."""
        found: tuple[Any, ...] = self._started().arrays(lib)
        return found

    def stream_ptr(self) -> CudaStream:
        """Return the stream of the task; on a CPU, what no library takes for one."""
        started = self._started()
        try:
            return CudaStream(started.stream_ptr())
        except stf.PlaceError:
            return NO_STREAM

    def get_arg_numba(self, index: int) -> Any:
        """Return one array as Numba's."""
        return numba_array(self.get_arg_cai(index))

    def numba_arguments(self) -> Any:
        """Return all arrays as Numba's: None, one, or a tuple."""
        return each(self.args_cai(), numba_array)

    def tensor_arguments(self) -> Any:
        """Return all arrays as tensors: None, one, or a tuple."""
        return each(self.args_cai(), tensor)


class task(TaskWithStreams):
    """A task of a `context`."""

    def get_grid_dims(self) -> tuple[int, ...] | None:
        """Return the shape of the grid that the task runs on; None at one place."""
        self._started()
        return None if self._place is None or self._place.size == 1 else self._place.dims

    def get_stream_at_index(self, place_index: int) -> int:
        """Return the stream of a place of the grid.

        Raises
        ------
        RuntimeError
            The task runs at one place, or there is no such place.
        """
        if self.get_grid_dims() is None or not 0 <= place_index < (self._place.size if self._place else 1):
            raise RuntimeError("task is not on a grid or place_index out of range")
        return self._pointers()[place_index]

    def get_stream_ptrs(self) -> list[Any]:
        """Return the stream of each place."""
        return [self.stream_ptr()] if self.get_grid_dims() is None else list(self._pointers())

    def _pointers(self) -> list[int]:
        return [NO_STREAM if one is None else int(one) for one in self._started().stream_ptrs()]


class stackable_task(TaskWithStreams):
    """A task of a `stackable_context`."""

    _data_type = stackable_logical_data
    _what = "stackable_context.task()"


class cuda_kernel(TaskBase):
    """A task of kernel launches."""

    _what = "context.cuda_kernel()"

    def _make(self) -> Any:
        return self._context._open_inner("a kernel").cuda_kernel(*self._arguments(), name=self._symbol)

    def launch(self, kernel: Any, grid: Any, block: Any, args: Any, shmem: int = 0) -> None:
        """Launch a kernel.

        Parameters
        ----------
        kernel : kernel
            A ``cuda.core`` Kernel, or the address of a CUfunction.
        grid, block : int or tuple of int
            One to three extents.
        args : sequence
            Addresses as ints, and values of ctypes or NumPy.
        shmem : int
            Bytes of dynamic shared memory.

        Raises
        ------
        ValueError
            An extent is not positive, or there are more than three.
        """
        started = self._started()
        started.launch(kernel, dimensions(grid), dimensions(block), tuple(args), int(shmem))

    def _host_array(self, index: int) -> Any:
        raise stf.PlaceError("kernels run on CUDA devices")


def dimensions(value: Any) -> tuple[int, ...]:
    """Return one to three positive extents of a launch."""
    given = (value,) if isinstance(value, int) else tuple(value)
    if not 1 <= len(given) <= 3:
        raise ValueError(f"grid/block must have 1-3 dimensions, got {len(given)}")
    if any(int(n) <= 0 for n in given):
        raise ValueError(f"grid/block dimensions must be positive, got {given}")
    return tuple(int(n) for n in given)


def must_be_dep(d: Any, kind: type, what: str) -> None:
    """Raise TypeError unless this is a dependence of data of the right kind."""
    if not isinstance(d, dep):
        raise TypeError(f"add_dep expects read(ld), write(ld) or rw(ld), got {d!r}")
    if not isinstance(d.ld, kind):
        raise TypeError(
            f"the dependences of {what} are of {kind.__name__}, got {type(d.ld).__name__}; did you mix data of a "
            "context and of a stackable_context?"
        )


def must_be_of(ld: Any, ctx: Any) -> None:
    """Raise ValueError unless data belong to a context."""
    if ld._data.core.engine is not ctx._engine:
        raise stf.ContextMismatchError(f"{ld!r} belongs to a different context; register the array in this one")
