"""Devices, streams and memory, as ``cupy.cuda`` has them, over the stand-in for CUDA's driver library."""

from __future__ import annotations

import ctypes
import threading
import weakref
from typing import Any

_driver = ctypes.CDLL("libcuda.so.1")
_local = threading.local()

MEMORY_TYPE = 2  # CU_POINTER_ATTRIBUTE_MEMORY_TYPE
OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY


class CUDARuntimeError(RuntimeError):
    """A call of the driver that failed."""


class OutOfMemoryError(MemoryError):
    """The pool cannot have more memory."""


def _check(code: int, call: str) -> None:
    if code:
        name = ctypes.c_char_p()
        _driver.cuGetErrorName(code, ctypes.byref(name))
        raise CUDARuntimeError(f"{(name.value or b'?').decode()}: {call}")


# -- devices -------------------------------------------------------------------------------------------------------


class Device:
    """A device, by its ordinal; the current one if none is given. As a with-block: the current one inside."""

    def __init__(self, device: Any = None) -> None:
        self.id = _thread_device() if device is None else int(device)
        self._before: list[int] = []

    def __int__(self) -> int:
        return self.id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<CUDA Device {self.id}>"

    def __enter__(self) -> Device:
        self._before.append(_thread_device())
        if self._before[-1] != self.id:
            self.use()
        return self

    def __exit__(self, *_: object) -> None:
        Device(self._before.pop()).use()

    def use(self) -> None:
        _check(_driver.cuCtxSetCurrent(_primary(self.id)), "cuCtxSetCurrent")
        _local.device = self.id

    def synchronize(self) -> None:
        with self:
            _check(_driver.cuCtxSynchronize(), "cuCtxSynchronize")


_contexts: dict[int, ctypes.c_void_p] = {}


def _primary(ordinal: int) -> ctypes.c_void_p:
    """The primary context of a device, which is kept to the end, as CUDA's runtime keeps it."""
    context = _contexts.get(ordinal)
    if context is None:
        context = ctypes.c_void_p()
        _check(_driver.cuInit(0), "cuInit")
        _check(_driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), ordinal), "cuDevicePrimaryCtxRetain")
        _contexts[ordinal] = context
    return context


def _thread_device() -> int:
    """The device that CUDA's runtime says: that of the current context; else what this thread has set last, or 0."""
    ordinal = ctypes.c_int()
    return getattr(_local, "device", 0) if _driver.cuCtxGetDevice(ctypes.byref(ordinal)) else ordinal.value


def _current_ordinal() -> int:
    """The device that work goes to; 0, and current from now on, where there was none."""
    ordinal = ctypes.c_int()
    if _driver.cuCtxGetDevice(ctypes.byref(ordinal)):
        if _thread_device() != 0:  # the runtime would work on device 0, and a kernel says:
            raise CUDARuntimeError(f"CUDA_ERROR_INVALID_CONTEXT: device {_thread_device()} was set, none is current")
        _check(_driver.cuCtxSetCurrent(_primary(0)), "cuCtxSetCurrent")
        return 0
    _primary(ordinal.value)  # which may be kept by somebody else alone, who lets it go
    return ordinal.value


def _reaches(ordinal: int, other: int) -> bool:
    """Whether a device may use the memory of another."""
    able = ctypes.c_int(1)
    if ordinal != other:
        _check(_driver.cuDeviceCanAccessPeer(ctypes.byref(able), ordinal, other), "cuDeviceCanAccessPeer")
    return bool(able.value)


def is_available() -> bool:
    count = ctypes.c_int()
    return not _driver.cuInit(0) and not _driver.cuDeviceGetCount(ctypes.byref(count)) and count.value > 0


class runtime:
    """The part of ``cupy.cuda.runtime`` that tests use."""

    CUDARuntimeError = CUDARuntimeError

    @staticmethod
    def getDevice() -> int:
        return _thread_device()

    @staticmethod
    def getDeviceCount() -> int:
        count = ctypes.c_int()
        _check(_driver.cuInit(0) or _driver.cuDeviceGetCount(ctypes.byref(count)), "cuDeviceGetCount")
        return count.value

    @staticmethod
    def streamCreateWithPriority(flags: int, priority: int) -> int:
        _current_ordinal()
        handle = ctypes.c_void_p()
        code = _driver.cuStreamCreateWithPriority(ctypes.byref(handle), flags, priority)
        _check(code, "cuStreamCreateWithPriority")
        return handle.value or 0

    @staticmethod
    def streamDestroy(stream: int) -> None:
        _check(_driver.cuStreamDestroy_v2(ctypes.c_void_p(stream)), "cuStreamDestroy")

    @staticmethod
    def streamWaitEvent(stream: int, event: int, flags: int = 0) -> None:
        code = _driver.cuStreamWaitEvent(ctypes.c_void_p(stream), ctypes.c_void_p(event), flags)
        _check(code, "cuStreamWaitEvent")

    @staticmethod
    def eventCreateWithFlags(flags: int) -> int:
        _current_ordinal()
        handle = ctypes.c_void_p()
        _check(_driver.cuEventCreate(ctypes.byref(handle), flags), "cuEventCreate")
        return handle.value or 0

    @staticmethod
    def eventRecord(event: int, stream: int) -> None:
        _check(_driver.cuEventRecord(ctypes.c_void_p(event), ctypes.c_void_p(stream)), "cuEventRecord")

    @staticmethod
    def eventDestroy(event: int) -> None:
        _check(_driver.cuEventDestroy_v2(ctypes.c_void_p(event)), "cuEventDestroy")


