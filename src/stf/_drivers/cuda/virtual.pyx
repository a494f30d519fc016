"""Memory of several devices under one address: addresses are reserved, and pages of each device are mapped there.

A `Mapping` is one range of addresses. Each of its pages belongs to one place of a list; runs of pages of one place are
one allocation on its device. All devices that are peers of those of the list may use all pages: tasks on them may, and
so may the copies that bring content there.

The states of a mapping::

    reserved ──map(place), for each──▶ mapped ──give_back(place), for each──▶ spare ──reserve──▶ mapped
        │                                                                      │
        └────────────── a device has no more memory: close ◀───────────────────┘  memory runs out, or the driver closes

Creating memory takes CUDA some 0.1 ms a piece, far more than a pool. So a mapping that nobody uses any more is kept for
the next array of the same shape over the same devices. It is given up when memory runs out. What was using it may still
run on a stream when it is given back: an event says when that is over, and the next user waits for it.

Rejected: one allocation of all pages at once when the range is reserved. Then memory that lacks on one device could not
be won back there by eviction, place after place, as it is for all other memory.
"""

from libc.stdint cimport int64_t, uintptr_t
from libc.string cimport memset

from cuda.bindings cimport cydriver as cu

from stf._drivers.cuda.devices cimport Relaxed, check

MOST_SPARE = 8  # mappings
MOST_PLACES = 1024

spare = []  # mappings that nobody uses, the one that was given back first comes first


cdef cu.CUmemAllocationProp properties_of(int ordinal):
    cdef cu.CUmemAllocationProp wish
    memset(&wish, 0, sizeof(wish))
    wish.type = cu.CU_MEM_ALLOCATION_TYPE_PINNED
    wish.location.type = cu.CU_MEM_LOCATION_TYPE_DEVICE
    wish.location.id = ordinal
    return wish


def can_map(int ordinal, int64_t page):
    """Return whether a device has memory that can be mapped in pages of a size."""
    cdef int able = 0
    cdef size_t granularity = 0
    cdef cu.CUdevice device = 0
    cdef cu.CUmemAllocationProp wish = properties_of(ordinal)
    if cu.cuDeviceGet(&device, ordinal) != cu.CUDA_SUCCESS:
        return False
    cu.cuDeviceGetAttribute(&able, cu.CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device)
    if not able:
        return False
    code = cu.cuMemGetAllocationGranularity(&granularity, &wish, cu.CU_MEM_ALLOC_GRANULARITY_MINIMUM)
    return code == cu.CUDA_SUCCESS and granularity > 0 and page % <int64_t>granularity == 0


