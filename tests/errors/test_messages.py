"""Wrong types and values: each message says what was wrong, what was got, and what to do."""

from __future__ import annotations

import array
import copy
import pickle
import re

import numpy as np
import pytest
from helpers import is_cuda

import stf
from stf.devices.make import cuda_devices


class OnDevice:
    __cuda_array_interface__ = {"shape": (2,), "typestr": "<f8", "data": (64, False), "version": 3}


class Capsule:
    def __dlpack_device__(self):
        return (10, 1)

    def __dlpack__(self, **options):
        raise AssertionError("must not be asked")


class Says:
    """Speaks DLPack, and says what it is told to say."""

    def __init__(self, device, capsule=None):
        self.device, self.capsule = device, capsule

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **options):
        return self.capsule


DATA = [
    (
        [1, 2],
        TypeError,
        r"logical_data takes an array, got a list; use np.asarray\(...\), or logical_data_empty\(shape\)",
    ),
    ((1.0,), TypeError, r"logical_data takes an array, got a tuple; use np.asarray"),
    (
        "text",
        TypeError,
        r"logical_data takes an array \(NumPy, buffer protocol, DLPack\) or a registered type, got str",
    ),
    (None, TypeError, "got NoneType; register it with stf.register_data_interface"),
    (object(), TypeError, "got object; register it with stf.register_data_interface"),
    ({}, TypeError, "got dict; register it"),
    (np.array([None, 1]), TypeError, "logical data needs plain elements, got dtype object which holds Python objects"),
    (np.zeros(2, [("a", object)]), TypeError, r"needs plain elements, got dtype \[\('a', 'O'\)\]"),
    (
        OnDevice(),
        stf.PlaceError,
        "OnDevice lies on a CUDA device and this context runs on the CPU; copy it to the host",
    ),
    (Capsule(), stf.PlaceError, "Capsule lies on device 1 of DLPack kind 10 and this context .*; copy it"),
    (Says(device="cpu"), TypeError, r"Says.__dlpack_device__\(\) returns \(kind, index\) of its device, got 'cpu'"),
    (Says(device=(1, 0), capsule=5), TypeError, "__dlpack__ returns a capsule, got 5 of int"),
]


@pytest.mark.parametrize("obj, error, message", DATA, ids=lambda c: type(c).__name__)
def test_what_is_no_array(ctx, obj, error, message):
    if is_cuda(ctx) and isinstance(obj, OnDevice):
        message = "OnDevice lies at 0x40, which is no address of CUDA's memory: it is pageable memory of the host, or was freed"
    with pytest.raises(error, match=message):
        ctx.logical_data(obj)
    assert ctx.logical_data(array.array("i", [1])).numpy().tolist() == [1]


SHAPES = [
    (2.5, TypeError, "shape must be an integer or an iterable of integers, got 2.5"),
    (None, TypeError, "shape must be an integer or an iterable of integers, got None"),
    ((2, 1.5), TypeError, r"shape dimensions must be integers, got \(2, 1.5\)"),
    (True, TypeError, "shape dimensions must be integers, got True"),
    ("33", TypeError, "shape dimensions must be integers, got '33'"),
    (-1, ValueError, r"shape dimensions must not be negative, got \(-1,\)"),
    ((3, -2), ValueError, r"shape dimensions must not be negative, got \(3, -2\)"),
]


@pytest.mark.parametrize("shape, error, message", SHAPES)
def test_bad_shapes(ctx, shape, error, message):
    for make in (
        ctx.logical_data_empty,
        ctx.logical_data_zeros,
        ctx.logical_data_ones,
        lambda s: ctx.logical_data_full(s, 1),
    ):
        with pytest.raises(error, match=message):
            make(shape)


def test_bad_dtypes_and_values(ctx):
    with pytest.raises(
        TypeError, match="logical data needs plain elements, got dtype object which holds Python objects"
    ):
        ctx.logical_data_empty(3, object)
    with pytest.raises(TypeError):
        ctx.logical_data_empty(3, "no such type")
    with pytest.raises((TypeError, ValueError)):
        ctx.logical_data_full(3, "text", float)
    with pytest.raises(TypeError):
        ctx.logical_data_zeros(3, dtypo=float)


