"""`stf.kernel`: a kernel of another library, called with accesses in place of arrays."""

from __future__ import annotations

import copy
import functools
import operator
from typing import Any, NamedTuple

import numpy as np

from stf._engine.access import MODE_NAMES, Access, ArrayAccess, SliceAccess
from stf.errors import ContextClosedError, PlaceError
from stf.kernels import kernel_handles as foreign
from stf.kernels.arguments import ARRAY_FIELDS, MEMREF_FIELDS, Kernel, is_of_kind
from stf.kernels.launching import config_of
from stf.places.places import is_auto
from stf.places.table import AUTO, current_place_code, place_code, place_of_code
from stf.tasks.closures import snapshot
from stf.tasks.placing import place_at, settle, wanted
from stf.tasks.task import Task
from stf.values.params import Param

__all__ = ["BroughtKernel", "kernel"]


def kernel(thing: Any) -> BroughtKernel:
    """Return a kernel whose launches are tasks: ``stf.kernel(k)[grid, block](x.read(), y.rw(), 2.0)``.

    Parameters
    ----------
    thing : kernel
        A CUDA function of Numba's (``@cuda.jit`` of numba-cuda or of numba-cuda-mlir), a ``cupy.RawKernel``, a
        ``cuda.core.Kernel``, the address of a CUfunction or a CUkernel as int, a Triton function (``@triton.jit``), or
        a kernel of cuda.tile (``@ct.kernel``).

    Returns
    -------
    BroughtKernel
        Index it with ``[grid, block]`` or ``[grid, block, shmem_size]`` (Triton, cuda.tile: ``[grid]``), and call that.

    Raises
    ------
    TypeError
        It is none of these. The launch raises it.
    PlaceError
        The place is no CUDA device. The launch raises it.

    Examples
    --------
    >>> import numba.cuda  # needs a GPU
    >>> @numba.cuda.jit
    ... def add(x, y, a):
    ...     i = numba.cuda.grid(1)
    ...     if i < x.size:
    ...         y[i] += a * x[i]
    >>> with stf.context(devices="cuda:0") as ctx:
    ...     x, y = ctx.logical_data(np.ones(4)), ctx.logical_data(np.zeros(4))
    ...     stf.kernel(add)[1, 32](x.read(), y.rw(), 2.0)
    ...     print(y.numpy())
    [2. 2. 2. 2.]
    """
    return BroughtKernel(thing)


class BroughtKernel:
    """A kernel whose launches are tasks, perhaps at a certain place; made by `stf.kernel`."""

    def __init__(self, thing: Any) -> None:
        self.thing = thing
        self.place: Any = None
        self.flavour = flavour_of(thing)
        self.compiled: dict[Any, Kernel] = {}

    def __getitem__(self, config: Any) -> ConfiguredKernel:
        return ConfiguredKernel(self, config)

    def __call__(self, *args: Any, **options: Any) -> None:
        raise TypeError(f"{self!r} has no grid and block yet; say stf.kernel(k)[grid, block](...)")

    def on(self, place: Any) -> BroughtKernel:
        """Return the same kernel launched at `place`."""
        found = copy.copy(self)
        found.place = place
        return found

    def __repr__(self) -> str:
        return f"<stf.kernel {foreign.name_of(self.thing)}>"


class ConfiguredKernel:
    """A kernel with its grid and block: call it with accesses and values."""

    def __init__(self, brought: BroughtKernel, config: Any) -> None:
        self.brought = brought
        self.config = config if brought.flavour in LAUNCHED_BY_THEIR_OWN else config_of(config)

    def __call__(self, *args: Any, **options: Any) -> Task:
        context = context_of(args, self.brought)
        if options and self.brought.flavour != "triton":
            raise TypeError(f"{self.brought!r} takes no keyword arguments, got {', '.join(options)}")
        if self.brought.flavour in LAUNCHED_BY_THEIR_OWN:
            return let_launch(context, self, args, options)
        thing, place = self.brought.thing, self.brought.place
        if self.brought.flavour == "numba":
            if wanted(context, place) == AUTO:  # a kernel is compiled for a device: choose that first
                place = chosen_for(context, accesses_among(args), foreign.name_of(thing))
            thing = numba_kernel(context, self.brought, args, place)
        task: Task = context.launch_kernel(thing, self.config, *args, place=place)
        return task


