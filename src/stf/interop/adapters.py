"""What a task's body is given and what it gives back: arrays of the libraries, and results stored into them."""

from __future__ import annotations

import functools
import sys
from typing import Any

import numpy as np

from stf._port.remote_arrays import REMOTE_GPU, RemoteArray, array_makers
from stf.interop import arrays, current, jax_arrays, tensors
from stf.interop.cupy_arrays import CuPy
from stf.interop.current import Borrowed
from stf.interop.dtypes import dtype_of
from stf.interop.libraries import Library
from stf.interop.memory import numpy_view
from stf.interop.results import check_result
from stf.interop.unknown_arrays import UnknownArray

TOKEN = object()
BITS = "bits"  # CuPy's arrays, with narrow floats as unsigned integers: for tasks of our own
CARRIED = CuPy(has_bits=True)
tensors_made = tensors.made


def view(replica: Any, writeable: bool, lib: str | None) -> Any:
    """Return the array of a replica in memory of the host's, in library `lib`; NumPy where none is named."""
    if lib is None or lib == "numpy" or replica.layout.interface is not None:
        return numpy_view(replica, writeable)
    cached = replica.views.get((lib, writeable)) if replica.views else None  # as long as the replica
    if cached is None:
        cached = from_numpy(numpy_view(replica, True), lib)
        if library_named(lib).keeps_arrays:
            replica.views[(lib, writeable)] = cached
    return cached


def from_numpy(array: Any, lib: str) -> Any:
    """Return an array of a library over the memory of one of NumPy's, or a copy where arrays never change."""
    if type(array) is UnknownArray:
        return array
    if type(array) is RemoteArray:
        make = from_numpy if array.made is None else array.made[0]
        return RemoteArray(array.address, array.shape, array.strides, array.dtype, True, (make, lib))
    return library_named(lib).over(array)


def library_named(lib: str) -> Library:
    """Return the library of the arrays that a body gets; ValueError if there is none."""
    return CARRIED if lib == BITS else arrays.library_named(lib)


def device_view(replica: Any, lib: str | None, ordinal: int, remote: bool = False) -> Any:
    """Return the array of a replica on CUDA device `ordinal`, in library `lib` (CuPy if None).

    A `remote` one is elsewhere, and an array of that device all the same: its kernels reach that memory.
    """
    name = lib or "cupy"
    views = replica.views
    if views is None:
        views = replica.views = {}
    key = (name, ordinal) if remote else name
    found = views.get(key)
    if found is not None:
        return found
    if replica.layout.interface is not None:
        found = views[key] = replica.layout.interface.view(replica.instance)
        return found
    library = library_named(name)
    found = library.on_device(replica, ordinal, remote)
    if library.keeps_arrays:
        views[key] = found
    return found


def array_of_block(block: Any, library: str) -> Any:
    """Return the array of memory of this worker's GPU in a library."""
    return library_named(library).on_device(block, block.ordinal, False)


array_makers[REMOTE_GPU] = array_of_block


class DeviceFill:
    """Fills a replica on a device, on a slot, by ``target[...] = value``."""

    __slots__ = ("dtype", "engine", "ordinal", "replica", "slot", "view")

    def __init__(self, engine: Any, slot: int, replica: Any) -> None:
        self.engine = engine
        self.slot = slot
        self.replica = replica
        self.dtype = replica.layout.dtype
        self.ordinal = engine.places[replica.place].ordinal
        self.view: Any = None

    def on_host(self) -> DeviceFill:
        """Return the same, done by a body on the host, which runs when the engine may have moved on."""
        self.view = device_view(self.replica, "cupy", self.ordinal)
        return self

    def __setitem__(self, index: Any, value: Any) -> None:
        element = np.asarray(value, self.dtype)
        if self.view is not None:
            with sys.modules["cupy"].cuda.Device(self.ordinal):
                self.view[...] = value
                sys.modules["cupy"].cuda.get_current_stream().synchronize()
        elif element.ndim or not self.engine.port.fill(self.slot, self.replica, element.tobytes()):
            view = device_view(self.replica, "cupy", self.ordinal)
            borrowed = Borrowed(self.engine.port.stream(self.slot), self.ordinal)
            try:
                view[...] = value
            finally:
                borrowed.give_back()


def address_of(value: Any) -> int:
    """Return the address of what a body on the host was given."""
    return int(value.replica.address) if type(value) is jax_arrays.JaxCopy else arrays.describe(value).address


