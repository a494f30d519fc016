from libc.stdint cimport int64_t
from stf._engine cimport host_waits
from stf._engine.access cimport Data, make_data
from stf._engine.coherency cimport Coherency, Pool
from stf._engine.scope cimport Scope
from stf._engine.task cimport KindCounts, TaskCore
from stf._port.events cimport EventSet
from stf._port.place cimport Place
from stf._port.port cimport Port
from stf._port.replicas cimport Layout, FreeLists, home_of
from stf._support.sync cimport Gate

cdef class EngineState:
    cdef readonly Port port  # of the innermost scope
    cdef readonly Port root  # of the outermost one: what runs the work
    cdef readonly Coherency coherency  # brings content to where tasks need it
    cdef readonly Gate gate  # nobody waits for work inside
    cdef readonly list dropped  # what users' finalizers dropped, and nobody has looked at
    cdef readonly list deferred  # data of these that bodies or recordings still need
    cdef public bint has_dropped  # some of what recordings use, and that has a home, was dropped by its user
    cdef readonly dict orphans  # by id: data with a home that their user dropped, and that recordings hold
    cdef readonly dict dropped_tiles  # by id: tiles that their user dropped, and that only cached recordings hold
    cdef public int64_t settle_at  # so many deferred data, and it looks which can go
    cdef readonly list failures  # what failed and was not told
    cdef readonly list readers  # the last tasks that wrote nothing: (event, name, code, instruction)
    cdef TaskCore last_open  # the tasks that are open are a list from here
    cdef readonly dict outside  # events that others complete and that are open: their tasks
    cdef public object closed  # what became of the context, after which nothing can be submitted; None before
    cdef public unsigned long ending  # the thread that finalizes the context; 0 for none
    cdef public str arrays  # the library of bodies' arrays that the user chose
    cdef public object observer  # is told of tasks, copies and bodies; or None
    cdef public bint validate  # STF_VALIDATE
    cdef public bint watches  # bodies: for STF_VALIDATE, or for values that are not finite
    cdef public bint wants_finite  # values: a task that makes others fails
    cdef public bint adopts  # arrays that bodies on the host return, as the memory of new data
    cdef public bint has_results  # a task has returned new data, for which others may have to wait
    cdef public bint blocking  # STF_BLOCKING: each call waits for its task
    cdef public Scope scope  # the innermost one, where tasks are ordered
    cdef readonly Scope root_scope  # the outermost one, whose tasks run
    cdef public long launching  # launches of recordings that have begun and not yet said where their data are
    cdef public long driving  # of these: those that wait, for a condition or with STF_BLOCKING
    cdef public object gathering  # what records by itself
    cdef public object window  # holds tasks until they are planned; None where each begins at once
    cdef readonly object caches  # what keeps recordings that it can do without
    cdef public object next_uses  # is told which tasks begin, and tells when their data are used next; or None
    cdef public object make_graph_port  # a port for a recording
    cdef public object ask_producer  # on which stream an array is being made, given its owner; None if nobody knows
    cdef readonly list places  # the records of all places, by number
    cdef readonly KindCounts kinds  # how many tasks of the engine's own kinds
    cdef readonly int64_t next_data  # how many data were made
    cdef readonly int64_t next_task  # how many tasks were begun,
    cdef readonly int64_t withdrawn  # and how many of these were withdrawn
    cdef int64_t serial  # of the last claim, which marks the data of its task
    cdef EventSet waits  # room for what a task comes after
    cdef FreeLists free_lists  # lists that tasks use again
    cdef readonly list claim_queue  # tasks that wait for a claim, the first come first
    cdef EventSet callbacks  # after which the host has called all callbacks so far
    cdef EventSet backlog  # what was submitted before the last half of max_pending
    cdef int since_look  # bodies that were queued since
    cdef int64_t queued  # how many bodies were queued,
    cdef int64_t ran  # and how many of these ran
    cdef readonly dict calling  # by id: the bodies of graphs that the driver was given, and that it has not called
    cdef public list cancelled  # while what has not begun is cancelled: the failures that say so; else None
    cdef public object context  # a weak reference to the user's context
    cdef public object keep_previous  # the operator of what a branch may leave unwritten
    cdef object __weakref__
    cdef public int max_pending  # bodies in flight before submission waits; 0 for no bound
    cdef readonly int max_partials  # partial results of an accumulation at a time
    cpdef Place place(self, int number)
    cpdef int submit_held(self) except -1
    cdef int begin(self, TaskCore task) except -1
    cdef int fail(self, TaskCore task, object failure) except -1
    cdef int enter(self) except -1
    cpdef TaskCore new_task(self, str kind, int place)
    cpdef Data new_data(self, Layout layout, object name=*, bint token=*)
    cdef Data add_data(self, Layout layout, object name, bint token)
    cpdef int set_home(self, Data data, int place, int64_t address, object owner, bint valid=*) except -1
    cpdef list cancel_what_waits(self)
    cpdef int64_t pending(self) except? -1
    cdef int list_open(self, TaskCore task) except -1
    cdef int unlist_open(self, TaskCore task) except -1
    cdef int start(self, TaskCore task) except -1
    cdef int finish(self, TaskCore task, int64_t event) except -1
    cdef int put_call(self, int slot, object call, bint in_turn=*) except -1
