"""Numba: the arrays of a task as Numba's, and kernels that are called with dependences.

On a CPU the arrays are NumPy's, and the kernels run in Numba's simulator (``NUMBA_ENABLE_CUDASIM=1``), as bodies of
ordinary tasks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import stf
from stf.compat.cuda_stf.contexts import context
from stf.compat.cuda_stf.data import Data, access_of, dep
from stf.compat.cuda_stf.places import exec_place
from stf.compat.cuda_stf.views import each, for_simulator, numba_array, numba_cuda

__all__ = ["get_arg_numba", "jit", "numba_arguments", "numba_task", "stf_kernel_decorator"]


def get_arg_numba(task: Any, index: int) -> Any:
    """Return one array of a task."""
    return numba_array(task.get_arg_cai(index))


def numba_arguments(task: Any) -> Any:
    """Return all arrays of a task: None, one array, or a tuple of them."""
    return each(task.args_cai(), numba_array)


class numba_task:
    """A with-block of a task, which gives a tuple of its arrays and its stream."""

    def __init__(self, ctx: Any, *args: Any, symbol: str | None = None) -> None:
        self.task = ctx.task(*args, symbol=symbol)

    def __enter__(self) -> tuple[tuple[Any, ...], Any]:
        self.task.__enter__()
        try:
            found = numba_arguments(self.task)
            arrays = () if found is None else found if isinstance(found, tuple) else (found,)
            return arrays, self.task.stream_ptr()
        except BaseException as error:
            self.task.__exit__(type(error), error, error.__traceback__)
            raise

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.task.__exit__(kind, error, trace)


class stf_kernel_decorator:
    """A kernel of Numba's that is called with dependences; made by `jit`."""

    def __init__(self, pyfunc: Any, jit_args: tuple[Any, ...], jit_kwargs: dict[str, Any]) -> None:
        self._pyfunc = pyfunc
        self._jit_args, self._jit_kwargs = jit_args, jit_kwargs
        self._compiled: Any = None
        self._brought: Any = None
        self.__name__ = getattr(pyfunc, "__name__", "kernel")
        self.__doc__ = pyfunc.__doc__

    def _dispatcher(self) -> Any:
        """Return the function as Numba compiles it, made at the first call."""
        if self._compiled is None:
            self._compiled = numba_cuda().jit(*self._jit_args, **self._jit_kwargs)(self._pyfunc)
            self._brought = stf.kernel(self._compiled)
        return self._compiled

    def __getitem__(self, config: Any) -> BoundKernel:
        """Return the kernel with ``[grid, block]``, ``[grid, block, exec_place]`` or ``[..., exec_place, ctx]``."""
        if not isinstance(config, (tuple, list)) or not 2 <= len(config) <= 4:
            raise TypeError("use kernel[grid, block], kernel[grid, block, exec_place] or kernel[..., exec_place, ctx]")
        place = config[2] if len(config) > 2 else None
        ctx = config[3] if len(config) > 3 else None
        if place is not None and not isinstance(place, exec_place):
            raise TypeError(f"3rd item must be an exec_place, got {place!r}")
        if ctx is not None and not isinstance(ctx, context):
            raise TypeError(f"4th item must be an STF context (or None to infer), got {ctx!r}")
        return BoundKernel(self, config[0], config[1], place, ctx)

    def __call__(self, *args: Any, **options: Any) -> None:
        raise RuntimeError(
            "launch configuration missing: use kernel[grid, block](...), kernel[grid, block, exec_place](...) or "
            "kernel[grid, block, exec_place, ctx](...)"
        )


class BoundKernel:
    """A kernel with its grid and block."""

    def __init__(self, kernel: stf_kernel_decorator, grid: Any, block: Any, place: Any, ctx: Any) -> None:
        self._kernel = kernel
        self._grid, self._block = grid, block
        self._place, self._ctx = place, ctx

    def __call__(self, *args: Any, **options: Any) -> None:
        """Launch it as one task: dependences become arrays, other arguments are passed as they are."""
        deps = [a for a in args if isinstance(a, dep)]
        for one in deps:
            if not isinstance(one.ld, Data):
                raise TypeError(f"a dependence is of logical data, got {one.ld!r}")
        if not deps and self._ctx is None:
            raise TypeError(
                "No STF context could be inferred: pass a dependence such as lX.read(), or a context: "
                "kernel[grid, block, exec_place, ctx]"
            )
        inner = deps[0].ld._data.context if self._ctx is None else self._ctx._open_inner("a kernel")
        dispatcher = self._kernel._dispatcher()
        if (
            inner.on_cuda
            and deps
            and not options
            and all(isinstance(a, (dep, int, float, complex, np.generic)) for a in args)
        ):
            self._launch(args)
        else:
            Launch(dispatcher, (self._grid, self._block), args, options).submit(inner, self._place)

    def _launch(self, args: tuple[Any, ...]) -> None:
        """Let stf launch it, which makes a kernel node of a graph without a capture."""
        brought = self._kernel._brought
        if self._place is not None:
            brought = brought.on(self._place._place)
        affine = None if self._place is None else self._place._affine
        brought[self._grid, self._block](*[access_of(a, affine) if isinstance(a, dep) else a for a in args])


class Launch:
    """A launch by Numba itself, as the body of a task."""

    def __init__(self, dispatcher: Any, config: tuple[Any, Any], args: tuple[Any, ...], options: Any) -> None:
        self.dispatcher, self.config = dispatcher, config
        self.args, self.options = args, options
        self.__name__ = getattr(dispatcher, "__name__", "kernel")

    def submit(self, inner: Any, place: Any) -> None:
        """Submit it; on a GPU Numba launches it on the task's stream."""
        accesses = [access_of(a, None) for a in self.args if isinstance(a, dep)]
        task = inner.task(*accesses, *([] if place is None else [place._place]), name=self.__name__)
        if not inner.on_cuda:
            task(self)
            return
        with task:
            stream = numba_cuda().external_stream(task.stream_ptr())
            self.run(task.numba(), (*self.config, stream))

    def __call__(self, *arrays: Any) -> None:
        """Run it on arrays of the host."""
        self.run(map(for_simulator, arrays), self.config)

    def run(self, arrays: Any, config: tuple[Any, ...]) -> None:
        """Launch it with arrays in place of dependences; a token is None."""
        rest = iter(arrays)
        given = [(None if a.ld._is_token else next(rest)) if isinstance(a, dep) else a for a in self.args]
        self.dispatcher[config](*given, **self.options)


def jit(*args: Any, **options: Any) -> Any:
    """Decorate a kernel as ``numba.cuda.jit`` does, to be called ``k[grid, block](2.0, lX.read(), lY.rw())``.

    Returns
    -------
    stf_kernel_decorator
        Each call is one task; it is compiled at the first.
    """
    if args and callable(args[0]):
        return stf_kernel_decorator(args[0], (), options)
    return lambda fn: stf_kernel_decorator(fn, args, options)
