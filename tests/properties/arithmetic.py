"""What bodies compute: exact in every dtype, and the same in the model, on the host and on a device.

On a device it is written in what NumPy and CuPy share, and waits for nothing: a task's work is in flight while the next
one is submitted. Where arrays of several places meet, and now and then elsewhere, it is done in copies on the host.
"""

from __future__ import annotations

import contextlib

import numpy as np
from helpers import content, library

import stf

READ, WRITE, RW, ACCUMULATE = 1, 2, 3, 4
REDUCERS = {
    "sum": (stf.reducer.sum, "add"),
    "max": (stf.reducer.maxval, "maximum"),
    "min": (stf.reducer.minval, "minimum"),
    "or": (stf.reducer.bitwise_or, "bitwise_or"),
}


def checksum(array):
    if not array.size:
        return 0
    total = library(array).nan_to_num(array.real).astype(np.int64).sum() % 1009
    return int(total) if isinstance(array, np.ndarray) else total


def mixed(old, seed):
    """New content from old content and a number, exact in every dtype."""
    kind = old.dtype.kind
    if kind == "c":
        new = (old.real + seed) % 1009 + 1j * ((old.imag + seed + 1) % 97)
    elif kind == "f":
        new = (old + seed) % 1009
    elif kind == "b":
        new = (old.astype(np.int64) + seed) % 2 == 1
    else:
        new = (old.astype(np.int64) + seed) % 97
    return new.astype(old.dtype)


def fresh(array, seed):
    ramp = library(array).arange(array.size).reshape(array.shape)
    return mixed(ramp.astype(array.dtype), seed)


def effect(arrays, modes, ops, seed):
    """Return what each array becomes, or None where it is only read; nothing is written."""
    total = seed + sum(checksum(a) for a, mode in zip(arrays, modes, strict=True) if mode & READ)
    results = []
    for i, (array, mode, op) in enumerate(zip(arrays, modes, ops, strict=True)):
        if mode == ACCUMULATE:
            value = np.asarray(seed % 5 + i).astype(array.dtype)[()]
            results.append(getattr(library(array), REDUCERS[op][1])(array, value))
        elif mode == WRITE:
            results.append(fresh(array, total + i))
        elif mode == RW:
            results.append(mixed(array, total + i))
        else:
            results.append(None)
    return results


def apply(arrays, modes, ops, seed):
    """Do to the arrays what a body does."""
    if not is_in_order(arrays) or (seed % 8 == 0 and is_on_device(arrays)):
        apply_on_host(arrays, modes, ops, seed)
        return
    for array, result in zip(arrays, effect(arrays, modes, ops, seed), strict=True):
        if result is not None:
            array[...] = result


def flat(values):
    """Arrays out of containers and pairs, without tokens."""
    result = []
    for value in values:
        if isinstance(value, Pair):
            result += [value.a, value.b]
        elif isinstance(value, dict):
            result += flat(value.values())
        elif isinstance(value, (list, tuple)):
            result += flat(value)
        elif value is not None:
            result.append(value)
    return result


class Pair:
    """An object made of two arrays."""

    def __init__(self, a, b):
        self.a, self.b = a, b


stf.register_data_interface(Pair, flatten=lambda p: (p.a, p.b), unflatten=lambda p, parts: Pair(*parts))


# -- devices -----------------------------------------------------------------------------------------------------------


def is_on_device(arrays):
    return any(not isinstance(array, np.ndarray) for array in arrays)


def is_in_order(arrays):
    """Whether work on the arrays is ordered as it is written: all NumPy's, or all of the device whose stream is set."""
    if not is_on_device(arrays):
        return True
    import cupy

    return cupy.cuda.get_current_stream().ptr != 0 and all(
        not isinstance(array, np.ndarray) and array.device == cupy.cuda.Device() for array in arrays
    )


def apply_on_host(arrays, modes, ops, seed):
    """Do it in copies: the host waits for them, and for what it stores."""
    wait_for_streams(arrays)
    with no_default_streams(arrays):
        images = [image_of(array, mode) for array, mode in zip(arrays, modes, strict=True)]
        results = effect(images, modes, ops, seed)
        for array, result in zip(arrays, results, strict=True):
            if result is not None:
                store(array, result)
        wait_for_streams(arrays)


@contextlib.contextmanager
def no_default_streams(arrays):
    """On devices whose default stream is current another one is: STF_VALIDATE knows no reason to launch on that."""
    import cupy

    with contextlib.ExitStack() as stack:
        for ordinal in ordinals_of(arrays):
            with cupy.cuda.Device(ordinal):
                if cupy.cuda.get_current_stream().ptr == 0:
                    stack.enter_context(a_stream_on(ordinal))
        yield


@contextlib.contextmanager
def a_stream_on(ordinal):
    """A stream of a device is the current one there, entered: CuPy's ``get()`` of strided arrays ends what `use` did."""
    import cupy

    with cupy.cuda.Device(ordinal):
        stream = cupy.cuda.Stream(non_blocking=True)
        stream.__enter__()
    try:
        yield
    finally:
        with cupy.cuda.Device(ordinal):
            stream.synchronize()
            stream.__exit__()


def wait_for_streams(arrays):
    """Wait for the current stream, and for those that are current on the devices of the arrays."""
    import cupy

    cupy.cuda.get_current_stream().synchronize()
    for ordinal in ordinals_of(arrays):
        with cupy.cuda.Device(ordinal):
            cupy.cuda.get_current_stream().synchronize()


def ordinals_of(arrays):
    """The devices of arrays."""
    return {array.device.id for array in arrays if not isinstance(array, np.ndarray)}


def image_of(array, mode):
    """A NumPy array like that one, with its content unless that is not read."""
    return np.empty(array.shape, array.dtype) if mode == WRITE else content_at(array)


def content_at(array):
    """A NumPy copy of an array of whatever device."""
    if isinstance(array, np.ndarray):
        return array.copy()
    with array.device:
        return content(array)


def store(array, values):
    """Overwrite an array of whatever device by NumPy's `values`."""
    if isinstance(array, np.ndarray):
        array[...] = values
        return
    with array.device:
        array[...] = library(array).asarray(np.asarray(values).astype(array.dtype))


def store_and_wait(array, values):
    """Store, and wait until it is there: for whoever is outside tasks."""
    store(array, values)
    if not isinstance(array, np.ndarray):
        wait_for_streams([array])
