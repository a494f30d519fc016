"""The protocols of arrays and streams on CUDA devices, in both directions: run with STF_TEST_DEVICES=cuda."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import weakref

import numpy as np
import pytest
from helpers import is_cuda

import stf
from stf.interop import dlpack

N = 1000


@pytest.fixture
def ctx(ctx):
    if not is_cuda(ctx):
        pytest.skip("the devices of this context are the CPU's")
    return ctx


@pytest.fixture
def cupy(ctx):
    return pytest.importorskip("cupy")


class Producer:
    """Speaks DLPack for a device array as the protocol says, and notes what it is asked."""

    def __init__(self, array, refuse=(), readonly=False):
        self.array, self.asked, self.refuse = array, [], refuse

    def __dlpack_device__(self):
        return (dlpack.CUDA, self.array.device.id)

    def __dlpack__(self, *, stream=None, max_version=None):
        self.asked.append(stream)
        if stream in self.refuse:
            raise BufferError(f"no stream {stream}")
        array = self.array
        raw = np.ndarray(array.shape, array.dtype, memory_at(array), strides=array.strides)
        return dlpack.capsule_of(raw, array.dtype, self.__dlpack_device__(), max_version)


def memory_at(array):
    import ctypes

    return (ctypes.c_char * max(array.nbytes, 1)).from_address(array.data.ptr)


# -- in --------------------------------------------------------------------------------------------------------------


def test_dlpack_is_asked_for_the_stream_of_the_data(ctx, cupy):
    """Once for what it is, without a stream; once for a stream of ours, which it makes wait. Nobody else waits."""
    made = Producer(cupy.arange(float(N)))
    lX = ctx.logical_data(made, name="X")
    assert made.asked[0] == -1 and len(made.asked) == 2 and made.asked[1] > 2
    assert (lX.shape, lX.dtype, lX.strides) == ((N,), np.float64, (8,))
    assert ctx.logical_data(made) is lX and made.asked[2:] == [-1]
    with ctx.task(lX.rw()) as t:
        t.cupy()[0][:] += 1
    assert lX.numpy().tolist() == (np.arange(N) + 1.0).tolist()
    lX.write_back()
    assert made.array.get()[0] == 1


def test_dlpack_on_a_device_that_the_context_lacks(ctx_factory, cupy):
    count = ctx_factory.device_count
    if count < 2:
        pytest.skip("one device")
    with stf.context(devices="cuda:1") as ctx:
        with cupy.cuda.Device(0):
            made = Producer(cupy.zeros(3))
        with pytest.raises(stf.PlaceError, match=r"the array of this capsule lies on device\(0\), which is not in"):
            ctx.logical_data(made)
        nowhere = stf.view(np.zeros(3).ctypes.data, 3, float, data_place=stf.data_place.device(1))
        with pytest.raises(stf.PlaceError, match="RawMemory lies at 0x[0-9a-f]+, which is no address of CUDA's memory"):
            ctx.logical_data(nowhere)


def test_a_producer_that_fails_costs_nothing(ctx, cupy):
    made = Producer(cupy.zeros(3), refuse=(-1,))
    with pytest.raises(BufferError, match="no stream -1"):
        ctx.logical_data(made)
    made.refuse = ()
    assert ctx.logical_data(made).numpy().tolist() == [0, 0, 0]


def test_the_capsule_lives_as_long_as_the_data(ctx, cupy):
    made = Producer(cupy.zeros(3))
    array = weakref.ref(made.array)
    lX = ctx.logical_data(made)
    assert lX.core.owner is not None and lX.numpy().tolist() == [0, 0, 0]
    lX.release()
    ctx.synchronize()
    del made, lX
    gc.collect()
    assert array() is None


def test_a_raw_device_pointer(ctx, cupy):
    x = cupy.arange(float(N))
    ordinal = x.device.id
    place = stf.data_place.device(ordinal)
    raw = stf.view(x.data.ptr, (N // 2,), np.float64, (16,), data_place=place, owner=x, stream=cupy.cuda.Stream.null)
    lX = ctx.logical_data(raw, name="X")
    assert "float64 (500,)" in repr(raw) and ctx.logical_data(raw) is lX
    with ctx.task(lX.rw()) as t:
        t.cupy()[0][:] *= 2
    ctx.finalize()
    assert x.get()[:4].tolist() == [0, 1, 4, 3]


def test_the_place_that_the_user_says_must_be_right(ctx, cupy):
    if len(ctx.devices) < 2:
        pytest.skip("one device")
    with cupy.cuda.Device(0):
        x = cupy.zeros(3)
    with pytest.raises(stf.PlaceError, match=r"lies on device\(0\), not on data_place.device\(1\); leave data_place"):
        ctx.logical_data(x, stf.data_place.device(1))
    assert ctx.logical_data(x, stf.data_place.device(0)).numpy().tolist() == [0, 0, 0]


def test_a_buffer_and_a_view_of_cuda_core(ctx, cupy):
    core = pytest.importorskip("cuda.core")
    utils = pytest.importorskip("cuda.core.utils")
    x = cupy.arange(6.0).reshape(2, 3)
    buffer = core.Buffer.from_handle(x.data.ptr, x.nbytes, owner=x)
    lX = ctx.logical_data(buffer)
    assert (lX.dtype, lX.shape) == (np.uint8, (48,))
    assert lX.numpy().view(float).tolist() == list(range(6))
    lX.release()
    lY = ctx.logical_data(utils.StridedMemoryView.from_any_interface(x.T, stream_ptr=-1))
    assert (lY.dtype, lY.shape, lY.strides) == (np.float64, (3, 2), (8, 24))
    with ctx.task(lY.rw()) as t:
        t.cupy()[0][...] += 1
    ctx.finalize()
    assert x.get().tolist() == [[1, 2, 3], [4, 5, 6]]


class Told:
    """Speaks the array interface for an array of CuPy's, with other words."""

    def __init__(self, array, **words):
        self.array, self.words = array, words

    @property
    def __cuda_array_interface__(self):
        return {**self.array.__cuda_array_interface__, **self.words}


