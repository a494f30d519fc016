from stf._engine cimport retiring, thread_turns
from stf._engine.access cimport Data
from stf._engine.state cimport EngineState
from stf._engine.task cimport OPEN
from stf._port.events cimport EventSet

cpdef int abandon_open_tasks(EngineState engine) except -1
cpdef int retire_everything(EngineState engine) except -1
cpdef int pause_for(EngineState engine, EventSet pending) except -1
cpdef int open_outcomes(EngineState engine, EventSet pending) except -1
cdef int wait_for_all(EngineState engine) except -1
cpdef list in_order_of_end(EngineState engine)
