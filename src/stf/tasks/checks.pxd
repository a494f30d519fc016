from stf._engine cimport claims, thread_turns
from stf._engine.access cimport Data, DataHandle
from stf._engine.engine cimport Engine
from stf._support.sync cimport PyThread_get_thread_ident
from stf.interop.current cimport owed, return_owed
from stf.tasks.placing cimport place_at
from stf.tasks.task cimport ContextCore

cdef dict LENT

cpdef int must_be_settled(object context, object data) except -1
cpdef int must_be_open(object context) except -1
cpdef int must_not_be_in_a_body(object context, object what) except -1
cpdef int must_be_outside(object context, object what, bint launch=*, bint waits_for_one=*) except -1
cdef int raise_what_failed(ContextCore context) except -1
