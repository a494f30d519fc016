"""CUDA graphs: what is put on a stream while it is captured, kept to be launched again; and conditions in them.

A capture is relaxed: allocations and the like go on beside it. A call that cannot be part of a graph, such as one that
waits for the device, ends the capture; that is told when it is over.

A loop or branch on the device is a conditional node, whose body is captured on a stream of its own. A kernel of ours
says whether the condition holds (CUDA Programming Guide, "Conditional Graph Nodes"); its source is `DECIDE`.
"""

from libc.stdint cimport int64_t, uint64_t, uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from cuda.bindings cimport cydriver as cu

from stf._drivers.cuda.devices cimport Body, begin_body, end_body, check, load_function, pop, push
from stf._drivers.cuda.gil cimport call, host_nodes, point_to_block
from stf._drivers.cuda.host_nodes cimport OwnNode, put_own_node
from stf._drivers.cuda.moves cimport count_nodes, memory_chain, move_memory
from stf._port.captures cimport OpenCapture
from stf._support.untracked cimport untrack
from stf.errors import CaptureError

from collections import OrderedDict

STREAM = "a captured stream"
NODE_BYTES = 4096  # about what CUDA takes for a node of an executable graph
SPOILT = "a call in it waits for the device, or uses a stream that is no part of the graph"


cdef enum:
    CHAIN = 8  # the most kernels of a body that are nodes of the graph around; more are a child


cdef Tail tail_of(cu.CUstream stream) except *:
    """The graph that a stream is captured into, and what comes next there comes after."""
    cdef cu.CUstreamCaptureStatus status
    cdef Tail tail
    check(look_for_tail(stream, &status, &tail), "cuStreamGetCaptureInfo", STREAM)
    if status != cu.CU_STREAM_CAPTURE_STATUS_ACTIVE:
        raise CaptureError(SPOILT)
    return tail


cdef bint find_tail(cu.CUstream stream, Tail* tail) except -1:
    """As `tail_of`; False if the stream is not captured. The legacy stream cannot be."""
    cdef cu.CUstreamCaptureStatus status
    if look_for_tail(stream, &status, tail) != cu.CUDA_SUCCESS or status == cu.CU_STREAM_CAPTURE_STATUS_NONE:
        return False
    if status != cu.CU_STREAM_CAPTURE_STATUS_ACTIVE:
        raise CaptureError(SPOILT)
    return True


cdef cu.CUresult look_for_tail(cu.CUstream stream, cu.CUstreamCaptureStatus* status, Tail* tail) noexcept:
    return call(host_nodes, cu.cuStreamGetCaptureInfo, stream, status, NULL, &tail.graph, &tail.needs, NULL, &tail.count)


cdef int go_on_after(cu.CUstream stream, cu.CUgraphNode node) except -1:
    """Let what comes next on a captured stream come after a node."""
    code = call(host_nodes, cu.cuStreamUpdateCaptureDependencies, stream, &node, NULL, 1, cu.CU_STREAM_SET_CAPTURE_DEPENDENCIES)
    return check(code, "cuStreamUpdateCaptureDependencies", STREAM)


cdef int64_t graph_of(cu.CUstream stream) except -1:
    """The address of the graph that a stream is captured into."""
    return <int64_t><uintptr_t>tail_of(stream).graph


cdef int refuse_wait() except -1:
    raise CaptureError(
        "the host waits for work that is being captured, and that runs only when the graph is launched; wait for the "
        "caller's stream after a launch"
    )


def last_node(int64_t pointer):
    """The address of the node that a captured stream had last."""
    cdef Tail tail = tail_of(<cu.CUstream><uintptr_t>pointer)
    if tail.count != 1:
        raise CaptureError(f"a body put {tail.count} nodes last on its stream")
    return <int64_t><uintptr_t>tail.needs[0]


def node_count(int64_t pointer):
    """How many nodes the graph has that a stream is captured into."""
    return count_nodes(tail_of(<cu.CUstream><uintptr_t>pointer).graph, STREAM)


