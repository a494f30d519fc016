"""CUDA devices: what there is, their contexts and memory pools, and errors as exceptions."""

from libc.stdint cimport uint64_t, uintptr_t
from libc.string cimport memset

from cuda.bindings cimport cydriver as cu

from stf._drivers.cuda.gil cimport call, host_nodes

from stf._port.links import THROUGH_HOST, peer_link
from stf.errors import CaptureError, DriverError

cdef extern from "Python.h":
    ctypedef struct PyThreadState:
        pass
    PyThreadState* PyThreadState_Get() noexcept
    uint64_t PyThreadState_GetID(PyThreadState* state) noexcept

# what only a new process can do something about (cuda.h, "This leaves the process in an inconsistent state")
STICKY = {
    cu.CUDA_ERROR_ILLEGAL_ADDRESS,
    cu.CUDA_ERROR_LAUNCH_TIMEOUT,
    cu.CUDA_ERROR_ASSERT,
    cu.CUDA_ERROR_HARDWARE_STACK_ERROR,
    cu.CUDA_ERROR_ILLEGAL_INSTRUCTION,
    cu.CUDA_ERROR_MISALIGNED_ADDRESS,
    cu.CUDA_ERROR_INVALID_ADDRESS_SPACE,
    cu.CUDA_ERROR_INVALID_PC,
    cu.CUDA_ERROR_LAUNCH_FAILED,
    cu.CUDA_ERROR_ECC_UNCORRECTABLE,
}


# -- devices, before there is a driver ---------------------------------------------------------------------------


def device_count():
    """Return how many CUDA devices there are; raise `DriverError` where CUDA itself is broken, -1 where it is absent."""
    cdef int count = 0
    cdef cu.CUresult code
    try:
        code = cu.cuInit(0)
    except Exception:  # cuda.bindings found no library
        return -1
    if code == cu.CUDA_ERROR_NO_DEVICE:
        return 0
    check(code, "cuInit", "this machine")
    check(cu.cuDeviceGetCount(&count), "cuDeviceGetCount", "this machine")
    return count


def device_name(int ordinal):
    """Return what the vendor calls a device."""
    cdef char name[256]
    cdef cu.CUdevice device
    check(cu.cuDeviceGet(&device, ordinal), "cuDeviceGet", "this machine")
    check(cu.cuDeviceGetName(name, 256, device), "cuDeviceGetName", "this machine")
    return name.decode()


def attributes_of(int ordinal):
    """Return what CUDA says of a device, by name."""
    cdef cu.CUdevice device
    cdef size_t nbytes = 0
    where = f"cuda:{ordinal}"
    check(cu.cuInit(0), "cuInit", where)
    check(cu.cuDeviceGet(&device, ordinal), "cuDeviceGet", where)
    check(cu.cuDeviceTotalMem(&nbytes, device), "cuDeviceTotalMem", where)
    return {
        "multiprocessors": attribute(device, cu.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, "this machine"),
        "shared_memory_per_block": attribute(device, cu.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, "this machine"),
        "shared_memory_per_multiprocessor": attribute(device, cu.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, "this machine"),
        "threads_per_block": attribute(device, cu.CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, "this machine"),
        "threads_per_multiprocessor": attribute(device, cu.CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, "this machine"),
        "warp_size": attribute(device, cu.CU_DEVICE_ATTRIBUTE_WARP_SIZE, "this machine"),
        "architecture": (
            attribute(device, cu.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, "this machine"),
            attribute(device, cu.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, "this machine"),
        ),
        "memory_bytes": nbytes,
    }


def current_ordinal():
    """Return the ordinal of this thread's current CUDA device, or -1."""
    cdef cu.CUcontext context = NULL
    cdef cu.CUdevice device
    if cu.cuCtxGetCurrent(&context) != cu.CUDA_SUCCESS or context == NULL:
        return -1
    known = opened.get(<uintptr_t>context)
    if known is not None:
        return known
    if cu.cuCtxGetDevice(&device) != cu.CUDA_SUCCESS:
        return -1
    return device