def test_records_by_the_array_interface(ctx, cupy):
    """Their fields, and the gaps between them, are in `descr`, or in the dtype of the object itself."""
    kinds = [
        np.dtype([("a", "<f8")]),
        np.dtype([("a", "u1"), ("b", "<f8")], align=True),
        np.dtype([("a", "<i4"), ("b", "<f4", (3,))]),
    ]
    for kind in kinds:
        x = cupy.zeros(4 * kind.itemsize, np.uint8)
        words = {"shape": (4,), "strides": None, "typestr": f"|V{kind.itemsize}"}
        lX = ctx.logical_data(Told(x, **words, descr=np.lib.format.dtype_to_descr(kind)))
        assert lX.dtype == kind and lX.dtype.fields.keys() == kind.fields.keys()
        lX.release()
        records = Told(x, **words, descr=[("", f"|V{kind.itemsize}")])
        records.dtype = kind
        lX = ctx.logical_data(records)
        assert lX.dtype == kind
        lX.release()


@pytest.mark.parametrize("strides", [(), (8, 8)])
def test_as_many_strides_as_extents(ctx, cupy, strides):
    with pytest.raises(ValueError, match=f"Told tells 1 extents and {len(strides)} strides"):
        ctx.logical_data(Told(cupy.zeros(6), strides=strides))


@pytest.mark.parametrize(
    "interface",
    [
        5,
        {"shape": (3,), "typestr": "<f8"},
        {"shape": 3, "typestr": "<f8", "data": (0, False)},
        {"shape": (3,), "typestr": "zz", "data": (4096, False)},
        {"shape": (3,), "typestr": "<f8", "data": 17},
    ],
    ids=str,
)
def test_an_array_interface_that_cannot_be_read(ctx, cupy, interface):
    class Broken:
        __cuda_array_interface__ = interface

    with pytest.raises(
        TypeError, match="Broken has a __cuda_array_interface__ that cannot be read .*; it is a dict with"
    ):
        ctx.logical_data(Broken())
    with pytest.raises(ValueError, match=r"Told tells 1 extents and 1 strides, got \(-3,\) .*no extent is negative"):
        ctx.logical_data(Told(cupy.zeros(6), shape=(-3,), strides=(8,)))
    assert ctx.logical_data(cupy.zeros(2)).numpy().tolist() == [0, 0]


# -- out -------------------------------------------------------------------------------------------------------------