def memory_nodes_since(int64_t pointer, size_t count):
    """See `Driver.memory_nodes_since`; the nodes' addresses."""
    cdef Tail tail = tail_of(<cu.CUstream><uintptr_t>pointer)
    count = count_nodes(tail.graph, STREAM) - count
    return memory_chain(tail.needs[0], count, STREAM) if count else []


def child_of(int64_t pointer, known):
    """Let an empty graph come next on a captured stream, to be filled before the capture is launched.

    Return its address and that of its node. `known` is the last such pair or None; it is returned if nothing came after.
    """
    cdef cu.CUgraph empty = NULL
    cdef cu.CUgraph child = NULL
    cdef cu.CUgraphNode node = NULL
    cdef cu.CUstream stream = <cu.CUstream><uintptr_t>pointer
    cdef Tail tail = tail_of(stream)
    if known is not None and tail.count == 1 and <uintptr_t>tail.needs[0] == known[1]:
        return known
    check(call(host_nodes, cu.cuGraphCreate, &empty, 0), "cuGraphCreate", STREAM)
    try:
        code = call(host_nodes, cu.cuGraphAddChildGraphNode, &node, tail.graph, tail.needs, tail.count, empty)
        check(code, "cuGraphAddChildGraphNode", STREAM)
    finally:
        call(host_nodes, cu.cuGraphDestroy, empty)  # the node has a copy, which it owns
    check(call(host_nodes, cu.cuGraphChildGraphNodeGetGraph, node, &child), "cuGraphChildGraphNodeGetGraph", STREAM)
    go_on_after(stream, node)
    return <uintptr_t>child, <uintptr_t>node


# -- what was captured ---------------------------------------------------------------------------------------------


cdef class Executable:
    """What CUDA makes of a graph so that it can be launched."""

    def __dealloc__(self):
        if self.handle != NULL:
            call(host_nodes, cu.cuGraphExecDestroy, self.handle)


cdef class GraphStore:
    """What a driver keeps for graphs to come: streams to capture, and executables, which a graph of the same shape takes.

    To update an executable takes CUDA a sixth of the time of making one. Those used last are kept, up to `limit` bytes,
    with a node at NODE_BYTES.

    Attributes
    ----------
    made, updated : int
        How many executables were made, and how many were updated instead.
    captures : int
        How many captures have not ended.
    late : dict of int to list of tuple
        The memory of the host, not pinned, that graphs which are being captured write: (first, end) by the graph.
    early : dict of int to list of tuple
        The memory of the host, not pinned, that they read when they are launched.
    host_parts : dict of int to list
        What they have on the host: `OwnNode`, and pinned memory of copies.
    """

    def __init__(self, int64_t limit):
        self.limit = self.budget = limit
        self.streams = {}
        self.lent = {}
        self.late = {}
        self.host_parts = {}
        self.early = {}
        self.executables = OrderedDict()

    cdef cu.CUstream take_stream(self, int64_t context, str where) except *:
        """A stream of a context, which is current."""
        cdef cu.CUstream stream = NULL
        spare = self.streams.get(context)
        if spare:
            stream = <cu.CUstream><uintptr_t>spare.pop()
        else:
            check(call(host_nodes, cu.cuStreamCreate, &stream, cu.CU_STREAM_NON_BLOCKING), "cuStreamCreate", where)
        self.lent[<uintptr_t>stream] = context
        recorded_on.add(<uintptr_t>stream)
        return stream

    cdef int give_stream(self, cu.CUstream stream, bint destroy) except -1:
        """Take back a stream, or `destroy` it; `close` has destroyed those that come later."""
        context = self.lent.pop(<uintptr_t>stream, None)
        if context is None:
            return 0
        recorded_on.discard(<uintptr_t>stream)
        if destroy:
            call(host_nodes, cu.cuStreamDestroy, stream)
        else:
            self.streams.setdefault(context, []).append(<uintptr_t>stream)
        return 0

    cdef Executable take(self, tuple shape):
        """An executable that was made for a graph of that shape; None if there is none."""
        known = self.executables.get(shape)
        if not known:
            return None
        taken = <Executable>known.pop()
        self.nodes -= taken.nodes
        return taken

    cdef int give(self, Executable executable) except -1:
        """Keep an executable that nobody launches any more."""
        gone = []  # when they are destroyed, other threads run, and find the store as it will be
        self.executables.setdefault(executable.shape, []).append(executable)
        self.executables.move_to_end(executable.shape)
        self.nodes += executable.nodes
        while self.executables and self.nodes * NODE_BYTES > self.limit:
            oldest = next(iter(self.executables))
            known = self.executables[oldest]
            if known:
                gone.append(known.pop(0))
                self.nodes -= (<Executable>gone[len(gone) - 1]).nodes
            if not known:
                del self.executables[oldest]
        return 0

    cdef cu.CUresult add_call(self, cu.CUstream stream, object body) except *:
        """Let a graph that is launched here, and that a stream is captured into, call ``body()``."""
        node = OwnNode(body)
        self.host_parts.setdefault(graph_of(stream), []).append(node)
        return put_own_node(stream, node)

    cdef int forget_given_up(self) except -1:
        """Forget what is known of graphs whose capture was given up."""
        if self.captures == 0:
            self.late.clear()
            self.early.clear()
            self.host_parts.clear()
        return 0

    @property
    def kept(self):
        """How many executables wait for a graph."""
        return sum([len(known) for known in self.executables.values()])

    @property
    def kept_bytes(self):
        """About what these take."""
        return self.nodes * NODE_BYTES

    def empty(self):
        """Keep no executable."""
        gone, self.executables, self.nodes = self.executables, OrderedDict(), 0
        gone.clear()  # what other threads give meanwhile is none of these

    def close(self):
        """Give everything back, and keep nothing from now on."""
        self.limit = -1
        self.empty()
        for stream, context in self.lent.items():
            self.streams.setdefault(context, []).append(stream)
        recorded_on.difference_update(self.lent)
        self.lent.clear()
        for context, spare in self.streams.items():
            before = push(<cu.CUcontext><uintptr_t><int64_t>context)
            for stream in spare:
                call(host_nodes, cu.cuStreamDestroy, <cu.CUstream><uintptr_t>stream)
            pop(before)
        self.streams.clear()


