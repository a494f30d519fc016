from libc.stdint cimport int64_t
from stf._port.events cimport EventSet, LANE_SHIFT
from stf._port.replicas cimport Replica
from stf._port.programs cimport CALL, CAPTURED, COPY, FILL, KEEP, CaptureChain, Numbers, OpenNode, Program
from stf._port.callers cimport Callers
from stf._port.port cimport COMPUTE, IN_ORDER, Port
from stf._port.recording_port cimport RecordingPort
from stf._support.untracked cimport untrack_tuple

cdef class GraphBackend(RecordingPort):
    cdef readonly Port root
    cdef Numbers lanes
    cdef Numbers last_on_lane
    cdef list slots
    cdef Numbers spare
    cdef dict chains
    cdef dict ordered  # by place: the last node of those that follow each other
    cdef dict ordered_slots  # by slot: the place of such a node that is open
    cdef CaptureChain chain_for(self, OpenNode node)
    cpdef int64_t node_of(self, int64_t event) except -1
    cdef int come_after(self, OpenNode node, EventSet waits) except -1
    cdef int64_t place_on_lane(self, OpenNode node) except -1
    cdef int put(self, int slot, tuple operation) except -1
    cdef int must_not_capture(self, OpenNode node) except -1
    cdef object close_capture(self, OpenNode node)
    cpdef int drop_capture(self, int slot) except -1
    cdef int end_capture(self, OpenNode node) except -1
    cdef int put_pointer(self, int slot, int offset, Replica replica) except -1
    cpdef int vary_launch(self, int slot, object arguments) except -1
    cpdef int capture_again(self, int slot, object again) except -1
    cpdef int run(self, int slot, tuple operation) except -1
    cdef int begin(self, int place, EventSet waits, int kind) except -1
    cdef int join(self, int slot, EventSet waits) except -1
    cdef int64_t end(self, int slot) except -1
    cdef int64_t abort(self, int slot) except -1
    cdef bint enqueues(self, int place) noexcept
    cpdef int copy(self, int slot, Replica target, Replica source, object unless=*, int64_t number=*) except -1
    cpdef bint fill(self, int slot, Replica replica, bytes pattern) except -1
    cdef int launch(self, int slot, int64_t function, int gx, int gy, int gz, int bx, int by, int bz, int shared, int64_t block, int nbytes) except -1
    cdef int call(self, int slot, object body) except -1
    cpdef int keep_alive(self, int slot, object what) except -1
    cpdef bint may_use(self, int place, Replica replica) except -1
    cdef int enter(self, int slot) except -1
    cdef object stream(self, int slot)
    cpdef int drain(self, int slot) except -1
    cdef int alloc(self, int slot, Replica replica) except -1
    cdef int64_t free(self, Replica replica, EventSet waits, bint want_event) except -1
    cdef int tails(self, EventSet into) except -1
    cdef int tails_at(self, int place, EventSet into) except -1
    cdef bint wait(self, EventSet events, double timeout_s) except -1
    cdef bint done(self, int64_t event) noexcept
    cdef object runners(self, EventSet events, int slot)

cdef class OutsideStreams(Callers):
    cpdef int64_t arrive(self, int place, int64_t pointer) except -1
    cpdef int wait_on(self, int slot, int64_t pointer) except -1
    cpdef int signal(self, int slot, int64_t pointer) except -1
