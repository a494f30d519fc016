cimport cython
from libc.stdint cimport int64_t
from stf._engine.access cimport READ, Access, Data
from stf._port.events cimport EventSet
from stf._port.replicas cimport Replica
from stf._engine.versions cimport Outcome
from stf._support.untracked cimport untrack_tuple

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

    /* The same of the innermost code whose file is not in a folder, or of the outermost. */
    static PyObject *stf_call_site_outside(PyObject *folder, int *lasti) {
        PyFrameObject *frame = PyEval_GetFrame(), *back;
        PyCodeObject *code;
        if (frame == NULL) { *lasti = 0; Py_INCREF(Py_None); return Py_None; }
        Py_INCREF(frame);
        for (;;) {
            code = PyFrame_GetCode(frame);
            back = NULL;
            if (PyUnicode_Tailmatch(code->co_filename, folder, 0, PY_SSIZE_T_MAX, -1) == 1) back = PyFrame_GetBack(frame);
            if (back == NULL) {
                if (!PyErr_Occurred()) break;
                Py_DECREF(code);
                Py_DECREF(frame);
                return NULL;  /* no memory for the object of a frame */
            }
            Py_DECREF(code);
            Py_DECREF(frame);
            frame = back;
        }
        *lasti = PyFrame_GetLasti(frame);
        Py_DECREF(frame);
        return (PyObject *)code;
    }
    """
    object stf_call_site(int* lasti)
    object stf_call_site_outside(str folder, int* lasti)

cpdef enum:  # states of a task
    NEW = 0
    OPEN = 1
    ENDED = 2

cdef enum:
    WAITS = 0
    BEGUN = 1
    CALLED_OFF = 2

cdef enum:
    RECORDED = -1  # it runs in every launch
    GATHERED = -2  # it runs once, when what was gathered is launched

@cython.no_gc
cdef class TaskCore:
    cdef readonly object engine  # whose it is
    cdef readonly int64_t id  # its number
    cdef public int where  # the number of its place; below 0 until `tasks.placing` settles it
    cdef readonly tuple accesses  # as the user gave them
    cdef readonly tuple uses  # the accesses, one for each data
    cdef list replicas  # of these, while it is open
    cdef readonly list cores  # the data of these, while it is open
    cdef int64_t written_mask  # which of these it writes
    cdef list partials  # what it adds, with the operators
    cdef list predecessors  # for observers: numbers of the tasks, and with a minus sign of the operations, it waits for
    cdef readonly int slot  # of the port, while it is open
    cdef readonly int64_t event  # its end, once it has ended; RECORDED or GATHERED if it was recorded
    cdef public object choice  # of its place, if that was automatic: who wants to know how long its body runs; or None
    cdef public object later  # the events after which a gathered task is done, once somebody has asked
    cdef public object watch  # who wants to be told when it is done; None while nobody does
    cdef public int fate  # of its queued body: WAITS, BEGUN or CALLED_OFF
    cdef public int begin_retries  # how often its begin was paused
    cdef readonly int state  # NEW, OPEN or ENDED
    cdef public object symbol  # its name; or None
    cdef public object code  # the code that submitted it,
    cdef public int lasti  # and the instruction there
    cdef public str kind  # task, part (of a kernel), wait, copy, fill, graph and so on
    cdef public Outcome outcome  # how it went; None: well, or not known to be open
    cdef list inputs  # outcomes that must be good when it runs; or None
    cdef int64_t opened_ns  # when a body that runs in place began; 0 where nobody listens
    cdef readonly unsigned long thread  # that began it
    cdef int claimed  # how many claims it has
    cdef int writes  # how many data it writes, if it reads none
    cdef public bint outside_recordings  # it is no part of a recording, wherever it runs
    cdef public bint blocks_caller  # its body runs on a CPU where it stands
    cdef public bint binds_late  # its body gets its arrays when it runs: replicas may have no memory before
    cdef public bint is_single_launch  # of a recording that looked after failures itself
    cdef readonly bint remote  # some data is elsewhere than where the task runs
    cdef TaskCore before  # the open task that began before it,
    cdef TaskCore after  # and the one after
    # what the API adds: here, so that its tasks are of the size that the freelist keeps
    cdef readonly object context  # the user's context
    cdef readonly list groups  # which accesses make up one object of the user's; or None
    cdef public bint warns_if_unused  # it has no body yet
    cdef public bint in_graphs  # its body on the host uses no CUDA
    cdef public int priority  # as the user gave it: a smaller number comes first
    cdef public bint is_held  # it was submitted by the user, and begins once it is planned
    cdef public int64_t placed  # its number among the tasks whose place is chosen; 0 where it was named
    cdef public bint keeps_order  # it comes after the task that was planned before it for its place
    cdef bint runs_in_call  # its body runs in the submitting call
    cdef object restore  # what checks its body (STF_VALIDATE)
    cdef object borrowed  # the streams that were current before; or None
    cdef object pools  # of a body that is recorded
    cdef public object body  # as the user gave it, for a handle that is given as a body again; or None
    cdef public list views  # its arrays, for a body that asks it
    cdef public int bodies  # how many run that may ask for these
    cdef int find_site(self) except -1
    cdef int add_predecessors(self, EventSet events) except -1
    cdef int position_of(self, int index) except -2
    cdef Replica replica_at(self, int index)
    cdef Replica recorded_replica(self, int index)
    cdef list targets(self)
    cpdef tuple record(self, object section)
    cpdef int joined_mode(self, int index) except -1

cdef tuple numbers_of(list predecessors)
cdef int references(TaskCore task) except -1
cpdef Access make_access_like(Access access, int mode)

cdef class KindCount:
    cdef int64_t count

cdef class KindCounts:
    cdef dict counts
    cdef int add(self, str kind, int by) except -1

cdef int note_reader(list readers, TaskCore task, int64_t event) except -1