def home_among(ordinals):
    """Return the position of the device that a driver opens at once: of the current one, or else the first."""
    current = current_ordinal()
    return ordinals.index(current) if current in ordinals else 0


def memory_at(uintptr_t address):
    """Return what memory an address is in, "device", "managed", "host" or "", and the ordinal of its device or -1.

    Pinned memory, too, has the device for which it was pinned. It is "host" where the host reads it at that address.
    """
    cdef unsigned int kind = 0, managed = 0
    cdef int ordinal = -1
    cdef void* on_host = NULL
    cdef cu.CUdeviceptr pointer = <cu.CUdeviceptr>address
    code = call(host_nodes, cu.cuPointerGetAttribute, &kind, cu.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer)
    if code != cu.CUDA_SUCCESS or kind == 0:
        return "", -1
    call(host_nodes, cu.cuPointerGetAttribute, &ordinal, cu.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer)
    call(host_nodes, cu.cuPointerGetAttribute, &managed, cu.CU_POINTER_ATTRIBUTE_IS_MANAGED, pointer)
    if managed:
        return "managed", ordinal
    if kind == cu.CU_MEMORYTYPE_HOST:
        call(host_nodes, cu.cuPointerGetAttribute, &on_host, cu.CU_POINTER_ATTRIBUTE_HOST_POINTER, pointer)
        if <uintptr_t>on_host == address:
            return "host", ordinal
    return "device", ordinal


cdef int64_t function_in(uintptr_t kernel, cu.CUcontext context, str where) except -1:
    """The function, in a context, of a kernel that belongs to none."""
    cdef cu.CUfunction function
    cdef cu.CUcontext before = NULL
    cu.cuCtxGetCurrent(&before)
    check(cu.cuCtxSetCurrent(context), "cuCtxSetCurrent", where)
    code = call(host_nodes, cu.cuKernelGetFunction, &function, <cu.CUkernel>kernel)
    cu.cuCtxSetCurrent(before)
    check(code, "cuKernelGetFunction", where)
    return <int64_t><uintptr_t>function


cdef int attribute(cu.CUdevice device, cu.CUdevice_attribute which, str where) except? -1:
    """What the driver knows of a device."""
    cdef int value = 0
    check(cu.cuDeviceGetAttribute(&value, which, device), "cuDeviceGetAttribute", where)
    return value


functions = {}  # by the identifier of a context, the name and the source; they are kept to the end


cdef int64_t load_function(bytes source, bytes name, cu.CUcontext context, str where) except -1:
    """The address of a function of that name in PTX or machine code, which is loaded once into each context."""
    cdef unsigned long long identifier = 0
    cdef cu.CUmodule module = NULL
    cdef cu.CUfunction function = NULL
    cdef char* image = <char*>source
    cdef cu.CUresult code
    check(cu.cuCtxGetId(context, &identifier), "cuCtxGetId", where)
    if (identifier, name, source) not in functions:
        before = push(context)
        try:
            mode = relax()  # a capture on this thread takes no harm
            with nogil:  # it may wait for the device, which may wait for a body on the host
                code = cu.cuModuleLoadData(&module, image)
            give_back(mode)
            check(code, "cuModuleLoadData", where)
            check(call(host_nodes, cu.cuModuleGetFunction, &function, module, <char*>name), "cuModuleGetFunction", where)
        finally:
            pop(before)
        functions[identifier, name, source] = <int64_t><uintptr_t>function
    return functions[identifier, name, source]


cdef cu.CUstreamCaptureMode relax() noexcept:
    """Let this thread do what is no business of any capture; return the mode to give back."""
    cdef cu.CUstreamCaptureMode mode = cu.CU_STREAM_CAPTURE_MODE_RELAXED
    cu.cuThreadExchangeStreamCaptureMode(&mode)
    return mode