def test_get_arg_cai_speaks_both_protocols(ctx, cupy):
    lX, lT = ctx.logical_data(np.arange(12.0).reshape(3, 4), name="X"), ctx.token()
    seen = set()
    for _ in range(3):
        with ctx.task(lX.rw(), lT.rw()) as t:
            memory = t.get_arg_cai(0)
            seen.add(id(memory))
            assert t.args_cai() == (memory,)
            with pytest.raises(TypeError, match="access 1 of task .* is a token; it has no address"):
                t.get_arg_cai(1)
            assert memory.__dlpack_device__() == (dlpack.CUDA, t.place.index)
            assert memory.__cuda_array_interface__["data"] == (t.get_arg(0), False)
            assert cupy.cuda.get_current_stream().ptr == t.stream_ptr()
            said = dlpack.described(memory.__dlpack__(stream=t.stream_ptr(), max_version=(1, 0)))
            assert (said.address, said.shape, said.strides) == (t.get_arg(0), (3, 4), (32, 8))
            assert (said.dtype, said.readonly, said.device) == (np.float64, False, memory.__dlpack_device__())
            assert dlpack.described(memory.__dlpack__(stream=-1)).readonly is None
            t.cupy()[0][...] += 1
    assert len(seen) == 1 and lX.numpy()[0].tolist() == [3, 4, 5, 6]


def test_a_view_of_cupy_is_made_once(ctx, cupy):
    """A repeated task builds none, whatever form it has."""
    lX, seen = ctx.logical_data(np.zeros(4)), []

    def step(x: stf.ReadWrite):
        seen.append(x)
        x += 1

    for _ in range(3):
        stf.task(step).on(0)(lX)
        ctx.task(0, lX.rw())(step)
        with ctx.task(0, lX.rw()) as t:
            seen.extend([*t.arrays(), *t.cupy()])
        with ctx.task(0, lX.read()) as t:
            seen.append(t[0])
        lX.numpy()  # the replica stays
    assert len({id(x) for x in seen}) == 1 and lX.numpy().tolist() == [6] * 4


def test_what_other_libraries_get_is_made_once(ctx):
    """A repeated task makes no view for Numba, no object with the CUDA array interface and none for its stream."""
    lX, seen = ctx.logical_data(np.zeros(4)), {}
    ways = {"cai": lambda t: t.get_arg_cai(0), "all": lambda t: t.args_cai()[0], "stream": lambda t: t.stream}
    if importlib.util.find_spec("numba_cuda"):
        ways["numba"] = lambda t: t.numba()[0]
    for _ in range(3):
        for name, way in ways.items():
            with ctx.task(0, lX.rw()) as t:
                seen.setdefault(name, []).append(way(t))
        ctx.synchronize()
    assert {name: len({id(x) for x in found}) for name, found in seen.items()} == dict.fromkeys(ways, 1)


# The stream that DLPack means where none is named is CUDA's legacy default stream.
WHOSE = ["named", pytest.param("default", marks=pytest.mark.uncapturable("the default stream joins no capture"))]


@pytest.mark.parametrize("whose", WHOSE)
def test_dlpack_out_orders_the_stream_of_whoever_takes_it(ctx, cupy, whose):
    """The stream that is named waits for the content, and what it is given before the block ends may use it."""
    lX, lY = ctx.logical_data(np.ones(N)), ctx.logical_data_empty(N)
    other = stream_of(cupy, whose)
    with ctx.task(0, lX.rw(), lY.write()) as t:
        x, y = t.cupy()
        x += 1
        t.get_arg_cai(0).__dlpack__(stream=other.ptr or None)
        use_on(cupy, other, x, y)
    assert lY.numpy().tolist() == [2] * N


@pytest.mark.parametrize("whose", WHOSE)
def test_dlpack_out_while_the_body_uses_another_device(ctx, cupy, whose):
    """JAX leaves the last device current when it begins to use them; so may a body."""
    if len(ctx.devices) < 2:
        pytest.skip("one device")
    lX, lY = ctx.logical_data(np.ones(N)), ctx.logical_data_empty(N)
    other = stream_of(cupy, whose)
    with ctx.task(0, lX.rw(), lY.write()) as t:
        x, y = t.cupy()
        x += 1
        memory = t.get_arg_cai(0)
        with cupy.cuda.Device(1):
            memory.__dlpack__(stream=other.ptr or None)
            assert cupy.cuda.runtime.getDevice() == 1
        use_on(cupy, other, x, y)
    assert lY.numpy().tolist() == [2] * N


