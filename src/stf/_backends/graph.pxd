from libc.stdint cimport int64_t
from stf._port.events cimport EventSet, LANE_SHIFT, SEQUENCE
from stf._port.programs cimport CALL, CAPTURED, COPY, FILL, KEEP, CaptureChain, Numbers, OpenNode, Program
from stf._port.callers cimport Callers
from stf._port.captures cimport OpenCapture
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
    cdef int come_after(self, OpenNode node, EventSet waits) except -1
    cdef int64_t place_on_lane(self, OpenNode node) except -1
    cdef int put(self, int slot, tuple operation) except -1
    cdef int must_not_capture(self, OpenNode node) except -1
    cdef object close_capture(self, OpenNode node)
    cdef int end_capture(self, OpenNode node) except -1
