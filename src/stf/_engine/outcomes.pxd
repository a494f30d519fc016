from stf._engine cimport parts
from stf._engine.access cimport READ, WRITE, Access, Data
from stf._engine.versions cimport Outcome, Version
from stf._engine.state cimport EngineState
from stf._engine.task cimport TaskCore