# -- streams -------------------------------------------------------------------------------------------------------


class Stream:
    """A stream; ``null`` is the legacy default stream, which is of whatever device is current.

    A with-block ends with what the with-block around it entered, or ``null``, and not with what ``use()`` made current.
    """

    null: Stream

    def __init__(self, null: bool = False, non_blocking: bool = False) -> None:
        self.ptr, self.device_id = 0, -1
        if not null:
            handle = ctypes.c_void_p()
            self.device_id = _current_ordinal()
            _check(_driver.cuStreamCreate(ctypes.byref(handle), int(non_blocking)), "cuStreamCreate")
            self.ptr = handle.value or 0
            weakref.finalize(self, _driver.cuStreamDestroy_v2, ctypes.c_void_p(self.ptr)).atexit = False

    @staticmethod
    def from_external(obj: Any) -> Stream:
        """A stream of another library, by ``__cuda_stream__``."""
        version, pointer = obj.__cuda_stream__()
        assert version == 0
        stream = Stream(null=True)
        stream.ptr, stream.device_id = pointer, _current_ordinal() if pointer else -1
        stream.owner = obj
        return stream

    def use(self) -> Stream:
        """Make this the current stream of its device, which must be the current one, for this thread."""
        ordinal = _current_ordinal()
        if self.device_id not in (-1, ordinal):
            raise RuntimeError(f"a stream of device {self.device_id} does not match the current device ({ordinal})")
        _streams()[ordinal] = self
        return self

    def __enter__(self) -> Stream:
        self.use()
        _entered().append((_current_ordinal(), self))
        return self

    def __exit__(self, *_: object) -> None:
        ordinal, _ = _entered().pop()
        before = next((stream for at, stream in reversed(_entered()) if at == ordinal), Stream.null)
        _streams()[before.device_id if before.device_id >= 0 else _current_ordinal()] = before

    def synchronize(self) -> None:
        _check(_driver.cuStreamSynchronize(ctypes.c_void_p(self.ptr)), "cuStreamSynchronize")

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.ptr

    def __repr__(self) -> str:
        return f"<Stream {self.ptr} (device {self.device_id})>"


class ExternalStream(Stream):
    """A stream by its address."""

    def __init__(self, ptr: int, device_id: int = -1) -> None:
        super().__init__(null=True)
        self.ptr, self.device_id = ptr, device_id


Stream.null = Stream(null=True)


def _streams() -> dict[int, Stream]:
    if not hasattr(_local, "streams"):
        _local.streams = {}
    return _local.streams


def _entered() -> list[tuple[int, Stream]]:
    """The devices and streams of this thread's with-blocks."""
    if not hasattr(_local, "entered"):
        _local.entered = []
    return _local.entered


def get_current_stream(device_id: int = -1) -> Stream:
    return _streams().get(device_id if device_id >= 0 else _current_ordinal(), Stream.null)


# -- memory --------------------------------------------------------------------------------------------------------


class UnownedMemory:
    """Memory of somebody else's."""

    def __init__(self, ptr: int, size: int, owner: Any, device_id: int = -1) -> None:
        self.ptr, self.size, self.owner = ptr, size, owner
        self.device_id = device_id
        if device_id < 0:
            ordinal = ctypes.c_int()
            code = _driver.cuPointerGetAttribute(ctypes.byref(ordinal), 9, ctypes.c_uint64(ptr))  # DEVICE_ORDINAL
            _check(code, "cuPointerGetAttribute")
            self.device_id = ordinal.value


class MemoryPointer:
    """A place in memory."""

    def __init__(self, mem: Any, offset: int) -> None:
        self.mem, self.ptr, self.device_id = mem, mem.ptr + offset, mem.device_id

    def copy_from_device_async(self, src: MemoryPointer, size: int) -> None:
        """Copy on the current stream."""
        if size:
            here, there, stream = ctypes.c_uint64(self.ptr), ctypes.c_uint64(src.ptr), get_current_stream().ptr
            code = _driver.cuMemcpyAsync(here, there, ctypes.c_size_t(size), ctypes.c_void_p(stream))
            _check(code, "cuMemcpyAsync")


