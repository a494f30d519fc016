from stf._engine cimport ends, outside_events, recording_caches, thread_turns
from stf._engine.engine cimport Engine
from stf._support.sync cimport must_have_room
from stf.tasks.checks cimport must_be_outside, raise_what_failed
from stf.tasks.task cimport ContextCore

cdef dict LENT

cdef object retire(ContextCore context, bint knows_stream)
cdef int end_graphs(ContextCore context) except -1
cdef int close(ContextCore context) except -1