cdef int give_back(cu.CUstreamCaptureMode mode) noexcept:
    cu.cuThreadExchangeStreamCaptureMode(&mode)
    return 0


cdef class Relaxed:
    """A with-block in which what CUDA refuses during captures is allowed: it takes no part in any."""

    def __enter__(self):
        self.mode = relax()

    def __exit__(self, *exception):
        give_back(self.mode)


cpdef bint is_capturing(int64_t pointer) except -1:
    """Return whether a caller's stream is being captured; the legacy default stream cannot be."""
    cdef cu.CUstreamCaptureStatus status = cu.CU_STREAM_CAPTURE_STATUS_NONE
    if pointer == 0 or pointer == 1:
        return False
    code = call(host_nodes, cu.cuStreamIsCapturing, <cu.CUstream><uintptr_t>pointer, &status)
    check(code, "cuStreamIsCapturing", f"stream {pointer:#x}")
    return status != cu.CU_STREAM_CAPTURE_STATUS_NONE


cdef int refuse_capture(int64_t pointer) except -1:
    """Say that work of ours and what is captured on a caller's stream cannot wait for each other."""
    raise CaptureError(
        f"stream {pointer:#x} is being captured, and this context is no part of that; make one with "
        "stf.context(stream=...) of that stream, or end the capture first"
    )


def launch_with_extras(
    uintptr_t function, tuple shape, tuple extras, list offsets, str place, bytes arguments, uintptr_t stream
):
    """Launch a function on a stream whose context is current, perhaps in clusters, cooperative, or overlapping.

    `shape` is (grid, block, shared bytes), seven numbers; `extras` are (cluster or None, two flags). A capture refuses
    a cooperative kernel whose arguments come as one block, so each is told by its offset in them.
    """
    cdef cu.CUlaunchConfig config
    cdef cu.CUlaunchAttribute attributes[3]
    cdef unsigned int count = 0
    cdef void* parameters[4096]  # of a byte each, at least
    cdef int i
    for i in range(len(offsets)):
        parameters[i] = <char*>arguments + <size_t>offsets[i]
    memset(&config, 0, sizeof(config))
    memset(attributes, 0, sizeof(attributes))
    config.gridDimX, config.gridDimY, config.gridDimZ = shape[0], shape[1], shape[2]
    config.blockDimX, config.blockDimY, config.blockDimZ, config.sharedMemBytes = shape[3], shape[4], shape[5], shape[6]
    config.hStream = <cu.CUstream>stream
    if extras[0] is not None:
        attributes[count].id = cu.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        attributes[count].value.clusterDim.x, attributes[count].value.clusterDim.y = extras[0][0], extras[0][1]
        attributes[count].value.clusterDim.z = extras[0][2]
        count += 1
    if extras[1]:
        attributes[count].id = cu.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
        attributes[count].value.cooperative = 1
        count += 1
    if extras[2]:
        attributes[count].id = cu.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        attributes[count].value.programmaticStreamSerializationAllowed = 1
        count += 1
    config.attrs, config.numAttrs = attributes, count
    code = call(host_nodes, cu.cuLaunchKernelEx, &config, <cu.CUfunction>function, parameters, NULL)
    check(code, "cuLaunchKernelEx", place)


def parameters_of(uintptr_t function):
    """Return (offset, size) in bytes of each parameter of a function."""
    cdef size_t offset = 0
    cdef size_t size = 0
    found = []
    while call(host_nodes, cu.cuFuncGetParamInfo, <cu.CUfunction>function, len(found), &offset, &size) == cu.CUDA_SUCCESS:
        found.append((offset, size))
    return found


cdef int check(cu.CUresult code, str call, str place) except -1:
    if code != cu.CUDA_SUCCESS:
        raise error_of(code, call, place)
    return 0


cdef bint is_sticky(cu.CUresult code):
    """Whether every later call of the process says the same."""
    return code in STICKY


