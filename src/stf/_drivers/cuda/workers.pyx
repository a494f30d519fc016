"""What workers do of the host's streams: they wait for devices first, then call, copy or free."""

from stf._drivers.cuda.driver cimport CudaDriver
from stf._drivers.cuda.devices cimport Device
from stf._drivers.cuda.streams cimport DeviceStream, HostStream
from stf._drivers.cuda.work cimport copy_and_settle
from stf._drivers.queues cimport CALL, COPY, FREE, RECORD, Op, QueueDriver, Stream, is_called_off

from stf._drivers.copyplan import plan_copy


cdef class WorkerDriver(CudaDriver):
    """The CUDA driver, whose workers wait for devices."""

    cdef int perform(self, Stream stream, Op op) except -1:
        """What a worker does of a host's stream: wait for devices, copy, free."""
        if stream.device < 0:
            self.settle_pending(<HostStream>stream)
        if op.kind == COPY:
            self.copy_now(op.body)
        elif op.kind == FREE:
            self.free_on(op.body, self.home_device.utility)
        elif op.kind == RECORD:
            self.gate.enter()
            try:
                QueueDriver.reach(self, stream, op.sequence)
            finally:
                self.gate.leave()
        return 0

    cdef int execute(self, Stream stream, Op op) except -1:
        """A call waits for the devices first."""
        if op.kind == CALL:
            try:
                if stream.device < 0:
                    self.settle_pending(<HostStream>stream)
                else:
                    self.drain_stream(<DeviceStream>stream)
            except BaseException as error:
                self.failed(stream, error)
        return CudaDriver.execute(self, stream, op)

    cdef int copy_now(self, what) except -1:
        """A copy on a host's stream, of memory of whatever place: a worker waits until it is done."""
        cdef Device gpu = self.home_device
        target, target_strides, source, source_strides, shape, itemsize, keep = what
        if is_called_off(keep):
            return 0
        plan = plan_copy(shape, target_strides, source_strides, itemsize)
        code = copy_and_settle(plan, target, source, gpu.context, gpu.utility)
        return self.demand(code, "cuMemcpyAsync", gpu.ordinal)

    cdef int settle_pending(self, HostStream stream) except -1:
        """Wait for what a host's stream got past; meanwhile another worker may take this one's place."""
        if stream.awaited is not None:
            self.lend(1)
            try:
                while stream.next_awaited() is not None:
                    self.wait_done(stream.awaited, stream.until)
                    stream.await_next()
            finally:
                self.lend(-1)
        return 0
