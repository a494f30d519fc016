from libc.stdint cimport int64_t, uint32_t

from stf._drivers.cuda.device_threads cimport DeviceThreadsDriver

cdef enum:
    LANDINGS = 16  # that may be waited for at once
    LANDING_BYTES = 64  # what one has room for

cdef class ReadbackDriver(DeviceThreadsDriver):
    cdef uint32_t* words  # pinned; NULL where there are none
    cdef int lanes[LANDINGS]  # whose copy lands here; -1 for nobody's
    cdef int64_t sequences[LANDINGS]  # of the event behind that copy
    cdef int uses[LANDINGS]  # of the stream, then
    cdef int find_landing(self) noexcept
    cdef bint is_landing(self) noexcept
