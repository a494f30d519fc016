from stf._engine.access cimport Data
from stf._engine.engine cimport Engine
from stf._engine.task cimport ENDED, TaskCore
from stf._engine.versions cimport Outcome, Version
from stf._port.events cimport EventSet
from stf._port.port cimport Port

cdef int WRITE