cdef object error_of(cu.CUresult code, str call, str place):
    cdef const char* name = NULL
    cdef const char* text = NULL
    cu.cuGetErrorName(code, &name)
    cu.cuGetErrorString(code, &text)
    return DriverError(
        name.decode() if name != NULL else "CUDA_ERROR_UNKNOWN",
        <int>code,
        call,
        place,
        text.decode() if text != NULL else "",
    )


cdef object report_loss(object watchers, object error, int device):
    """The error that lost a device, with the tasks that may have caused it."""
    if error.code != cu.CUDA_ERROR_DEINITIALIZED:
        error.accuse([name for watcher in list(watchers) for name in watcher.on(device)])
    for watcher in list(watchers):
        watcher.give_up()
    return error


cdef class Device:
    """A GPU: once it is open its primary context, a memory pool, and a stream for allocations of streams that are blocked."""

    def __init__(self, int ordinal):
        self.name = f"cuda:{ordinal}"
        check(cu.cuDeviceGet(&self.device, ordinal), "cuDeviceGet", self.name)
        self.ordinal = ordinal
        self.spare = []


cdef dict opened = {}  # the ordinals of devices that were in use, by their primary contexts, which are the same again
cdef list in_use = []  # the devices that are open, the first one first; one that several drivers use, several times
cdef set kept = set()  # the ordinals of devices whose primary contexts stay to the end, as in CUDA's runtime: making one takes 0.1 s


cdef int open_device(Device device) except -1:
    """Take what a device is used with; what was taken is given back where that fails."""
    global first
    cdef cu.CUmemPoolProps properties
    cdef int ordinal = device.ordinal
    check(call(host_nodes, cu.cuDevicePrimaryCtxRetain, &device.context, device.device), "cuDevicePrimaryCtxRetain", device.name)
    opened[<uintptr_t>device.context] = ordinal
    if ordinal == 0:
        first = device.context
    in_use.append(device)
    memset(&properties, 0, sizeof(properties))
    properties.allocType = cu.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cu.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = ordinal
    before = push(device.context)
    try:
        check(call(host_nodes, cu.cuMemPoolCreate, &device.pool, &properties), "cuMemPoolCreate", device.name)
        tune_pool(device.pool, False)
        check(call(host_nodes, cu.cuStreamCreateWithPriority, &device.utility, cu.CU_STREAM_NON_BLOCKING, 0), "cuStreamCreate", device.name)
        check(call(host_nodes, cu.cuEventCreate, &device.passing, cu.CU_EVENT_DISABLE_TIMING), "cuEventCreate", device.name)
    except BaseException:
        pop(before)
        close_device(device)
        raise
    pop(before)
    return 0


cdef int close_device(Device device) except -1:
    """Give back what a device that is open took, or one whose opening has failed, but its first hold of the context."""
    cdef bint is_first = device.ordinal not in kept
    kept.add(device.ordinal)
    try:
        in_use.remove(device)  # first: it may lack memory, and then nothing has changed
    except BaseException:
        if is_first:
            kept.discard(device.ordinal)
        raise
    before = push(device.context)
    cdef cu.CUevent passing = device.passing
    cdef cu.CUstream utility = device.utility
    cdef cu.CUmemoryPool pool = device.pool
    with nogil:  # which may wait for a body on the host
        if passing != NULL:
            cu.cuEventDestroy(passing)
        if utility != NULL:
            cu.cuStreamDestroy(utility)
        if pool != NULL:
            cu.cuMemPoolDestroy(pool)
    pop(before)
    device.is_open = False
    device.passing = NULL
    device.utility = NULL
    device.pool = NULL
    if not is_first:
        call(host_nodes, cu.cuDevicePrimaryCtxRelease, device.device)
    return 0


cdef int tune_pool(cu.CUmemoryPool pool, bint host) except -1:
    """Keep what was freed. Host memory is given out again only when it is free already: the host does not wait for it."""
    cdef cu.cuuint64_t threshold = <cu.cuuint64_t>-1
    cdef int no = 0
    call(host_nodes, cu.cuMemPoolSetAttribute, pool, cu.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold)
    if host:
        call(host_nodes, cu.cuMemPoolSetAttribute, pool, cu.CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &no)
    return 0


