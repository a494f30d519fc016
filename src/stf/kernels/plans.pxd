from cpython.long cimport PyLong_AsLongLongAndOverflow
from stf._engine.access cimport Access, Data
from stf._engine.engine cimport Engine
from stf._port.replicas cimport Layout
from stf.kernels.arguments cimport Kernel
from stf.kernels.launching cimport Config, launch_alone
from stf.tasks.running cimport submit_own
from stf.tasks.task cimport Task

cdef class PlannedAccess:
    cdef object op
    cdef bint accumulates
    cdef int mode
    cdef readonly Layout layout
    cdef object order
    cdef bint suits(self, object item) except -1

cdef class CpuBody:
    cdef object run
    cdef Py_ssize_t extras
    cdef tuple widths
    cdef readonly tuple numbers
    cdef bint has_params
    cdef tuple ready  # the last port, the body for it, and whether that may have a template
    cpdef LaunchPlan planned(self, LaunchPlan plan, tuple arguments)
    cdef int submit(self, Task task, tuple numbers) except -1

cdef class LaunchPlan:
    cdef readonly object code
    cdef readonly object around  # which may be variables as a task's body sees them
    cdef bint enqueues
    cdef object symbol
    cdef object validate
    cdef object construct
    cdef list items
    cdef bint has_tokens
    cdef Py_ssize_t extras
    cdef readonly tuple kinds
    cdef CpuBody on_cpu
    cdef object submit
    cdef Kernel kernel
    cdef Config config
    cdef tuple before
    cdef tuple after
    cdef tuple order
    cdef public tuple names
    cdef tuple functions
    cdef public tuple watched
    cdef public object is_for
    cdef bint holds(self, Task task, object body, object construct, tuple items, tuple extra, bint enqueues) except -1
    cdef tuple numbers(self, object body, tuple extra)
    cdef int run(self, Task task, tuple items, tuple numbers) except -1

cdef dict plans
cdef bint is_packed(Data core) except -1
cdef object kind_of_number(object value)
cdef bint is_of_kind(object value, object kind) except -1
cdef bint is_wide(object value) except -1
cdef bint submit_planned(Task task, object body, object construct, tuple items, tuple extra) except -1
cdef tuple planned_for(Task task, object body, object construct, tuple items, tuple extra, bint enqueues)
cpdef int remember(LaunchPlan plan, object body, object captured) except -1