def flavour_of(thing: Any) -> str:
    """Return which library a kernel is of."""
    module = type(thing).__module__
    root = module.partition(".")[0]
    if root in ("numba", "numba_cuda", "numba_cuda_mlir") and hasattr(thing, "compile") and hasattr(thing, "py_func"):
        return "numba"
    if root == "triton":
        return "triton"
    return "tile" if module.startswith("cuda.tile.") else "plain"


def context_of(args: tuple[Any, ...], brought: BroughtKernel) -> Any:
    """Return the context comes from the data."""
    for access in accesses_among(args):
        context = access.data.core.engine.context()
        if context is None:
            raise ContextClosedError(f"the context of {access.data!r} is gone; keep a reference to it")
        return context
    raise TypeError(f"{brought!r} was called without an access, so its context is unknown; pass lX.read() or lX.rw()")


def chosen_for(context: Any, accesses: tuple[Access, ...], name: str) -> Any:
    """Return the place that is chosen for a launch, as a task with these accesses would get it."""
    task = context.make_task_at(accesses, name)
    task.find_site_outside()
    place_at(task, context, "auto")
    settle(task)
    return place_of_code(context, task.where)


def accesses_among(args: tuple[Any, ...]) -> tuple[Access, ...]:
    """Return the accesses among the arguments of a launch."""
    found = [value.access if isinstance(value, (ArrayAccess, SliceAccess)) else value for value in args]
    return tuple(value for value in found if isinstance(value, Access))


def where_of(context: Any, brought: BroughtKernel, place: Any) -> int:
    """Return the number of the execution place of a launch; `PlaceError` if that is no CUDA device."""
    named = place is not None and not is_auto(place)
    where = place_code(context, place) if named else current_place_code(context)  # which is one like all others
    if where == 0 or not context.engine.places[where].enqueues:
        raise PlaceError(
            f"{brought!r} runs on a CUDA device, and this place is {context.engine.places[where].name}; use "
            'stf.context(devices="cuda")'
        )
    return int(where)


# -- Numba ---------------------------------------------------------------------------------------------------------


def numba_kernel(context: Any, brought: BroughtKernel, args: tuple[Any, ...], place: Any) -> Kernel:
    """Return the compiled form of a Numba function for these arguments, on the device where it is launched."""
    where = where_of(context, brought, place)
    key = (context.engine.places[where].functions, *[key_of(argument) for argument in args])
    known = brought.compiled.get(key)
    if known is None:
        known = brought.compiled[key] = compile_numba(context, brought.thing, args, where)
    return known


def key_of(argument: Any) -> Any:
    """Return what of an argument decides which compiled form is needed."""
    if isinstance(argument, Access):
        layout = argument.data.core.layout
        return (layout.dtype, len(layout.shape), order_of(argument))
    if isinstance(argument, Param):
        argument = argument.value_in(None)
    if type(argument) is int and argument >= 1 << 63:
        return np.uint64
    return argument.dtype if isinstance(argument, np.generic) else type(argument)


def order_of(access: Access) -> str:
    """C, F, or A for an array without that order, as Numba names them; away from home replicas are packed."""
    core = access.data.core
    packed, home = core.layout.packed(), core.home
    has_gaps = home is not None and home.layout.packed() is not home.layout  # as a part in the memory of a whole
    if has_gaps and (home.place > 0 or access.place == home.place):
        return "A"
    steps = [abs(step) for n, step in zip(packed.shape, packed.strides, strict=True) if n > 1]
    if steps == sorted(steps, reverse=True):
        return "C"
    return "F" if steps == sorted(steps) else "A"


class Generation(NamedTuple):
    """A generation of Numba for CUDA: numba-cuda, or numba-cuda-mlir, which has types of its own.

    Attributes
    ----------
    types : module
        Numba's types.
    typeof, from_dtype, as_dtype : callable
        The type of a value, and of a dtype; the dtype of a type.
    devices : object
        Which may be indexed with an ordinal, and entered.
    fields : int
        How many parameters of an array come before its extents.
    function : callable
        The address of the CUDA function of a compiled form, with a context and an execution place.
    """

    types: Any
    typeof: Any
    from_dtype: Any
    as_dtype: Any
    devices: Any
    fields: int
    function: Any