def test_a_data_place_that_does_not_fit(ctx):
    X = np.zeros(2)
    n = len(ctx.devices)
    if n > 1:
        with pytest.raises(
            stf.PlaceError, match=r"ndarray lies in host memory, not on data_place.device\(0\); leave data_place out"
        ):
            ctx.logical_data(X, stf.data_place.device(0))
    with pytest.raises(TypeError, match=r"a data place is needed, got the execution place exec_place.host\(\)"):
        ctx.logical_data(X, stf.exec_place.host())
    with pytest.raises(stf.PlaceError, match="is not in this context"):
        ctx.logical_data(X, stf.data_place.device(n))
    assert ctx.logical_data(X, stf.data_place.host()).numpy().tolist() == [0, 0]


def test_views_of_raw_memory():
    X = np.zeros(4)
    for wrong in (X, 1.5, None, True, "0x10"):
        with pytest.raises(TypeError, match="an address is an integer, got .*; pass the pointer as int"):
            stf.view(wrong, 2, float)
    elsewhere = stf.view(X.ctypes.data, 2, float, data_place=stf.data_place.device(0))
    with stf.context(devices="cpu") as ctx:
        with pytest.raises(stf.PlaceError, match="RawMemory lies on a CUDA device and this context runs on the CPU"):
            ctx.logical_data(elsewhere)
    with pytest.raises(stf.PlaceError, match=r"raw memory is the host's or one device's, got data_place.affine\(\)"):
        stf.view(X.ctypes.data, 2, float, data_place=stf.data_place.affine())
    with pytest.raises(TypeError, match="stream= says where a device's memory is being written; give data_place="):
        stf.view(X.ctypes.data, 2, float, stream=1)
    with pytest.raises(TypeError, match="a stream is an int, .*; got '1'"):
        stf.view(X.ctypes.data, 2, float, data_place=stf.data_place.device(0), stream="1")
    for wrong in (stf.exec_place.host(), "host", 1):
        with pytest.raises(
            TypeError, match="a data place is needed, got .*; use (data_place.host|its affine_data_place)"
        ):
            stf.view(X.ctypes.data, 2, float, data_place=wrong)
    for shape, strides in (("4", None), (None, None), (2.5, None), (2, (8.5,)), (2, 16)):
        with pytest.raises(TypeError, match="a shape is an int or a tuple, strides are a tuple, got"):
            stf.view(X.ctypes.data, shape, float, strides)
    with pytest.raises(ValueError, match=r"extents are not negative, got \(-2,\)"):
        stf.view(X.ctypes.data, -2, float)
    with pytest.raises(ValueError, match=r"2 extents need as many strides, got \(8,\)"):
        stf.view(X.ctypes.data, (2, 2), float, (8,))


def test_contexts_that_cannot_be():
    if cuda_devices() < 0:
        with pytest.raises(stf.PlaceError, match="devices='cuda' needs CUDA, .* use devices='cpu' or STF_DEVICES=cpu"):
            stf.context(devices="cuda")
        for devices in ([0, 2], "cuda:0,2"):
            with pytest.raises(stf.PlaceError, match="needs CUDA"):
                stf.context(devices=devices)
        with pytest.raises(
            stf.PlaceError, match="stream= takes a CUDA stream, and this context runs on the CPU; leave it out"
        ):
            stf.context(stream=1)
    for wrong in (True, 1.5, "cuda", object()):
        with pytest.raises(TypeError, match="a stream is an int, or an object with __cuda_stream__ .*; got"):
            stf.context(stream=wrong)
    with pytest.raises(ValueError, match="arrays= is 'numpy', 'cupy', 'torch', 'numba' or 'jax', got 'pandas'"):
        stf.context(devices="cpu", arrays="pandas")