recorded_on = set()  # the addresses of the streams that `CaptureStream`s have; nobody else captures these


def is_recorded_on(pointer):
    """Whether a stream, which is being captured, is that of a task."""
    return pointer in recorded_on


cdef class CaptureStream:
    """A stream for captures that run one after the other, which nobody else captures on as long as this lives.

    Libraries keep memory by stream: torch's cuBLAS has one workspace for each. Bodies that were captured on one stream
    share that memory in their graphs too, where they run side by side unless something orders them.
    """

    def __init__(self, GraphStore store, int64_t context):
        self.store, self.context = store, context

    cdef cu.CUstream ready(self, str where) except *:
        """The stream; a new one if the last capture spoilt it. Its context is current."""
        if self.handle == NULL:
            self.handle = self.store.take_stream(self.context, where)
            self.pointer = <uintptr_t>self.handle
        return self.handle

    cdef int spoil(self) except -1:
        """Destroy a stream whose capture failed."""
        cdef cu.CUstream stream = self.handle
        self.handle = NULL
        return self.store.give_stream(stream, True)

    def __del__(self):
        if self.handle != NULL:
            self.store.give_stream(self.handle, False)


cdef Capture open_capture(GraphStore store, cu.CUcontext context, str where, cu.CUgraph part, CaptureStream owner):
    """Begin to capture a stream: the `owner`'s, if nobody captures that now. With a `part`, into that part of a graph."""
    cdef Capture capture
    if owner is None or owner.busy:  # by another thread
        owner = CaptureStream(store, <int64_t><uintptr_t>context)
    capture, owner.spare = owner.spare, None
    if capture is None:
        capture = Capture.__new__(Capture)
    capture.store, capture.owner = store, owner
    capture.context, capture.part, capture.where = context, part, where
    check(begin_body(&capture.body, context), "cuCtxSetCurrent", where)
    mode = cu.CU_STREAM_CAPTURE_MODE_RELAXED
    try:
        capture.stream = owner.ready(where)
        if part != NULL:
            code = call(host_nodes, cu.cuStreamBeginCaptureToGraph, capture.stream, part, NULL, NULL, 0, mode)
        else:
            code = call(host_nodes, cu.cuStreamBeginCapture, capture.stream, mode)
        check(code, "cuStreamBeginCapture", where)
    except BaseException:
        if capture.stream != NULL:
            owner.spoil()
            capture.stream = NULL
        end_body(&capture.body)
        raise
    owner.busy = True
    capture.pointer = owner.pointer
    store.captures += 1
    return capture


