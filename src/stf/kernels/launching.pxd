from libc.stdint cimport int64_t, uintptr_t
from libc.string cimport memcpy
from stf._engine cimport waits
from stf._engine.access cimport AFFINE, Access, DataHandle
from stf._engine.captured cimport Arguments
from stf._engine.instances cimport Layout, Replica
from stf._engine.submit cimport Engine
from stf._engine.task cimport ENDED, NEW, OPEN, TaskCore
from stf._engine.values cimport Asked
from stf.views cimport reach_all
from stf.tasks cimport ContextCore, Task

cdef class Kernel:
    cdef readonly object origin
    cdef readonly list functions
    cdef readonly str name
    cdef readonly list offsets
    cdef readonly list sizes
    cdef readonly int nbytes
    cdef readonly int count
    cdef readonly list ndims
    cdef public bint cooperative  # whatever the launch says

cdef class Config:
    cdef int gx, gy, gz, bx, by, bz, shared
    cdef object origin  # what users wrote first for it
    cdef tuple extras

cdef class LaunchBlock:
    cdef unsigned char data[4096]
    cdef int put_integer(self, int offset, int size, int64_t value) except -1
    cdef int put_double(self, int offset, double value) except -1
    cdef int put_bytes(self, int offset, bytes raw) except -1
    cdef bytes content(self, int count)

cdef class LateArguments(Arguments):
    cdef Kernel kernel
    cdef readonly tuple late
    cpdef bytes packed(self, object values, bytes recorded)

cdef class Launching(ContextCore):
    pass

cdef tuple accesses_in(tuple args)
cdef int submit_launch(ContextCore context, object kernel, object config, tuple args, object where, object symbol=*) except -1
cpdef int launch_alone(Task task, Kernel mine, Config shape, tuple args) except -1
cdef int launch_with_extras(Task task, Kernel kernel, Config config, int64_t function, LaunchBlock block, tuple late, list pointers, bint alone) except -1
cdef int64_t integer_of(Kernel kernel, int index, object value, int size) except? -1
cdef int put_number(Kernel kernel, int index, object value, LaunchBlock block) except -1
cpdef int put_value(Kernel kernel, int index, object value, LaunchBlock block) except -1
cdef int put_launch(Task task, Kernel kernel, Config config, tuple args, bint alone=*) except -1
cdef int declared_at(Task task, Kernel kernel, Access access) except -1
cdef Kernel last_kernel
cdef LaunchBlock spare_block
cdef LaunchBlock take_block()
cdef int give_block(LaunchBlock block) except -1
cdef dict known_configs
cdef dict known_kernels
cdef Config last_config
cpdef Config config_of(object config)
cdef Kernel kernel_of(ContextCore context, object thing, int where)