@functools.cache
def generation_of(root: str) -> Generation:
    """Return the generation, by the package that its functions are of."""
    if root == "numba_cuda_mlir":
        from numba_cuda_mlir.numba_cuda import types
        from numba_cuda_mlir.numba_cuda.cudadrv.devices import gpus
        from numba_cuda_mlir.numba_cuda.np.numpy_support import as_dtype, from_dtype
        from numba_cuda_mlir.numba_cuda.typing.typeof import typeof

        return Generation(types, typeof, from_dtype, as_dtype, gpus, MEMREF_FIELDS, function_of_image)
    import numba
    from numba.np.numpy_support import as_dtype, from_dtype

    return Generation(
        numba.types, numba.typeof, from_dtype, as_dtype, numba.cuda.gpus, ARRAY_FIELDS, function_of_library
    )


def function_of_library(overload: Any, context: Any, where: int) -> int:
    """Return the CUDA function of numba-cuda, which has loaded it."""
    return foreign.function_of_kernel(int(overload._codelibrary.get_cufunc().handle), context, where)


def function_of_image(overload: Any, context: Any, where: int) -> int:
    """Return the CUDA function of numba-cuda-mlir, which gives machine code."""
    image, name = bytes(overload.metadata["cubin"]), overload.metadata["func_name"]
    return int(context.engine.root.kernels.at(where).function(image, name))


def compile_numba(context: Any, dispatcher: Any, args: tuple[Any, ...], where: int) -> Kernel:
    """Compile a Numba function; its arrays become several parameters each."""
    numba = generation_of(type(dispatcher).__module__.partition(".")[0])
    types = numba.types
    kinds = []
    for argument in args:
        if isinstance(argument, Access):
            layout = argument.data.core.layout
            kinds.append(types.Array(numba.from_dtype(layout.dtype), len(layout.shape), order_of(argument)))
        else:
            kinds.append(numba.typeof(argument.value_in(None) if isinstance(argument, Param) else argument))
    with numba.devices[context.engine.places[where].ordinal]:
        taken, overload = overload_of(numba, dispatcher, tuple(kinds))
        function = numba.function(overload, context, where)
    parameters = context.engine.root.kernels.at(where).parameters(function)
    made = Kernel(dispatcher, parameters, [], dispatcher.py_func.__name__)
    made.remember(context.engine.places[where].functions, function)
    made.cooperative = getattr(overload, "cooperative", False) is True
    ndims = [kind.ndim if isinstance(kind, types.Array) else -1 for kind in taken]
    made.describe_arrays(ndims, [dtype_of(numba, kind) for kind in taken], numba.fields)
    return made


def overload_of(numba: Generation, dispatcher: Any, kinds: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any]:
    """The compiled form for arguments of these types, and those that it takes: other ones, if it is given signatures.

    Raises
    ------
    TypeError
        The function has signatures, none of which takes such arguments.
    """
    if not getattr(dispatcher, "specialized", False) and getattr(dispatcher, "_can_compile", True):
        return kinds, dispatcher.compile(kinds)
    fitting = [known for known in dispatcher.overloads if fits(numba, kinds, known)]
    if not fitting:
        name = dispatcher.py_func.__name__
        known = ", ".join(f"({', '.join(map(str, taken))})" for taken in dispatcher.overloads)
        raise TypeError(
            f"kernel '{name}' is compiled for {known}, got ({', '.join(map(str, kinds))}); convert the arguments, or "
            "leave its signature out"
        )
    best = max(fitting, key=lambda known: sum(map(operator.eq, known, kinds)))
    return best, dispatcher.overloads[best]


def fits(numba: Generation, kinds: tuple[Any, ...], taken: tuple[Any, ...]) -> bool:
    """Return whether arguments can be passed where others were declared.

    Numbers of the same kind, arrays that lie so.
    """
    types = numba.types
    if len(kinds) != len(taken):
        return False
    for kind, known in zip(kinds, taken, strict=True):
        if isinstance(kind, types.Array) != isinstance(known, types.Array):
            return False
        if isinstance(kind, types.Array):
            if (kind.dtype, kind.ndim) != (known.dtype, known.ndim) or known.layout not in ("A", kind.layout):
                return False
        elif kind != known:
            one, other = dtype_of(numba, kind), dtype_of(numba, known)
            if one is None or other is None or not is_of_kind(one, other):
                return False
    return True


def dtype_of(numba: Generation, kind: Any) -> Any:
    """Return the dtype of numbers of a type of Numba's; None if it is no such type."""
    return numba.as_dtype(kind) if isinstance(kind, (numba.types.Number, numba.types.Boolean)) else None


# -- kernels that their libraries launch -----------------------------------------------------------------------------


