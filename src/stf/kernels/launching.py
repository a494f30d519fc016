"""Kernels that users bring, as tasks: a launch with its arguments in one block, and nothing else on the way.

``ctx.launch_kernel`` packs its arguments as the kernel's own parameters say (offset and size of each), so that a value
of another size is an error, and no memory is read past an argument. Compiled, since a launch costs three microseconds
and this must not show beside it.
"""

from __future__ import annotations

import operator

import cython
import numpy as np

from stf._engine import host_waits, outcomes
from stf._engine.access import ArrayAccess, SliceAccess
from stf._port.late_values import is_fixed
from stf._support.arguments import name_of
from stf.errors import AccessError, DriverError, PlaceError
from stf.kernels import kernel_handles as foreign
from stf.kernels.arguments import MEMREF_FIELDS, Measure, refuse, refuse_argument, refuse_gaps, slice_image
from stf.kernels.launch_attributes import LaunchCapture
from stf.tasks import capsules, validation
from stf.tasks.repeats import KnownCall
from stf.values.params import Param

# of a grid: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"
MOST_EXTENT = (1 << 31) - 1


class Config:
    """Grid, block and dynamic shared memory of a launch; `extras`, if any, are its further attributes.

    These are (cluster or None, whether it is cooperative, whether it may overlap with the kernel before).
    """

    def __init__(self, grid, block, shared, extras=None):
        self.gx, self.gy, self.gz = extents(grid, "grid")
        self.bx, self.by, self.bz = extents(block, "block")
        if not hasattr(shared, "__index__"):
            raise TypeError(f"shared memory is an integral number of bytes, got {shared!r}")
        if not 0 <= operator.index(shared) <= MOST_EXTENT:
            raise ValueError(f"shared memory is a number of bytes from 0 to {MOST_EXTENT}, got {shared}")
        self.shared = operator.index(shared)
        self.user_object = None
        self.extras = extras


NO_ARGUMENTS = ()
known_configs: dict = {}
known_kernels: dict = foreign.known  # by the identity of what users call their kernel


@cython.binding(True)
def launch_kernel(context, kernel, config, *args, place=None, name=None, symbol=None):
    r"""Submit one kernel launch as a task.

    Parameters
    ----------
    kernel : kernel
        A ``cuda.core.Kernel``, a ``cupy.RawKernel``, or the address of a CUfunction or a CUkernel as int.
    config : LaunchConfig or tuple
        A ``cuda.core.LaunchConfig``, or ``(grid, block[, shmem_size])``.
    *args
        The kernel's arguments; an access such as ``lX.rw()`` becomes a pointer (packed data only), and
        ``lX.rw().array`` a pointer, the extents and the strides in bytes, each an argument of its own.
        ``lX.rw().slice`` is one argument, a struct of a pointer, the extents and the strides in elements. A Python int
        takes the size of its parameter, a Python float is a double, other values are NumPy scalars.
    place : place, optional
        The device; by default as for any task.
    name, symbol : str, optional
        The task's name in pictures and messages; by default what the kernel is called.

    Raises
    ------
    TypeError
        The number or the size of the arguments is not that of the kernel's parameters.
    PlaceError
        The place is no CUDA device.

    Examples
    --------
    >>> import cupy as cp  # needs a GPU
    >>> source = "extern \"C\" __global__ void scale(double *x, double a) { x[threadIdx.x] *= a; }"
    >>> scale = cp.RawKernel(source, "scale")
    >>> with stf.context(devices="cuda:0") as ctx:
    ...     x = ctx.logical_data(np.ones(4))
    ...     ctx.launch_kernel(scale, (1, 4), x.rw(), 3.0)
    ...     print(x.numpy())
    [3. 3. 3. 3.]
    """
    return submit_launch(context, kernel, config, args, place, None if name is symbol else name_of(name, symbol))


def submit_launch(context, kernel, config, args, where, symbol=None):
    """Submit one launch as a task of its own, called like the kernel by default; return the task."""
    task: Task = context.make_task(NO_ARGUMENTS, None)
    task.find_site()
    if where is not None:
        place_at(task, context, where)
    if task.where < 0:
        task.accesses = accesses_in(expanded(args))
        if can_be_held(task):
            task.symbol = symbol
            hold(task, HeldLaunch(kernel, config_of(config), args, symbol))
            return task
        settle(task)
    if context.finder is None or not is_taken(context.finder, task, kernel, config, args, symbol):
        go_on(task, kernel, config, args, symbol)
    return task


