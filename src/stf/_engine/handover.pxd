from stf._engine.access cimport WRITE, Data
from stf._port.events cimport EventSet
from stf._port.port cimport COMPUTE
from stf._engine.engine cimport Engine
