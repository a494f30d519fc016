cimport cython
from stf._engine.access cimport Access, AddressBook
from stf._engine cimport thread_turns
from stf._engine.engine cimport Engine
from stf._engine.task cimport ENDED, NEW, OPEN, TaskCore, stf_call_site_outside

from stf.interop.captures cimport PrivatePools
from stf.interop.current cimport Borrowed, borrow, owed, return_owed
from stf.tasks.placing cimport SEVERAL, PlacingContext, place_as_argument, place_at, place_here, place_launch, place_on_host, settle, take_back_place
from stf.tasks.running cimport begin_here, close_pools, end_recorded, enter_here, give_back, open_pools, submit_body
from stf.tasks.views cimport address_of, library_of, views_to_fill, memory_of, no_address, pointer_of_stream, position_of, stream_of, stream_on_host, values_of, view_of, without_tokens

cdef object TOKEN
cdef object FUNCTION
cdef str FOLDER

cdef class ContextCore(PlacingContext):
    cdef dict streams  # objects of streams, by address
    cdef public object name  # for messages and pictures; or None
    cdef public AddressBook registry  # of registered memory
    cdef public bint on_cuda
    cdef public object _spec  # its devices
    cdef public object _resources  # shared with other contexts; or None
    cdef public object _caller  # whose stream or graph it works on; or None
    cdef public dict _more_places  # numbers of CUDA streams and contexts of the user's, and of managed memory
    cdef public dict randoms  # seeds and names of generators of random numbers
    cdef public dict _graphs  # what was recorded by hand, by id: weak references, which take themselves out
    cdef public object _suspects  # names the tasks that may have lost a device
    cdef public list _kept_parts  # of partitioned data: whose arrays are refreshed at the end; or None
    cdef public list _capsules  # tasks that are asked for, and have not come yet; or None
    cdef public object _finished  # None until it is whole
    cdef public object _dot  # what records tasks for pictures; or None
    cdef public object _trace  # what records when bodies ran; or None
    cdef public object _durations  # what keeps how long tasks take; or None
    cdef public object _device_times  # what reads the time stamps of devices; or None
    cdef object __weakref__
    cdef Task make_task(self, tuple args, object symbol)
    cpdef Task prepare(self, Task task, tuple args, object symbol)
    cdef Task make_launch(self, object name)
    cdef int sort_arguments(self, Task task, tuple args) except -1

cpdef object body_of(object given)
cdef int keep_body(Task task, object fn) except -1

@cython.no_gc
cdef class Task(TaskCore):
    cdef object own_graph  # what its body fills, once it has asked; or None
    cdef int open(self) except -1
    cdef tuple arrays_in(self, object lib)
    cdef tuple views_in(self, object lib)
    cpdef int find_site_outside(self) except -1
    cdef int close(self) except -1
    cpdef int borrow(self) except -1
    cdef int renew(self, Borrowed borrowed) except -1
    cdef int give_back(self) except -1