def is_taken(finder, task, kernel, config, args, symbol):
    """Return whether a launch is held for a window that comes again, or submitted in its turn."""
    call: HeldLaunch = HeldLaunch(kernel, config_of(config), args, symbol)
    mine: Kernel = kernel_of(task.context, kernel, task.where)
    task.accesses = accesses_in(expanded(args))
    task.symbol = mine.name if symbol is None else symbol
    if not call.is_known(mine) or not finder.look(task, mine):
        return False
    finder.hold(task, call)
    return True


@cython.final
@cython.cclass
class HeldLaunch(KnownCall):
    """A launch whose task is held."""

    def __init__(self, kernel, config, args, symbol):
        self.kernel, self.config, self.args, self.named = kernel, config, args, symbol

    def __call__(self, task):
        go_on(task, self.kernel, self.config, self.args, self.named)

    def is_known(self, mine):
        """Return whether all that it takes can be compared, and find out what that is."""
        shape: Config = self.config
        grid = (shape.gx, shape.gy, shape.gz, shape.bx, shape.by, shape.bz, shape.shared, shape.extras)
        plain: list = []
        kinds: list = []
        for argument in self.args:
            if type(argument) is not Access and type(argument) is not ArrayAccess:
                if not is_fixed(argument):
                    return False
                plain.append(argument)
            kinds.append(type(argument))
        self.what, self.fixed, self.plain = mine, (grid, tuple(kinds)), tuple(plain)
        return True

    def with_plain(self, plain):
        """Return the same launch with other numbers."""
        given = iter(plain)
        args = [arg if type(arg) is Access or type(arg) is ArrayAccess else next(given) for arg in self.args]
        return HeldLaunch(self.kernel, self.config, tuple(args), self.named)


def go_on(task, kernel, config, args, symbol):
    """Submit the launch of a task whose place is settled."""
    context: ContextCore = task.context
    mine: Kernel = kernel_of(context, kernel, task.where)
    shape: Config = config if type(config) is Config else config_of(config)
    task.symbol = mine.name if symbol is None else symbol
    args = fitting(mine, args)
    task.accesses = accesses_in(args)
    return launch_alone(task, mine, shape, args)


def launch_alone(task, mine, shape, args):
    """Submit a task that has not begun as one launch with these arguments, among them its accesses."""
    engine: Engine = task.engine
    try:
        if not outcomes.begins(engine, task):
            take_back_place(task)
            return 0
    except BaseException:
        take_back_place(task)
        raise
    try:
        pending: cython.bint = engine.pending() != 0
        special: cython.bint = shape.extras is not None or mine.cooperative
        if not engine.scope.records and (special or (pending and engine.place(task.where).is_callers_stream)):
            host_waits.enter(engine.port, task, task.slot, pending)  # as a body that gets the stream does
        put_launch(task, mine, shape, args, True)
    except BaseException as error:
        if task.restore is None:
            engine.withdraw(task)
        else:
            task.abandon(error)  # what it was to write was filled with a pattern
        raise
    if task.restore is not None:
        return task.close()
    return engine.end(task)


def fitting(mine, args):
    """Return the arguments of a launch, one for each parameter; TypeError if there are too few or too many."""
    if len(args) != mine.count:
        args = expanded(args)
    if len(args) != mine.count:
        raise TypeError(f"kernel '{mine.name}' has {mine.count} parameters, got {len(args)} arguments")
    return args


def expanded(args):
    """Return the arguments with what ``lX.read().array`` stands for in place of it.

    Pointer, extents, strides in bytes.
    """
    found = []
    for argument in args:
        if type(argument) is ArrayAccess:
            access: Access = argument.access
            axes = range(len(access.core.layout.shape))
            found += [access, *(Measure(i, False) for i in axes), *(Measure(i, True) for i in axes)]
        else:
            found.append(argument)
    return tuple(found)


def accesses_in(args):
    """Return the accesses among the arguments of a launch."""
    for argument in args:
        if type(argument) is not Access:
            found = [argument.access if type(argument) is SliceAccess else argument for argument in args]
            return tuple([access for access in found if type(access) is Access])
    return args


