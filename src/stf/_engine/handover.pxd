from stf._engine.access cimport READ, WRITE, Data
from stf._port.events cimport EventSet
from stf._port.port cimport COMPUTE, HOST
from stf._engine.engine cimport Engine
from stf._support.sync cimport PyThread_get_thread_ident