cdef class Capture(OpenCapture):
    """A stream that is being captured, which is its owner's, a `CaptureStream`."""

    cpdef int make_current(self) except -1:
        return check(begin_body(&self.body, self.context), "cuCtxSetCurrent", self.where)

    cpdef bint is_spoilt(self) except -1:
        """Whether a call that cannot be captured has ended it; libraries tell of that by errors of their own."""
        cdef cu.CUstreamCaptureStatus status = cu.CU_STREAM_CAPTURE_STATUS_NONE
        call(host_nodes, cu.cuStreamIsCapturing, self.stream, &status)
        return status == cu.CU_STREAM_CAPTURE_STATUS_INVALIDATED

    cpdef object end_body(self):
        cdef CaptureStream owner = self.owner
        cdef Captured captured = self.end()
        if captured is not None:
            captured.owner = owner
        if owner is not None:  # else it has ended before
            self.owner, owner.spare = None, self  # and it leads back to nobody
        return captured

    cpdef object end(self):
        """Return what was captured; None for nothing, and of a part."""
        if self.stream == NULL:
            return None
        stream = self.stream
        self.stream = NULL
        try:
            return self.ended(stream)
        finally:
            self.store.captures -= 1  # others may have ended meanwhile, and have left what is known of this one
            self.store.forget_given_up()

    cdef Captured ended(self, cu.CUstream stream):
        cdef CaptureStream owner = self.owner
        cdef cu.CUgraph graph = NULL
        cdef cu.CUgraphNode nodes[CHAIN + 1]
        cdef size_t count = CHAIN + 1
        try:
            code = call(host_nodes, cu.cuStreamEndCapture, stream, &graph)
            owner.busy = False
            if code != cu.CUDA_SUCCESS or graph == NULL:
                owner.spoil()
                raise CaptureError(SPOILT)
            if self.part != NULL:
                return None
            try:
                check(call(host_nodes, cu.cuGraphGetNodes, graph, nodes, &count), "cuGraphGetNodes", self.where)
                if count > CHAIN:  # there may be more than there was room for
                    count = count_nodes(graph, self.where)
            except BaseException:
                call(host_nodes, cu.cuGraphDestroy, graph)
                raise
        finally:
            end_body(&self.body)
        if count == 0:
            call(host_nodes, cu.cuGraphDestroy, graph)
            return None
        return captured_of(self.store, graph, self.context, self.where, count, nodes[0] if count == 1 else NULL)

    def __del__(self):
        if self.stream != NULL:
            (<CaptureStream>self.owner).spoil()

    def __dealloc__(self):
        end_body(&self.body)


cdef Captured captured_of(GraphStore store, cu.CUgraph graph, cu.CUcontext context, str where, size_t nodes, cu.CUgraphNode only):
    cdef Captured captured = Captured.__new__(Captured)
    captured.store, captured.graph, captured.context, captured.where = store, graph, context, where
    captured.node_count, captured.only = nodes, only
    if store.late or store.host_parts or store.early:
        captured.late = store.late.pop(<int64_t><uintptr_t>graph, None)
        captured.early = store.early.pop(<int64_t><uintptr_t>graph, None)
        captured.host_parts = store.host_parts.pop(<int64_t><uintptr_t>graph, None)
    if captured.host_parts is None:  # else a body of a user's may lead back here
        untrack(captured)
    return captured