class OwnLaunch:
    """A launch by the kernel's own library as the body of a task: `names` are those of the last values, by keyword."""

    def __init__(self, launch: Any, function: Any, grid: Any, arrays: list[int], names: list[str]) -> None:
        self.launch = launch
        self.function = function
        self.grid = grid if isinstance(grid, tuple) or callable(grid) else (grid,)
        self.arrays = arrays
        self.names = names

    def __call__(self, *given: Any) -> None:
        """Launch it on the current stream, which is the task's: arrays come first, and go where they were."""
        arrays, values = given[: len(self.arrays)], list(given[len(self.arrays) :])
        for position, array in zip(self.arrays, arrays, strict=True):
            values.insert(position, array)
        positional = len(values) - len(self.names)
        named = dict(zip(self.names, values[positional:], strict=True))
        self.launch(self.function, self.grid, values[:positional], named)


def launch_triton(function: Any, grid: Any, values: list[Any], named: dict[str, Any]) -> None:
    """Launch a Triton function on torch's current stream."""
    function[grid](*values, **named)


def launch_tile(function: Any, grid: Any, values: list[Any], named: dict[str, Any]) -> None:
    """Launch a kernel of cuda.tile on CuPy's current stream; none of its arguments has a name."""
    import cupy
    from cuda import tile

    tile.launch(cupy.cuda.get_current_stream().ptr, grid, function, tuple(values))


LAUNCHED_BY_THEIR_OWN = {"triton": (launch_triton, "torch"), "tile": (launch_tile, "cupy")}  # and whose arrays they get


def must_survive_tuning(function: Any, args: tuple[Any, ...], options: dict[str, Any]) -> None:
    """Raise TypeError if Triton's autotuner would change data that a launch reads and writes.

    It runs the kernel many times for each configuration, on the arrays of the first launch. Without `restore_value`,
    a kernel that adds to an array adds as often.

    Parameters
    ----------
    function : Triton function
    args : tuple
        Without tokens.
    options : dict
        The same.
    """
    while not hasattr(function, "configs"):  # heuristics may be around it
        function = getattr(function, "fn", None)
        if function is None:
            return
    configs = function.configs
    prepares = getattr(function, "user_defined_pre_hook", False) or any(getattr(c, "pre_hook", None) for c in configs)
    if len(configs) < 2 or prepares:
        return
    kept = {*getattr(function, "restore_value", ()), *getattr(function, "reset_to_zero", ())}
    names = [*function.arg_names[: len(args)], *options]
    for name, value in zip(names, (*args, *options.values()), strict=False):
        if isinstance(value, Access) and MODE_NAMES[value.mode] not in ("read", "write") and name not in kept:
            raise TypeError(
                f"kernel '{foreign.name_of(function)}' is autotuned, so Triton runs it many times before its first "
                f"launch, and '{name}' is read and written; add restore_value=['{name}'] to triton.autotune"
            )


def is_token(value: Any) -> bool:
    """Return whether it is an access of a token."""
    return isinstance(value, Access) and bool(value.data.core.token)


def let_launch(context: Any, configured: ConfiguredKernel, args: tuple[Any, ...], options: dict[str, Any]) -> Task:
    """Have a library launch its kernel, compiled for the values that it gets; recorded, it is captured for these."""
    brought = configured.brought
    launch, library = LAUNCHED_BY_THEIR_OWN[brought.flavour]
    where_of(context, brought, brought.place)
    grid = configured.config
    for extent in grid if isinstance(grid, tuple) else (grid,):
        if isinstance(extent, Param):
            extent.refuse()
    if any(isinstance(value, (ArrayAccess, SliceAccess)) for value in (*args, *options.values())):
        raise TypeError(f"{brought!r} takes arrays of its library; pass the accesses, without .array or .slice")
    accesses = accesses_among((*args, *options.values()))
    args = tuple(value for value in args if not is_token(value))  # which bring no argument
    options = {name: value for name, value in options.items() if not is_token(value)}
    if brought.flavour == "triton":
        must_survive_tuning(brought.thing, args, options)
    given = [*args, *options.values()]
    arrays = [position for position, value in enumerate(given) if isinstance(value, Access)]
    place = [] if brought.place is None else [brought.place]
    task: Task = context.task(*place, *accesses, name=foreign.name_of(brought.thing))
    task.find_site_outside()
    if callable(grid):
        grid = snapshot(grid, task)
    body = OwnLaunch(launch, brought.thing, grid, arrays, list(options))
    task.run_queued(body, tuple(value for value in given if not isinstance(value, Access)), library)
    return task