cdef class Mapping:
    """A range of addresses whose pages lie on several devices; made by `reserve`.

    Attributes
    ----------
    address : int
        Of its first byte.
    """

    cdef readonly int64_t address
    cdef readonly int64_t nbytes
    cdef readonly tuple key  # (bytes of a page, ordinals of the places, runs of pages: first, count, place, users)
    cdef int64_t pages  # that are mapped
    cdef set mapped  # places whose pages are there
    cdef set users  # places that are in use
    cdef list last_uses  # events

    def __init__(self, key):
        cdef cu.CUdeviceptr address = 0
        cdef cu.CUresult code
        page, _, runs, _ = key
        cdef size_t size = page * sum([count for _, count, _ in runs])
        self.nbytes = size
        self.key, self.mapped, self.users, self.last_uses = key, set(), set(), []
        with nogil:
            code = cu.cuMemAddressReserve(&address, size, 0, 0, 0)
        if code == cu.CUDA_ERROR_OUT_OF_MEMORY:
            raise MemoryError(f"{size} bytes of addresses asked")
        check(code, "cuMemAddressReserve", "this machine")
        self.address = <int64_t>address

    def nbytes_of(self, int place):
        """Return how many bytes the pages of a place have."""
        return self.key[0] * sum([count for _, count, owner in self.key[2] if owner == place])

    def map(self, int place):
        """Have the pages of a place; MemoryError if its device has no room, and then nothing of it is there."""
        self.settle()
        if place not in self.mapped:
            done = []
            try:
                with Relaxed():
                    for first, count, owner in self.key[2]:
                        if owner == place:
                            self.map_run(first, count, self.key[1][place])
                            done.append((first, count))
            except BaseException:
                with Relaxed():
                    for first, count in done:
                        self.unmap_run(first, count)
                raise
            self.mapped.add(place)
            self.pages += self.nbytes_of(place) // self.key[0]
        self.users.add(place)

    cdef int map_run(self, int64_t first, int64_t count, int ordinal) except -1:
        cdef cu.CUmemAllocationProp wish = properties_of(ordinal)
        cdef cu.CUmemGenericAllocationHandle handle = 0
        cdef cu.CUmemAccessDesc access[1024]
        cdef cu.CUdeviceptr start = <cu.CUdeviceptr>(self.address + first * self.key[0])
        cdef size_t size = count * self.key[0]
        cdef cu.CUresult code
        cdef int devices = 0
        cdef str where = f"cuda:{ordinal}"
        memset(access, 0, sizeof(access))
        for other in self.key[3]:
            access[devices].location.type = cu.CU_MEM_LOCATION_TYPE_DEVICE
            access[devices].location.id = other
            access[devices].flags = cu.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
            devices += 1
        with nogil:
            code = cu.cuMemCreate(&handle, size, &wish, 0)
        if code == cu.CUDA_ERROR_OUT_OF_MEMORY:
            raise MemoryError(f"{size} bytes asked on {where}")
        check(code, "cuMemCreate", where)
        with nogil:
            code = cu.cuMemMap(start, size, 0, handle, 0)
            cu.cuMemRelease(handle)  # it lives as long as it is mapped
            if code == cu.CUDA_SUCCESS:
                code = cu.cuMemSetAccess(start, size, access, devices)
                if code != cu.CUDA_SUCCESS:
                    cu.cuMemUnmap(start, size)
        if code == cu.CUDA_ERROR_OUT_OF_MEMORY:  # for tables of pages
            raise MemoryError(f"{size} bytes to be mapped on {where}")
        return check(code, "cuMemMap", where)

    cdef int unmap_run(self, int64_t first, int64_t count) except -1:
        cdef cu.CUdeviceptr start = <cu.CUdeviceptr>(self.address + first * self.key[0])
        cdef size_t size = count * self.key[0]
        with nogil:
            cu.cuMemUnmap(start, size)
        return 0

    def give_back(self, int place, uintptr_t stream):
        """Give the pages of a place back; what is on a stream now, in the current context, uses them still."""
        cdef cu.CUevent event = NULL
        cdef cu.CUresult code = cu.cuEventCreate(&event, cu.CU_EVENT_DISABLE_TIMING)
        if code == cu.CUDA_SUCCESS:
            code = cu.cuEventRecord(event, <cu.CUstream>stream)
        if code == cu.CUDA_SUCCESS:
            self.last_uses.append(<uintptr_t>event)
        else:
            with nogil:
                cu.cuStreamSynchronize(<cu.CUstream>stream)
                if event != NULL:
                    cu.cuEventDestroy(event)
        self.leave(place)

    def leave(self, int place):
        """Give the pages of a place back, which nothing uses; with the last of them the mapping is spare."""
        self.users.discard(place)
        if self.users:
            return
        if self.pages * self.key[0] < self.nbytes:
            self.close()  # it never was whole
        else:
            spare.append(self)
            while len(spare) > MOST_SPARE:
                spare.pop(0).close()

    def settle(self):
        """Wait for what used the memory before."""
        cdef cu.CUevent event
        while self.last_uses:
            event = <cu.CUevent><uintptr_t>self.last_uses.pop()
            with nogil:
                cu.cuEventSynchronize(event)
                cu.cuEventDestroy(event)

    def close(self):
        """Unmap everything, and give the addresses back."""
        cdef cu.CUdeviceptr start = <cu.CUdeviceptr>self.address
        cdef size_t size = self.nbytes
        if not self.address:
            return
        self.settle()
        with Relaxed():
            for first, count, owner in self.key[2]:
                if owner in self.mapped:
                    self.unmap_run(first, count)
            with nogil:
                cu.cuMemAddressFree(start, size)
        self.mapped = set()
        self.pages = 0
        self.address = 0

    def __dealloc__(self):
        if self.address and not self.pages:  # else something may use it, and the process has lost its device
            cu.cuMemAddressFree(<cu.CUdeviceptr>self.address, self.nbytes)


def can_share(ordinals, page, others=()):
    """Return whether devices can use each other's memory, mapped in pages of a size, and `others` can, too."""
    return all([can_map(ordinal, page) for ordinal in set(ordinals)]) and {*ordinals, *others} <= set(users_of(ordinals))


def users_of(ordinals):
    """Return the devices that can use the memory of all `ordinals`, in order."""
    cdef int count = 0
    cdef int able = 0
    cdef cu.CUdevice one = 0
    cdef cu.CUdevice other = 0
    check(cu.cuDeviceGetCount(&count), "cuDeviceGetCount", "this machine")
    found = []
    for user in range(count):
        for ordinal in set(ordinals):
            check(cu.cuDeviceGet(&one, user), "cuDeviceGet", f"cuda:{user}")
            check(cu.cuDeviceGet(&other, ordinal), "cuDeviceGet", f"cuda:{ordinal}")
            if user != ordinal and (cu.cuDeviceCanAccessPeer(&able, one, other) != cu.CUDA_SUCCESS or not able):
                break
        else:
            found.append(user)
    return found


def reserve(page, ordinals, runs):
    """Return a mapping: `runs` of pages (first, count, number of a place) on the devices `ordinals` of the places."""
    key = page, tuple(ordinals), tuple(runs), tuple(users_of(ordinals))
    for i in range(len(spare) - 1, -1, -1):
        if spare[i].key == key:
            return spare.pop(i)
    with Relaxed():
        return Mapping(key)


def free_spare():
    """Give up all mappings that nobody uses; return whether there were any."""
    found = bool(spare)
    while spare:
        spare.pop().close()
    return found