def stream_of(cupy, whose):
    return cupy.cuda.Stream(non_blocking=True) if whose == "named" else cupy.cuda.Stream.null


def use_on(cupy, stream, x, y):
    """Copy `x` to `y` on a stream that was made to wait; the current stream waits for that, as a capture needs."""
    runtime, own = cupy.cuda.runtime, cupy.cuda.get_current_stream()
    with stream:
        y[...] = x
    done = runtime.eventCreateWithFlags(2)  # cudaEventDisableTiming
    runtime.eventRecord(done, stream.ptr)
    runtime.streamWaitEvent(own.ptr, done)
    runtime.eventDestroy(done)


def test_dlpack_out_refuses_what_it_cannot_do(ctx):
    lX, lS = ctx.logical_data(np.zeros(3)), ctx.logical_data(np.zeros(3, "S2"))
    with ctx.task(lX.read(), lS.read()) as t:
        memory, text = t.args_cai()
        with pytest.raises(BufferError, match="neither copies nor moves it"):
            memory.__dlpack__(copy=True)
        with pytest.raises(BufferError, match="neither copies nor moves it"):
            memory.__dlpack__(dl_device=(1, 0))
        with pytest.raises(BufferError, match=r"DLPack cannot say what \|S2 is"):
            text.__dlpack__(stream=-1)


@pytest.mark.parametrize("shape", [(), (0, 3)])
def test_dlpack_out_of_odd_shapes(ctx, shape):
    with ctx.task(ctx.logical_data(np.zeros(shape, np.int32)).read()) as t:
        said = dlpack.described(t.get_arg_cai(0).__dlpack__(stream=-1))
        assert (said.shape, said.dtype, said.device[0]) == (shape, np.int32, dlpack.CUDA)


def test_narrow_floats_through_dlpack(ctx):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for kind in (ml_dtypes.bfloat16, ml_dtypes.float8_e5m2):
        with ctx.task(ctx.logical_data(np.ones(3, kind)).read()) as t:
            memory = t.get_arg_cai(0)
            assert dlpack.described(memory.__dlpack__(stream=-1)).dtype == np.dtype(kind)
            assert np.dtype(memory.__cuda_array_interface__["typestr"]) == f"u{np.dtype(kind).itemsize}"


def test_the_capsule_keeps_the_memory(ctx, cupy):
    """Whoever holds what he took has it after the task, for as long as the data lives."""
    lX = ctx.logical_data(np.ones(3))
    with ctx.task(lX.read()) as t:
        capsule = t.get_arg_cai(0).__dlpack__(stream=-1)
    lX.numpy()
    assert dlpack.described(capsule).shape == (3,)


def test_cuda_core_takes_views_and_streams(ctx):
    """`args_viewable_as_strided_memory` functions and streams of cuda.core made from the task's."""
    core = pytest.importorskip("cuda.core")
    utils = pytest.importorskip("cuda.core.utils")

    @utils.args_viewable_as_strided_memory((0, 1))
    def pointers(x, y, stream):
        x, y = x.view(stream.handle), y.view(stream.handle)
        assert x.is_device_accessible and not x.readonly and x.dtype == np.float64
        return x.ptr, x.shape, y.ptr, y.device_id

    lX, lY = ctx.logical_data(np.ones((2, 3))), ctx.logical_data_zeros(6)
    with ctx.task(lX.read(), lY.rw()) as t:
        assert t.stream.__cuda_stream__() == (0, t.stream_ptr())
        device = core.Device()  # the current one is the task's
        device.set_current()
        assert device.device_id == t.place.index
        stream = device.create_stream(t.stream)
        assert int(stream.handle) == t.stream_ptr()
        expected = (t.get_arg(0), (2, 3), t.get_arg(1), t.place.index)
        assert pointers(*t.args_cai(), stream) == expected
        assert pointers(t.get_arg_cai(0), t.cupy()[1], stream) == expected
    assert lY.numpy().tolist() == [0] * 6