def test_options_that_are_about_graphs():
    with pytest.raises(TypeError, match="graph= and stream= both say where the work goes; give one of them"):
        stf.context(graph=1, stream=1)
    with stf.context(devices="cpu") as ctx:
        token = ctx.token()
    for wrong in (object(), "graph", True, 1.5, 0, -1, 1 << 64, token):
        with pytest.raises(TypeError, match="graph= takes a CUDA graph: the address of a CUgraph as int, .*; got"):
            stf.context(graph=wrong)
    with pytest.raises(stf.PlaceError, match="graph= takes a CUDA graph, and this context runs on the CPU"):
        stf.context(graph=1, devices="cpu")
    with pytest.raises(TypeError, match=r"use_graph is True or False, got 'cuda'; devices= says where tasks run"):
        stf.context("cuda")


OPTIONS = [
    ({"max_pending": "a"}, TypeError, "max_pending is a positive number of tasks, got 'a'; leave it out for 8,192"),
    ({"max_pending": 2.0}, TypeError, "max_pending is a positive number of tasks, got 2.0; leave it out for 8,192"),
    ({"max_pending": True}, TypeError, "max_pending is a positive number of tasks, got True; leave it out for 8,192"),
    ({"max_pending": -1}, ValueError, "max_pending is a positive number of tasks, got -1; leave it out for 8,192"),
    ({"max_pending": 0}, ValueError, "max_pending is a positive number of tasks, got 0; leave it out for 8,192"),
    (
        {"memory_limit": "1GB"},
        TypeError,
        "memory_limit is a positive number of bytes, got '1GB'; pass an integer such as 10**9 (only the variable "
        "STF_MEMORY_LIMIT takes text such as 1GB)",
    ),
    (
        {"memory_limit": 0},
        ValueError,
        "memory_limit is a positive number of bytes, got 0; leave it out for no limit",
    ),
    (
        {"resources": 3},
        TypeError,
        "resources is what contexts share, got 3; make it once with stf.Resources(), pass it to each",
    ),
    (
        {"devices": 3.5},
        TypeError,
        "devices is 'cpu', 'cpu:N', 'cuda', 'cuda:0,2' or a list of numbers, got 3.5; N emulated devices are 'cpu:N'",
    ),
    (
        {"devices": ["cpu"]},
        TypeError,
        "devices is 'cpu', 'cpu:N', 'cuda', 'cuda:0,2' or a list of numbers, got ['cpu']; N emulated devices are "
        "'cpu:N'",
    ),
    ({"name": 3}, TypeError, "a name is text, got 3; use name='3'"),
]


@pytest.mark.parametrize("options, error, message", OPTIONS, ids=str)
def test_options_of_a_context(options, error, message):
    with pytest.raises(error) as caught:
        stf.context(**({"devices": "cpu:1"} | options))
    assert str(caught.value) == message


def test_limits_may_be_as_large_as_anybody_likes():
    with stf.context(devices="cpu:1", max_pending=1 << 70, memory_limit=1 << 70) as ctx:
        assert ctx.logical_data(np.ones(2)).numpy().tolist() == [1.0, 1.0]


def test_options_may_be_integers_of_numpy():
    with stf.context(devices="cpu:1", max_pending=np.int64(4), memory_limit=np.int64(1 << 20)) as ctx:
        assert ctx.logical_data_ones(3).numpy().tolist() == [1, 1, 1]


def test_names_are_text(ctx):
    x = ctx.logical_data(np.zeros(2))

    def rename_a_task():
        with ctx.task(x.read()) as task:
            task.set_symbol(3)

    named = [
        rename_a_task,
        lambda: ctx.logical_data(np.zeros(2), name=3),
        lambda: ctx.logical_data_empty(2, name=3),
        lambda: ctx.logical_data_zeros(2, symbol=3),
        lambda: ctx.token(name=3),
        lambda: x.empty_like(name=3),
        lambda: x.set_symbol(3),
        lambda: ctx.task(x.read(), name=3),
        lambda: ctx.host_launch(x.read(), name=3),
        lambda: ctx.submit_task(lambda: None, name=3),
        lambda: stf.task(lambda: None, name=3),
        lambda: stf.task(lambda: None).named(3),
    ]
    for name in named:
        with pytest.raises(TypeError, match="^a name is text, got 3; use name='3'$"):
            name()
    assert ctx.logical_data(np.zeros(2), name=np.str_("x")).name == "x"