def put_launch(task, kernel, config, args, alone=False):
    """Pack the arguments and put the launch on the task's slot; `alone`, it is all that the task does."""
    i: cython.int
    count: cython.int = 0
    if not cython.compiled:
        raise PlaceError("kernels need the compiled form of stf; unset STF_PURE, or install it with a C compiler")
    block = take_block()
    if task.remote:
        reach_all(task)
    engine: Engine = task.engine
    recorded: cython.bint = engine.scope.records
    special: cython.bint = config.extras is not None or kernel.cooperative
    pointers: list = [] if recorded and special else None
    late: tuple = NO_ARGUMENTS
    last: Layout = None
    if kernel.ndims is not None:
        late = put_described(task, kernel, args, block, pointers, alone)
    for i in range(len(args) if kernel.ndims is None else 0):
        argument = args[i]
        if type(argument) is Access or type(argument) is SliceAccess:
            last = put_address(task, kernel, i, args, count if alone else -1, block, pointers)
            count += 1
        elif type(argument) is int or type(argument) is float:
            put_number(kernel, i, argument, block)
        elif type(argument) is Measure:
            steps: tuple = last.strides if argument.is_stride else last.shape
            put_number(kernel, i, int(steps[argument.axis]), block)
        elif isinstance(argument, Param):
            put_value(kernel, i, recorded_value(task, argument, kernel.sizes[i]), block)
            late = (*late, (i, argument))
        else:
            put_value(kernel, i, argument, block)
    key: cython.int = engine.place(task.where).functions
    function: cython.longlong = kernel.functions[key] if key < len(kernel.functions) else 0
    if function == 0:
        function = kernel.function_at(task.context, task.where)
    if engine.watches and not engine.scope.records and task.restore is None:
        capsules.refuse(task, "a launch of a compiled kernel")
        task.restore = validation.watch(task, False)
    if special:
        launch_with_extras(task, kernel, config, function, block, late, pointers, alone)
        give_block(block)
        return 0
    try:
        engine.port.launch(
            task.slot,
            function,
            config.gx,
            config.gy,
            config.gz,
            config.bx,
            config.by,
            config.bz,
            config.shared,
            cython.cast(cython.longlong, cython.cast("uintptr_t", cython.address(block.data[0]))),
            kernel.nbytes,
        )
    except DriverError as error:
        grid, threads = (config.gx, config.gy, config.gz), (config.bx, config.by, config.bz)
        error.add_note(
            f"kernel '{kernel.name}' in task {task.label()}: grid {grid}, block {threads}, {config.shared} bytes of "
            "shared memory"
        )
        raise
    give_block(block)
    if late:
        recording: RecordingPort = engine.port
        recording.vary_launch(task.slot, LateArguments(kernel, late))
    return 0


def put_address(task, kernel, i, args, position, block, pointers):
    """Pack the address of an access, or the struct of a slice; return the layout.

    `position` is that of the access in the task, -1 where it has to be looked for.
    """
    argument = args[i]
    is_slice: cython.bint = type(argument) is SliceAccess
    access: Access = argument.access if is_slice else argument
    at: cython.int = position if position >= 0 else declared_at(task, kernel, access)
    replica: Replica = task.replica_at(at)
    if is_slice:
        block.put_bytes(kernel.offsets[i], slice_image(kernel, i, access, replica.layout))
    else:
        if cython.cast(cython.int, kernel.sizes[i]) != 8 or replica is None:
            refuse(kernel, i, argument)
        if replica.layout.packed() is not replica.layout:
            refuse_gaps(kernel, i, args, replica.layout)
    block.put_integer(kernel.offsets[i], 8, replica.address)
    engine: Engine = task.engine
    if pointers is not None:
        pointers.append((kernel.offsets[i], task.recorded_replica(at)))
    elif engine.scope.records:
        recording: RecordingPort = engine.port
        recording.put_pointer(task.slot, kernel.offsets[i], replica)
    return replica.layout


def launch_with_extras(task, kernel, config, function, block, late, pointers, alone):
    """Launch what is more than a grid of blocks on the task's stream, as a with-block does; a graph captures that."""
    cluster, cooperative, overlapping = config.extras or (None, False, False)
    if late and not alone:
        late[0][1].refuse()  # the block is recorded as it stands
    engine: Engine = task.engine
    stream = task.cuda_stream()
    shape = (config.gx, config.gy, config.gz, config.bx, config.by, config.bz, config.shared)
    extras = (cluster, cooperative or kernel.cooperative, overlapping)
    if extras[1]:
        must_fit(task, kernel, shape, engine.root.kernels.at(task.where), function)
    content = block.content(kernel.nbytes)
    how = (function, shape, extras, kernel.offsets, task.place_name)
    engine.root.kernels.at(task.where).launch(*how, content, stream)
    if pointers is not None and alone:
        arguments = LateArguments(kernel, late) if late else None
        again = LaunchCapture(task, how, content, pointers, arguments)
        port: RecordingPort = engine.port
        port.capture_again(task.slot, again)
    return 0


