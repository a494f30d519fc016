from libc.stdint cimport int64_t, uintptr_t
from stf._engine cimport host_waits
from stf._engine.engine cimport Engine
from stf._engine.queued_bodies cimport QueuedBody
from stf._engine.task cimport TaskCore
from stf._port.events cimport EventSet
from stf._port.captures cimport DIRECT, STAGED, STAGED_HERE
from stf._port.port cimport COMPUTE, Port
from stf._port.programs cimport BYTES, CALL, CAPTURED, COPY, FILL, HEADER, LAUNCH, RUN, VARIED, Numbers, Program
from stf._port.replicas cimport Replica
from stf._recording.launch_state cimport Launch, make_launch
from stf._recording.variants cimport Arguments, BodyPatch, KernelPatch, MemoryPatch, Patch, Variant

cdef class Frame:
    cdef readonly Engine engine  # of the launch
    cdef readonly TaskCore task  # of the launch
    cdef readonly Launch launch  # what this is a part of
    cdef public object whole  # the routine that does all of the launch, which has an outcome; None where that has more
    cdef readonly Port port  # on which it is played
    cdef readonly int slot  # that is open there
    cdef readonly object values  # of the parameters of what is played; None: as recorded
    cdef object binding  # of the values of a nested graph to those of the launch; None outside of them
    cdef public object unread  # data that nobody looks at, whose copies are left out
    cdef list gathered  # captured bodies that go on the open slot next; None for none
    cdef Variant variant  # of a graph that is captured; None where it is played
    cdef Frame inside(self)
    cpdef Numbers play(self, Program program)
    cdef int open(self, EventSet events) except -1
    cdef int64_t play_from(self, Program program, int64_t node, int64_t start, Numbers events, EventSet needs) except -1
    cdef int put_work(self, Program program, int64_t node) except -1
    cdef bint gather(self, tuple operation) except -1
    cdef int put_gathered(self) except -1
    cdef int run_nested(self, tuple operation) except -1
    cdef int run_own(self, object routine) except -1
    cdef int put(self, Program program, tuple operation) except -1
    cdef int put_body(self, object body, bint runs_once) except -1
    cdef int put_call(self, object body, bint tells) except -1
    cdef int put_captured(self, tuple operation) except -1
    cdef int put_memory(self, tuple operation) except -1
    cdef int put_launch(self, Program program, int64_t position, Arguments arguments) except -1
    cdef int note(self, Patch patch, object content, bint varies, list replicas) except -1
    cpdef Frame play_on(self, Port port, list things)
    cdef int finish_calls(self) except -1
    cpdef int put_loop(self, object call, bint ends) except -1
    cpdef int wait(self) except -1

cpdef Frame make_frame(Engine engine, TaskCore task, object values, object variables=*, object rebinding=*)
