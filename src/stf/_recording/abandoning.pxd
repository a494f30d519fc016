from stf._engine.access cimport WRITE, Data
from stf._engine.versions cimport Outcome, Version
from stf._engine.engine cimport Engine
from stf._engine.task cimport TaskCore
