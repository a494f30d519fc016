"""Which devices there are, and the driver that a context gets for them: the one place that names the drivers."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import os
import sys
from collections.abc import Iterator
from typing import Any

from stf import config
from stf._drivers.cpu import CpuDriver
from stf._support.profilers import shows_ranges
from stf.devices.hardware import Model
from stf.devices.spec import Cluster, DeviceSpec, parse_devices
from stf.errors import DriverError, PlaceError

CORES_FOR_A_THREAD = 4  # fewer have better things to do than to wait for the next launch
_cuda_process = [0]  # which process uses CUDA


def available_devices() -> list[str]:
    """Return the devices that a context could use, as text."""
    return [*cuda_names(), f"cpu ({os.cpu_count()} cores)"]


def default_device_count() -> int:
    """Return how many devices a context has when none are asked for."""
    return configured_devices().count


def configured_devices(asked: Any = None) -> DeviceSpec:
    """Return the devices that are asked for, by default those of ``STF_DEVICES``, else all of CUDA's, else this CPU."""
    if asked is None:
        return parse_devices(config.devices, "STF_DEVICES", cuda_devices)
    return parse_devices(asked, cuda_devices=cuda_devices)


def cuda_devices() -> int:
    """Return how many CUDA devices there are.

    -1 without CUDA. PlaceError if only the module that drives them is not there.
    """
    library = cuda_library()
    if library is None:
        return -1
    try:
        devices = cuda("devices")
    except ImportError as error:
        found = ctypes.c_int()  # devices that CUDA's own library knows, or can use
        if library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(found)) or not found.value:
            return -1
        raise PlaceError(
            f"this machine has {found.value} CUDA devices, and stf cannot use them: {error}; install it with a C "
            "compiler and cuda-bindings, or set STF_DEVICES=cpu to run without them"
        ) from error
    if _cuda_process[0] not in (0, os.getpid()):
        hint = "in the child of a fork CUDA does not work; start the process by 'spawn', or use devices='cpu'"
        raise DriverError("CUDA_ERROR_NOT_INITIALIZED", 3, "cuInit", "this process", hint)
    try:
        count = int(devices.device_count())
    except DriverError as error:
        error.add_note("CUDA is there and does not work; STF_DEVICES=cpu runs without it")
        raise
    if count > 0:
        _cuda_process[0] = os.getpid()
    return count


@functools.cache
def cuda_library() -> Any:
    """Return CUDA's own library; None where it is not there: the modules that use it take 40 ms to be loaded."""
    try:
        return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return None


def cuda_names() -> list[str]:
    """Return what the vendor calls the CUDA devices."""
    count = cuda_devices()
    return [f"cuda:{i} ({cuda('devices').device_name(i)})" for i in range(count)]


@functools.cache
def cuda(part: str) -> Any:
    """Return a module of the CUDA driver, by its name there: loaded when it is first asked for."""
    return importlib.import_module(f"stf._drivers.cuda.{part}")


def cuda_memory_at(address: int) -> tuple[str, int]:
    """Return what memory an address is in, "device", "managed", "host" or "", and the ordinal of its device or -1."""
    kind, ordinal = cuda("devices").memory_at(address)
    return str(kind), int(ordinal)


def cuda_current() -> int:
    """Return the ordinal of this thread's current CUDA device; -1 if there is none."""
    return int(cuda("devices").current_ordinal())


def cuda_attributes(ordinal: int) -> dict[str, Any]:
    """Return the name of a CUDA device, and what it has."""
    return {"name": cuda("devices").device_name(ordinal), **cuda("devices").attributes_of(ordinal)}


def cuda_is_managed(address: int) -> bool:
    """Return whether memory is CUDA's managed memory."""
    return cuda_memory_at(address)[0] == "managed"


@contextlib.contextmanager
def keep_current_context() -> Iterator[None]:
    """Leave this thread's current CUDA context as it is, whatever is done inside."""
    places = cuda_places()
    before = places.current_context()
    try:
        yield
    finally:
        places.make_current(before)


