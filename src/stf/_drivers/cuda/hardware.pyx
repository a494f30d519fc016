"""The devices of a driver: each is opened when it is used for the first time; and what CUDA says, as exceptions.

One is open from the start, the one that is current for who makes the driver, or else the first: its context is what
calls about the host's memory need. A process that works on one of eight devices has nothing on the other seven.
"""


from cuda.bindings cimport cydriver as cu

from stf._drivers.base cimport MANAGED
from stf._drivers.cuda.devices cimport Device, allow, check, close_device, error_of, give_back, is_sticky
from stf._drivers.cuda.devices cimport link_between, open_device, open_host_pool, open_peer, relax, report_loss
from stf._drivers.cuda.gil cimport call, host_nodes
from stf._drivers.queues cimport QueueDriver

import re
import threading

from stf._drivers.cuda.devices import device_name, home_among
from stf._port.links import HOST, SAME_PLACE
from stf._support.sync import make_lock


cdef class HardwareDriver(QueueDriver):
    """Streams of CUDA's devices, whose numbers here are positions among their ordinals."""

    cdef int start(self, ordinals, host_pool) except -1:
        """Open the first device; what was opened is given back where that fails."""
        self.opening = make_lock(threading.RLock)
        self.devices = []
        check(cu.cuInit(0), "cuInit", "this machine")
        try:
            self.devices = [Device(ordinal) for ordinal in ordinals]
            self.home = home_among(ordinals)
            self.home_device = self.gpu(self.home)
            self.has_host_pool = host_pool and open_host_pool(&self.host_pool)
            if self.has_host_pool:
                allow(self.host_pool, self.home_device)
        except BaseException:
            self.close_devices()
            raise
        return 0

    cdef Device gpu(self, int device):
        """A device, which is opened when it is used for the first time; what is no device's work the first one does."""
        cdef Device gpu = <Device>self.devices[device if device >= 0 else self.home]
        if not gpu.is_open:
            self.open(gpu)
        return gpu

    cdef int open(self, Device gpu) except -1:
        """Open a device and let it and those that are open already use each other's memory."""
        with self.opening:
            if gpu.is_open:
                return 0  # by another thread meanwhile
            if self.lost is not None:
                raise self.lost.again()
            mode = relax()  # a capture on this thread takes no harm
            try:
                open_device(gpu)
                try:
                    for other in self.devices:
                        if (<Device>other).is_open:
                            open_peer(gpu, <Device>other)
                            open_peer(<Device>other, gpu)
                    if self.has_host_pool:
                        allow(self.host_pool, gpu)
                except BaseException:
                    close_device(gpu)
                    raise
            finally:
                give_back(mode)
            gpu.is_open = True
        return 0

    cpdef object link(self, int source, int target):
        if source == target:
            return SAME_PLACE
        if source < 0 or target < 0:  # managed memory may be anywhere
            return HOST
        return link_between(<Device>self.devices[source], <Device>self.devices[target])

    def kind(self, int device):
        """Return "H100" of "NVIDIA H100 80GB HBM3"; the whole name where that begins with no model."""
        name = device_name((<Device>self.devices[device]).ordinal).removeprefix("NVIDIA ")
        model = re.split("[ -]", name)[0]
        return model if re.search("[0-9]", model) else name

    cdef int close_devices(self) except -1:
        """Give back what opening them took."""
        with self.opening:
            for device in self.devices:
                if (<Device>device).is_open:
                    close_device(device)
        if self.has_host_pool and self.host_pool != NULL:
            call(host_nodes, cu.cuMemPoolDestroy, self.host_pool)
            self.host_pool = NULL
        return 0

    # -- what CUDA says ----------------------------------------------------------------------------------------

    cpdef object fault(self):
        return None if self.lost is None else self.lost.again()

    def where(self, int device):
        if device >= 0:
            return (<Device>self.devices[device]).name
        return "managed memory" if device == MANAGED else "the host"

    cdef int demand(self, cu.CUresult code, str call, int device) except -1:
        """Raise what a call said, where it can be raised."""
        if code != cu.CUDA_SUCCESS:
            error = error_of(code, call, self.where(device))
            if is_sticky(code):
                self.lost = self.lost or report_loss(self.loss_watchers, error, device)
            raise self.lost.again() if is_sticky(code) else error
        return 0

    cdef int note(self, cu.CUresult code, str call, int device) except -1:
        """Remember what a call said, where raising would break the state; the next call that may, raises it."""
        if code == cu.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
            return 0  # whoever ends the capture is told; nothing else is lost
        if code != cu.CUDA_SUCCESS and code != cu.CUDA_ERROR_DEINITIALIZED and self.lost is None:
            self.lost = report_loss(self.loss_watchers, error_of(code, call, self.where(device)), device)
        return 0
