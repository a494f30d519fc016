from stf._engine.access cimport AFFINE, Access, Data
from stf._engine.scopes cimport Version
from stf._engine.submit cimport Engine
from stf._engine.task cimport TaskCore
