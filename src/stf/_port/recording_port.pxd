from libc.stdint cimport int64_t
from stf._port.port cimport Port
from stf._port.programs cimport Program
from stf._port.replicas cimport Replica

cdef class RecordingPort(Port):
    cdef readonly Program program
    cpdef int64_t node_of(self, int64_t event) except -1
    cpdef int run(self, int slot, tuple operation) except -1
    cdef int put_pointer(self, int slot, int offset, Replica replica) except -1
    cpdef int vary_launch(self, int slot, object arguments) except -1
    cpdef int capture_again(self, int slot, object again) except -1
    cpdef int drop_capture(self, int slot) except -1
    cpdef int keep_body(self, object again) except -1
