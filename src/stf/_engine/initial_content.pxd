from stf._engine.access cimport AFFINE, RW, WRITE, Access, Data
from stf._port.replicas cimport INVALID, Replica
from stf._engine.versions cimport Version
from stf._engine.state cimport EngineState
from stf._engine.task cimport TaskCore, make_access_like
