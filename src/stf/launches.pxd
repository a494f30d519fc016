from stf._engine.submit cimport Engine
from stf.tasks cimport ContextCore
