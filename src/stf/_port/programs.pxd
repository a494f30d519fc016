from libc.stdint cimport int64_t, uintptr_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from stf._port.captures cimport OpenCapture
from stf._port.replicas cimport Replica

cdef enum:
    LAUNCH = 0
    COPY = 1
    FILL = 2
    CALL = 3
    KEEP = 4
    CAPTURED = 5
    RUN = 6
    VARIED = 7
    BYTES = 8
    POINTERS = 9
    HEADER = 10

cdef class Numbers:
    cdef int64_t* items
    cdef readonly int64_t count
    cdef int64_t capacity
    cpdef int add(self, int64_t value) except -1
    cdef int64_t* more(self, int64_t count) except NULL
    cdef int clear(self) except -1
    cpdef list tolist(self)

cdef class CaptureChain:
    cdef object owner
    cdef int64_t last
    cdef bint open

cdef class OpenNode:
    cdef int place
    cdef int kind
    cdef Numbers needs
    cdef Numbers work
    cdef OpenCapture capture
    cdef object again
    cdef CaptureChain chain
    cdef int begin(self, int place, int kind) except -1
    cdef int need(self, int64_t other) except -1
    cdef bint needs_node(self, int64_t other) noexcept

cdef class Program:
    cdef readonly int64_t count  # of nodes
    cdef readonly list objects  # operations that are no launches; None for those of aborted nodes
    cdef readonly list replicas  # whose addresses kernels take
    cdef readonly list blocks  # with-blocks that gave addresses to kernels themselves
    cdef readonly list pools  # of the memory that bodies allocated while they were captured
    cdef Numbers kinds  # of each node: 4 * place + the kind of its slot
    cdef Numbers needs  # the nodes before each node, one node after the other
    cdef Numbers first_need  # of each node, where its needs begin; and the end
    cdef Numbers work  # the operations of each node: 8 * position + kind
    cdef Numbers first_work  # of each node, where its work begins; and the end
    cdef Numbers followed  # of each node, how many others come after it
    cdef Numbers launches  # of kernels: a header, the bytes of the arguments, and the pointers
    cdef Numbers pointers  # of the next launch
    cdef public int calls  # bodies that run on the host
    cdef public int steps  # those of them that may use CUDA
    cdef public int runs  # nested programs
    cdef public int variants  # kernels and captured bodies that depend on parameters
    cdef public int64_t aborted  # nodes that were given up
    cdef public bint runs_once  # bodies say themselves how they went
    cdef int64_t add(self, OpenNode node) except -1
    cdef int put(self, OpenNode node, tuple operation) except -1
    cdef int put_launch(self, OpenNode node, int64_t function, int gx, int gy, int gz, int bx, int by, int bz, int shared, int64_t block, int nbytes) except -1
    cdef int put_pointer(self, int offset, Replica replica) except -1
    cdef int vary_launch(self, OpenNode node, object arguments) except -1
    cdef int forget(self, OpenNode node) except -1
    cdef bint has_launch(self, OpenNode node)
    cpdef Program sharing(self, bint adds)
    cpdef int64_t take(self, Program other, object chosen, object needs) except -1
    cpdef tuple operation(self, int64_t position)
    cpdef bint is_last(self, int64_t index)
    cdef bint continues_alone(self, int64_t node) noexcept
    cdef bint continues_at_once(self, int64_t node) noexcept
    cdef bytes block_at(self, int64_t position, dict others)
    cpdef list replicas_at(self, int64_t position)

cdef bint is_step(object body) except -1
