from libc.stdint cimport int64_t, uintptr_t
from stf._engine cimport host_waits
from stf._engine.access cimport AFFINE, Access
from stf._recording.variants cimport Arguments
from stf._port.replicas cimport Layout, Replica
from stf._engine.engine cimport Engine
from stf._port.late_values cimport Asked
from stf._port.recording_port cimport RecordingPort
from stf.kernels.arguments cimport Kernel, LaunchBlock, give_block, put_described_value, put_number, put_value, take_block
from stf.tasks.repeats cimport KnownCall, RepeatFinder
from stf.tasks.placing cimport can_be_held, hold, place_at, settle, take_back_place
from stf.tasks.views cimport reach_all
from stf.tasks.task cimport ContextCore, Task

cdef class Config:
    cdef int gx, gy, gz, bx, by, bz, shared
    cdef object user_object  # what users wrote first for it
    cdef tuple extras

cdef class HeldLaunch(KnownCall):
    cdef object kernel
    cdef object config
    cdef tuple args
    cdef object named

cdef bint is_taken(RepeatFinder finder, Task task, object kernel, object config, tuple args, object symbol) except -1

cdef class LateArguments(Arguments):
    cdef Kernel kernel
    cdef readonly tuple late

cdef tuple accesses_in(tuple args)
cdef tuple fitting(Kernel mine, tuple args)
cdef Task submit_launch(ContextCore context, object kernel, object config, tuple args, object where, object symbol=*)
cdef int go_on(Task task, object kernel, object config, tuple args, object symbol) except -1
cpdef int launch_alone(Task task, Kernel mine, Config shape, tuple args) except -1
cdef int launch_with_extras(Task task, Kernel kernel, Config config, int64_t function, LaunchBlock block, tuple late, list pointers, bint alone) except -1
cdef int put_launch(Task task, Kernel kernel, Config config, tuple args, bint alone=*) except -1
cdef Layout put_address(Task task, Kernel kernel, int i, tuple args, int position, LaunchBlock block, list pointers)
cdef tuple put_described(Task task, Kernel kernel, tuple args, LaunchBlock block, list pointers, bint alone)
cdef int declared_at(Task task, Kernel kernel, Access access) except -1
cdef Kernel last_kernel
cdef dict known_configs
cdef dict known_kernels
cdef Config last_config
cpdef Config config_of(object config)
cdef Kernel kernel_of(ContextCore context, object thing, int where)