def test_tile_extents(ctx):
    x = ctx.logical_data(np.zeros((4, 6)), name="X")
    whole = "^<logical data 'X' .*> has 2 axes, and tiles\\(\\) takes one positive integer for each, got "
    wrong = [
        (1.5, TypeError, "1.5$"),
        ((2, 1.5), TypeError, r"\(2, 1.5\)$"),
        ("22", TypeError, "'22'$"),
        (True, TypeError, "True$"),
        (None, TypeError, "None$"),
        (2, ValueError, r"1: \(2,\)$"),
        ((0, 2), ValueError, r"\(0, 2\); an axis that is not cut has its own extent: \(4, 6\)$"),
    ]
    for shape, error, got in wrong:
        with pytest.raises(error, match=whole + got):
            x.tiles(shape)
    assert x.tiles(np.array([2, 3])).shape == (2, 2)


def test_times_to_wait(ctx):
    fence = ctx.fence()
    hint = "; leave it out to wait as long as it takes$"
    for wait in (ctx.synchronize, fence.synchronize):
        for wrong in ("x", "1", float("nan"), [], 1j):
            with pytest.raises(TypeError, match=r"^timeout is a number of seconds, got .*" + hint):
                wait(timeout=wrong)
        with pytest.raises(ValueError, match=r"^timeout is a number of seconds from 0 on, got -1" + hint):
            wait(timeout=-1)
        wait(timeout=float("inf"))
        wait(timeout=np.float32(100))


@stf.task
def scale(a, x: stf.ReadWrite):
    x *= a


def test_data_where_a_task_takes_none(ctx):
    x, s = ctx.logical_data(np.ones(4)), ctx.logical_data(np.ones(()))
    for expression in (s * 2, s < 2):
        with pytest.raises(TypeError, match="'a' of task 'scale' has no access mode, got .*; assign it to zero-dim"):
            scale(expression, x)
    with pytest.raises(TypeError, match=r"got <logical data .*, or pass an access, such as x.read\(\)"):
        ctx.submit_task(lambda x: None, x)
    with pytest.raises(TypeError, match=r"while_loop takes a condition .*, got False; == and != compare objects"):
        ctx.while_loop(s == 3)
    with pytest.raises(TypeError, match="assign computes one number, which token .* does not hold"):
        ctx.token().assign(1)
    scale(3.0, x)
    assert x.numpy().tolist() == [3.0] * 4


def test_data_among_variadic_arguments(ctx):
    @stf.task
    def several(x: stf.ReadWrite, *more, **named):
        x += sum(more) + sum(named.values())

    x, y = ctx.logical_data(np.ones(4)), ctx.logical_data(np.ones(4))
    for more, named in [((1, y), {}), ((), {"z": y}), ((y.read(), y), {})]:
        name = "named" if named else "more"
        with pytest.raises(
            TypeError, match=f"parameter '{name}' of task 'several' has no access mode, got <.*annotate"
        ):
            several(x, *more, **named)
    several(x, 1, 2, z=3)
    several(x, y.read(), z=y.read())
    assert x.numpy().tolist() == [9.0] * 4


def test_what_data_cannot_be_filled_with(ctx):
    x = ctx.logical_data(np.ones(4), name="x")
    wrong = [(1j, TypeError), ("much", ValueError), ("3", ValueError), (None, TypeError), ([1, 2, None, 3], TypeError)]
    for value, error in wrong:
        with pytest.raises(
            error, match=rf"'x' .* is filled with what its dtype can hold, got {re.escape(repr(value))}: "
        ):
            ctx.fill(x, value)
    with pytest.raises(ValueError, match=r"'x' .* is filled with what broadcasts to its shape, got shape \(2, 2\)"):
        ctx.fill(x, np.ones((2, 2)))
    assert x.numpy().tolist() == [1.0] * 4