cdef int trim(cu.CUmemoryPool pool, size_t nbytes) except -1:
    """Give back what a pool has beyond so many bytes, and nobody uses."""
    with nogil:
        cu.cuMemPoolTrimTo(pool, nbytes)
    return 0


cdef int allow(cu.CUmemoryPool pool, Device device) except -1:
    """Let a device use the memory of a pool."""
    cdef cu.CUmemAccessDesc access
    memset(&access, 0, sizeof(access))
    access.location.type = cu.CU_MEM_LOCATION_TYPE_DEVICE
    access.location.id = device.ordinal
    access.flags = cu.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    return check(call(host_nodes, cu.cuMemPoolSetAccess, pool, &access, 1), "cuMemPoolSetAccess", device.name)


cdef bint open_host_pool(cu.CUmemoryPool* pool) except -1:
    """Make a pool of pinned host memory, which devices are allowed to use; False where the driver has none."""
    cdef cu.CUmemPoolProps properties
    memset(&properties, 0, sizeof(properties))
    properties.allocType = cu.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = cu.CU_MEM_LOCATION_TYPE_HOST
    if call(host_nodes, cu.cuMemPoolCreate, pool, &properties) != cu.CUDA_SUCCESS:
        return False
    tune_pool(pool[0], True)
    return True


cdef dict links = {}  # by (from, to): the hardware's, which do not change


cdef object link_between(Device one, Device other):
    """The `Link` for copies between two devices; `THROUGH_HOST` if they cannot use each other's memory."""
    cdef int able = 0
    cdef int rank = 0
    pair = one.ordinal, other.ordinal
    if pair not in links:
        check(cu.cuDeviceCanAccessPeer(&able, one.device, other.device), "cuDeviceCanAccessPeer", one.name)
        cu.cuDeviceGetP2PAttribute(&rank, cu.CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, one.device, other.device)
        links[pair] = peer_link(rank) if able else THROUGH_HOST
    return links[pair]


cdef int open_peer(Device one, Device other) except -1:
    """Let a device use the memory of another one, where the hardware can; both are open."""
    if link_between(one, other) is THROUGH_HOST:
        return 0
    before = push(one.context)
    code = call(host_nodes, cu.cuCtxEnablePeerAccess, other.context, 0)
    pop(before)
    if code != cu.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED:
        check(code, "cuCtxEnablePeerAccess", one.name)
    return allow(other.pool, one)


cdef cu.CUcontext UNCHANGED = <cu.CUcontext><uintptr_t>1


cdef cu.CUcontext push(cu.CUcontext context) noexcept:
    """Make a context current; return the one that was, or `UNCHANGED`, for `pop`."""
    cdef cu.CUcontext before = NULL
    cu.cuCtxGetCurrent(&before)
    if before == context:
        return UNCHANGED
    cu.cuCtxSetCurrent(context)
    return before


cdef cu.CUcontext first = NULL  # of device 0, from when it is in use


cdef int pop(cu.CUcontext before) except -1:
    """Make current what was before `push`; where nothing was, device 0 may as well stay."""
    cdef cu.CUcontext current = NULL
    if before != NULL:
        return restore(before)
    cu.cuCtxGetCurrent(&current)
    if current != first:
        cu.cuCtxSetCurrent(NULL)
    return 0


cdef int restore(cu.CUcontext before) except -1:
    """As `pop`; where nothing was current, or what is gone by now, nothing is."""
    if before != UNCHANGED and cu.cuCtxSetCurrent(before) != cu.CUDA_SUCCESS:
        cu.cuCtxSetCurrent(NULL)
    return 0


