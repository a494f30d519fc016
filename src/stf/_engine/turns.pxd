from stf._engine cimport waits
from stf._engine.submit cimport Engine
from stf._engine.task cimport TaskCore
from stf._sync cimport PyThread_get_thread_ident

cpdef int check_thread(Engine engine, TaskCore task) except -1
cpdef int check_elsewhere(Engine engine, TaskCore task) except -1
cpdef bint is_repeated(Engine engine) except -1