def test_extents_and_addresses(ctx):
    x = ctx.logical_data(np.ones(4))
    for config, error, message in [
        ((1.5, 1), TypeError, "the extents of a grid are integers, got 1.5"),
        ((1, (1, 2.0)), TypeError, r"the extents of a block are integers, got \(1, 2.0\)"),
        ((1, 1, 1.5), TypeError, "shared memory is an integral number of bytes, got 1.5"),
        ((1, 1, 1 << 40), ValueError, "shared memory is a number of bytes from 0 to 2147483647, got 1099511627776"),
    ]:
        with pytest.raises(error, match=message):
            stf.kernel(1)[config]
    for address in (-1, 1 << 64):
        with pytest.raises(ValueError, match=f"the address of a CUDA context is a positive .*, got {address}"):
            stf.exec_place.from_context(address)
        with pytest.raises(ValueError, match=f"a stream is an address from 0 on, of 64 bits, got {address}"):
            stf.exec_place.cuda_stream(address)
    with pytest.raises(stf.PlaceError, match="kernels of ctx.cuda_kernel run on a CUDA device, got host"):
        ctx.cuda_kernel("host", x.rw()).start()
    with pytest.raises(ValueError, match="an address is a number from 0 on, of 64 bits, got -1"):
        stf.view(-1, 3, "f8")
    with ctx.freeze(x) as lent:
        for wrong in (0, "", ()):
            with pytest.raises(TypeError, match=r"a data place is needed, got .*; use data_place.host\(\)"):
                lent.get(wrong)
    assert x.numpy().tolist() == [1.0] * 4


def test_numbers_that_data_cannot_hold(ctx):
    x, n = ctx.logical_data(np.ones(())), ctx.logical_data(np.ones((), np.int32))
    for data, number, error in [(x, 1j, TypeError), (n, 1 << 40, OverflowError), (n, float("nan"), TypeError)]:
        with pytest.raises(error, match=r"the number for logical data .* is .* its data has dtype"):
            data.assign(number)
    assert (x.numpy(), n.numpy()) == (1.0, 1)
    assert float(x.assign(1 << 40)) == 1 << 40


def test_places_of_a_grid():
    for wrong in (5, None, "host", stf.data_place.device(0)):
        with pytest.raises(TypeError, match="a grid is made of a list of execution places, got "):
            stf.exec_place.grid(wrong)
    with pytest.raises(stf.PlaceError, match="no context has more than 1024 devices, got n_devices"):
        stf.exec_place.n_devices(1 << 70)
    for make in (stf.exec_place.device, stf.data_place.device, stf.exec_place.n_devices):
        with pytest.raises(TypeError, match="a device number is an integer, got <class 'int'>"):
            make(int)


def test_axes_of_a_grid():
    grid = stf.exec_place.grid([stf.exec_place.host()] * 2)
    assert grid.get_dim(0) == grid.get_dim(-1) == 2
    with pytest.raises(IndexError, match=r"axis 1 of exec_place.grid.*, which has 1; its shape is \(2,\)"):
        grid.get_dim(1)


def test_names_that_are_not_there():
    with pytest.raises(AttributeError, match="module 'stf' has no attribute 'nothing'"):
        stf.nothing


def test_a_message_with_an_array_is_short(ctx):
    with pytest.raises(TypeError) as caught:
        ctx.task(np.zeros((50, 50)))
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("make", [lambda l: l.read, lambda l: l.write, lambda l: l.rw])
def test_accesses_that_are_not_called(ctx, make):
    with pytest.raises(TypeError, match="got the method .* of logical data .*; call it: "):
        ctx.task(make(ctx.logical_data(np.zeros(2))))


def test_a_null_pointer_is_no_array():
    with pytest.raises(ValueError, match=r"address 0 holds no array of shape \(3,\)"):
        stf.view(0, (3,), np.float64)