cdef class Captured:
    """A graph, which is made ready to be launched when it is.

    `is_own` says that its nodes will be renewed one by one: then no executable of another graph will do.
    """

    @property
    def handle(self):
        """The address of the CUgraph."""
        return <uintptr_t>self.graph

    cpdef int complete(self, bint is_own) except -1:
        """All is in it: know its shape, by which an executable is found that can be updated."""
        self.shape = (<int64_t><uintptr_t>self.context, self.node_count, self.edge_count())
        self.is_own = is_own
        return 0

    cdef int launch(self, cu.CUstream stream, bint may_be_captured, bint fixed) except -1:
        """Put it on a stream; on one that is being captured, as a part of that graph, which is not renewed if `fixed`."""
        cdef Tail tail
        cdef cu.CUcontext before = push(self.context)
        try:
            if may_be_captured and find_tail(stream, &tail):
                go_on_after(stream, self.add_to(tail, fixed))
            else:
                self.prepare()
                check(call(host_nodes, cu.cuGraphLaunch, self.executable.handle, stream), "cuGraphLaunch", self.where)
        finally:
            pop(before)
        return 0

    cdef int prepare(self) except -1:
        """Have an executable: another graph's that is updated, or a new one. CUDA has all that was submitted."""
        cdef cu.CUgraphExecUpdateResultInfo info
        cdef cu.CUgraphExec handle = NULL
        cdef Executable executable = None
        cdef cu.CUresult code
        if self.executable is not None:
            return 0
        if self.shape is None:
            self.complete(self.is_own)
        if not self.is_own:
            executable = self.store.take(self.shape)
        if executable is not None:
            handle = executable.handle
            if call(host_nodes, cu.cuGraphExecUpdate, handle, self.graph, &info) == cu.CUDA_SUCCESS:
                self.store.updated += 1
                if self.executable is None:  # else another thread has made one meanwhile
                    self.executable = executable
                else:
                    self.store.give(executable)
                return 0
        with nogil:  # it may wait for the device, which may wait for a body on the host
            code = cu.cuGraphInstantiate(&handle, self.graph, 0)
        check(code, "cuGraphInstantiate", self.where)
        executable = Executable()
        executable.handle, executable.shape, executable.nodes = handle, self.shape, self.node_count
        if self.executable is None:  # else another thread has made one meanwhile
            self.executable = executable
            self.store.made += 1
        return 0

    def __del__(self):
        if self.executable is not None and self.store is not None and not self.is_own:
            self.store.give(self.executable)

    cdef cu.CUgraphNode add_to(self, Tail tail, bint fixed) except *:
        """Become a child of a graph; or its nodes, of which CUDA makes no executable of their own. Return the last one."""
        cdef cu.CUgraphNode node = NULL
        cdef cu.CUgraphNode kernels[CHAIN]
        cdef size_t i
        if fixed and self.is_chain_of_kernels(kernels):
            for i in range(self.node_count):
                node = self.add_kernel(tail.graph, tail.needs if i == 0 else &node, tail.count if i == 0 else 1, kernels[i])
        else:
            code = call(host_nodes, cu.cuGraphAddChildGraphNode, &node, tail.graph, tail.needs, tail.count, self.graph)
            check(code, "cuGraphAddChildGraphNode", self.where)
        return node

    cdef bint is_chain_of_kernels(self, cu.CUgraphNode* nodes) except -1:
        """Whether it is a few kernels, each after the one before; they become `nodes`."""
        cdef cu.CUgraphNodeType kind
        cdef cu.CUgraphNode node
        cdef size_t count = self.node_count
        cdef size_t found, i
        if count > CHAIN or self.host_parts is not None or self.early is not None or self.late is not None:
            return False
        if count == 1:
            nodes[0] = self.only
        else:
            check(call(host_nodes, cu.cuGraphGetNodes, self.graph, nodes, &count), "cuGraphGetNodes", self.where)
        for i in range(count):
            check(call(host_nodes, cu.cuGraphNodeGetType, nodes[i], &kind), "cuGraphNodeGetType", self.where)
            if kind != cu.CU_GRAPH_NODE_TYPE_KERNEL:
                return False
        if count == 1:
            return True
        found = 1
        if call(host_nodes, cu.cuGraphGetRootNodes, self.graph, nodes, &found) != cu.CUDA_SUCCESS:
            return False
        for i in range(1, count):  # where the next of a node is told without what else an edge says, that is all there is
            found = 1
            node = nodes[i - 1]
            if call(host_nodes, cu.cuGraphNodeGetDependentNodes, node, nodes + i, NULL, &found) != cu.CUDA_SUCCESS or found != 1:
                return False
        return self.edge_count() == count - 1

    cdef cu.CUgraphNode add_kernel(self, cu.CUgraph graph, const cu.CUgraphNode* needs, size_t count, cu.CUgraphNode kernel) except *:
        """Put a copy of a kernel's node into a graph; return it."""
        cdef cu.CUDA_KERNEL_NODE_PARAMS launch
        cdef cu.CUgraphNode node = NULL
        check(call(host_nodes, cu.cuGraphKernelNodeGetParams, kernel, &launch), "cuGraphKernelNodeGetParams", self.where)
        check(call(host_nodes, cu.cuGraphAddKernelNode, &node, graph, needs, count, &launch), "cuGraphAddKernelNode", self.where)
        code = call(host_nodes, cu.cuGraphKernelNodeCopyAttributes, node, kernel)
        check(code, "cuGraphKernelNodeCopyAttributes", self.where)
        return node

    cdef size_t edge_count(self) except? 0:
        cdef size_t edges = 0
        check(call(host_nodes, cu.cuGraphGetEdges, self.graph, NULL, NULL, NULL, &edges), "cuGraphGetEdges", self.where)
        return edges

    cdef int renew(self, list changes) except -1:
        """Let nodes do something else from the next launch on: see `Driver.renew`."""
        cdef cu.CUgraphNode node
        cdef tuple change
        cdef cu.CUcontext before = push(self.context)
        try:
            for change in changes:
                node = <cu.CUgraphNode><uintptr_t>change[0]
                if change[1] is None:
                    code = call(host_nodes, cu.cuGraphExecChildGraphNodeSetParams, self.executable.handle, node, (<Captured?>change[2]).graph)
                    check(code, "cuGraphExecChildGraphNodeSetParams", self.where)
                elif change[1]:
                    self.renew_launch(node, change[1], change[2])
                else:
                    target, source = change[2]
                    move_memory(self.executable.handle, node, target, source, self.where)
        finally:
            pop(before)
        return 0

    cdef int renew_launch(self, cu.CUgraphNode node, tuple shape, bytes arguments) except -1:
        cdef cu.CUDA_KERNEL_NODE_PARAMS launch
        cdef size_t size = len(arguments)
        cdef void* extra[5]
        point_to_block(extra, <char*>arguments, &size)
        memset(&launch, 0, sizeof(launch))
        launch.func = <cu.CUfunction><uintptr_t>shape[0]
        launch.gridDimX, launch.gridDimY, launch.gridDimZ = shape[1], shape[2], shape[3]
        launch.blockDimX, launch.blockDimY, launch.blockDimZ, launch.sharedMemBytes = shape[4], shape[5], shape[6], shape[7]
        launch.extra = extra
        code = call(host_nodes, cu.cuGraphExecKernelNodeSetParams, self.executable.handle, node, &launch)
        return check(code, "cuGraphExecKernelNodeSetParams", self.where)

    def __dealloc__(self):
        if self.graph != NULL:
            call(host_nodes, cu.cuGraphDestroy, self.graph)


