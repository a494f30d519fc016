from libc.stdint cimport int64_t
from libc.string cimport memcpy
from stf._engine.access cimport Access, DataHandle
from stf._port.replicas cimport Layout

cdef enum:
    AS_DOUBLE = 1
    AS_INTEGER = 2

cdef class Kernel:
    cdef readonly object user_object
    cdef readonly list functions
    cdef readonly str name
    cdef readonly list offsets
    cdef readonly list sizes
    cdef readonly int nbytes
    cdef readonly int count
    cdef readonly list ndims
    cdef readonly list dtypes
    cdef readonly bytes codes  # for each parameter AS_DOUBLE, AS_INTEGER, or 0 for other types
    cdef readonly list layouts  # of each argument, when it was passed last, if it was an array
    cdef readonly list images  # what was passed for it, but for its address
    cdef readonly int fields  # of an array, before its extents and strides: ARRAY_FIELDS, or MEMREF_FIELDS
    cdef public bint cooperative  # whatever the launch says
    cdef public object loop_body  # how a loop on a device has it in it; or None
    cdef bytes image_of(self, int index, object access, Layout layout)

cdef class LaunchBlock:
    cdef unsigned char data[32764]
    cdef int put_integer(self, int offset, int size, int64_t value) except -1
    cdef int put_double(self, int offset, double value) except -1
    cdef int put_bytes(self, int offset, bytes raw) except -1
    cdef bytes content(self, int count)

cdef int64_t integer_of(Kernel kernel, int index, object value, int size) except? -1
cdef int put_number(Kernel kernel, int index, object value, LaunchBlock block) except -1
cpdef int put_described_value(Kernel kernel, int position, object value, LaunchBlock block) except -1
cpdef int put_value(Kernel kernel, int index, object value, LaunchBlock block) except -1
cdef LaunchBlock spare_block
cdef LaunchBlock take_block()
cdef int give_block(LaunchBlock block) except -1
