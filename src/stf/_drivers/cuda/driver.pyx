"""The CUDA driver: streams, events and memory of the GPUs, through the driver API.

A device's stream is a CUDA stream; verbs go to it at once. The host's streams are queues with workers, as in `queues`:
a body on the host runs on a thread of ours when its inputs are there, so it may use CUDA. A device's stream that must
wait for such a body waits *here*, not on the device: what follows is queued and given to CUDA when the body has ended.
A wait on the device (a memory wait, a blocking host function) would hang whatever synchronizes the device meanwhile:
loading a module, freeing memory, registering host memory; a body may do all three.

So work that CUDA was given never waits for the host. That is why calls that may block do no harm here, whoever waits.
"""

from cpython.pythread cimport PyThread_get_thread_ident
from libc.stdint cimport int64_t, uintptr_t
from libc.string cimport memcpy, memset

from cuda.bindings cimport cydriver as cu

from stf._drivers.base cimport MANAGED
from stf._drivers.cuda.devices cimport Device, begin_body, end_body, error_of, is_capturing, is_sticky, pop, push, trim
from stf._drivers.cuda.gil cimport call, host_nodes
from stf._drivers.cuda.hardware cimport HardwareDriver
from stf._drivers.cuda.memory cimport alloc_unpooled, free_unpooled, make_pins
from stf._drivers.cuda.stamps cimport Stamps
from stf._drivers.cuda.streams cimport KEEPS, RING, COMMITTED, SHORT, DeviceStream, HostStream, destroy_stream, forget_keeps
from stf._drivers.cuda.streams cimport block_on, is_in_capture, is_quiet, leave, make_event, put_off, record_event, refresh
from stf._drivers.cuda.streams cimport reuse_event, committed_at
from stf._drivers.cuda.submitter cimport FREE_MEMORY, LAUNCH_KERNEL, RECORD_EVENT, WAIT_FOR_EVENT, Submission, Submitter
from stf._drivers.cuda.work cimport check_launch, copy_planned, copy_run, fill_planned, launch_function, order_streams
from stf._drivers.cuda.submitter import CALLS
from stf._drivers.queues cimport BODY, CALL, COPY, FILL, FREE, LAUNCH, RECORD, STAMP, Op, QueueDriver, Stream
from stf._drivers.queues cimport is_called_off, make_op

import time

from stf._drivers.copyplan import plan_copy
from stf._drivers.cuda import virtual
from stf._drivers.cuda.functions import DeviceFunctions
from stf._drivers.fillplan import plan_fill
from stf.errors import CaptureError


cdef size_t KEPT = 32 << 20  # bytes of each pool of a driver at rest: what CUDA makes a pool of at first;
cdef int KEPT_PART = 64  # or this part of the device's memory: what the next one needs is there again


cdef list resting = []  # drivers


cdef int trim_resting() except -1:
    """Give back what the pools of drivers at rest have: somebody finds no memory."""
    for driver in list(resting):
        for item in (<CudaDriver>driver).devices:
            if (<Device>item).is_open:
                trim((<Device>item).pool, 0)
    return 0


