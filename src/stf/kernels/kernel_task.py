# cython: annotation_typing=False, binding=True
"""Tasks of several kernel launches, one after the other, as ``ctx.cuda_kernel`` returns them."""

from __future__ import annotations

from typing import Any

import cython

from stf._support.arguments import name_of
from stf.errors import PlaceError, TaskStateError


def cuda_kernel(context: ContextCore, *args: Any, name: str | None = None, symbol: str | None = None) -> KernelTask:
    r"""Return a task of kernel launches, as a with-block whose ``launch`` calls form a chain.

    Parameters
    ----------
    *args : Access or place
        As for `task`.
    name, symbol : str, optional
        The task's name in pictures and messages.

    Raises
    ------
    PlaceError
        The place is no CUDA device.
    TypeError
        An argument is neither an access nor a place.

    Examples
    --------
    >>> import cupy as cp  # needs a GPU
    >>> source = "extern \"C\" __global__ void twice(double *x) { x[threadIdx.x] *= 2; }"
    >>> twice = cp.RawKernel(source, "twice")
    >>> with stf.context(devices="cuda:0") as ctx:
    ...     x = ctx.logical_data(np.ones(4))
    ...     with ctx.cuda_kernel(x.rw(), name="four times") as k:
    ...         k.launch(twice, 1, 4, (k.get_arg(0),))
    ...         k.launch(twice, 1, 4, (k.get_arg(0),))
    ...     print(x.numpy())
    [4. 4. 4. 4.]
    """
    task = context.make_task_at(args, name_of(name, symbol))
    if task.where == SEVERAL:
        raise PlaceError("kernels of ctx.cuda_kernel run at one place, got a grid; use ctx.task(grid, ...).streams")
    task.find_site_outside()
    return KernelTask(task)


class KernelTask:
    """A task of kernel launches, which form a chain: ``with ctx.cuda_kernel(lX.rw()) as k: k.launch(...)``."""

    def __init__(self, task):
        self.task = task

    def __enter__(self) -> KernelTask:
        return self.start()

    def __exit__(self, kind, error, trace):
        return self.task.__exit__(kind, error, trace)

    def add_deps(self, *accesses: Any) -> KernelTask:
        """Add accesses; before the task starts. Returns this."""
        self.task.add_deps(*accesses)
        return self

    add_dep = add_deps

    def set_exec_place(self, place: Any) -> KernelTask:
        """Say where the task runs; before it starts. Returns this."""
        self.task.set_exec_place(place)
        return self

    on = set_exec_place

    def set_symbol(self, symbol: str) -> KernelTask:
        """Name the task. Returns this."""
        self.task.set_symbol(symbol)
        return self

    def start(self) -> KernelTask:
        """Start the task, as entering the with-block does. Returns this."""
        engine = cython.cast("Engine", self.task.engine)
        settle(self.task)
        if self.task.state == NEW and not engine.place(self.task.where).enqueues:
            raise PlaceError(f"kernels of ctx.cuda_kernel run on a CUDA device, got {self.task.place_name}")
        self.task.open()
        return self

    def end(self) -> None:
        """End the task, as leaving the with-block does."""
        self.task.end()

    def launch(
        self, kernel: Any, grid: Any, block: Any, args: Any = (), shmem_size: int = 0, *, shmem: int | None = None
    ) -> None:
        """Launch a kernel on the task's stream.

        Parameters
        ----------
        kernel : kernel
            As for ``ctx.launch_kernel``.
        grid, block : int or tuple of int
            Extents.
        args : sequence
            Addresses as ``k.get_arg(i)`` gives them, accesses to data of the task, and values.
        shmem_size : int
            Bytes of dynamic shared memory; `shmem` is another name.
        """
        if self.task.state != OPEN:
            raise TaskStateError("launch outside the with-block of ctx.cuda_kernel")
        if shmem is not None:
            shmem_size = shmem
        context = self.task.context
        mine = kernel_of(context, kernel, self.task.where)
        put_launch(self.task, mine, config_of((grid, block, shmem_size)), fitting(mine, tuple(args)))

    def put(self, kernel, config, args):
        """Launch a kernel of our own, whose arguments are as many as its parameters."""
        put_launch(self.task, kernel, config, args)

    def get_arg(self, index: int) -> int:
        """Return the address of access `index` (tokens counted) as an int."""
        return self.task.get_arg(index)

    def get_arg_cai(self, index: int) -> Any:
        """Return access `index` as an object with ``__cuda_array_interface__``; see `Task.get_arg_cai`."""
        self.task.must_be_open("get_arg_cai")
        is_recorded = cython.cast("Engine", self.task.engine).scope.records
        return memory_of(self.task, position_of(self.task, self.task.check_index(index)), not is_recorded)

    @property
    def stream(self) -> Any:
        """The stream that the launches go to."""
        return self.task.stream
