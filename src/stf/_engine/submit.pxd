cimport cython
from libc.stdint cimport int64_t
from stf._sync cimport Gate, PyThread_get_thread_ident
from stf._engine.access cimport ACCUMULATE, AFFINE, READ, RW, WRITE, Access, Data, DataHandle, make_access
from stf._engine.coherency cimport Coherency, Pool
from stf._engine.deps cimport EventSet
from stf._engine.instances cimport INVALID, MODIFIED, SHARED, Layout, Replica
from stf._engine.ports cimport COMPUTE, COPY_IN, COPY_OUT, HOST, Port
from stf._engine.scopes cimport Outcome, Version

cdef extern from *:
    """
    #include "frameobject.h"
    /* The Python code that is running now, and how far it is: what a call site is made of. */
    static PyObject *stf_call_site(int *lasti) {
        PyFrameObject *frame = PyEval_GetFrame();
        if (frame == NULL) { *lasti = 0; Py_INCREF(Py_None); return Py_None; }
        *lasti = PyFrame_GetLasti(frame);
        return (PyObject *)PyFrame_GetCode(frame);
    }
    """
    object stf_call_site(int* lasti)

cdef enum:
    NEW = 0
    OPEN = 1
    ENDED = 2

@cython.no_gc
cdef class TaskCore:
    cdef readonly Engine engine
    cdef readonly int64_t id
    cdef public int place
    cdef public list accesses
    cdef list uses
    cdef list replicas
    cdef list writes
    cdef list partials
    cdef readonly int slot
    cdef readonly int state
    cdef public object symbol
    cdef public object code
    cdef public int lasti
    cdef public str kind
    cdef public Outcome outcome
    cdef list inputs
    cdef readonly unsigned long thread
    cdef int claimed
    cdef TaskCore before
    cdef TaskCore after
    # what the API adds: here, so that its tasks are of the size that the freelist keeps
    cdef readonly object context
    cdef list groups
    cdef bint bare
    cdef object restore
    cdef int find_site(self) except -1
    cdef int position_of(self, int index) except -2
    cdef Replica replica_at(self, int index)

cdef class Engine:
    cdef readonly Port port
    cdef readonly Coherency coherency
    cdef readonly Gate gate
    cdef readonly list dropped
    cdef readonly list deferred
    cdef readonly list failures
    cdef TaskCore last_open
    cdef public object closed
    cdef public object observer
    cdef public bint validate
    cdef public bint blocking
    cdef public object scope
    cdef readonly list affine
    cdef readonly list place_names
    cdef readonly dict kinds
    cdef int64_t next_data
    cdef int64_t next_task
    cdef int64_t serial
    cdef EventSet waits
    cdef list claim_queue
    cdef EventSet backlog
    cdef int since_look
    cdef int64_t queued
    cdef int64_t ran
    cdef public object context
    cdef public int max_pending
    cdef int begin(self, TaskCore task) except -1
    cdef int end(self, TaskCore task) except -1
    cdef int fail(self, TaskCore task, object failure) except -1
    cdef int begin_late(self, TaskCore task) except -1
    cdef int queue(self, TaskCore task, object call) except -1
    cdef int let_go(self, TaskCore task) except -1
    cdef int hold_back(self) except -1
    cdef readonly int max_partials
    cdef readonly set running
    cdef int enter(self) except -1
    cpdef TaskCore new_task(self, str kind, int place)
    cdef Version admit(self, TaskCore task)
    cdef int list_open(self, TaskCore task) except -1
    cdef int unlist_open(self, TaskCore task) except -1
    cdef Version claim(self, TaskCore task, Access use)
    cdef int unclaim(self, TaskCore task, int count) except -1
    cdef int start(self, TaskCore task) except -1
    cdef int finish(self, TaskCore task, int64_t event) except -1
    cdef int join_duplicates(self, TaskCore task) except -1
    cdef Version import_version(self, Data data)
    cdef int inherit(self, TaskCore task, Version version, Data data) except -1
    cdef int spoil(self, TaskCore task, object failure) except -1

cdef int references(TaskCore task) except -1
cdef Access make_access_like(Access access, int mode)
