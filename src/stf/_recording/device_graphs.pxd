from stf._engine cimport host_waits
from stf._engine.engine cimport Engine
from stf._port.events cimport EventSet
from stf._port.late_values cimport are_fixed, is_as_before
from stf._port.port cimport COMPUTE
from stf._recording.launch_state cimport Launch
from stf._recording.playback cimport Frame
from stf._recording.variants cimport Patch, Variant

cdef class DriverGraph:
    cdef Variant own  # for the data that were recorded; None if there is none yet
    cdef Variant exported  # for others to launch, where there are bodies on the host
    cdef readonly object refusal  # why it is played from now on; or None
    cdef readonly dict others  # variants for other data, by their key; the one launched last comes last
    cdef int runs_left  # that are played before it is captured
    cdef bint is_reported  # that it is played, and why
    cdef bint moves  # the driver renews nodes of graphs for other data
    cpdef bint is_captured(self) except -1
    cpdef bint launch(self, Frame frame, object thing) except -1
    cdef bint may_launch(self, Frame frame) except -1
    cdef bint may_capture(self, Frame frame) except -1
    cdef int try_launch(self, Frame frame, object thing) except -1
    cdef LaunchPlan plan_launch(self, Frame frame, object thing)
    cdef Variant variant_for(self, Frame frame, object thing, object key)
    cdef Variant own_variant(self, Frame frame, object thing)
    cdef Variant variant_for_others(self, Frame frame, object thing, object key)
    cpdef object export(self, Frame frame, object thing)
    cdef Variant captured(self, Frame frame, object thing, bint for_others=*)
    cdef int refuse(self, Frame frame, object thing, object reason) except -1

cdef class LaunchPlan:
    cdef Variant variant  # to be launched
    cdef object before  # the data that it works on now
    cdef object after  # the data that it is to work on; None if it does
    cdef list patches  # nodes to be renewed; None if all are as they should be
    cdef list contents  # of each
    cdef bint later  # the driver renews them and launches it when the slot gets there

cdef bint submit(Frame frame, LaunchPlan plan) except -1
cdef bint put(Frame frame, LaunchPlan plan) except -1
cdef list changes_later(LaunchPlan plan)
cdef int renew(Frame frame, LaunchPlan plan) except -1
cdef int await_room(Engine engine, object room) except -1