def test_waiting_for_cupy_arrays_does_not_block(ctx, cupy):
    lX = ctx.logical_data(np.arange(float(N)))
    with cupy.cuda.Stream(non_blocking=True) as stream:
        got = ctx.wait(lX, arrays="cupy")
        assert isinstance(got, cupy.ndarray)
        got += 1
        ctx.fill(lX, 0)  # a copy: later tasks do not touch it
        assert got.get(stream=stream).tolist() == (np.arange(N) + 1.0).tolist()
    assert ctx.wait(ctx.token(), arrays="cupy") is None


# -- temporaries -----------------------------------------------------------------------------------------------------


def test_temporaries_of_bodies_on_many_streams(ctx, cupy):
    """CuPy's pool is ordered by stream: what a body frees goes to bodies on the same stream alone."""
    data = [ctx.logical_data(np.full(N, float(i))) for i in range(6)]

    @stf.task(arrays="cupy")
    def work(x: stf.ReadWrite):
        scratch = x * 2
        scratch += 1
        more = scratch - x
        del scratch  # free for the next allocation while the kernels above still run
        again = cupy.full(N, 7.0)
        x += more
        x -= again

    for _ in range(20):
        for x in data:
            work(x)
    expected = np.arange(6.0)
    for _ in range(20):
        expected = expected + (expected + 1) - 7
    for i, x in enumerate(data):
        assert x.numpy().tolist() == [expected[i]] * N


def test_arrays_larger_than_any_memory(ctx, cupy):
    """Strides of zero make much of little."""
    place = stf.data_place.device(ctx.devices[0].index)
    with cupy.cuda.Device(ctx.devices[0].index):
        x = cupy.ones(4)
    for shape in ((2**31, 2**31), (2**61,)):
        huge = stf.view(x.data.ptr, shape, np.float64, (0,) * len(shape), data_place=place, owner=x)
        with pytest.raises(OverflowError, match="is too large for memory"):
            ctx.logical_data(huge)
    assert ctx.logical_data(x).numpy().tolist() == [1.0] * 4


# -- host memory that CUDA knows ---------------------------------------------------------------------------------------


class Shared:
    """Memory that the host and the devices reach, pinned or managed, with CUDA's array interface: as Numba has it."""

    def __init__(self, kind, ordinal, stream=None):
        driver = pytest.importorskip("cuda.bindings.driver")
        self.ordinal, self.kind, self.driver = ordinal, kind, driver
        with self.current():
            code, address = driver.cuMemHostAlloc(8 * N, 0) if kind == "pinned" else driver.cuMemAllocManaged(8 * N, 1)
            assert not code
        self.address = int(address)
        self.array = stf.view(self.address, N, np.float64)
        self.__cuda_array_interface__ = {
            "shape": (N,),
            "typestr": "<f8",
            "data": (self.address, False),
            "version": 3,
            "stream": stream,
        }

    @contextlib.contextmanager
    def current(self):
        code, context = self.driver.cuDevicePrimaryCtxRetain(self.ordinal)
        assert not code
        self.driver.cuCtxPushCurrent(context)
        try:
            yield
        finally:
            self.driver.cuCtxPopCurrent()
            self.driver.cuDevicePrimaryCtxRelease(self.ordinal)

    def free(self):
        with self.current():
            code = (
                self.driver.cuMemFreeHost(self.address)
                if self.kind == "pinned"
                else self.driver.cuMemFree(self.address)
            )
        assert not code[0]


@pytest.fixture
def shared(ctx):
    made = []

    def make(kind, ordinal=ctx.devices[0].index, **options):
        made.append(Shared(kind, ordinal, **options))
        return made[-1]

    yield make
    for memory in made:
        memory.free()


@pytest.mark.parametrize("kind", ["pinned", "managed"])
def test_shared_memory_is_taken_where_it_is(ctx, cupy, shared, kind):
    X = shared(kind)
    X.array[:] = np.arange(N)
    lX = ctx.logical_data(X, name="X")
    assert ctx.logical_data(X) is lX
    with ctx.task("host", lX.rw()) as t:
        t.numpy()[0][:] += 1
        assert kind == "managed" or t.get_arg(0) == X.address
    with ctx.task(lX.rw()) as t:
        t.cupy()[0][...] *= 2
        assert kind == "pinned" or t.get_arg(0) == X.address
    assert (lX.numpy() == 2 * (np.arange(N) + 1)).all()
    lX.release()
    ctx.synchronize()
    assert (X.array == 2 * (np.arange(N) + 1)).all()


