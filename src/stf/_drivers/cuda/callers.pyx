"""Callers' streams: work that comes after theirs and that theirs comes after, without the host waiting for either.

The driver outlives the contexts on such streams. A stream that goes back while it works leaves its events, and what
its copies need, to a *lingering* stream, which is looked at when others are made. A stream that is part of a caller's
capture goes back when the capture is over; what its work needs then is kept by a user object of the caller's graph,
that is, until neither the graph nor anything instantiated from it is left.

Under capture CUDA refuses whatever looks at or waits for the present, and forgets the capture because of it; so nothing
here does. What is about other streams is done with this thread's capture mode relaxed.
"""

from libc.stdint cimport int64_t, uintptr_t

from cuda.bindings cimport cydriver as cu

from stf._drivers.base cimport MANAGED, STAGED_HERE, extent
from stf._drivers.cuda.graphs cimport Captured, GraphStore, add_all, graph_of, refuse_wait
from stf._drivers.cuda.submitter cimport LAUNCH_GRAPH
from stf._drivers.cuda.devices cimport check, give_back, is_capturing, pop, push, refuse_capture, relax
from stf._drivers.cuda.devices cimport report_loss
from stf._drivers.cuda.stages cimport STAGE_BYTES, Stage, StageHold, Store, copy_in, copy_out
from stf._drivers.cuda.gil cimport call, host_nodes
from stf._drivers.cuda.host_nodes cimport GraphKeep, HostMemory, add_host_node, forget_gone, forget_in, keep_in_graph
from stf._drivers.cuda.memory cimport alloc_unpooled, is_cudas
from stf._drivers.cuda.readback cimport ReadbackDriver
from stf._drivers.cuda.stamps cimport Stamps
from stf._drivers.cuda.streams cimport RING, DeviceStream, destroy_events, destroy_stream, forget_keeps, leave
from stf._drivers.cuda.streams cimport refresh
from stf._drivers.cuda.work cimport packed_strides
from stf._drivers.queues cimport CALL, GRAPH, KEEP, Op, QueueDriver, Stream, is_called_off

from stf._drivers.cuda.devices import current_ordinal
from stf._drivers.cuda.device_graphs import DeviceGraphs
from stf._drivers.base import Registered
from stf._drivers.cuda.host_nodes import unfinished
from stf._port.links import THROUGH_HOST
from stf._support.sync import make_baton
from stf.errors import CaptureError, DriverError

LAST_DEFAULT = 2  # CU_STREAM_LEGACY and CU_STREAM_PER_THREAD are 1 and 2; 0 is the default stream too
GRAPH_CACHE = 512 << 20  # bytes of executable graphs that wait for another graph


# -- a caller's stream, before there is a driver -------------------------------------------------------------------


def device_of(int64_t pointer):
    """Return the ordinal of the device of a caller's stream; that of a default stream is the thread's current one."""
    cdef cu.CUcontext context = NULL
    cdef cu.CUdevice device = 0
    if pointer <= LAST_DEFAULT:
        return max(current_ordinal(), 0)
    check(cu.cuInit(0), "cuInit", "this machine")
    check(call(host_nodes, cu.cuStreamGetCtx, <cu.CUstream><uintptr_t>pointer, &context), "cuStreamGetCtx", f"stream {pointer:#x}")
    before = push(context)
    code = cu.cuCtxGetDevice(&device)
    pop(before)
    check(code, "cuCtxGetDevice", f"stream {pointer:#x}")
    return device


# -- the driver ----------------------------------------------------------------------------------------------------