def must_fit(task, kernel, shape, functions, function):
    """Raise ValueError unless all blocks of a cooperative launch fit on the device at once; CUDA says it later."""
    gx, gy, gz, bx, by, bz, shared = shape
    blocks, threads = gx * gy * gz, bx * by * bz
    most = functions.blocks_at_once(function, threads, shared)
    if blocks > most:
        raise ValueError(
            f"kernel '{kernel.name}' in task {task.label()} is launched cooperatively, with all blocks on "
            f"{task.place_name} at once: {most} of {threads} threads and {shared} bytes of shared memory fit, got "
            f"{blocks}; launch fewer or smaller blocks"
        )


def recorded_value(task: Task, param, size):
    """Return the value with which a parameter is recorded, for a kernel that takes so many bytes."""
    param.must_be_recorded()
    param.give_to_kernel(size)
    return param.value_in(None)


@cython.final
@cython.cclass
class LateArguments(Arguments):
    """Those that are parameters, each with the index of the kernel's own parameter."""

    def __init__(self, kernel, late):
        self.kernel = kernel
        self.late = late

    def parts(self):
        """Return of each its offset, its bytes, the parameter that it is, and its dtype."""
        kernel: Kernel = self.kernel
        dtypes = [None] * len(kernel.sizes) if kernel.dtypes is None else kernel.dtypes
        return [(kernel.offsets[at], kernel.sizes[at], param, dtypes[at]) for at, param in self.late]

    def packed(self, values, recorded):
        """Return the bytes of all arguments for the values of a launch; the others are as they were recorded."""
        block = take_block()
        block.put_bytes(0, recorded)
        kernel: Kernel = self.kernel
        for item in self.late:
            index: cython.int = cython.cast(tuple, item)[0]
            param: Asked = cython.cast(tuple, item)[1]
            value = param.asked[1] if param.asked[0] is values else param.number_in(values)
            if kernel.ndims is None:
                put_value(kernel, index, value, block)
            else:
                put_described_value(kernel, index, value, block)
        content = block.content(len(recorded))
        give_block(block)
        return content


def declared_at(task: Task, kernel: Kernel, access: Access):
    """Return which access of a with-block the argument of a launch in it stands for: that of the same data."""
    for i in range(len(task.accesses)):
        known = cython.cast(Access, task.accesses[i])
        place = task.engine.place(task.where).memory if known.place == AFFINE else known.place
        if known.core is access.core and not access.mode & ~known.mode and access.place in (AFFINE, place):
            return i
    where = "" if access.place == AFFINE else f" at {task.engine.place(access.place).name}"
    raise AccessError(
        f"kernel '{kernel.name}' is given {access!r}{where}, and the task was not: pass it to ctx.cuda_kernel too"
    )


def put_described(task, kernel, args, block, pointers, alone):
    """Pack arguments as Numba's calling convention has them; see `Kernel.image_of`."""
    fields: cython.int = kernel.fields
    data: cython.int = 1 if fields == MEMREF_FIELDS else 4
    position: cython.int = 0
    count: cython.int = 0
    at: cython.int
    i: cython.int
    offset: cython.int
    late: tuple = NO_ARGUMENTS
    engine: Engine = task.engine
    recording: RecordingPort = engine.port if engine.scope.records else None
    for i in range(len(args)):
        argument = args[i]
        wanted: cython.int = kernel.ndims[i]
        if type(argument) is Access:
            access: Access = argument
            if wanted < 0:
                refuse_argument(kernel, i, argument, "a number")
            if len(access.core.layout.shape) != wanted:
                refuse_argument(kernel, i, argument, f"an access to data of {wanted} axes")
            at = count if alone else declared_at(task, kernel, access)
            replica: Replica = task.replica_at(at)
            count += 1
            offset = kernel.offsets[position + data]
            if pointers is not None:
                pointers.append((offset, task.recorded_replica(at)))
            elif recording is not None:
                recording.put_pointer(task.slot, offset, replica)
            image: bytes = kernel.images[i]
            if kernel.layouts[i] is not replica.layout:
                image = kernel.image_of(i, access, replica.layout)
            block.put_bytes(kernel.offsets[position], image)
            block.put_integer(offset, 8, replica.address)
            position += fields + 2 * wanted
            continue
        if wanted >= 0:
            refuse_argument(kernel, i, argument, f"an access to data of {wanted} axes")
        if isinstance(argument, Param):
            late = (*late, (position, argument))
            argument = recorded_value(task, argument, kernel.sizes[position])
        put_described_value(kernel, position, argument, block)
        position += 1
    return late


