"""Which devices there are, and the driver that a context gets for them: the one place that names the drivers."""

from __future__ import annotations

import os
from typing import Any

from stf import config
from stf._drivers.cpu import CpuDriver
from stf._drivers.hostile import HostileDriver
from stf.devices import DeviceSpec, parse_devices
from stf.errors import DriverError


def available_devices() -> list[str]:
    """Return the devices that a context could use, as text."""
    return [*cuda_names(), f"cpu ({os.cpu_count()} cores)"]


def default_device_count() -> int:
    """Return how many devices a context has when none are asked for."""
    return configured_devices().count


def configured_devices() -> DeviceSpec:
    """The devices that ``STF_DEVICES`` asks for, else all of CUDA's, else this CPU."""
    return parse_devices(config.devices, "STF_DEVICES", cuda_devices)


def cuda_devices() -> int:
    """How many CUDA devices there are; -1 without CUDA, or without the module that drives it."""
    try:
        from stf._drivers import cuda_devices as cuda
    except ImportError:
        return -1
    try:
        return int(cuda.device_count())
    except DriverError as error:
        error.add_note("CUDA is there and does not work; STF_DEVICES=cpu runs without it")
        raise


def cuda_names() -> list[str]:
    """What the vendor calls the CUDA devices."""
    count = cuda_devices()
    if count <= 0:
        return []
    from stf._drivers import cuda_devices as cuda

    return [f"cuda:{i} ({cuda.device_name(i)})" for i in range(count)]


def cuda_place_of(address: int) -> int:
    """The ordinal of the CUDA device that memory is on."""
    from stf._drivers import cuda_devices as cuda

    return int(cuda.ordinal_of(address))


def cuda_current() -> int:
    """The ordinal of this thread's current CUDA device; -1 if there is none."""
    from stf._drivers import cuda_devices as cuda

    return int(cuda.current_ordinal())


def make_driver(spec: DeviceSpec) -> Any:
    """A driver for what was asked; a hostile one with STF_HOSTILE."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    workers = config.cpu_workers or cores
    driver: Any
    if spec.driver == "cuda":
        from stf._drivers.cuda import CudaDriver

        driver = CudaDriver(spec.numbers, workers or 1, spec.capacity)
    else:
        driver = CpuDriver(spec.count, spec.shares_host, workers or 1, spec.capacity)
    return driver if config.hostile is None else HostileDriver(driver, config.hostile)
