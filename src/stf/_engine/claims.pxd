from stf._engine cimport loans
from stf._engine.access cimport ACCUMULATE, AFFINE, READ, RW, WRITE, Access, Data, DataHandle, make_access
from stf._engine.coherency cimport Coherency, Pool
from stf._port.events cimport EventSet
from stf._port.replicas cimport INVALID, MODIFIED, SHARED, Layout, Replica
from stf._port.port cimport COMPUTE, COPY_IN, COPY_OUT, HOST, Port
from stf._engine.versions cimport Outcome, Version
from stf._engine.state cimport EngineState
from stf._engine.task cimport ENDED, NEW, OPEN, TaskCore
from stf._support.sync cimport PyThread_get_thread_ident
from stf._engine.task cimport make_access_like, references