# -- kernels and configurations ------------------------------------------------------------------------------------


def kernel_of(context: ContextCore, thing, where):
    """Return what we know of a kernel, found out once."""
    global last_kernel
    if last_kernel is not None and last_kernel.user_object is thing:  # as in a loop
        return last_kernel
    if type(thing) is Kernel:
        return thing
    known: Kernel = known_kernels.get(id(thing))
    if known is not None and known.user_object is thing:
        last_kernel = known
        return known
    number = context.engine.place(where).ordinal
    if number < 0 or not context.engine.place(where).enqueues:
        raise PlaceError(
            f"a kernel runs on a CUDA device, and this place is {context.engine.place(where).name}; use "
            'stf.context(devices="cuda"), and place=exec_place.device(i)'
        )
    function = foreign.function_at(thing, context, where)
    kernel = Kernel(thing, context.engine.root.kernels.at(where).parameters(function), [], foreign.name_of(thing))
    kernel.remember(context.engine.place(where).functions, function)
    kernel.cooperative = foreign.is_cooperative(thing)
    foreign.remember(thing, kernel)
    return kernel


def config_of(config):
    """Return a configuration from what users write, remembered where it can be."""
    global last_config
    if type(config) is Config:
        return config
    if type(config) is not tuple:
        return make_config(config)
    if last_config.user_object is config:  # as in a loop
        return last_config
    try:
        known: Config = known_configs.get(config)
    except TypeError:  # there are lists in it
        return make_config(config)
    if known is None:
        known = make_config(config)
        known.user_object = config
        if len(known_configs) < 1024:
            known_configs[config] = known
    last_config = known
    return known


def make_config(config):
    """Return a configuration: a ``LaunchConfig`` of cuda.core, or (grid, block[, shared bytes])."""
    if isinstance(config, tuple) and len(config) in (2, 3):
        return Config(config[0], config[1], config[2] if len(config) == 3 else 0)
    if hasattr(config, "grid") and hasattr(config, "block"):
        return config_like(config)
    raise TypeError(f"a launch takes a cuda.core.LaunchConfig or (grid, block[, shmem_size]), got {config!r}")


def config_like(config):
    """Return a configuration like a ``LaunchConfig`` of cuda.core, whose grid counts clusters where it has some."""
    cluster = getattr(config, "cluster", None)
    cooperative = bool(getattr(config, "is_cooperative", False))
    overlapping = bool(getattr(config, "programmatic_stream_serialization", False))
    grid, shared = config.grid, int(getattr(config, "shmem_size", 0) or 0)
    if cluster is not None:
        cluster = tuple(extents(cluster, "cluster"))
        grid = tuple([n * m for n, m in zip(extents(grid, "grid"), cluster, strict=True)])
    extras = (cluster, cooperative, overlapping)
    return Config(grid, config.block, shared, extras if cluster is not None or cooperative or overlapping else None)


def extents(size, what):
    """Up to three extents; those that lack are 1."""
    sizes = (size,) if type(size) is int or np.ndim(size) == 0 else tuple(size)
    if not all([hasattr(n, "__index__") for n in sizes]):
        raise TypeError(f"the extents of a {what} are integers, got {size!r}")
    if not 1 <= len(sizes) <= 3 or any([operator.index(n) < 1 for n in sizes]):
        raise ValueError(f"a {what} has one to three positive extents, got {size!r}")
    padded = [*[operator.index(n) for n in sizes], 1, 1]
    if max(padded) > MOST_EXTENT:
        raise ValueError(f"an extent of a {what} is at most {MOST_EXTENT}, got {size!r}; let each thread do more")
    return padded[:3]


last_config = Config(1, 1, 0)
last_kernel = None
