cimport cython
from stf._engine.access cimport READ, Access
from stf._engine.engine cimport Engine
from stf._engine.queued_bodies cimport QueuedBody
from stf._engine.task cimport TaskCore
from stf._port.host_calls cimport CallTemplate
from stf._support.untracked cimport untrack
from stf.interop.current cimport borrow
from stf.tasks.late_arrays cimport store_new
from stf.tasks.views cimport view_at, views_to_fill

cdef object LAST_VALUES
cdef list tensors_made

@cython.no_gc
cdef class Body(QueuedBody):
    cdef readonly object fn  # what is called
    cdef readonly tuple args  # with these
    cdef list written  # the arrays that results go to; or None
    cdef tuple writes  # the positions of these among the arguments, where they are no more than that; or None
    cdef object made  # where the only result goes, instead of such a list; or None
    cdef list to_fill  # (operator, partial) to be filled first, so that it counts for nothing; or None
    cdef object looks  # what makes the watch of each launch (STF_NAN); or None
    cdef object check  # what watches the body (STF_VALIDATE); or None
    cdef list kinds  # (name, kind) of the parameters where not all are positional; or None
    cdef list late  # the positions of arguments that are built of several arrays when it runs; or None
    # of a recorded body: (argument, replica, whether it is written, library, which array of the argument's, or -1); None
    # if not known
    cdef readonly list argument_sources
    cdef bint ignores  # its result goes nowhere
    cdef bint owes  # a result, since its code does not use all that it writes
    cdef public object results  # `new_data.Results` of a function that returns new data; or None
    cdef object around  # makes a with-block that it runs in; or None
    cdef int give_code(self, CallTemplate template, tuple numbers) except -1
    cdef object work(self)
    cdef object work_alone(self)
    cdef list written_arrays(self)
    cdef object store_made(self, list items)
    cdef int run_at(self, object port, int slot, object pointer) except -1

cdef list written_values(TaskCore task, list values)
cpdef int store_results(object result, list written, object fn, object given=*, bint owes=*) except -1
cdef Body make_body(TaskCore task, object fn, object args, list written, list kinds=*, list late=*, list argument_sources=*, bint owes=*)
