from stf._engine.access cimport WRITE, Data
from stf._engine.scopes cimport Outcome, Version
from stf._engine.submit cimport Engine
from stf._engine.task cimport TaskCore