def test_the_same_memory_with_other_options_is_refused(ctx):
    X = np.zeros(3)
    lX = ctx.logical_data(X, name="X")
    assert ctx.logical_data(X) is lX
    for options in ({"readonly": True}, {"write_back": False}):
        with pytest.raises(
            ValueError, match="this memory is logical data 'X' .* already; readonly and write_back cannot"
        ):
            ctx.logical_data(X, **options)


@pytest.mark.parametrize("option", ["write_back", "readonly"])
def test_options_of_data_are_true_or_false(ctx, option):
    with pytest.raises(TypeError, match=f"{option} is True or False, got 'no'"):
        ctx.logical_data(np.zeros(3), **{option: "no"})
    with pytest.raises(TypeError, match="flag is True or False, got 'no'"):
        ctx.logical_data(np.zeros(3)).set_write_back("no")


class Frame:
    """As in pandas, xarray and awkward."""

    def to_numpy(self):
        return np.zeros(3)

    def __array__(self, dtype=None, copy=None):
        return self.to_numpy()


class Picture:
    __array_interface__ = {"shape": (2,), "typestr": "<f8", "data": (64, False), "version": 3}


def test_what_is_nearly_an_array(ctx):
    """The message names the call that gives one."""
    sparse = pytest.importorskip("scipy.sparse")
    matrix = sparse.csr_matrix(np.eye(3))
    for obj, advice in [
        (Frame(), r"Frame; register x.to_numpy\(\), which may be a copy"),
        (Picture(), r"Picture; register np.asarray\(x\), which may be a copy"),
        (matrix, "csr_matrix; register its arrays x.data, x.indices, x.indptr, or its type with stf.register"),
        (matrix.tocoo(), "coo_matrix; register its arrays x.data, x.row, x.col, or"),
    ]:
        with pytest.raises(TypeError, match=advice):
            ctx.logical_data(obj)


def test_what_belongs_to_this_process_is_not_copied(ctx):
    x = ctx.logical_data(np.zeros(3), name="x")
    task = ctx.task(x.rw(), name="t")
    with task:
        pass
    things = [
        (ctx, r"<stf.Context .*open another one with stf.context\(\), and pickle arrays"),
        (task, r"task 't' \(test_messages.py:\d+\) .*build another one with ctx.task"),
        (ctx.task_graph(), r"<stf.TaskGraph .*record another one with ctx.task_graph\(\)"),
        (stf.Resources(), r"stf.Resources .*make another one"),
        (x, r"logical data 'x' .*(pickle lX.numpy\(\)|use lX.empty_like\(\) and ctx.copy)"),
        (x.read(), r"<read access to logical data 'x' .*pickle lX.numpy\(\)"),
    ]
    for thing, message in things:
        calls = [copy.deepcopy, pickle.dumps] + [copy.copy] * (thing not in (x, things[-1][0]))
        for call in calls:
            with pytest.raises(TypeError, match=message):
                call(thing)
    assert copy.copy(x) is x and copy.copy(things[-1][0]) is things[-1][0]


def test_a_device_that_a_cpu_does_not_have():
    with stf.context(devices="cpu") as ctx:
        for use in (lambda: ctx.task(1), lambda: ctx.logical_data_zeros(3).read(stf.data_place.device(1))):
            with pytest.raises(
                stf.PlaceError, match='device.1. is not in .*; devices="cpu:2" or STF_DEVICES=cpu:2 emul'
            ):
                use()


def test_errors_are_what_others_catch():
    assert issubclass(stf.AccessError, ValueError)
    for error in (stf.TaskStateError, stf.ContextClosedError, stf.CaptureError):
        assert issubclass(error, RuntimeError)


def test_arrays_are_shapes():
    with stf.context(devices="cpu") as ctx:
        assert ctx.logical_data_empty(np.array([2, 3])).shape == (2, 3)
        assert ctx.logical_data_empty(np.array(4)).shape == ctx.logical_data_empty(np.array([4])).shape == (4,)
        with pytest.raises(TypeError, match="a name is text, got 5"):
            ctx.dot_section(5)
