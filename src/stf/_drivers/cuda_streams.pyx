"""The two kinds of streams of the CUDA driver: a device's, with its ring of events, and the host's."""

from cuda.bindings cimport cydriver as cu

from stf._drivers.queues cimport Stream


cdef class DeviceStream(Stream):
    """A CUDA stream. `completed` is what was given to CUDA, `done` what CUDA is known to have done.

    The event of a sequence number is at that number modulo `RING`: by the time its place is needed again, CUDA has
    done it. `keeps` are (sequence number, what a copy needs until then).
    """

    def __init__(self, index, device):
        Stream.__init__(self, index, device)
        self.keeps = []


cdef class HostStream(Stream):
    """A queue of the host. `pending` are events of devices, (stream, sequence), that it waits for at its next work."""

    def __init__(self, index, device):
        Stream.__init__(self, index, device)
        self.pending = []


cdef int destroy_stream(DeviceStream lane) except -1:
    """Give stream and events back to CUDA; return how many events there were."""
    count = 0
    for i in range(RING):
        if lane.ring[i] != NULL:
            cu.cuEventDestroy(lane.ring[i])
            lane.ring[i] = NULL
            count += 1
    cu.cuStreamDestroy(lane.handle)
    return count


cdef int forget_keeps(DeviceStream lane) except -1:
    """Let go what copies needed that are done."""
    if lane.keeps:
        lane.keeps = [item for item in lane.keeps if item[0] > lane.done]
    return 0


cdef int refresh(DeviceStream lane) except -1:
    """Look how far a stream is."""
    if lane.completed > lane.done and cu.cuEventQuery(lane.ring[lane.completed % RING]) == cu.CUDA_SUCCESS:
        lane.done = lane.completed
    return forget_keeps(lane)
