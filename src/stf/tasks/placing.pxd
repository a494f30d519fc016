from stf._engine.engine cimport Engine
from stf._engine.task cimport TaskCore
from stf.placement.model cimport Placement
from stf.tasks.repeats cimport RepeatFinder

cdef enum:
    SEVERAL = -1  # places of a grid: the task is one for each, or has a lane at each
    AUTO = -3  # the place that `settle` chooses

cdef list active_places

cdef class PlacingContext:
    cdef readonly Engine engine
    cdef public int default_code  # the place of tasks that name none, outside of every ``with place``
    cdef object ordinal_of_current  # asks for this thread's current device, where that matters; or None
    cdef readonly dict codes  # the engine's numbers of "host", "auto" and of the devices, by their ordinals
    cdef readonly Placement placement  # chooses places; None where there is one device
    cdef public object window  # holds tasks until they are planned; or None
    cdef readonly RepeatFinder finder  # has tasks held that follow a repeated window; or None
    cdef bint is_automatic  # tasks that name no place get one that is chosen
    cdef int default_place(self) except -1
    cdef int place_here(self) except -100

cpdef int wanted(PlacingContext context, object place) except -100
cdef int named(PlacingContext context, object place) except -100
cpdef int settle(TaskCore task) except -1
cdef bint can_be_held(TaskCore task) except -1
cdef int hold(TaskCore task, object submit) except -1
cdef bint takes_pure(TaskCore task, object function, object fn, list values, dict shapes) except -1
cdef int take_back_place(TaskCore task) except -1
cpdef int place_as_planned(TaskCore task, int place) except -1
cdef int place_here(TaskCore task, PlacingContext context) except -1
cdef int place_launch(TaskCore task, PlacingContext context) except -1
cdef int place_as_argument(TaskCore task, PlacingContext context, object place) except -1
cpdef int place_at(TaskCore task, PlacingContext context, object place) except -1
cpdef int place_on_host(TaskCore task) except -1
cdef int place_as_function(TaskCore task, PlacingContext context, object place, bint is_fixed) except -1