cdef bint add_all(cu.CUstream stream, list captured) except -1:
    """Let graphs that are not renewed become parts of the one that a stream captures; False if it is not captured."""
    cdef Captured graph = captured[0]
    cdef cu.CUgraphNode node = NULL
    cdef Tail tail
    cdef cu.CUcontext before = push(graph.context)
    try:
        if not find_tail(stream, &tail):
            return False
        for item in captured:
            graph = item
            node = graph.add_to(tail, True)
            tail.needs, tail.count = &node, 1
        go_on_after(stream, node)
    finally:
        pop(before)
    return True


# -- conditions ----------------------------------------------------------------------------------------------------

# goes_on = (flag == 0 || (*flag != 0) == (wanted != 0)) && (count == 0 || *count < limit)
# *count += goes_on;  cudaGraphSetConditional(condition, goes_on)
DECIDE = b"""
.version 8.3
.target sm_60
.address_size 64
.extern .func cudaGraphSetConditional (.param .b64 condition, .param .b32 value);

.visible .entry stf_decide(
    .param .u64 condition, .param .u64 flag, .param .u64 count, .param .u64 limit, .param .u64 wanted
)
{
    .reg .pred %goes_on, %one, %other;
    .reg .b16 %byte;
    .reg .b32 %value;
    .reg .b64 %condition, %flag, %count, %limit, %wanted, %n, %more;
    ld.param.u64 %condition, [condition];
    ld.param.u64 %flag, [flag];
    ld.param.u64 %count, [count];
    ld.param.u64 %limit, [limit];
    ld.param.u64 %wanted, [wanted];
    setp.eq.u64 %goes_on, %flag, %flag;
    setp.eq.u64 %one, %flag, 0;
    @%one bra COUNT;
    cvta.to.global.u64 %flag, %flag;
    ld.global.u8 %byte, [%flag];
    setp.ne.u16 %one, %byte, 0;
    setp.ne.u64 %other, %wanted, 0;
    xor.pred %goes_on, %one, %other;
    not.pred %goes_on, %goes_on;
COUNT:
    setp.eq.u64 %one, %count, 0;
    @%one bra SET;
    cvta.to.global.u64 %count, %count;
    ld.global.u64 %n, [%count];
    setp.lt.u64 %one, %n, %limit;
    and.pred %goes_on, %goes_on, %one;
    selp.u64 %more, 1, 0, %goes_on;
    add.u64 %n, %n, %more;
    st.global.u64 [%count], %n;
SET:
    selp.u32 %value, 1, 0, %goes_on;
    {
        .param .b64 first;
        .param .b32 second;
        st.param.b64 [first], %condition;
        st.param.b32 [second], %value;
        call.uni cudaGraphSetConditional, (first, second);
    }
    ret;
}
"""