cdef cu.CUcontext usual() noexcept:
    """What becomes current after a body where nothing was: device 0, if this process uses it, as in CUDA's runtime.

    The runtime notes a thread's device when a body sets it, as CuPy does on the way. Without a current context it says
    that it is still there, but works on device 0. So a thread that has run a body is not left without; where nobody
    uses device 0, it gets the device that has been open longest.
    """
    cdef cu.CUcontext context = primary_of(0)
    return context if context != NULL or not in_use else (<Device>in_use[0]).context


cdef cu.CUcontext primary_of(int ordinal) noexcept:
    """The primary context of a device that somebody in this process uses; else NULL."""
    cdef cu.CUcontext context = NULL
    cdef cu.CUdevice device = 0
    cdef unsigned int flags = 0
    cdef int active = 0
    if cu.cuDeviceGet(&device, ordinal) == cu.CUDA_SUCCESS:
        if cu.cuDevicePrimaryCtxGetState(device, &flags, &active) == cu.CUDA_SUCCESS and active:
            if cu.cuDevicePrimaryCtxRetain(&context, device) == cu.CUDA_SUCCESS:
                cu.cuDevicePrimaryCtxRelease(device)  # others hold it
    return context


cdef Body* innermost = NULL


cdef inline unsigned long this_thread() noexcept:
    """A number that no other thread gets: those of the operating system are given out again."""
    return <unsigned long>PyThreadState_GetID(PyThreadState_Get())


cdef cu.CUresult begin_body(Body* body, cu.CUcontext context) noexcept:
    """Make a context current for a body on this thread, until `end_body`."""
    global innermost
    cdef cu.CUcontext current = NULL
    cu.cuCtxGetCurrent(&current)
    if body.thread != this_thread():
        end_body(body)  # another thread's, which this one goes on with
        body.context, body.saved, body.thread = context, current, this_thread()
        body.below, innermost = innermost, body
    return cu.CUDA_SUCCESS if current == context else cu.cuCtxSetCurrent(context)


cdef int end_body(Body* body) noexcept:
    """Make current in this thread what was, or what is usual. Of bodies that overlap the next one keeps what was."""
    global innermost
    cdef Body* other = innermost
    cdef Body* heir = NULL
    cdef cu.CUcontext current = NULL
    if not body.thread:
        return 0
    if other == body:
        innermost = body.below
    while other != NULL and other != body:
        if other.thread == body.thread:
            heir = other
        if other.below == body:
            other.below = body.below
            break
        other = other.below
    if heir != NULL:
        heir.saved = body.saved
    if body.thread == this_thread():
        cu.cuCtxGetCurrent(&current)
        if heir != NULL and current == body.context:  # for the last one that is left
            other = innermost
            while other.thread != body.thread:
                other = other.below
            body.saved = other.context
        if heir == NULL and body.saved == NULL:
            body.saved = usual()
        if current != body.saved and (heir == NULL or current == body.context):
            cu.cuCtxSetCurrent(body.saved)
    body.thread = 0
    body.saved = NULL
    body.below = NULL
    return 0


cdef class DeviceBlock:
    """A with-block in which a device is the current one in this thread, as in a body; after it is what was.

    CuPy's and torch's blocks for devices end on the primary context of the device that was.
    """

    cdef int ordinal
    cdef cu.CUcontext context
    cdef Body body

    def __init__(self, ordinal):
        self.ordinal = ordinal

    def remember(self):
        """Take the context that is current now, for a block in another thread. Returns this."""
        check(cu.cuCtxGetCurrent(&self.context), "cuCtxGetCurrent", f"cuda:{self.ordinal}")
        return self

    def __enter__(self):
        cdef cu.CUcontext context = self.context
        if context != NULL:
            pass
        elif current_ordinal() == self.ordinal:
            cu.cuCtxGetCurrent(&context)  # perhaps not the primary one
        else:
            context = primary_of(self.ordinal)
        if context != NULL:
            check(begin_body(&self.body, context), "cuCtxSetCurrent", f"cuda:{self.ordinal}")
        return self

    def __exit__(self, *exception):
        end_body(&self.body)

    def __dealloc__(self):
        end_body(&self.body)
