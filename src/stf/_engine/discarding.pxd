from stf._engine.submit cimport Engine
from stf._engine.task cimport TaskCore