def copies_of(task: Any, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """JAX arrays for a with-block, which returns nothing, so it may only read."""
    if task.views is None:
        for i, access in enumerate(task.accesses):
            if task.joined_mode(i) != 1 and task.replica_of(i) is not None:
                raise TypeError(
                    f"task {task.label()} opens logical data '{access.data_name}' for writing, and JAX arrays never "
                    'change; give the task a function that returns the new content: @stf.task(arrays="jax")'
                )
    return tuple([value() if type(value) is jax_arrays.JaxCopy else value for value in values])


def must_return(written: Any, fn: Any) -> None:
    """Raise if a body that cannot write into its arrays returned nothing."""
    if any(type(target) is jax_arrays.JaxCopy for target in written or ()):
        raise TypeError(
            f"task '{getattr(fn, '__name__', 'body')}' returned None, and JAX arrays never change; return the content "
            "of the data that it writes"
        )


def drop_token(value: Any) -> Any:
    """None instead of a token's stand-in; a copy that is made now instead of what makes it."""
    if type(value) is jax_arrays.JaxCopy:
        return value()
    return None if value is TOKEN else value


def copies_of_aliases(results: Any, targets: list[Any]) -> Any:
    """Return the results of a body, of which those are copies that lie where one of them is stored before."""
    if len(results) == 1 and type(targets[0]) is np.ndarray:
        return results  # NumPy sees to that
    for i, value in enumerate(results):
        for j in range(i + 1):
            is_stored = value is not targets[i] if j == i else results[j] is not targets[j]
            if is_stored and shares_memory(value, targets[j]):
                copy = value.clone() if hasattr(value, "clone") else value.copy()
                results = (*results[:i], copy, *results[i + 1 :])
                break
    return results


def shares_memory(value: Any, target: Any) -> bool:
    """Return whether a result lies in an array that a body was given, or in a part of it."""
    return arrays.library_of(type(target))[0].shares_memory(value, target)


def store(value: Any, target: Any, name: str, position: int) -> None:
    """Store one result of a body into the array that it writes."""
    if value is target:
        return
    if type(target) is jax_arrays.JaxCopy:
        target.store(value, name, position)
        return
    if not isinstance(target, np.ndarray):
        store_on_device(value, target, name, position)
        return
    check_result(value, target.shape, target.dtype, name, position)
    array = np.asarray(value, target.dtype if isinstance(value, list) else None)
    if not np.shares_memory(array, target) or array.__array_interface__ != target.__array_interface__:
        target[...] = array


def store_on_device(value: Any, target: Any, name: str, position: int) -> None:
    """Store a result into an array that is not NumPy's: on the task's stream, which is current."""
    if not (hasattr(target, "shape") and hasattr(target, "__setitem__")):
        raise TypeError(f"task '{name}' cannot return a value for {type(target).__name__}; write into it instead")
    if isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.shape):
        library = type(target).__module__.partition(".")[0]
        raise TypeError(
            f"result {position} of task '{name}' is a {type(value).__name__}, and its arrays are of {library}; return "
            "one of these, or write into the argument"
        )
    check_result(value, tuple(target.shape), dtype_of(target.dtype), name, position)
    extra = getattr(value, "ndim", 0) - len(target.shape)
    value = value.reshape(value.shape[extra:]) if extra > 0 else value
    arrays.library_of(type(target))[0].put(value, target)


def uses_tensors(values: Any) -> bool:
    """Return whether a body gets tensors of torch, as an argument or within one."""
    return any("torch" in [type(part).__module__ for part in (value, *getattr(value, "views", ()))] for value in values)


def around(task: Any, values: Any) -> Any:
    """Return what makes a with-block that a body runs in; None if it needs none."""
    ordinals = devices_of_host_task(task)
    if ordinals:
        return functools.partial(current.HostUse, ordinals)
    return tensors.WithoutGrad if uses_tensors(values) else None


def host_use(task: Any) -> Any:
    """Return the same for a with-block of the user's on the host, entered already.

    None if it gets no memory of devices.
    """
    ordinals = devices_of_host_task(task)
    return current.HostUse(ordinals).__enter__() if ordinals else None


def devices_of_host_task(task: Any) -> list[int]:
    """Return the ordinals of the CUDA devices whose memory a task on the host gets, in its order."""
    engine = task.engine
    if engine.places[task.where].enqueues:
        return []
    replicas = [replica for replica in task.held_replicas() if engine.places[replica.place].enqueues]
    numbers = dict.fromkeys(engine.places[replica.place].ordinal for replica in replicas)
    return [number for number in numbers if number >= 0]


__all__ = ["TOKEN", "arrays", "store", "view"]