class _Block:
    """Memory of the pool's; it goes back when dropped, for whoever works on the same stream."""

    def __init__(self, size: int) -> None:
        self.device_id = _current_ordinal()
        self.size = size
        self.free = _pool.blocks.setdefault((self.device_id, get_current_stream().ptr, size), [])
        try:
            self.ptr = self.free.pop()
        except IndexError:
            address = ctypes.c_uint64()
            code = _driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size))
            if code == OUT_OF_MEMORY:
                _pool.free_all_blocks()
                code = _driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size))
            if code == OUT_OF_MEMORY:
                raise OutOfMemoryError(f"Out of memory allocating {size:,} bytes.") from None
            _check(code, "cuMemAlloc")
            self.ptr = address.value
            _pool.n_blocks += 1

    def __del__(self) -> None:
        if hasattr(self, "ptr"):
            self.free.append(self.ptr)


class _MemoryPool:
    def __init__(self) -> None:
        self.blocks: dict[tuple[int, int, int], list[int]] = {}
        self.n_blocks = 0

    def malloc(self, size: int) -> MemoryPointer:
        return MemoryPointer(_Block(-(-max(size, 1) // 512) * 512), 0)

    def free_all_blocks(self) -> None:
        for (ordinal, _, _), free in list(self.blocks.items()):
            with Device(ordinal):
                while free:
                    _check(_driver.cuMemFree_v2(ctypes.c_uint64(free.pop())), "cuMemFree")
                    self.n_blocks -= 1


_pool = _MemoryPool()


def alloc(size: int) -> MemoryPointer:
    allocator = getattr(_local, "allocator", None)
    return _pool.malloc(size) if allocator is None else allocator(size)


class memory:
    """What ``using_allocator`` calls in CuPy: what the calling thread allocates from, None for the common pool."""

    @staticmethod
    def _get_thread_local_allocator() -> Any:
        return getattr(_local, "allocator", None)

    @staticmethod
    def _set_thread_local_allocator(allocator: Any) -> None:
        _local.allocator = allocator


# -- work ----------------------------------------------------------------------------------------------------------


def _check_reach(arrays: list[Any]) -> None:
    """Raise unless a kernel of the current device may use these arrays."""
    current = _current_ordinal()
    for array in arrays:
        where = array.data.device_id
        if not _reaches(current, where):
            raise ValueError(
                f"Array device must be same as the current device: array device = {where} while current = {current}"
            )
        kind = ctypes.c_uint()
        address = ctypes.c_uint64(array.data.ptr)
        if array.size and _driver.cuPointerGetAttribute(ctypes.byref(kind), MEMORY_TYPE, address):
            raise CUDARuntimeError("cudaErrorIllegalAddress: an illegal memory access was encountered")


def _ready(arrays: list[Any]) -> None:
    """Wait until what the current stream was given is done, as a kernel on it would; the kernel may use these arrays."""
    _check_reach(arrays)
    get_current_stream().synchronize()


def _is_capturing() -> bool:
    """Whether the current stream is captured."""
    status = ctypes.c_int()
    stream = ctypes.c_void_p(get_current_stream().ptr)
    return bool(stream.value) and not _driver.cuStreamIsCapturing(stream, ctypes.byref(status)) and status.value == 1


def _refuse_while_capturing(direction: str) -> None:
    """Copies to and from the host are refused before the driver sees them: the capture goes on."""
    if _is_capturing():
        raise RuntimeError(f"the current stream is capturing, so {direction} transfers are disallowed")


_captured: list[Any] = []  # what kernels of graphs do, by number


def _run_captured(parameters: Any, _: Any) -> None:
    _captured[ctypes.c_int64.from_address(parameters[0]).value]()


_kernel = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)(_run_captured)
_functions: dict[int, ctypes.c_void_p] = {}


def _put(arrays: list[Any], work: Any) -> None:
    """Do `work` on the current stream: at once, or as a kernel of the graph that the stream is captured into."""
    if not _is_capturing():
        _ready(arrays)
        work()
        return
    _check_reach(arrays)
    _captured.append(work)
    number = ctypes.c_int64(len(_captured) - 1)
    parameters = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(number), ctypes.c_void_p))
    stream = ctypes.c_void_p(get_current_stream().ptr)
    code = _driver.cuLaunchKernel(_function(), 1, 1, 1, 1, 1, 1, 0, stream, parameters, None)
    _check(code, "cuLaunchKernel")


def _function() -> ctypes.c_void_p:
    """The kernel that calls what was captured, on the current device."""
    ordinal = _current_ordinal()
    function = _functions.get(ordinal)
    if function is None:
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        _driver.fakecuda_add_kernel(b"cupy_captured", b"q", _kernel)
        _check(_driver.cuModuleLoadData(ctypes.byref(module), b"x"), "cuModuleLoadData")
        code = _driver.cuModuleGetFunction(ctypes.byref(function), module, b"cupy_captured")
        _check(code, "cuModuleGetFunction")
        _functions[ordinal] = function
    return function