cdef class Condition:
    """What decides how often a part of a graph is done: again and again, or once at most.

    It is decided anew whenever a graph gets there: CUDA assigns a value only when the whole graph is launched.
    """

    cdef cu.CUgraphConditionalHandle handle
    cdef cu.CUcontext context
    cdef GraphStore store
    cdef str where
    cdef bint loops

    def __cinit__(self, GraphStore store, int64_t context, str where, int64_t pointer, bint loops):
        self.store = store
        self.context = <cu.CUcontext><uintptr_t>context
        self.where = where
        self.loops = loops
        cdef Tail tail = tail_of(<cu.CUstream><uintptr_t>pointer)
        code = call(host_nodes, cu.cuGraphConditionalHandleCreate, &self.handle, tail.graph, self.context, 0, 0)
        check(code, "cuGraphConditionalHandleCreate", where)

    def decide(self, int64_t pointer, uint64_t flag, uint64_t count, uint64_t limit, uint64_t wanted):
        """Put the kernel that decides on a captured stream."""
        cdef uint64_t handle = self.handle
        cdef void* arguments[5]
        arguments[0], arguments[1], arguments[2] = &handle, &flag, &count
        arguments[3], arguments[4] = &limit, &wanted
        cdef cu.CUstream stream = <cu.CUstream><uintptr_t>pointer
        cdef cu.CUcontext before = push(self.context)
        try:
            kernel = <cu.CUfunction><uintptr_t>load_function(DECIDE, b"stf_decide", self.context, self.where)
            code = call(host_nodes, cu.cuLaunchKernel, kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL)
            check(code, "cuLaunchKernel", self.where)
        finally:
            pop(before)

    def open(self, int64_t pointer):
        """Put the node on a captured stream; return the capture of what it is about."""
        cdef cu.CUstream stream = <cu.CUstream><uintptr_t>pointer
        cdef Tail tail = tail_of(stream)
        cdef cu.CUgraphNode node = NULL
        cdef cu.CUgraphNodeParams what
        memset(&what, 0, sizeof(what))
        what.type = cu.CU_GRAPH_NODE_TYPE_CONDITIONAL
        what.conditional.handle = self.handle
        what.conditional.type = cu.CU_GRAPH_COND_TYPE_WHILE if self.loops else cu.CU_GRAPH_COND_TYPE_IF
        what.conditional.size = 1
        what.conditional.ctx = self.context
        code = call(host_nodes, cu.cuGraphAddNode, &node, tail.graph, tail.needs, NULL, tail.count, &what)
        check(code, "cuGraphAddNode", self.where)
        go_on_after(stream, node)
        return open_capture(self.store, self.context, self.where, what.conditional.phGraph_out[0], None)