def test_pinned_memory_is_no_device_memory(ctx, cupy, shared):
    X, where = shared("pinned"), stf.data_place.device(ctx.devices[0].index)
    with pytest.raises(stf.PlaceError, match=r"Shared lies in host memory, not on data_place.device"):
        ctx.logical_data(X, where)
    with pytest.raises(ValueError, match="registered as managed memory, and its memory is not"):
        ctx.logical_data(X, stf.data_place.managed())
    X.array[:] = 1
    assert ctx.logical_data(X, stf.data_place.host()).numpy().sum() == N


@pytest.mark.parametrize("kind", ["pinned", "managed"])
def test_shared_memory_that_was_made_for_another_device(ctx_factory, cupy, shared, kind):
    """It is the host's, or all devices'."""
    if ctx_factory.device_count < 2:
        pytest.skip("one device")
    X = shared(kind, 0)
    X.array[:] = 1
    with stf.context(devices="cuda:1") as ctx:
        lX = ctx.logical_data(X)
        with ctx.task(lX.rw()) as t:
            t.cupy()[0][...] += 1
        assert lX.numpy().sum() == 2 * N
    assert X.array.sum() == 2 * N


def test_pinned_memory_that_a_stream_writes(ctx, cupy, shared):
    """Its content is what the stream that it tells has made by then, in a task and in a graph that is launched again."""
    ordinal = ctx.devices[0].index
    with cupy.cuda.Device(ordinal):
        stream, source = cupy.cuda.Stream(non_blocking=True), cupy.arange(float(N))
        cupy.cuda.Stream.null.synchronize()
    X = shared("pinned", stream=stream.ptr)
    X.array[:] = 0

    def write():
        with X.current():
            (code,) = X.driver.cuMemcpyAsync(X.address, source.data.ptr, 8 * N, stream.ptr)
            assert not code

    write()
    lX = ctx.logical_data(X)
    with ctx.task(lX.rw()) as t:
        t.cupy()[0][...] += 1
    assert (lX.numpy() == np.arange(N) + 1).all()
    with ctx.task_graph() as g, ctx.task(lX.rw()) as t:
        t.cupy()[0][...] += 2
    del t, lX
    ctx.synchronize()  # what was written back is there: the array is the user's again
    for _ in range(2):
        write()
        g.launch()
        ctx.synchronize()
        assert (X.array == np.arange(N) + 2).all()


# -- streams -----------------------------------------------------------------------------------------------------------


def test_tasks_on_a_stream_of_the_callers_are_in_its_order(ctx, cupy):
    """In a context on graphs, too: they are launched between what comes before them and after."""
    ordinal = ctx.devices[0].index
    with cupy.cuda.Device(ordinal):
        stream, X = cupy.cuda.Stream(non_blocking=True), np.zeros(N)
        with stream:
            scratch = cupy.empty(N)
        lX = ctx.logical_data(X)
        for _ in range(3):
            with stream:
                scratch[...] = 5
            with ctx.task(stf.exec_place.cuda_stream(stream), lX.rw()) as t:
                assert t.stream_ptr() == stream.ptr
                (x,) = t.cupy()
                x += scratch
            with stream:
                scratch[...] = 7  # the task is behind it no more
            with ctx.task(lX.rw()) as t:
                (x,) = t.cupy()
                x += 1
    assert lX.numpy().tolist() == [18.0] * N


def test_a_stream_of_the_callers_may_be_used_first_in_a_recording(ctx, cupy):
    def bump(place, amount):
        with ctx.task(place, lX.rw()) as t:
            (x,) = t.cupy()
            x += amount

    ordinal = ctx.devices[0].index
    with cupy.cuda.Device(ordinal):
        first, second, third = (stf.exec_place.cuda_stream(cupy.cuda.Stream(non_blocking=True)) for _ in range(3))
        lX = ctx.logical_data(np.zeros(N))
        with ctx.task_graph() as g:
            bump(ctx.devices[0], 1)
            bump(first, 10)
            bump(ctx.devices[-1], 100)
        for _ in range(3):
            g.launch()
        with ctx.graph_scope():
            bump(ctx.devices[0], 1)
            bump(second, 10)
        with ctx.repeat(2):
            bump(third, 1000)
        bump(first, 1)
    assert lX.numpy().tolist() == [2345.0] * N
