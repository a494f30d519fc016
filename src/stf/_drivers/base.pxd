from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport int64_t

cdef enum:
    STAGED_HERE = 1  # as the port has it
    MANAGED = -2

# What NumPy tells of an array, as far as it is used here.
ctypedef struct ArrayStruct:
    int two
    int nd
    char typekind
    int itemsize
    int flags
    Py_ssize_t* shape
    Py_ssize_t* strides
    void* data

cpdef int64_t address_of(object block) except -1
cpdef tuple extent(int64_t address, object strides, object shape, int64_t itemsize)

cdef class Driver:
    cdef public int device_count
    cdef public int home
    cdef public bint shares_host
    cdef public bint runs_inline
    cdef public bint adopts
    cdef public str name
    cdef public object stamps
    cdef public object values
    cdef public object kernels
    cdef public object graphs
    cdef public object loops
    cdef public bint has_callers
    cdef public bint reads_back
    cdef public bint records_late
    cdef public bint waits_cheaply
    cpdef int stream_create(self, int device, int priority=*) except -1
    cpdef int stream_adopt(self, int device, int64_t pointer) except -1
    cpdef int stream_create_in(self, int device, int64_t context) except -1
    cpdef int stream_destroy(self, int stream) except -1
    cpdef int stream_enter(self, int stream) except -1
    cpdef bint try_enter(self, int stream) except -1
    cpdef int record(self, int stream, int64_t sequence) except -1
    cpdef int record_lazy(self, int stream, int64_t sequence) except -1
    cpdef int commit(self, int stream, int64_t sequence) except -1
    cpdef int record_on(self, int stream, int64_t sequence, int64_t pointer) except -1
    cpdef int wait_event(self, int stream, int other, int64_t sequence) except -1
    cpdef int64_t completed(self, int stream) except -1
    cpdef bint query(self, int stream, int64_t sequence) except -1
    cpdef bint synchronize(self, int stream, int64_t sequence, double timeout_s) except -1
    cpdef int64_t alloc(self, int device, int64_t nbytes, int stream) except -1
    cpdef int free(self, int device, int64_t address, int64_t nbytes, int stream) except -1
    cpdef object owner(self, int64_t address)
    cpdef int copy(self, int stream, int64_t target, tuple target_strides, int64_t source, tuple source_strides, tuple shape, int64_t itemsize, object keep, int64_t number=*) except -1
    cpdef bint fill(self, int stream, int64_t target, tuple strides, tuple shape, bytes pattern) except -1
    cpdef int may_use(self, int device, int other, int64_t address, int64_t nbytes, object owner) except -1
    cpdef int pin(self, int64_t address, int64_t nbytes, object owner, bint lasting=*) except -1
    cpdef int unpin(self, int64_t address, int64_t nbytes, object owner) except -1
    cpdef int unpin_unused(self) except -1
    cpdef int wait_on_external(self, int stream, int64_t pointer) except -1
    cpdef int launch(self, int stream, int64_t function, int gx, int gy, int gz, int bx, int by, int bz, int shared, int64_t block, int nbytes) except -1
    cpdef int play_captured(self, int stream, object captured, bint fixed) except -1
    cpdef int play_all_captured(self, int stream, list captured) except -1
    cpdef bint defers(self, int stream, object captured) except -1
    cpdef int queue_captured(self, int stream, object captured, list changes) except -1
    cpdef int signal_external(self, int stream, int64_t pointer) except -1
    cpdef int bind_to_caller(self, int stream, bint captured, int staged=*) except -1
    cpdef int keep_alive(self, int stream, object what) except -1
    cpdef object fault(self)
    cpdef object look(self)
    cpdef int call(self, int stream, object body) except -1
    cpdef int tell_compiled(self) except -1
    cpdef int let_go_compiled(self, bint all_of_them) except -1
    cpdef int ask_first(self) except -1
    cpdef int call_in_turn(self, int stream, object body) except -1
    cpdef int keep_pace(self, int device) except -1
    cpdef int drain(self, int stream) except -1
    cpdef bint park(self, object baton, double timeout_s) except -1
    cpdef object runners(self, int stream, int64_t sequence)
    cpdef object handle(self, int stream)
    cpdef int begin_readback(self, int stream, int64_t address, int64_t nbytes) except -2
    cpdef object end_readback(self, int landing, int64_t nbytes)
    cpdef object link(self, int source, int target)
    cpdef int close(self) except -1