cdef class CudaDriver(HardwareDriver):
    """The GPUs with the given ordinals.

    Device ``i`` of the driver is CUDA's ``ordinals[i]``; `capacity` bounds the bytes per device, 0 for no bound;
    `submit_thread`: a thread gives work to CUDA, always, never, or (None) in bursts; `host_pool`: host memory is pooled.
    """

    def __init__(self, ordinals, workers=4, capacity=None, submit_thread=None, host_pool=True):
        HardwareDriver.__init__(self, len(ordinals), workers, capacity)
        self.shares_host = False
        self.runs_inline = False
        self.records_late = True
        self.name = "cuda"
        self.submitter = Submitter(submit_thread)
        self.stamps = Stamps(self, self.submitter)
        self.kernels = DeviceFunctions(self)
        self.mapped = {}
        self.start(ordinals, host_pool)
        try:
            self.pins = make_pins(self.home_device, self.settle_devices)
        except BaseException:
            self.close_devices()
            raise

    # -- streams and events ------------------------------------------------------------------------------------

    def priorities(self, int device):
        cdef int lowest = 0
        cdef int highest = 0
        if device >= 0:
            before = push(self.gpu(device).context)
            code = call(host_nodes, cu.cuCtxGetStreamPriorityRange, &lowest, &highest)
            pop(before)
            self.demand(code, "cuCtxGetStreamPriorityRange", device)
        return lowest, highest

    cpdef int stream_create(self, int device, int priority=0) except -1:
        cdef Py_ssize_t i
        cdef DeviceStream stream
        cdef HostStream host
        cdef Device gpu = self.gpu(device) if device >= 0 else None
        self.gate.enter()
        try:
            if device < 0:
                index = self.spare.pop() if self.spare else len(self.streams)
                if index == len(self.streams):
                    self.streams.append(None)
                host = HostStream(index, device)
                self.streams[index] = host
                return index
            for i in range(len(gpu.spare) - 1, -1, -1):  # the last one will do, but where there are priorities
                if (<Stream>self.streams[gpu.spare[i]]).priority == priority:
                    return gpu.spare.pop(i)
            stream = DeviceStream(len(self.streams), device)
            stream.context = gpu.context
            stream.priority = priority
            before = push(gpu.context)
            code = call(host_nodes, cu.cuStreamCreateWithPriority, &stream.handle, cu.CU_STREAM_NON_BLOCKING, priority)
            pop(before)
            self.demand(code, "cuStreamCreateWithPriority", device)
            self.streams.append(stream)
            self.live_streams += 1
            return stream.index
        finally:
            self.gate.leave()

    cpdef int stream_destroy(self, int stream) except -1:
        cdef DeviceStream lane
        self.gate.enter()
        try:
            if (<Stream>self.streams[stream]).device < 0:
                self.spare.append(stream)
                return 0
            lane = self.streams[stream]
            lane.completed = lane.done = lane.last_short_copy = lane.oldest = 0
            memset(lane.uncommitted, 0, sizeof(lane.uncommitted))
            lane.uses += 1
            lane.keeps.clear()
            (<Device>self.devices[lane.device]).spare.append(stream)
        finally:
            self.gate.leave()
        return 0

    cpdef int stream_enter(self, int stream) except -1:
        cdef Stream lane = <Stream>self.streams[stream]
        if lane.device < 0:
            self.enter_host(<HostStream>lane)
        elif lane.head is not None or (lane.busy and not lane.held):
            QueueDriver.stream_enter(self, stream)  # until what it waits for on the host is there
        if self.lost is not None:
            raise self.lost.again()
        return 0

    cpdef bint try_enter(self, int stream) except -1:
        cdef Stream lane = <Stream>self.streams[stream]
        if lane.device >= 0 or (<HostStream>lane).next_awaited() is not None:
            return False
        return QueueDriver.try_enter(self, stream)

    cdef int enter_host(self, HostStream lane) except -1:
        """Wait for what stands before on the host, then for devices; both on the calling thread."""
        QueueDriver.stream_enter(self, lane.index)
        try:
            self.wait_for_devices(lane)
        except BaseException:
            self.release_hold(lane, make_op(CALL, None))
            raise
        return 0

    cpdef int record(self, int stream, int64_t sequence) except -1:
        return self.end_work(stream, sequence, False)

    cpdef int record_lazy(self, int stream, int64_t sequence) except -1:
        return self.end_work(stream, sequence, True)

    cdef int end_work(self, int stream, int64_t sequence, bint late) except -1:
        cdef Stream lane = <Stream>self.streams[stream]
        if lane.device >= 0:
            if (<DeviceStream>lane).body.thread:
                end_body(&(<DeviceStream>lane).body)
            if lane.head is None and not lane.busy and lane.waiters is None:
                if not (late and put_off(<DeviceStream>lane, sequence)):
                    self.mark(<DeviceStream>lane, sequence, (<DeviceStream>lane).handle)
                lane.completed = sequence
                return 0
        return QueueDriver.record(self, stream, sequence)

    cpdef int commit(self, int stream, int64_t sequence) except -1:
        cdef Stream lane = <Stream>self.streams[stream]
        return self.ask(<DeviceStream>lane, sequence) if lane.device >= 0 else 0

    cdef int ask(self, DeviceStream lane, int64_t sequence) except -1:
        """See that the event of `sequence` is recorded, if that was put off: it comes later than it might, never earlier."""
        if lane.uncommitted[sequence % RING] and lane.done < sequence <= lane.completed:
            while is_in_capture(lane):
                if lane.body.thread == PyThread_get_thread_ident():
                    raise CaptureError("what came before on the task's stream is waited for while its body captures that stream")
                time.sleep(50e-6)
            return self.mark(lane, sequence, lane.handle)
        return 0

    cpdef int record_on(self, int stream, int64_t sequence, int64_t pointer) except -1:
        cdef DeviceStream lane = <DeviceStream>self.streams[stream]
        if self.lost is not None:
            raise self.lost.again()
        before = push(lane.context)  # whose default stream is meant
        try:
            self.mark(lane, sequence, <cu.CUstream><uintptr_t>pointer)
            lane.completed = sequence
        finally:
            pop(before)
        return 0

    cdef int mark(self, DeviceStream lane, int64_t sequence, cu.CUstream handle) except -1:
        """Record the event of `sequence`. Its place in the ring was that of a task long done; else wait for that."""
        cdef int slot = sequence % RING
        cdef bint is_new = False
        if self.lost is not None:
            return 0
        lane.oldest = max(lane.oldest, sequence - RING + 1)  # what is in this place is nobody else's from here on
        if sequence - RING > lane.done and lane.ring[slot] != NULL:
            self.catch_up(lane, sequence - RING)
        elif lane.ring[slot] == NULL and not reuse_event(lane, slot):
            code = make_event(lane, slot, &is_new)
            self.note(code, "cuEventCreate", lane.device)  # the engine, which ends a task, cannot have it raised
            self.live_events += is_new
        if self.lost is not None:
            return 0
        if handle != lane.handle:
            lane.uncommitted[slot] = False  # what it was before the stream went back
            return self.demand(call(host_nodes, cu.cuEventRecord, lane.ring[slot], handle), "cuEventRecord", lane.device)
        if not (lane.captured or lane.foreign) and self.submitter.takes():
            event = <int64_t><uintptr_t>lane.ring[slot]
            lane.tickets[slot] = self.submitter.put(RECORD_EVENT, lane.context, handle, event, lane.device)
            lane.uncommitted[slot] = False
            return self.hear()
        self.note(record_event(lane, slot), "cuEventRecord", lane.device)
        lane.uncommitted[slot] = False  # until here others, who ask without the GIL between, have it recorded too
        return 0

    cdef int hear(self) except -1:
        """Note what CUDA said to the submitter."""
        cdef int kind = 0, device = 0
        cdef int code = self.submitter.take_failure(&kind, &device)
        if code:
            self.note(<cu.CUresult>code, CALLS[kind], device)
        return 0

    cdef int flush(self) except -1:
        """See that CUDA has all that was submitted: what follows goes there directly."""
        self.submitter.flush()
        return self.hear()

    cdef int catch_up(self, DeviceStream lane, int64_t sequence) except -1:
        """Wait until the device has done `sequence`, and half a ring more if it is that far already."""
        cdef int64_t further = committed_at(min(sequence + RING // 2, lane.completed))
        cdef int uses = lane.uses
        sequence = committed_at(sequence + COMMITTED - 1)
        self.submitter.reach(lane.tickets[further % RING])
        if sequence <= lane.done:
            pass  # others have looked meanwhile
        elif further > sequence and call(host_nodes, cu.cuEventQuery, lane.ring[further % RING]) == cu.CUDA_SUCCESS:
            if uses == lane.uses:  # else it was given back meanwhile
                lane.done = max(lane.done, further)
        else:
            self.wait_done(lane, sequence)
        forget_keeps(lane)
        return 0

    cdef int wait_done(self, DeviceStream lane, int64_t sequence) except -1:
        """Block until the device has done `sequence`, which was given to CUDA."""
        cdef int uses = lane.uses
        self.ask(lane, sequence)
        self.flush()
        if uses != lane.uses or sequence <= lane.done or self.lost is not None:
            return 0
        self.note(block_on(lane, sequence), "cuEventSynchronize", lane.device)
        if uses != lane.uses:
            return 0  # given back meanwhile
        if sequence > lane.done:
            lane.done = sequence
        return forget_keeps(lane)

    cpdef int wait_event(self, int stream, int other, int64_t sequence) except -1:
        cdef Stream lane = <Stream>self.streams[stream]
        cdef Stream source = <Stream>self.streams[other]
        if source.completed >= sequence and lane.head is None and not lane.busy:
            return self.pass_wait_for(lane, source, sequence)
        if lane.device >= 0:
            self.note_host(<DeviceStream>lane, source, sequence)
        return QueueDriver.wait_event(self, stream, other, sequence)

    cdef int note_host(self, DeviceStream lane, Stream source, int64_t sequence) except -1:
        """Note whether what comes on a stream now may have to wait for work of the host; see `device_threads`."""
        if lane.head is None and not lane.busy:
            lane.behind_host = False
        if source.completed < sequence and (source.device < 0 or (<DeviceStream>source).behind_host):
            lane.behind_host = True
        return 0

    cdef int pass_wait(self, Stream stream, Op op) except -1:
        return self.pass_wait_for(stream, op.other, op.sequence)

    cdef int pass_wait_for(self, Stream lane, Stream source, int64_t sequence) except -1:
        if source.device < 0 or sequence <= (<DeviceStream>source).done or self.lost is not None:
            return 0
        if (<DeviceStream>source).captured and not is_capturing(<int64_t><uintptr_t>(<DeviceStream>source).handle):
            return 0  # the capture was given up, and nothing of it runs
        self.ask(<DeviceStream>source, sequence)
        if lane.device < 0:
            return (<HostStream>lane).wait_for(<DeviceStream>source, sequence)
        gpu = <DeviceStream>lane
        if gpu.foreign:
            self.submitter.reach((<DeviceStream>source).tickets[sequence % RING])
        if sequence <= (<DeviceStream>source).done:
            return 0  # others have looked meanwhile, and its event may be another's
        event = (<DeviceStream>source).ring[sequence % RING]
        if not (gpu.foreign or gpu.captured) and self.submitter.takes():
            self.submitter.put(WAIT_FOR_EVENT, gpu.context, gpu.handle, <int64_t><uintptr_t>event, gpu.device)
            return 0
        return self.note(call(host_nodes, cu.cuStreamWaitEvent, gpu.handle, event, 0), "cuStreamWaitEvent", gpu.device)

    cdef bint reach(self, Stream stream, int64_t sequence) except -1:
        if stream.device >= 0:
            self.mark(<DeviceStream>stream, sequence, (<DeviceStream>stream).handle)
        elif (<HostStream>stream).awaited is not None:
            return False  # a worker waits for the devices first
        return QueueDriver.reach(self, stream, sequence)

    cpdef int64_t completed(self, int stream) except -1:
        cdef Stream lane = <Stream>self.streams[stream]
        if self.lost is not None:
            return 1 << 43
        return lane.completed if lane.device < 0 else (<DeviceStream>lane).done

    cpdef bint query(self, int stream, int64_t sequence) except -1:
        cdef Stream lane = <Stream>self.streams[stream]
        if lane.device < 0 or lane.completed < sequence:
            return lane.completed >= sequence
        return self.lost is not None or sequence <= (<DeviceStream>lane).done or self.poll(<DeviceStream>lane, sequence, 0)

    cpdef bint synchronize(self, int stream, int64_t sequence, double timeout_s) except -1:
        cdef Stream lane = <Stream>self.streams[stream]
        cdef double deadline = 0
        if lane.completed < sequence:
            if timeout_s > 0:
                deadline = time.monotonic() + timeout_s
            if not QueueDriver.synchronize(self, stream, sequence, timeout_s):
                return False
            if timeout_s > 0:
                timeout_s = max(deadline - time.monotonic(), 0.0)
        if lane.device < 0:
            return True
        if timeout_s >= 0:
            return self.poll(<DeviceStream>lane, sequence, timeout_s)
        self.wait_done(<DeviceStream>lane, sequence)
        if self.pins.leaving:
            self.pins.take_off()
        return True

    cdef bint poll(self, DeviceStream lane, int64_t sequence, double timeout_s) except -1:
        cdef double deadline = time.monotonic() + timeout_s
        cdef int uses = lane.uses
        self.ask(lane, sequence)
        self.flush()
        while uses == lane.uses and sequence > lane.done and self.lost is None:
            code = call(host_nodes, cu.cuEventQuery, lane.ring[sequence % RING])
            if code == cu.CUDA_ERROR_NOT_READY:
                if time.monotonic() >= deadline:
                    return False
                time.sleep(50e-6)
                continue
            self.note(code, "cuEventQuery", lane.device)
            lane.done = max(lane.done, sequence)
            forget_keeps(lane)
        return True

    cdef int wait_for_devices(self, HostStream lane) except -1:
        """Wait for what a host's stream got past."""
        while lane.next_awaited() is not None:
            self.wait_done(lane.awaited, lane.until)
            lane.await_next()
        return 0

    cpdef int drain(self, int stream) except -1:
        return self.drain_stream(<DeviceStream>self.streams[stream])

    cpdef object handle(self, int stream):
        """The CUDA stream as an integer, its device being current from here to `record`; None for the host's."""
        cdef DeviceStream lane
        if (<Stream>self.streams[stream]).device < 0:
            return None
        lane = <DeviceStream>self.streams[stream]
        self.flush()
        self.demand(begin_body(&lane.body, lane.context), "cuCtxSetCurrent", lane.device)
        if lane.pointer is None:
            lane.pointer = <uintptr_t>lane.handle
        return lane.pointer

    cpdef int wait_on_external(self, int stream, int64_t pointer) except -1:
        """Make `stream` wait for a caller's stream; 1 and 2 are CUDA's legacy and per-thread default streams."""
        cdef DeviceStream lane = <DeviceStream?>self.streams[stream]
        return self.order(<cu.CUstream><uintptr_t>pointer, lane.handle, lane)

    cpdef int signal_external(self, int stream, int64_t pointer) except -1:
        cdef DeviceStream lane = <DeviceStream?>self.streams[stream]
        return self.order(lane.handle, <cu.CUstream><uintptr_t>pointer, lane)

    cdef int order(self, cu.CUstream first, cu.CUstream second, DeviceStream lane) except -1:
        self.flush()
        before = push(lane.context)
        gpu = <Device>self.devices[lane.device]
        code = order_streams(first, second, gpu.passing if lane.context == gpu.context and not lane.captured else NULL)
        leave(lane, before)
        return self.demand(code, "cuStreamWaitEvent", lane.device)

    # -- work --------------------------------------------------------------------------------------------------

    cpdef int copy(self, int stream, int64_t target, tuple target_strides, int64_t source, tuple source_strides, tuple shape, int64_t itemsize, object keep, int64_t number=0) except -1:
        cdef Stream lane = <Stream>self.streams[stream]
        if self.lost is not None:
            raise self.lost.again()
        if lane.device >= 0 and self.is_ready(<DeviceStream>lane):
            return self.issue_copy(<DeviceStream>lane, target, target_strides, source, source_strides, shape, itemsize, keep)
        return self.queue(lane, COPY, (target, target_strides, source, source_strides, shape, itemsize, keep))

    cdef int queue(self, Stream lane, int kind, object what) except -1:
        """Put an operation behind what a stream waits for."""
        return self.enqueue(lane.index, make_op(kind, what))

    cdef bint is_ready(self, DeviceStream lane) except -1:
        """Whether work may go to CUDA at once; work for a caller's stream waits here, to stay in order."""
        if lane.adopted and not lane.held and (lane.head is not None or lane.busy):
            QueueDriver.stream_enter(self, lane.index)
        return lane.head is None and (lane.held or not lane.busy)

    cpdef bint fill(self, int stream, int64_t target, tuple strides, tuple shape, bytes pattern) except -1:
        cdef Stream lane = <Stream>self.streams[stream]
        plan = plan_fill(shape, strides, pattern, (target & -target) & 7)
        if self.lost is not None:
            raise self.lost.again()
        if plan is None or lane.device < 0:  # where a body on the host, which runs, can have it done
            return False
        if self.is_ready(<DeviceStream>lane):
            return self.issue_fill(<DeviceStream>lane, (target, plan))
        self.queue(lane, FILL, (target, plan))
        return True

    cdef bint issue_fill(self, DeviceStream lane, what) except -1:
        self.flush()
        before = push(lane.context)
        code = fill_planned(what[1], what[0], lane.handle)
        leave(lane, before)
        self.demand(code, "cuMemsetAsync", lane.device)
        return True

    cdef int issue_copy(self, DeviceStream lane, int64_t target, tuple target_strides, int64_t source, tuple source_strides, tuple shape, int64_t itemsize, object keep) except -1:
        cdef bint internal = keep[0] is None and keep[1] is None
        cdef int64_t nbytes
        cdef cu.CUcontext before = push(lane.context)
        cdef bint simple = len(shape) == 0 or (len(shape) == 1 and target_strides[0] == itemsize == source_strides[0])
        plan = None if simple else plan_copy(shape, target_strides, source_strides, itemsize)
        self.flush()
        try:
            if simple:
                nbytes = itemsize * <int64_t>shape[0] if shape else itemsize
                code = copy_run(target, source, nbytes, lane.handle, not internal)
                if nbytes <= SHORT:
                    lane.last_short_copy = lane.completed + 1
            else:
                code = copy_planned(plan, target, source, lane.handle, not internal)
        finally:
            leave(lane, before)
        self.demand(code, "cuMemcpyAsync", lane.device)
        if not internal:
            lane.keeps.append((lane.completed + 1, keep))
            if len(lane.keeps) > KEEPS:
                refresh(lane)
        return 0

    cdef bint issue(self, Stream stream, Op op) except -1:
        """Give a queued operation to CUDA; the host's, and calls, are for another thread."""
        if stream.device < 0 or op.kind == CALL or op.kind == BODY:
            return False
        try:
            if op.kind == COPY:
                target, target_strides, source, source_strides, shape, itemsize, keep = op.body
                self.issue_copy(<DeviceStream>stream, target, target_strides, source, source_strides, shape, itemsize, keep)
            elif op.kind == FREE:
                self.free_in_order(<DeviceStream>stream, op.body)
            elif op.kind == FILL:
                self.issue_fill(<DeviceStream>stream, op.body)
            elif op.kind == LAUNCH:
                self.launch_later(<DeviceStream>stream, op.body)
            elif op.kind == STAMP:
                (<Stamps>self.stamps).record(<DeviceStream>stream, op.sequence)
        except BaseException as error:
            self.failed(stream, error)
        return True

    cpdef int launch(self, int stream, int64_t function, int gx, int gy, int gz, int bx, int by, int bz, int shared, int64_t block, int nbytes) except -1:
        cdef DeviceStream lane = <DeviceStream>self.streams[stream]
        if (lane.head is None and not lane.busy) or (lane.adopted and self.is_ready(lane)):
            return self.launch_on(lane, function, gx, gy, gz, bx, by, bz, shared, block, nbytes)
        self.demand(check_launch(function, gx, gy, gz, bx, by, bz, shared), "cuLaunchKernel", lane.device)
        arguments = (<const char*><uintptr_t>block)[:nbytes]
        return self.queue(lane, LAUNCH, (function, (gx, gy, gz, bx, by, bz, shared), arguments))

    cdef int launch_later(self, DeviceStream lane, what) except -1:
        function, (gx, gy, gz, bx, by, bz, shared), arguments = what
        cdef char* block = arguments
        return self.launch_on(lane, function, gx, gy, gz, bx, by, bz, shared, <int64_t><uintptr_t>block, len(arguments))

    cdef int launch_on(self, DeviceStream lane, int64_t function, int gx, int gy, int gz, int bx, int by, int bz, int shared, int64_t block, int nbytes) except -1:
        cdef Submission* place
        if self.lost is not None:
            raise self.lost.again()
        if not (lane.captured or lane.foreign) and self.submitter.takes_launch(function, gy, gz, bx, by, bz, shared, nbytes):
            place = self.submitter.slot()
            place.kind, place.nbytes, place.context, place.stream = LAUNCH_KERNEL, nbytes, lane.context, lane.handle
            place.target, place.device, place.shared = function, lane.device, shared
            place.gx, place.gy, place.gz, place.bx, place.by, place.bz = gx, gy, gz, bx, by, bz
            memcpy(place.arguments, <void*><uintptr_t>block, nbytes)
            self.submitter.show()
            return 0
        self.submitter.reach(self.submitter.pushed)
        before = push(lane.context)
        code = launch_function(function, gx, gy, gz, bx, by, bz, shared, block, nbytes, lane.handle)
        leave(lane, before)
        if code == cu.CUDA_SUCCESS:
            self.submitter.prove(function, bx, by, bz, shared)
        return self.demand(code, "cuLaunchKernel", lane.device)

    cdef int drain_stream(self, DeviceStream stream) except -1:
        cdef cu.CUresult code
        self.flush()
        with nogil:
            code = cu.cuStreamSynchronize(stream.handle)
        return self.note(code, "cuStreamSynchronize", stream.device)

    # -- what workers do: they wait for devices first, then call, copy or free ---------------------------------

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
        return QueueDriver.execute(self, stream, op)

    cdef int perform(self, Stream stream, Op op) except -1:
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

    cdef int copy_now(self, what) except -1:
        """A copy on a host's stream, of memory of whatever place: a worker waits until it is done."""
        cdef Device gpu = self.home_device
        target, target_strides, source, source_strides, shape, itemsize, keep = what
        if is_called_off(keep):
            return 0
        plan = plan_copy(shape, target_strides, source_strides, itemsize)
        before = push(gpu.context)
        code = copy_planned(plan, target, source, gpu.utility, True)
        if code == cu.CUDA_SUCCESS:
            with nogil:
                code = cu.cuStreamSynchronize(gpu.utility)
        pop(before)
        return self.demand(code, "cuMemcpyAsync", gpu.ordinal)

    cdef int settle_pending(self, HostStream stream) except -1:
        """Wait for what a host's stream got past; meanwhile another worker may take this one's place."""
        if stream.awaited is not None:
            self.lend(1)
            try:
                self.wait_for_devices(stream)
            finally:
                self.lend(-1)
        return 0

    def statistics(self):
        spare = len(self.spare) + sum([len(device.spare) for device in self.devices])
        return len(self.streams) - spare, spare, self.workers, self.live_allocations, list(self.used)

    # -- memory ------------------------------------------------------------------------------------------------

    cpdef int64_t alloc(self, int device, int64_t nbytes, int stream) except -1:
        cdef Stream lane = <Stream>self.streams[stream]
        cdef Device gpu = self.home_device if max(device, lane.device) < 0 else self.gpu(max(device, lane.device))
        cdef cu.CUdeviceptr address = 0
        cdef cu.CUmemoryPool pool
        cdef cu.CUstream handle = gpu.utility
        cdef size_t size = max(nbytes, 1)
        cdef cu.CUresult code
        cdef bint is_plain = device == MANAGED or (device < 0 and not self.has_host_pool)
        cdef bint at_once = lane.device < 0 or lane.head is not None or lane.busy or lane.device != device
        if self.lost is not None:
            raise self.lost.again()
        self.must_have_room(device, nbytes)
        pool = gpu.pool if device >= 0 else self.host_pool
        if not at_once:
            handle = (<DeviceStream>lane).handle
        if is_plain:
            code = alloc_unpooled(gpu.context, device == MANAGED, size, &address)
        else:
            with nogil:
                code = cu.cuMemAllocFromPoolAsync(&address, size, pool, handle)
                if code == cu.CUDA_ERROR_OUT_OF_MEMORY:
                    cu.cuMemPoolTrimTo(pool, 0)
                    with gil:
                        virtual.free_spare()
                        trim_resting()
                    code = cu.cuMemAllocFromPoolAsync(&address, size, pool, handle)
                if code == cu.CUDA_SUCCESS and at_once:
                    code = cu.cuStreamSynchronize(handle)
        if code == cu.CUDA_ERROR_OUT_OF_MEMORY:
            raise MemoryError(f"{nbytes} bytes asked on {self.where(device)}")
        self.demand(code, "cuMemAlloc", device)
        self.used[max(device, -1) + 1] += nbytes
        self.live_allocations += 1
        return <int64_t>address

    cpdef int free(self, int device, int64_t address, int64_t nbytes, int stream) except -1:
        cdef Stream lane = <Stream>self.streams[stream]
        if lane.device >= 0 and lane.head is None and not lane.busy:
            return self.free_in_order(<DeviceStream>lane, (device, address, nbytes))
        return self.queue(lane, FREE, (device, address, nbytes))

    cdef int free_in_order(self, DeviceStream lane, what) except -1:
        """Free when the stream gets there."""
        cdef bint is_pooled = <int>what[0] >= 0 or (self.has_host_pool and <int>what[0] != MANAGED)
        if self.mapped and what[1] in self.mapped:
            return self.unmap(what[1], lane)
        if self.lost is None and is_pooled and not (lane.captured or lane.foreign) and self.submitter.takes():
            self.used[<int>what[0] + 1] -= what[2]
            self.live_allocations -= 1
            self.submitter.put(FREE_MEMORY, lane.context, lane.handle, what[1], lane.device)
            return 0
        self.submitter.reach(self.submitter.pushed)
        return self.free_on(what, lane.handle)

    cdef int free_on(self, what, cu.CUstream stream) except -1:
        cdef cu.CUdeviceptr address = <cu.CUdeviceptr><int64_t>what[1]
        cdef cu.CUresult code
        self.used[max(<int>what[0], -1) + 1] -= what[2]
        self.live_allocations -= 1
        if self.lost is not None and (self.closed or is_sticky(<cu.CUresult><int>self.lost.code) or not is_quiet(self.streams, &self.quiet)):
            return 0  # what may still use it has not been waited for
        if <int>what[0] == MANAGED or (<int>what[0] < 0 and not self.has_host_pool):
            code = free_unpooled(self.home_device, <int>what[0] == MANAGED, address, stream)
            return self.note(code, "cuMemFree", <int>what[0])
        with nogil:
            code = cu.cuMemFreeAsync(address, stream)
        return self.note(code, "cuMemFreeAsync", <int>what[0])

    def reserve(self, devices, page, runs):
        for device in devices:
            self.gpu(device)
        ordinals = [(<Device>self.devices[device]).ordinal for device in devices]
        known = [(<Device>device).ordinal for device in self.devices]  # copies to each of them read it
        return virtual.reserve(page, ordinals, runs) if virtual.can_share(ordinals, page, known) else None

    def map(self, mapping, int place, int device):
        cdef int64_t nbytes = mapping.nbytes_of(place)
        if self.lost is not None:
            raise self.lost.again()
        self.must_have_room(device, nbytes)
        try:
            mapping.map(place)
        except MemoryError:
            virtual.free_spare()
            trim(self.gpu(device).pool, 0)
            trim_resting()
            mapping.map(place)
        address = mapping.address + place
        self.mapped[address] = mapping, place, device, nbytes
        self.used[device + 1] += nbytes
        self.live_allocations += 1
        return address

    cdef int unmap(self, address, DeviceStream lane) except -1:
        """Give the pages of a place back when the stream gets here."""
        mapping, place, device, nbytes = self.mapped.pop(address)
        self.used[device + 1] -= nbytes
        self.live_allocations -= 1
        self.submitter.reach(self.submitter.pushed)
        if self.lost is None:
            before = push(lane.context)
            mapping.give_back(place, <uintptr_t>lane.handle)
            pop(before)
        return 0

    # -- host memory of the user's -----------------------------------------------------------------------------

    cpdef int pin(self, int64_t address, int64_t nbytes, object owner, bint lasting=False) except -1:
        return 0 if self.lost is not None else self.pins.hold(address, nbytes, owner, lasting=lasting)

    cpdef int unpin(self, int64_t address, int64_t nbytes, object owner) except -1:
        return self.pins.let_go_later(address, nbytes, owner)

    cpdef int unpin_unused(self) except -1:
        return self.pins.forget_unused()

    def settle_devices(self):
        """Wait until the devices have done what they were given; let go what their copies needed."""
        self.flush()
        for item in self.devices:
            if self.lost is None:
                before = push((<Device>item).context)
                with nogil:
                    cu.cuCtxSynchronize()
                pop(before)
        for item in list(self.streams):
            if isinstance(item, DeviceStream) and self.lost is None:
                refresh(<DeviceStream>item)

    # -- the end -----------------------------------------------------------------------------------------------

    def retire(self):
        cdef size_t total = 0
        if self.keeper is None or self.lost is not None or self.live_allocations or len(self.pins) or self.loss_watchers:
            return self.close()
        if self.errors or self.statistics()[0] > len(self.helpers):  # a stream did not come back: it may still work
            return self.close()
        virtual.free_spare()
        for item in self.devices:
            if (<Device>item).is_open:
                cu.cuDeviceTotalMem(&total, (<Device>item).device)
                trim((<Device>item).pool, max(KEPT, total // KEPT_PART))
        if self.has_host_pool:
            trim(self.host_pool, KEPT)
        self.identities = self.context_numbers()
        resting.append(self)
        self.keeper(self)
        return 0

    def resume(self):
        """Begin anew after a rest; whether that is possible: no device was reset meanwhile, or lost by work of others."""
        if self in resting:
            resting.remove(self)
        if self.lost is not None or self.context_numbers() != self.identities:
            return False
        for item in self.devices:
            if (<Device>item).is_open and is_sticky(call(host_nodes, cu.cuStreamQuery, (<Device>item).utility)):
                return False
        return True

    cdef list context_numbers(self):
        """The identifiers of the contexts of the devices that are open: new ones after a reset."""
        cdef unsigned long long identifier
        found = []
        for item in self.devices:
            identifier = 0
            if (<Device>item).is_open:
                cu.cuCtxGetId((<Device>item).context, &identifier)
            found.append(identifier)
        return found

    cpdef int close(self) except -1:
        QueueDriver.close(self)
        if self.closed:
            return 0
        if self in resting:
            resting.remove(self)
        lost = self.lost or error_of(cu.CUDA_ERROR_DEINITIALIZED, "a call after close", "this driver")
        self.submitter.stop()
        self.pins.close()
        virtual.free_spare()
        self.closed = True  # until here, whoever lacked memory may close it again
        (<Stamps>self.stamps).close()
        for item in self.streams:
            if isinstance(item, DeviceStream):
                self.live_events -= destroy_stream(<DeviceStream>item)
                self.live_streams -= not (<DeviceStream>item).adopted
        self.lost = lost
        try:
            return self.close_devices()
        except MemoryError:
            return self.close_devices()  # those that are open still

    def leaks(self):
        """(streams, events, allocations, registered arrays) that are still there."""
        return self.live_streams, self.live_events, self.live_allocations, len(self.pins)
