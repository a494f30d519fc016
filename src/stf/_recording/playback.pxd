from libc.stdint cimport int64_t, uintptr_t
from libc.string cimport memcpy
from stf._port.events cimport EventSet
from stf._port.replicas cimport INVALID, MODIFIED, SHARED, Replica
from stf._engine.queued_bodies cimport QueuedBody
from stf._port.programs cimport CALL, CAPTURED, COPY, FILL, BYTES, HEADER, POINTERS, KEEP, LAUNCH, RUN, VARIED, Numbers, Program
from stf._engine cimport host_waits
from stf._port.port cimport COMPUTE, COPY_IN, COPY_OUT, DIRECT, HOST, STAGED, STAGED_HERE, Port
from stf._engine.versions cimport Outcome
from stf._engine.engine cimport Engine
from stf._engine.task cimport ENDED, NEW, OPEN, TaskCore

cdef class Launch:
    cdef readonly Engine engine  # whose it is
    cdef readonly Port port  # on which it is played
    cdef readonly TaskCore task  # whose launch it is
    cdef public object values  # of its parameters; None: as recorded
    cdef object variables  # the context variables of who launches it
    cdef object binding  # of the values of nested graphs to those of the launch; None outside of them
    cdef public int slot  # the one that is open
    cdef public Outcome outcome  # of its bodies that are queued
    cdef public list inputs  # outcomes that must be good; or None
    cdef public object failure  # the first of its bodies'
    cdef bint is_once  # its bodies say themselves how they went
    cdef public list marks  # of the graph that the launch is captured into; None if it is played
    cdef public int remaining  # those that call bodies of it, and have not called all: graphs, and who submits it
    cdef public bint called  # bodies were put on the host's queue
    cdef public bint expected  # graphs call bodies
    cdef object calls  # of the graph that the launch is captured into, and that is launched here
    cdef object own_launch  # the launch of what has an outcome of its own in it
    cdef object whole  # the life of what is captured, and has the memory; None if it is played
    cdef public object awaited  # data of a program that is played once, and after which nodes they are there
    cdef public object unread  # data that nobody looks at, whose copies are left out
    cdef object failed(self)
    cpdef object attempt(self, QueuedBody body)
    cdef object note(self, object failure)
    cpdef int play(self, Program program, int slot, bint runs_once) except -1
    cdef int gather(self, Program program, int64_t start, Numbers events) except -1
    cdef int64_t play_node(self, Program program, int64_t node, int64_t start, Numbers events, EventSet needs) except -1
    cdef int play_nested(self, tuple operation) except -1
    cdef int run_with_outcome(self, tuple operation) except -1
    cdef int put(self, tuple operation) except -1
    cdef int put_launch(self, Program program, int64_t position) except -1
    cdef int play_captured(self, tuple operation) except -1
    cdef public object rebinding  # to other data than those that were recorded
    cdef public dict others  # replicas that it has in place of recorded ones, by the identity of these
    cdef Replica now(self, Replica replica)
    cdef bytes rebound_block(self, Program program, int64_t position)
    cpdef int play_on(self, Port port, list things) except -1
    cdef dict moving  # nodes that other data change, by the identity of the replica that they would not work on
    cdef int parts  # that are captured, each in another: a graph, and what conditions in it decide about
    cdef int mark(self, object make, object content, tuple shape, bint varies, object remake, list replicas) except -1
    cdef int note_moving(self, object mark, list replicas) except -1
    cdef int put_memory(self, tuple operation) except -1
    cdef int launch_kernel(self, int64_t* words, char* content, int nbytes) except -1
    cdef int put_varied(self, Program program, tuple operation) except -1
    cdef int finish_calls(self) except -1
    cpdef int one_done(self) except -1
    cdef int put_with_outcome(self, tuple operation) except -1
    cdef int put_call(self, object body) except -1
    cpdef int wait(self) except -1

cpdef Launch make_launch(Engine engine, TaskCore task, object values, object variables=*)
