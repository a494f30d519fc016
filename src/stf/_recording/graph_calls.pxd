from stf._engine cimport host_waits
from stf._engine.queued_bodies cimport QueuedBody
from stf._recording.launch_state cimport Launch
