from libc.stdint cimport int64_t
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from stf._engine.access cimport ACCUMULATE, AFFINE, READ, WRITE, Access, Data
from stf._engine.coherency cimport Pool
from stf._engine.engine cimport Engine
from stf._engine.task cimport TaskCore
from stf._engine.versions cimport Version
from stf._port.replicas cimport INVALID, Replica
from stf.observe.durations cimport Timing, Timings, stf_size_class

cdef struct Clock:
    double free  # when what was given to a place is done
    double arrived  # when the last copy into its memory is there
    int kind  # of device
    int memory  # its data place

cdef struct Way:
    double latency
    double per_byte

cdef struct Use:
    int mode
    int target  # the data place of an access; AFFINE: that of the place where the task runs
    double nbytes
    int sources  # how many data places have the content

cdef struct Source:
    int place
    double ready

cdef struct Run:
    double seconds
    bint is_known

cdef class Load:
    cdef object __weakref__
    cdef public double free  # when the device is done with what all contexts gave it

cdef class Forecast:
    cdef double* at  # when the content is there, by data place; below 0 where that is not known
    cdef double written  # when the last writer ends,
    cdef double used  # and the last of those that use it
    cdef int64_t plan  # the plan that says where the content is, instead of the engine; 0 for none
    cdef int64_t partials  # places of that plan that add to it, as bits

cdef class Placement:
    cdef readonly int count  # of places that tasks can go to: their numbers are 1 and up
    cdef readonly object rule  # how the user wants tasks to be placed
    cdef readonly Timings durations
    cdef readonly list kinds  # of devices: (name, whether bodies only enqueue)
    cdef list kind_numbers  # of these, in `durations`
    cdef bint is_observed  # somebody else measures all tasks
    cdef readonly object device_times  # measures bodies that only enqueue work; or None
    cdef Engine engine
    cdef list names  # of the places, by number
    cdef double weight  # of the time that copies take
    cdef bint is_owner  # what writes data goes where these are valid
    cdef object function  # of the user's, which chooses; None for the earliest finish
    cdef bint is_limited  # some place has a memory limit
    cdef int width  # of data places: the host, and those of the devices
    cdef Clock* clocks  # by place
    cdef Way* ways  # source * width + target
    cdef Run* runs  # of the task that is looked at, by kind of device
    cdef list timings  # of that task, by kind of device
    cdef Use* uses  # of that task, by access
    cdef Source* sources  # of its content: access * width and up
    cdef int size  # how many accesses it has,
    cdef int room  # and there is room for
    cdef double after  # when the tasks are done that it comes after, wherever it runs
    cdef double total  # bytes
    cdef double start, finish, moves, moved, evicted  # at the place that was looked at last
    cdef list loads  # by place: what this context and others gave to the device
    cdef object decisions  # of an earlier run, that are repeated, or of this one; or None
    cdef int64_t number  # of the task that got one last
    cdef int64_t last  # the number of the task that was committed last,
    cdef int last_place  # where,
    cdef double last_free, last_arrived  # and the clock there before
    cdef int64_t plan  # the number of the plan that is being made; 0 for none
    cdef int64_t plans  # how many were made
    cdef public dict planned_s  # what the last one took each `Timing` for
    cpdef int choose(self, TaskCore task, object context) except -1
    cdef int reserve(self, int count) except -1
    cdef int look(self, TaskCore task) except -1
    cdef int look_at(self, Access access, int i) except -1
    cdef int estimate(self, TaskCore task) except -1
    cdef double bring(self, int place, TaskCore task) except? -1
    cdef int note_copy(self, TaskCore task, int i, int target, double arrival) except -1
    cdef double score(self, TaskCore task, int place) except? -1
    cdef double lacking(self, TaskCore task, int place) except? -1
    cdef bint owns(self, int place) noexcept
    cdef bint has_owner(self) noexcept
    cdef int earliest(self, TaskCore task) except -1
    cdef int commit(self, TaskCore task, int place) except -1
    cdef list candidates(self, TaskCore task)
    cdef int take_loads(self) except -1
    cdef int repeated(self, TaskCore task) except -1
    cpdef int number_task(self, TaskCore task) except -1
    cpdef int take_back(self, TaskCore task) except -1
    cpdef int settle_clocks(self) except -1
    cdef int settle_on(self, TaskCore task, int place) except -1
    cdef Forecast planned_forecast(self, Version version)
    cdef int note_write(self, Access access, int place, double finish) except -1

cdef Version version_at(Data data)
cdef Forecast forecast_of(Version version, int width)
cdef list partials_of(Version version)
