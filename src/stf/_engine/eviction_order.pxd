from cpython.mem cimport PyMem_Free, PyMem_Malloc
from stf._engine.access cimport NEVER, Data
from stf._engine.versions cimport Version, outermost
from stf._port.replicas cimport INVALID, Replica

cdef Py_ssize_t LEAST_ROOM
cdef int MOST_RECENT

cdef enum:
    STAYS = 0x7FFFFFFF  # a key above all others

cdef class EvictionOrder:
    cdef list replicas  # by position; None where none is any more
    cdef int* keys  # the tree: the root at 1, the leaf of a position at `room` + position
    cdef readonly Py_ssize_t room  # positions, a power of two; the first is never used
    cdef Py_ssize_t end  # the next position
    cdef readonly Py_ssize_t count  # replicas
    cdef list recent  # replicas that were used since the last `settle`, the first one first; then None
    cdef int recent_count  # how many
    cdef int reserve(self) except -1
    cdef int add(self, Replica replica, int key) except -1
    cdef int note_use(self, Replica replica) except -1
    cdef int settle(self) except -1
    cdef int move_to_end(self, Replica replica, int key) except -1
    cdef int remove(self, Replica replica) except -1
    cdef int put(self, Py_ssize_t position, int key) except -1
    cpdef int key_at(self, Py_ssize_t position) except -1
    cdef Py_ssize_t first(self) except -1
    cpdef list members(self)
    cdef int number(self, list replicas, Py_ssize_t room) except -1

cdef int* new_keys(Py_ssize_t room) except NULL
cpdef int key_of(Version version, Replica replica) except -1
cdef int key_of_state(Version version, Replica replica) noexcept
cdef Version version_of(Replica replica)
