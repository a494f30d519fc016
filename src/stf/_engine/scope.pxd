from stf._engine cimport host_waits
from stf._engine.access cimport Data
from stf._engine.task cimport TaskCore
from stf._engine.versions cimport Outcome, Version
from stf._port.port cimport Port
from stf._port.recording_port cimport RecordingPort
from stf._port.replicas cimport Replica
from stf._support.sync cimport PyThread_get_thread_ident

cdef class Scope:
    cdef readonly Port port
    cdef readonly Scope parent
    cdef readonly bint records
    cdef public unsigned long thread
    cdef readonly bint runs_once
    cdef readonly bint patient
    cdef readonly object description
    cdef public list submitted  # the functions of tasks that come; None if nobody wants to know
    cdef readonly Outcome outcome
    cdef bint takes_mine(self) except -1
    cpdef Version version_for(self, Data data)
    cpdef Replica replica_for(self, Data data, Version version, int place, int mode)
    cpdef int allocate(self, Data data, Replica replica) except -1
    cpdef int free_later(self, Replica replica) except -1

cdef class Gathering:
    cdef public Scope scope
    cdef readonly unsigned long thread
    cdef readonly bint implicit
    cdef public unsigned long launcher
    cdef public bint is_abandoned
    cdef public Py_ssize_t dropped
    cdef readonly int most
    cdef public object last_dropped
    cpdef bint is_full(self)
    cdef bint takes(self, TaskCore task, Scope scope, list dropped, list deferred) except -1