def cuda_places() -> Any:
    """Return what knows CUDA's streams and contexts; PlaceError where there is no CUDA."""
    if cuda_devices() <= 0:
        raise PlaceError("this is a place on a CUDA device, and there is none here; use exec_place.device(i)")
    return cuda("places")


def cuda_memory(part: str) -> Any:
    """Return ``"blocks"``, which allocates outside of a driver, or ``"virtual"``; PlaceError where there is no CUDA."""
    if cuda_devices() <= 0:
        raise PlaceError("this is memory of a CUDA device, and there is none here; devices='cpu:2' emulates two")
    return cuda(part)


def stream_device(pointer: int) -> int:
    """Return the ordinal of the device of a CUDA stream."""
    return int(cuda("callers").device_of(pointer))


def stream_is_captured(pointer: int) -> bool:
    """Return whether a CUDA stream is being captured."""
    return bool(cuda("devices").is_capturing(pointer))


def make_driver(spec: DeviceSpec, model: Any = None) -> Any:
    """Return a driver for what was asked; a hostile one with STF_HOSTILE. Simulated devices have a `model` of times."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    workers = spec.workers or config.cpu_workers or cores
    driver: Any
    if spec.driver == "sim":
        from stf._drivers.simulated import SimulatedDriver

        return SimulatedDriver([spec.kind] * spec.count, model or Model(), workers or 1, spec.capacity)
    if spec.driver == "remote":
        from stf._drivers.remote.driver import RemoteDriver

        return RemoteDriver(
            make_transport(spec.cluster, spec.count), workers or 1, spec.cluster.batch, spec.cluster.batch_s
        )
    if spec.driver == "cuda":
        driver, is_ready = cuda_driver(spec, cores or 1, workers or 1)
        if is_ready:
            return driver
    else:
        driver = CpuDriver(spec.count, spec.shares_host, workers or 1, spec.capacity)
        driver.has_reserve = config.reuse_devices
    try:
        if config.limit_blas and driver.max_workers > 1:
            driver.library_threads = max((cores or 1) // driver.max_workers, 1)
        if config.hostile is None:
            return driver
        from stf._drivers.wrappers.hostile import HostileDriver

        return HostileDriver(driver, config.hostile)
    except BaseException:  # such as no memory: nobody else has the driver, to close it
        driver.close()
        raise


def cuda_driver(spec: DeviceSpec, cores: int, workers: int) -> tuple[Any, bool]:
    """Return a driver for CUDA devices, and whether it is one that rested, which needs nothing more."""
    from stf._drivers.cuda.callers import CallersDriver
    from stf.devices.kept import kept

    thread = config.submit_thread
    if thread is None and (cores < CORES_FOR_A_THREAD or shows_ranges()):
        thread = False  # profilers name a kernel by the range in the thread that launches it
    graphs = config.graph_cache, config.conditional_nodes
    made_of = spec.numbers, workers, spec.capacity, thread, *graphs, config.host_pool
    if not config.reuse_devices:
        kept.stop()
    if not config.reuse_devices or config.hostile is not None:
        return CallersDriver(*made_of), False
    key = *made_of, config.limit_blas, cuda("devices").home_among(spec.numbers)
    keeper = functools.partial(kept.keep, key)
    driver = kept.take(key)
    if driver is not None:
        return driver, True
    driver = CallersDriver(*made_of)
    driver.keeper = keeper
    return driver, False


def make_transport(cluster: Cluster, count: int) -> Any:
    """Return what starts the workers of remote devices, and carries messages; ``STF_HOSTILE`` lets these be late."""
    if cluster.engine == "ray":
        from stf._drivers.remote.ray_actors import RayActors

        return RayActors(count, cluster.threads, dict(cluster.environment), cluster.gpus is True)
    if cluster.engine == "dask":
        from stf._drivers.remote.dask_actors import DaskActors

        return DaskActors(cluster.client, cluster.workers, cluster.threads, cluster.gpus)
    from stf._drivers.remote.loopback import Loopback

    return Loopback(count, cluster.threads, config.hostile, cluster.gpus is True)