# -- a caller's graph ----------------------------------------------------------------------------------------------


cdef cu.CUresult capture_after_all(cu.CUstream stream, cu.CUgraph graph) except *:
    """Capture a stream into a graph, behind the nodes that are last there."""
    cdef size_t count = 0, followers = 0, last = 0, i
    cdef cu.CUgraphNode* nodes = NULL
    cdef cu.CUresult code = call(host_nodes, cu.cuGraphGetNodes, graph, NULL, &count)
    if code != cu.CUDA_SUCCESS:
        return code
    try:
        if count:
            nodes = <cu.CUgraphNode*>malloc(count * sizeof(cu.CUgraphNode))
            if nodes == NULL:
                raise MemoryError
            check(call(host_nodes, cu.cuGraphGetNodes, graph, nodes, &count), "cuGraphGetNodes", STREAM)
        for i in range(count):
            code = call(host_nodes, cu.cuGraphNodeGetDependentNodes, nodes[i], NULL, NULL, &followers)
            if code != cu.CUDA_ERROR_LOSSY_QUERY:  # its followers are of a special kind
                check(code, "cuGraphNodeGetDependentNodes", STREAM)
                if followers == 0:
                    nodes[last] = nodes[i]
                    last += 1
        mode = cu.CU_STREAM_CAPTURE_MODE_RELAXED
        return call(host_nodes, cu.cuStreamBeginCaptureToGraph, stream, graph, nodes, NULL, last, mode)
    finally:
        free(nodes)


cdef class Filling:
    """A stream that is captured into a caller's graph, until `end`."""

    cdef readonly int64_t pointer
    cdef readonly object fills  # the caller's object
    cdef cu.CUcontext context
    cdef cu.CUdevice device
    cdef cu.CUstream stream

    def __init__(self, int ordinal, int64_t graph, fills):
        cdef cu.CUgraph target = <cu.CUgraph><uintptr_t>graph
        where = f"cuda:{ordinal}"
        check(cu.cuInit(0), "cuInit", where)
        check(cu.cuDeviceGet(&self.device, ordinal), "cuDeviceGet", where)
        check(cu.cuDevicePrimaryCtxRetain(&self.context, self.device), "cuDevicePrimaryCtxRetain", where)
        self.fills = fills
        before = push(self.context)
        try:
            check(call(host_nodes, cu.cuStreamCreate, &self.stream, cu.CU_STREAM_NON_BLOCKING), "cuStreamCreate", where)
            code = capture_after_all(self.stream, target)
            if code == cu.CUDA_ERROR_INVALID_VALUE or code == cu.CUDA_ERROR_INVALID_HANDLE:
                raise ValueError(f"graph={fills!r} is no CUDA graph that can be filled; give one that is alive")
            check(code, "cuStreamBeginCaptureToGraph", where)
        finally:
            pop(before)
        self.pointer = <int64_t><uintptr_t>self.stream

    def end(self):
        """Leave the graph as it is now; ending it again does nothing."""
        cdef cu.CUgraph graph = NULL
        if self.pointer:
            self.pointer = 0
            call(host_nodes, cu.cuStreamEndCapture, self.stream, &graph)

    def __dealloc__(self):
        cdef cu.CUgraph graph = NULL
        if self.pointer:
            call(host_nodes, cu.cuStreamEndCapture, self.stream, &graph)
        if self.stream != NULL:
            call(host_nodes, cu.cuStreamDestroy, self.stream)
        if self.context != NULL:
            cu.cuDevicePrimaryCtxRelease(self.device)