cdef class CallersDriver(ReadbackDriver):
    """The CUDA driver, for contexts that may be on callers' streams."""

    cdef list lingering  # streams that went back while they worked; their CUDA stream has an heir
    cdef list ends  # of host's streams that went back while they worked: locks, released when they have ended
    cdef list captured  # numbers of the streams that are part of a capture, and of no context any more
    cdef list graph_keeps  # what callers' graphs hold until these are gone
    cdef list stages
    cdef dict unclaimed  # memory of the host's that a graph keeps, by address, until somebody asks for its owner
    cdef GraphStore store
    cdef set late  # (first, end) of memory of the host, not pinned, that graphs may still be writing

    def __init__(self, ordinals, workers=4, capacity=None, submit_thread=None, graph_cache=GRAPH_CACHE, conditions=True, host_pool=True):
        self.store = GraphStore(graph_cache)
        self.graphs = DeviceGraphs(self, self.store, conditions)
        self.has_callers = True
        self.lingering, self.ends, self.captured, self.graph_keeps, self.stages = [], [], [], [], []
        self.late, self.unclaimed = set(), {}
        check(cu.cuInit(0), "cuInit", "this machine")
        mode = relax()
        try:
            ReadbackDriver.__init__(self, ordinals, workers, capacity, submit_thread, host_pool)
        finally:
            give_back(mode)

    # -- streams and contexts of the caller's ----------------------------------------------------------------------

    cpdef int stream_adopt(self, int device, int64_t pointer) except -1:
        cdef DeviceStream lane = DeviceStream(-1, device)
        lane.handle = <cu.CUstream><uintptr_t>pointer
        lane.foreign = lane.adopted = True
        check(call(host_nodes, cu.cuStreamGetCtx, lane.handle, &lane.context), "cuStreamGetCtx", self.where(device))
        return self.add_foreign(lane)

    cpdef int stream_create_in(self, int device, int64_t context) except -1:
        """Make a stream in a context of the caller's: one that is green gives it its part of the device."""
        cdef DeviceStream lane = DeviceStream(-1, device)
        cdef cu.CUcontext before = NULL
        lane.context = <cu.CUcontext><uintptr_t>context
        lane.foreign = True
        cu.cuCtxGetCurrent(&before)
        check(cu.cuCtxSetCurrent(lane.context), "cuCtxSetCurrent", self.where(device))
        code = call(host_nodes, cu.cuStreamCreateWithPriority, &lane.handle, cu.CU_STREAM_NON_BLOCKING, 0)
        cu.cuCtxSetCurrent(before)
        check(code, "cuStreamCreateWithPriority", self.where(device))
        self.live_streams += 1
        return self.add_foreign(lane)

    cdef int add_foreign(self, DeviceStream lane) except -1:
        self.gate.enter()
        try:
            lane.index = len(self.streams)
            self.streams.append(lane)
        finally:
            self.gate.leave()
        return lane.index

    cdef int take_back(self, int stream) except -1:
        """Keep a stream for who wants one of its device; the number of a foreign one goes to the host's."""
        cdef DeviceStream lane = <DeviceStream>self.streams[stream]
        if not lane.foreign:
            return ReadbackDriver.stream_destroy(self, stream)
        self.gate.enter()
        try:
            self.live_events -= destroy_stream(lane)
            self.live_streams -= not lane.adopted
            self.streams[stream] = None
            self.spare.append(stream)
        finally:
            self.gate.leave()
        return 0

    # -- streams that go back while they work ------------------------------------------------------------------

    cpdef int stream_create(self, int device, int priority=0) except -1:
        if self.lingering or self.captured or self.graph_keeps:
            self.sweep()
        return ReadbackDriver.stream_create(self, device, priority)

    cpdef int stream_destroy(self, int stream) except -1:
        cdef Stream lane = <Stream>self.streams[stream]
        if lane.device < 0:
            self.await_end(lane)
            return ReadbackDriver.stream_destroy(self, stream)
        if (<DeviceStream>lane).captured:
            self.hold_in_graph(<DeviceStream>lane)
            if (<DeviceStream>lane).adopted:  # which its owner may destroy from now on
                return self.take_back(stream)
            self.captured.append(stream)
            return 0
        (<DeviceStream>lane).lent = False
        self.ask(<DeviceStream>lane, lane.completed)
        self.flush()
        mode = relax()
        refresh(<DeviceStream>lane)
        give_back(mode)
        if (<DeviceStream>lane).done < lane.completed and self.lost is None:
            self.replace(<DeviceStream>lane)
        return self.take_back(stream)

    cdef int replace(self, DeviceStream lane) except -1:
        """Let another take over the CUDA stream; who waits for events of this one goes on doing so."""
        cdef DeviceStream heir = DeviceStream(lane.index, lane.device)
        heir.handle, heir.context, heir.foreign, heir.adopted = lane.handle, lane.context, lane.foreign, lane.adopted
        heir.priority = lane.priority
        self.streams[lane.index] = heir
        self.lingering.append(lane)
        return 0

    cdef int await_end(self, Stream lane) except -1:
        """Note when a stream of the host, which went back, has done what it still has."""
        if lane.head is None and not lane.busy:
            return 0
        end = make_baton()
        self.ends.append(end)
        return self.queue(lane, CALL, end.release)

    cpdef int bind_to_caller(self, int stream, bint captured, int staged=0) except -1:
        cdef Stream lane = <Stream>self.streams[stream]
        if lane.device >= 0:
            self.flush()
            (<DeviceStream>lane).lent = True
            (<DeviceStream>lane).captured = captured
            (<DeviceStream>lane).staged = staged
        return 0

    cpdef int keep_alive(self, int stream, object what) except -1:
        cdef DeviceStream lane = <DeviceStream>self.streams[stream]
        if lane.head is not None or (lane.busy and not lane.held):
            return self.queue(lane, KEEP, what)
        if lane.keeps and not lane.captured:
            self.flush()
            mode = relax()
            refresh(lane)
            give_back(mode)
        lane.keeps.append((lane.completed + 1, what))
        return 0

    cdef bint issue(self, Stream stream, Op op) except -1:
        if op.kind == KEEP:
            (<DeviceStream>stream).keeps.append((stream.completed + 1, op.body))
        elif op.kind == GRAPH:
            try:
                self.issue_captured(<DeviceStream>stream, op.body)
            except BaseException as error:
                self.failed(stream, error)
        else:
            return ReadbackDriver.issue(self, stream, op)
        return True

    cdef int failed(self, Stream stream, object error) except -1:
        """What CUDA was given later than it was asked for did not work, and is missing: all is lost."""
        if self.lost is None and isinstance(error, DriverError):
            self.lost = report_loss(self.loss_watchers, error, stream.device)
        elif self.lost is None or not self.lost.is_reported_by(error):
            QueueDriver.failed(self, stream, error)
        return 0

    cdef int issue_captured(self, DeviceStream lane, tuple what) except -1:
        """Launch a graph that was queued, as it was to be then."""
        cdef Captured graph = what[0]
        cdef list changes = what[1]
        try:
            if self.lost is not None:
                raise self.lost.again()
            self.flush()
            if changes is not None:
                graph.renew(changes)
            self.launch_captured(lane, graph, False)
        finally:
            graph.queued -= 1  # until here others of it are queued too
        return 0

    cdef int launch_captured(self, DeviceStream lane, Captured graph, bint fixed) except -1:
        """Launch a graph; note what it writes of the host's memory."""
        if self.late and graph.early is not None:
            self.settle_late(lane, graph.early)
        graph.launch(lane.handle, lane.captured or lane.foreign, fixed)
        if graph.late is not None:
            self.late.update(graph.late)
        return 0

    cpdef object look(self):
        self.sweep()
        is_reported = self.lost is not None and not (self.closed and self.lost.code == cu.CUDA_ERROR_DEINITIALIZED)
        return self.lost.again() if is_reported else None

    cdef int sweep(self) except -1:
        """Look at what went back: streams that have ended by now, captures that are over, graphs that are gone."""
        if self.closed:
            return 0
        self.flush()
        mode = relax()
        try:
            self.sweep_lingering()
            self.sweep_captured()
            forget_gone()
            forget_in(self.graph_keeps)
            if not self.lingering:
                self.pins.forget_orphans()
        finally:
            give_back(mode)
        return 0

    cdef int sweep_lingering(self) except -1:
        cdef DeviceStream lane
        done = []
        for item in list(self.lingering):
            lane = item
            code = cu.CUDA_SUCCESS
            if self.lost is None:
                code = call(host_nodes, cu.cuEventQuery, lane.ring[lane.completed % RING])
            if code != cu.CUDA_ERROR_NOT_READY and not lane.sleepers:
                self.note(code, "cuEventQuery", lane.device)
                done.append(lane)
        done = [item for item in done if item in self.lingering]  # others may have come between
        self.lingering = [item for item in self.lingering if item not in done]
        for item in done:
            lane = item
            lane.done = lane.completed
            self.live_events -= destroy_events(lane)
            forget_keeps(lane)
        self.ends = [end for end in self.ends if end.locked()]
        return 0

    cdef int sweep_captured(self) except -1:
        cdef DeviceStream lane
        cdef cu.CUstreamCaptureStatus status = cu.CU_STREAM_CAPTURE_STATUS_NONE
        waiting, self.captured = self.captured, []
        for stream in waiting:
            lane = self.streams[stream]
            code = call(host_nodes, cu.cuStreamIsCapturing, lane.handle, &status)
            if code == cu.CUDA_SUCCESS and status != cu.CU_STREAM_CAPTURE_STATUS_NONE:
                self.captured.append(stream)
            else:
                lane.captured = lane.lent = False
                self.take_back(stream)
        return 0

    def retire(self):
        if self.lost is not None or self.closed:
            return self.close()
        self.store.empty()  # executables, and what bodies have allocated for them
        self.sweep()
        is_used = self.lingering or self.ends or self.captured or self.graph_keeps or self.stages
        if is_used or (<Stamps>self.stamps).clocks:  # whose events may be in a context of the user's
            return self.close()
        self.late.clear()  # all graphs are done
        return ReadbackDriver.retire(self)

    def resume(self):
        self.store.made = self.store.updated = 0
        mode = relax()
        try:
            return ReadbackDriver.resume(self)
        finally:
            give_back(mode)

    cpdef int close(self) except -1:
        if not self.closed:
            for item in self.lingering:
                self.wait_done(<DeviceStream>item, (<DeviceStream>item).completed)
            for end in self.ends:
                end.acquire()
            for item in self.streams:  # all is done, and what was kept for it goes, with its graphs
                if isinstance(item, DeviceStream) and not (<DeviceStream>item).captured:
                    (<DeviceStream>item).keeps.clear()
            self.store.close()  # and what its executables needed
            self.sweep()
            unfinished.extend(self.graph_keeps)
            forget_in(unfinished)  # of graphs that went since `sweep`
            self.stages += [item for item in unfinished if isinstance(item, Stage)]
            unfinished[:] = [item for item in unfinished if not isinstance(item, Stage)]
            before = push(self.home_device.context)
            for item in self.stages:
                if (<Stage>item).store.busy:
                    unfinished.append(item)  # the device is lost, or captures, or others have a graph with it
                else:
                    (<Stage>item).give_back()
            pop(before)
        return ReadbackDriver.close(self)

    cpdef int play_captured(self, int stream, object captured, bint fixed) except -1:
        """Launch a graph; the caller keeps it until the stream has done it."""
        cdef DeviceStream lane = <DeviceStream>self.streams[stream]
        cdef Captured graph = captured
        if self.lost is not None:
            raise self.lost.again()
        if self.defers(stream, graph):
            return self.queue_captured(stream, graph, None)
        if self.late and graph.early is not None:
            self.settle_late(lane, graph.early)
        cdef bint may_help = graph.proven and not (lane.captured or lane.foreign) and graph.context == lane.context
        if may_help and (self.submitter.takes() if graph.late is None else self.submitter.takes_slow()):
            self.submitter.put(LAUNCH_GRAPH, lane.context, lane.handle, <int64_t><uintptr_t>graph.executable.handle, lane.device)
            if graph.late is not None:  # CUDA launches it no sooner than these are written
                self.late.update(graph.late)
            return self.hear()
        self.flush()
        self.launch_captured(lane, graph, fixed)
        graph.proven = not lane.captured and graph.executable is not None
        return 0

    cpdef int play_all_captured(self, int stream, list captured) except -1:
        cdef DeviceStream lane = <DeviceStream>self.streams[stream]
        cdef bint is_plain = lane.captured and self.lost is None and not self.defers(stream, None)
        cdef Captured graph
        for item in captured:
            graph = item
            is_plain = is_plain and graph.early is None and graph.late is None
        if is_plain:
            self.flush()
            if add_all(lane.handle, captured):
                return 0
        return ReadbackDriver.play_all_captured(self, stream, captured)

    cpdef bint defers(self, int stream, object captured) except -1:
        cdef DeviceStream lane = <DeviceStream>self.streams[stream]
        if captured is not None and (<Captured>captured).queued and not lane.captured:
            return True
        return (lane.head is not None or (lane.busy and not lane.held)) and not (lane.adopted and self.is_ready(lane))

    cpdef int queue_captured(self, int stream, object captured, list changes) except -1:
        if self.lost is not None:
            raise self.lost.again()
        (<Captured>captured).queued += 1
        return self.queue(<DeviceStream>self.streams[stream], GRAPH, (captured, changes))

    def statistics(self):
        self.sweep()  # streams of captures that are over are spare again
        return ReadbackDriver.statistics(self)

    def deliver(self):
        self.flush()

    cpdef int wait_on_external(self, int stream, int64_t pointer) except -1:
        cdef DeviceStream lane = <DeviceStream>self.streams[stream]
        if is_capturing(pointer) != lane.captured:
            if not lane.captured:
                refuse_capture(pointer)
            return 0  # what is there comes before the capture, which cannot wait for it: it comes before the launch
        return ReadbackDriver.wait_on_external(self, stream, pointer)

    cpdef int signal_external(self, int stream, int64_t pointer) except -1:
        if is_capturing(pointer) and not (<DeviceStream>self.streams[stream]).captured:
            refuse_capture(pointer)
        return ReadbackDriver.signal_external(self, stream, pointer)

    cdef int issue_copy(self, DeviceStream lane, int64_t target, tuple target_strides, int64_t source, tuple source_strides, tuple shape, int64_t itemsize, object keep) except -1:
        cdef int64_t nbytes = itemsize
        cdef bint outwards = False, inwards = False
        cdef StageHold hold
        if is_called_off(keep):
            return 0
        if lane.lent and (lane.staged or not lane.captured):
            outwards = keep[0] is not None and not is_cudas(target)
            inwards = keep[1] is not None and not is_cudas(source)
            for n in shape:
                nbytes *= n
        if lane.lent and not lane.captured:
            if (outwards or inwards) and nbytes:
                if target_strides == source_strides == packed_strides(shape, itemsize):
                    return self.copy_staged(lane, target, source, nbytes, outwards, keep)
                self.drain_stream(lane)  # what the array was given before must be there
        elif lane.captured:
            if keep[0] is not None and self.store.captures:
                self.note_late(lane, target, target_strides, shape, itemsize)
            if outwards != inwards and nbytes:
                address, strides = (source, source_strides) if outwards else (target, target_strides)
                if extent(address, strides, shape, itemsize) == (address, address + nbytes):
                    hold = StageHold(self.free_stage(lane, nbytes))
                    hold.describe(nbytes, itemsize, shape, target_strides if outwards else source_strides, strides)
                    return self.copy_in_graph(lane, target, source, hold, outwards, keep)
            if lane.staged == STAGED_HERE and (outwards or inwards) and nbytes:
                raise CaptureError("it copies between memory of the host that is not pinned and memory with gaps")
            if keep[1] is not None and self.store.captures and not is_cudas(source):
                read = extent(source, source_strides, shape, itemsize)
                self.store.early.setdefault(graph_of(lane.handle), []).append(read)
        elif self.late and keep[1] is not None:
            self.settle_late(lane, [extent(source, source_strides, shape, itemsize)])
        return ReadbackDriver.issue_copy(self, lane, target, target_strides, source, source_strides, shape, itemsize, keep)

    cdef int settle_late(self, DeviceStream lane, list spans) except -1:
        """Wait for graphs that write memory which CUDA is about to read at once; the stream comes after these."""
        awaited = [known for known in self.late if any([known[0] < end and first < known[1] for first, end in spans])]
        if awaited:
            self.drain_stream(lane)
            self.late.difference_update(awaited)
        return 0

    cdef int note_late(self, DeviceStream lane, int64_t target, tuple strides, tuple shape, int64_t itemsize) except -1:
        """Remember of a graph that is being captured that it writes memory of the host, unless that is pinned."""
        if not is_cudas(target):
            self.store.late.setdefault(graph_of(lane.handle), []).append(extent(target, strides, shape, itemsize))
        return 0

    cdef int copy_staged(self, DeviceStream lane, int64_t target, int64_t source, int64_t nbytes, bint outwards, object keep) except -1:
        """Copy from or to pageable memory when the stream gets there."""
        cdef Stage stage = self.free_stage(lane, nbytes)
        cdef Store* store = stage.store
        store.user, store.nbytes, store.busy = <void*><uintptr_t>(target if outwards else source), nbytes, 1
        store.bytes, store.rank, store.held = nbytes, 0, 0
        self.flush()
        before = push(lane.context)
        code = copy_out(store, source, lane.handle) if outwards else copy_in(store, target, lane.handle)
        leave(lane, before)
        lane.keeps.append((lane.completed + 1, keep))
        return self.demand(code, "cuMemcpyAsync", lane.device)

    cdef int copy_in_graph(self, DeviceStream lane, int64_t target, int64_t source, StageHold hold, bint outwards, object keep) except -1:
        """Let a graph copy from or to pageable memory when it gets there; CUDA would look at that in the launch."""
        cdef Store* store = hold.stage.store
        store.user = <void*><uintptr_t>(target if outwards else source)
        before = push(lane.context)
        code = copy_out(store, source, lane.handle) if outwards else copy_in(store, target, lane.handle)
        leave(lane, before)
        if lane.staged == STAGED_HERE:
            self.store.host_parts.setdefault(graph_of(lane.handle), []).append((keep, hold))
        else:
            lane.keeps.append((lane.completed + 1, (keep, hold)))
        return self.demand(code, "cuMemcpyAsync", lane.device)

    cdef Stage free_stage(self, DeviceStream lane, int64_t nbytes):
        """Pinned memory that no copy is using."""
        cdef Stage stage
        cdef cu.CUdeviceptr address = 0
        for item in self.stages:
            stage = item
            if not stage.store.busy and stage.size >= nbytes:
                return stage
        stage = Stage(max(STAGE_BYTES, nbytes))
        mode = relax()
        before = push(lane.context)
        stage.pooled = self.has_host_pool  # else CUDA may wait for the caller's work first
        if stage.pooled:
            with nogil:
                code = cu.cuMemAllocFromPoolAsync(&address, stage.size, self.host_pool, self.home_device.utility)
                if code == cu.CUDA_SUCCESS:
                    code = cu.cuStreamSynchronize(self.home_device.utility)
        else:
            code = alloc_unpooled(lane.context, False, stage.size, &address)
        stage.store.pinned = <void*><uintptr_t>address
        leave(lane, before)
        give_back(mode)
        self.demand(code, "cuMemHostAlloc", -1)
        self.stages.append(stage)
        return stage

    # -- under capture -----------------------------------------------------------------------------------------

    cdef int hold_in_graph(self, DeviceStream lane) except -1:
        """Let the graph that a stream is captured into keep what its work needs."""
        cdef cu.CUgraph graph = NULL
        cdef cu.CUstreamCaptureStatus status = cu.CU_STREAM_CAPTURE_STATUS_NONE
        cdef GraphKeep keep
        if not lane.keeps or self.lost is not None:
            return 0
        code = call(host_nodes, cu.cuStreamGetCaptureInfo, lane.handle, &status, NULL, &graph, NULL, NULL, NULL)
        if code != cu.CUDA_SUCCESS or status != cu.CU_STREAM_CAPTURE_STATUS_ACTIVE:
            lane.keeps.clear()  # it was given up: no graph will ever need this
            self.pins.take_off()
            return 0
        keep = GraphKeep(lane.keeps)
        lane.keeps = []
        self.graph_keeps.append(keep)
        code = keep_in_graph(graph, keep)
        return self.note(code, "cuGraphRetainUserObject", lane.device)

    cpdef int pin(self, int64_t address, int64_t nbytes, object owner, bint lasting=False) except -1:
        mode = relax()
        try:
            return ReadbackDriver.pin(self, address, nbytes, owner, lasting)
        finally:
            give_back(mode)

    cpdef int may_use(self, int device, int other, int64_t address, int64_t nbytes, object owner) except -1:
        if other >= 0:
            return self.link(device, other) is not THROUGH_HOST
        if other == MANAGED or nbytes == 0 or (is_cudas(address) and is_cudas(address + nbytes - 1)):
            return 1
        if self.lost is not None:
            return 0
        mode = relax()
        try:
            return 2 * self.pins.hold(address, nbytes, owner, 1, True)
        finally:
            give_back(mode)

    cpdef int64_t alloc(self, int device, int64_t nbytes, int stream) except -1:
        cdef Stream lane = <Stream>self.streams[stream]
        if lane.device >= 0 and (<DeviceStream>lane).captured:
            return self.alloc_in_graph(device, nbytes, <DeviceStream>lane)
        return ReadbackDriver.alloc(self, device, nbytes, stream)

    cdef int64_t alloc_in_graph(self, int device, int64_t nbytes, DeviceStream lane) except -1:
        """A node of the caller's graph; its memory is there whenever the graph runs, at the same address."""
        cdef cu.CUdeviceptr address = 0
        if device == MANAGED:
            raise CaptureError("it needs managed memory, which a captured graph cannot allocate")
        if device < 0:
            return self.alloc_for_graph(nbytes, lane)
        if self.lost is not None:
            raise self.lost.again()
        pool = self.gpu(device).pool
        code = call(host_nodes, cu.cuMemAllocFromPoolAsync, &address, max(nbytes, 1), pool, lane.handle)
        if code == cu.CUDA_ERROR_OUT_OF_MEMORY:
            raise MemoryError(f"{nbytes} bytes asked on {self.where(device)}")
        self.demand(code, "cuMemAllocFromPoolAsync", device)
        self.used[device + 1] += nbytes
        self.live_allocations += 1
        return <int64_t>address

    cdef int64_t alloc_for_graph(self, int64_t nbytes, DeviceStream lane) except -1:
        """Memory of the host's that the graph keeps."""
        cdef HostMemory memory = HostMemory(nbytes)
        address = <int64_t><uintptr_t>memory.start
        is_pinned = self.pin(address, nbytes, memory)
        lane.keeps.append((lane.completed + 1, Registered(self, address, nbytes, memory) if is_pinned else memory))
        self.unclaimed[address] = memory
        self.used[0] += nbytes
        self.live_allocations += 1
        return address

    cpdef object owner(self, int64_t address):
        return self.unclaimed.pop(address, None)

    cdef int free_in_order(self, DeviceStream lane, what) except -1:
        if lane.captured and (<int>what[0] < 0 or not is_capturing(<int64_t><uintptr_t>lane.handle)):
            self.used[<int>what[0] + 1] -= what[2]
            self.live_allocations -= 1
            return 0  # the graph keeps it, or the capture was given up, and with it what it allocated
        return ReadbackDriver.free_in_order(self, lane, what)

    cpdef int call(self, int stream, object body) except -1:
        cdef Stream lane = <Stream>self.streams[stream]
        if lane.device >= 0 and (<DeviceStream>lane).captured:
            raise CaptureError("it copies by a function of the data's own interface, which a graph cannot hold")
        return ReadbackDriver.call(self, stream, body)

    def call_in_graph(self, int stream, body, list written=None):
        cdef DeviceStream lane = <DeviceStream>self.streams[stream]
        before = push(lane.context)
        try:
            if written is None:
                code = add_host_node(lane.handle, body)
            else:
                code = self.store.add_call(lane.handle, body)
                for target, strides, shape, itemsize in written:
                    self.note_late(lane, target, strides, shape, itemsize)
        finally:
            leave(lane, before)
        if code == cu.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED or not is_capturing(<int64_t><uintptr_t>lane.handle):
            raise CaptureError("the capture has ended, or was spoilt by a call that CUDA does not capture")
        self.demand(code, "cuLaunchHostFunc", lane.device)

    cdef int catch_up(self, DeviceStream lane, int64_t sequence) except -1:
        return 0 if lane.captured else ReadbackDriver.catch_up(self, lane, sequence)

    cdef bint poll(self, DeviceStream lane, int64_t sequence, double timeout_s) except -1:
        if lane.captured:
            if timeout_s:
                refuse_wait()
            return False
        mode = relax()
        try:
            return ReadbackDriver.poll(self, lane, sequence, timeout_s)
        finally:
            give_back(mode)

    cdef int wait_done(self, DeviceStream lane, int64_t sequence) except -1:
        return refuse_wait() if lane.captured else ReadbackDriver.wait_done(self, lane, sequence)

    cdef int drain_stream(self, DeviceStream stream) except -1:
        return refuse_wait() if stream.captured else ReadbackDriver.drain_stream(self, stream)
