from stf._engine.access cimport Data
from stf._engine.submit cimport Engine
