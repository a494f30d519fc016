from cuda.bindings cimport cydriver as cu
from libc.stdint cimport int64_t
from stf._drivers.cuda.devices cimport Device
from stf._drivers.cuda.hardware cimport HardwareDriver
from stf._drivers.cuda.streams cimport DeviceStream, HostStream
from stf._drivers.cuda.submitter cimport Submitter
from stf._drivers.queues cimport Op, Stream

cdef class CudaDriver(HardwareDriver):
    cdef readonly Submitter submitter
    cdef readonly object pins
    cdef dict mapped  # by address: (mapping, number of the place, device, bytes of its pages)
    cdef readonly int64_t live_streams
    cdef readonly int64_t live_events
    cdef int quiet
    cdef bint closed
    cdef public object keeper  # takes the driver when nobody uses it, or None
    cdef list context_numbers(self)
    cdef list identities  # of the devices' contexts while it rests
    cdef int enter_host(self, HostStream lane) except -1
    cdef int end_work(self, int stream, int64_t sequence, bint late) except -1
    cdef int ask(self, DeviceStream lane, int64_t sequence) except -1
    cdef int mark(self, DeviceStream lane, int64_t sequence, cu.CUstream handle) except -1
    cdef int hear(self) except -1
    cdef int flush(self) except -1
    cdef int catch_up(self, DeviceStream lane, int64_t sequence) except -1
    cdef int wait_done(self, DeviceStream lane, int64_t sequence) except -1
    cdef int note_host(self, DeviceStream lane, Stream source, int64_t sequence) except -1
    cdef int pass_wait_for(self, Stream lane, Stream source, int64_t sequence) except -1
    cdef bint poll(self, DeviceStream lane, int64_t sequence, double timeout_s) except -1
    cdef int order(self, cu.CUstream first, cu.CUstream second, DeviceStream lane) except -1
    cdef int queue(self, Stream lane, int kind, object what) except -1
    cdef bint is_ready(self, DeviceStream lane) except -1
    cdef bint issue_fill(self, DeviceStream lane, what) except -1
    cdef int issue_copy(self, DeviceStream lane, int64_t target, tuple target_strides, int64_t source, tuple source_strides, tuple shape, int64_t itemsize, object keep) except -1
    cdef int launch_later(self, DeviceStream lane, what) except -1
    cdef int launch_on(self, DeviceStream lane, int64_t function, int gx, int gy, int gz, int bx, int by, int bz, int shared, int64_t block, int nbytes) except -1
    cdef int drain_stream(self, DeviceStream stream) except -1
    cdef int wait_for_devices(self, HostStream lane) except -1
    cdef int copy_now(self, what) except -1
    cdef int settle_pending(self, HostStream stream) except -1
    cdef int unmap(self, address, DeviceStream lane) except -1
    cdef int free_in_order(self, DeviceStream lane, what) except -1
    cdef int free_on(self, what, cu.CUstream stream) except -1
