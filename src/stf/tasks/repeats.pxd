from libc.stdint cimport int64_t, uint64_t
from stf._engine.access cimport WRITE, Access, Data
from stf._engine.state cimport EngineState
from stf._engine.task cimport BEGUN, TaskCore
from stf._port.late_values cimport is_same
from stf._support.context_variables cimport variables_here
from stf._support.sync cimport PyThread_get_thread_ident

cdef extern from *:
    """
    #define stf_address(thing) ((unsigned long long)(size_t)(thing))
    """
    unsigned long long stf_address(object thing)

cdef enum:
    SHORTEST = 4  # tasks of a window: a launch of fewer gains nothing
    LONGEST = 256
    RING = 1024  # tokens that are remembered, a power of two
    CANDIDATES = 4  # periods that are tried at a time
    KNOWN = 4096  # of tables by a hash, a power of two
    BREAK = 1  # the token of what belongs to no window
    REPLAYED = 16  # that of the first window, of which the next ones have the next numbers
    HASHES = 0x100000  # above all of these

cdef class KnownCall:
    cdef public object what
    cdef public tuple fixed
    cdef public tuple plain

cdef class Step:
    cdef object code
    cdef int lasti
    cdef int where
    cdef int priority
    cdef object symbol
    cdef object what
    cdef tuple fixed
    cdef readonly tuple plain  # as it was recorded
    cdef list uses  # accesses without handles
    cdef list slots  # the numbers of their data
    cdef list given  # for each plain value: whether each launch gives it

cdef class RepeatedWindow:
    cdef readonly list tokens
    cdef readonly Py_ssize_t length
    cdef uint64_t kinds[LONGEST]  # the same tokens, to be compared
    cdef readonly list steps  # what was recorded; None before
    cdef readonly list cores  # the data of these, by slot
    cdef readonly set varying  # (step, position) of numbers that each launch gives
    cdef readonly set new_numbers  # that have changed since it was recorded, and that no launch gives
    cdef public int number
    cdef public object graph
    cdef public object told  # what is told of it; see `graphs.repeated_windows`
    cdef bint suits(self, Py_ssize_t at, TaskCore task, KnownCall call, list binding) except -1
    cdef bint binds(self, Data core, Access use, int slot, list binding) except -1

cdef class RepeatFinder:
    cdef readonly EngineState engine
    cdef readonly object keeper  # what holds the tasks, records the windows and launches them
    cdef readonly unsigned long thread  # whose tasks are looked at; 0 before the first
    cdef readonly list held  # what the keeper holds: tasks, and how they are submitted
    cdef uint64_t kind  # of the last task that was looked at
    cdef int strangers  # tasks of other threads since the last one of this
    cdef bint is_busy  # a task is looked at, held, or replayed
    cdef bint passing  # the task that begins next was looked at
    cdef readonly int64_t looked  # tasks that were looked at
    cdef readonly RepeatedWindow current  # that the tasks follow; or None
    cdef readonly Py_ssize_t at  # how many tasks of it are held
    cdef readonly list binding  # their data, by slot
    cdef readonly dict starts  # windows by their first token, the one that was used last comes first
    cdef bint may_start[KNOWN]
    cdef int64_t count  # tokens so far
    cdef int64_t floor  # what came before counts no more
    cdef uint64_t kinds[RING]
    cdef uint64_t exacts[RING]
    cdef uint64_t relatives[RING]
    cdef int64_t last_exact[KNOWN]
    cdef int64_t last_relative[KNOWN]
    cdef int64_t seen_id[KNOWN]
    cdef int64_t seen_at[KNOWN]
    cdef int periods[CANDIDATES]
    cdef int exact_runs[CANDIDATES]
    cdef int relative_runs[CANDIDATES]
    cdef readonly object call_of  # makes the known call of a pure function; None for what is none
    cpdef bint look(self, TaskCore task, object what) except -1
    cdef bint look_at(self, TaskCore task, object what) except -1
    cdef bint takes_call(self, TaskCore task, object function, object fn, list values, dict shapes) except -1
    cdef bint takes_over(self, unsigned long thread) except -1
    cdef bint start(self, uint64_t kind) except -1
    cdef bint switch(self, uint64_t kind) except -1
    cdef bint follows(self, RepeatedWindow window, Py_ssize_t count) except -1
    cpdef int hold(self, TaskCore task, KnownCall call) except -1
    cpdef int pass_by(self, TaskCore task) except -1
    cdef int whole(self, RepeatedWindow window) except -1
    cdef int break_off(self, str reason) except -1
    cpdef int leave_for(self, str reason) except -1
    cdef int leave(self) except -1
    cdef int forget_candidates(self) except -1
    cdef int see(self, uint64_t kind, tuple accesses) except -1
    cdef int period_at(self, int64_t position, uint64_t exact, uint64_t relative, int64_t far) except -1
    cdef int push(self, uint64_t kind, uint64_t exact, uint64_t relative, int64_t far) except -1
    cdef int propose(self, int64_t distance) except -1
    cdef int found(self, int period) except -1
    cpdef int forget(self) except -1

cdef class Held:
    cdef public object task
    cdef public object submit  # what submits it
    cdef public object variables  # the context variables of who called it; or None

cdef Held hold_here(TaskCore task, KnownCall call)
cdef uint64_t mixed(uint64_t token, uint64_t value) noexcept
cdef bint are_alike(tuple one, tuple other) except -1
cpdef bint is_number(object value) except -1
