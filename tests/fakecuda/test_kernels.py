"""What kernels get of the arguments of a launch, on the stand-in."""

from __future__ import annotations

import pytest

PRELUDE = """
import ctypes, enum, sys, types
import cupy, fakecuda, numpy as np, pytest, stf

library = ctypes.CDLL("libcuda.so.1")
kept = []

def function(name, signature, body):
    "A kernel that calls body(addresses of the parameters), as the address of a CUfunction."
    return function_with_grid(name, signature, lambda parameters, _: body(parameters))

def function_with_grid(name, signature, body):
    "The same, of body(addresses of the parameters, address of the grid and block)."
    kind = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)
    kept.append(kind(body))
    fakecuda.add_kernel(name, signature, ctypes.cast(kept[-1], ctypes.c_void_p).value)
    cupy.cuda.Device(0).use()
    module, found = ctypes.c_void_p(), ctypes.c_void_p()
    assert library.cuModuleLoadData(ctypes.byref(module), b"any") == 0
    assert library.cuModuleGetFunction(ctypes.byref(found), module, name.encode()) == 0
    return found.value

def stores(kind):
    "The body of a kernel (pointer, value) that stores the value as a double."
    def body(parameters):
        target = ctypes.c_uint64.from_address(parameters[0]).value
        ctypes.c_double.from_address(target).value = kind.from_address(parameters[1]).value
    return body
"""

# The bodies below run elsewhere, with the names of the prelude.
# ruff: noqa: F821


def test_launches_in_clusters_and_cooperative_ones(run):
    """They are launched with these attributes, plainly and in graphs."""

    def body():
        from cuda.core import LaunchConfig

        def stores_grid(parameters, dimensions):
            target = ctypes.c_uint64.from_address(parameters[0]).value
            for i in range(6):
                ctypes.c_double.from_address(target + 8 * i).value = (ctypes.c_uint * 6).from_address(dimensions)[i]

        kernel = function_with_grid("grid", "pq", stores_grid)
        cooperative = types.SimpleNamespace(grid=(4, 2), block=32, shmem_size=0, is_cooperative=True)
        configs = {
            LaunchConfig(grid=4, cluster=2, block=32): [8, 1, 1, 32, 1, 1],
            LaunchConfig(grid=(3, 2), cluster=(1, 4), block=(8, 2)): [3, 8, 1, 8, 2, 1],
            LaunchConfig(grid=4, block=32, programmatic_stream_serialization=True): [4, 1, 1, 32, 1, 1],
        }
        cases = [*configs.items(), (cooperative, [4, 2, 1, 32, 1, 1])]
        for config, expected in cases:
            with stf.context(devices="cuda:0") as ctx:
                x = ctx.logical_data_zeros(6)
                fakecuda.reset_calls()
                ctx.launch_kernel(kernel, config, x.rw(), 1)
                assert x.numpy().tolist() == expected and fakecuda.calls("cuLaunchKernelEx") == 1
                ctx.fill(x, 0.0)
                with ctx.task_graph() as graph:
                    ctx.launch_kernel(kernel, config, x.rw(), 1)
                for _ in range(3):
                    graph.launch()
                    assert x.numpy().tolist() == expected
                    ctx.fill(x, 0.0)
                ctx.launch_kernel(kernel, (2, 3), x.rw(), 1)
                assert x.numpy().tolist() == [2, 1, 1, 3, 1, 1]
        with stf.context(devices="cuda:0") as ctx:
            x = ctx.logical_data_zeros(6)
            for grid, block, shared, most in [(5000, 32, 0, 4224), (265, 1024, 0, 264), (200, 32, 200 << 10, 132)]:
                large = types.SimpleNamespace(grid=grid, block=block, shmem_size=shared, is_cooperative=True)
                with pytest.raises(ValueError, match=f"{most} of {block} threads .* fit, got {grid}"):
                    ctx.launch_kernel(kernel, large, x.rw(), 1)
            assert x.numpy().tolist() == [0] * 6

    run(body)


def test_a_kernel_of_a_library_by_its_address(run):
    """It has a function on each device, plainly and in graphs; so has one without parameters."""

    def body():
        happened = []
        function("store", "pd", stores(ctypes.c_double))
        function("nothing", "", lambda parameters: happened.append(1))
        handle = ctypes.c_void_p()
        assert library.cuLibraryLoadData(ctypes.byref(handle), b"any", None, None, 0, None, None, 0) == 0
        kernels = {name: ctypes.c_void_p() for name in (b"store", b"nothing")}
        for name, kernel in kernels.items():
            assert library.cuLibraryGetKernel(ctypes.byref(kernel), handle, name) == 0
        store, nothing = (kernel.value for kernel in kernels.values())
        for options in ({}, {"use_graph": True}):
            with stf.context(devices="cuda:0,1", **options) as ctx:
                x = ctx.logical_data_zeros(())
                for device in (0, 1, 0):
                    with ctx.cuda_kernel(stf.exec_place.device(device), x.rw()) as k:
                        k.launch(store, 1, 1, (k.get_arg(0), 2.0 + device))
                    assert float(x) == 2 + device
                stf.kernel(store)[1, 1](x.rw(), 5.0)
                ctx.launch_kernel(nothing, (1, 1))
                assert float(x) == 5.0
        assert len(happened) == 2

    run(body)


def test_launches_with_attributes_take_parameters_and_other_data(run):
    """They are captured anew for these; plain ones beside them are renewed."""

    def body():
        from cuda.core import LaunchConfig

        store = function("store", "pd", stores(ctypes.c_double))
        configs = [
            LaunchConfig(grid=4, cluster=2, block=32),
            LaunchConfig(grid=4, block=32, programmatic_stream_serialization=True),
            types.SimpleNamespace(grid=4, block=32, shmem_size=0, is_cooperative=True),
        ]
        for config in configs:
            with stf.context(devices="cuda:0") as ctx:
                x, y, z = (ctx.logical_data_zeros(1) for _ in range(3))
                with ctx.task_graph() as graph:
                    a = graph.param("a", 3.0)
                    ctx.launch_kernel(store, config, x.rw(), a)
                    ctx.launch_kernel(store, (1, 1), y.rw(), 2 * a)
                for target, value in [(x, 3), (z, 3), (z, 4), (x, 5), (x, 3), (z, 3), (z, 3)]:
                    for data in (x, y, z):
                        ctx.fill(data, 0.0)
                    graph.launch({x: target}, a=float(value))
                    found = [float(data.numpy()[0]) for data in (x, y, z)]
                    assert found == [value if x is target else 0, 2 * value, value if z is target else 0]
                graph.close()

                @stf.replay
                def step(data, value):
                    ctx.launch_kernel(store, config, data.rw(), value)

                for value in (1.0, 2.0, 3.0, 4.0, 5.0, 4.0):
                    step(x, value)
                    assert x.numpy()[0] == value
                assert "parameters: value" in step.explain()

    run(body)


@pytest.mark.parametrize("letter, kind", [("i", "c_int32"), ("q", "c_int64")])
def test_integers_of_all_kinds(run, letter, kind):
    def body():
        class Mode(enum.IntEnum):
            ONE, FOUR = 1, 4

        class Bits(enum.IntFlag):
            FOUR = 4

        class Passed:
            def __init__(self, value):
                self._as_parameter_ = value

        number = getattr(ctypes, KIND)
        store = function("store", "p" + LETTER, stores(number))
        fitting = np.dtype(number)
        values = [4, Mode.FOUR, Bits.FOUR, np.array(4, fitting), fitting.type(4), number(4), Passed(4)]
        values += [Passed(number(4)), Passed(Mode.FOUR), bytes(number(4))]
        with stf.context() as ctx:
            x = ctx.logical_data(np.zeros(1))
            for value in values:
                ctx.fill(x, -1.0)
                ctx.launch_kernel(store, (1, 1), x.rw(), value)
                assert x.numpy()[0] == 4, value
            ctx.launch_kernel(store, (1, 1), x.rw(), Mode.ONE - 3)
            assert x.numpy()[0] == -2
            for wrong in (np.array(4, np.int16), np.zeros(3), "4", None, np.float16(4), enum.Enum("E", "A").A):
                with pytest.raises(TypeError, match="parameter 1 of kernel .*( bytes, got|got an array)"):
                    ctx.launch_kernel(store, (1, 1), x.rw(), wrong)
            with pytest.raises(OverflowError, match="parameter 1 of kernel"):
                ctx.launch_kernel(store, (1, 1), x.rw(), 1 << 70)

    run(body, f"LETTER, KIND = {letter!r}, {kind!r}\n")


def test_grids_of_all_kinds(run):
    def body():
        store = function("store", "pi", stores(ctypes.c_int32))
        with stf.context() as ctx:
            x = ctx.logical_data(np.zeros(1))
            for config in (([1], [1]), ((1,), 1), (np.array([1]), np.int64(1)), ([1, 1], (1,), 0)):
                ctx.fill(x, 0.0)
                ctx.launch_kernel(store, config, x.rw(), 7)
                assert x.numpy()[0] == 7
            for wrong in ((1, 0), ([], 1), ((1, 1, 1, 1), 1)):
                with pytest.raises(ValueError, match="has one to three positive extents"):
                    ctx.launch_kernel(store, wrong, x.rw(), 7)
            for wrong in ((1 << 40, 1), (1, (1, 1 << 31))):
                with pytest.raises(ValueError, match="an extent of a (grid|block) is at most 2147483647, got"):
                    ctx.launch_kernel(store, wrong, x.rw(), 7)
            with pytest.raises(TypeError, match=r"has no grid and block yet; say stf.kernel\(k\)\[grid, block\]"):
                stf.kernel(store)(x.rw(), 7)

    run(body)


def test_an_array_is_no_pointer_though_its_bytes_would_be_one(run):
    """Its content would be the address; structures of other sizes, or with names, are passed by value."""

    def body():
        pair = np.dtype([("a", "i4"), ("b", "i4")])
        store = function("store", "pq", stores(ctypes.c_int32))
        with stf.context() as ctx:
            x = ctx.logical_data(np.zeros(1))
            for wrong in (np.array([7.0]), np.array([[1, 2]], np.int32)):
                for position in (0, 1):
                    given = [x.rw(), 7]
                    given[position] = wrong
                    message = f"parameter {position} of kernel .* got an array, ndarray; register it with"
                    with pytest.raises(TypeError, match=message):
                        ctx.launch_kernel(store, (1, 1), *given)
            ctx.launch_kernel(store, (1, 1), x.rw(), np.array([(7, 8)], pair))
            assert x.numpy()[0] == 7
            ctx.launch_kernel(store, (1, 1), x.rw(), np.array([9, 1], np.int32).tobytes())
            assert x.numpy()[0] == 9

    run(body)


def test_a_kernel_of_cuda_core_in_brackets(run):
    """`stf.kernel` takes one, with grid and block or a LaunchConfig, and launches it on the device that is asked for."""
    pytest.importorskip("cuda.core", exc_type=ImportError)

    def body():
        from cuda.core import Device, LaunchConfig, ObjectCode

        function("store", "pd", stores(ctypes.c_double))
        Device(0).set_current()
        kernel = stf.kernel(ObjectCode.from_cubin(b"any").get_kernel("store"))
        with stf.context(devices="cuda:0,1") as ctx:
            x = ctx.logical_data(np.zeros(2))
            kernel[4, 32](x.rw(), 2.0)
            assert x.numpy().tolist() == [2, 0]
            kernel[LaunchConfig(grid=4, block=32)](x.rw(), 3.0)
            assert x.numpy().tolist() == [3, 0]
            before = ctx.statistics().total_copies
            kernel.on(1)[4, 32](x.rw(), 5.0)
            assert ctx.statistics().total_copies == before + 1 and x.numpy().tolist() == [5, 0]
            with ctx.task_graph() as graph:
                kernel[4, 32](x.rw(), 7.0)
            for _ in range(2):
                ctx.fill(x, 1.0)
                graph.launch()
                assert x.numpy().tolist() == [7, 1]
            with pytest.raises(TypeError, match="has 2 parameters, got 1 arguments"):
                kernel[4, 32](x.rw())
            with pytest.raises(TypeError, match="takes no keyword arguments, got n"):
                kernel[4, 32](x.rw(), 7.0, n=1)

    run(body)


def test_a_numba_kernel_knows_how_an_array_lies_where_it_is_used(run):
    """Packed on a device, with gaps on the host, where it is used as it is; compiled for C order, strides are ignored."""

    def body():
        compiled = []

        def add_up(parameters):
            def field(i):
                return ctypes.c_int64.from_address(parameters[i]).value

            data, rows, columns, step, inner = (field(i) for i in range(4, 9))
            if compiled[-1] == "C":
                step, inner = 8 * columns, 8
            elements = [(i, j) for i in range(rows) for j in range(columns)]
            values = [ctypes.c_double.from_address(data + i * step + j * inner).value for i, j in elements]
            ctypes.c_double.from_address(field(13)).value = sum(values)

        handle, found = ctypes.c_void_p(), ctypes.c_void_p()
        function("add_up", "q" * 16, add_up)
        assert library.cuLibraryLoadData(ctypes.byref(handle), b"any", None, None, 0, None, None, 0) == 0
        assert library.cuLibraryGetKernel(ctypes.byref(found), handle, b"add_up") == 0

        class Dispatcher:
            __module__ = "numba.cuda.dispatcher"
            py_func = staticmethod(add_up)

            def compile(self, kinds):
                compiled.append(kinds[0].layout)
                code = types.SimpleNamespace(get_cufunc=lambda: types.SimpleNamespace(handle=found.value))
                return types.SimpleNamespace(_codelibrary=code)

        class Devices:
            def __getitem__(self, index):
                return cupy.cuda.Device(index)

        numba = pytest.importorskip("numba")
        numba.cuda = types.SimpleNamespace(gpus=Devices())
        X = np.arange(20.0).reshape(4, 5)[:, ::2]
        kernel = stf.kernel(Dispatcher())
        with stf.context() as ctx:
            x, total = ctx.logical_data(X), ctx.logical_data(np.zeros(1))
            for place in (None, stf.data_place.host(), None):
                kernel[1, 1](x.read(place), total.write())
                assert total.numpy()[0] == X.sum(), place
        assert compiled == ["C", "A"]

    run(body)


def test_numba_kernels_with_signatures(run):
    """Numbers are converted as Numba does, the arguments are checked, and of several signatures one is chosen."""

    def body():
        numba = pytest.importorskip("numba")
        from numba import types as of

        def kernel_of(name, signature, kind):
            """A kernel (array of one axis, number) that adds the number to the first element."""

            def add(parameters):
                data = ctypes.c_int64.from_address(parameters[4]).value
                ctypes.c_double.from_address(data).value += kind.from_address(parameters[7]).value

            handle, found = ctypes.c_void_p(), ctypes.c_void_p()
            function(name, signature, add)
            assert library.cuLibraryLoadData(ctypes.byref(handle), b"any", None, None, 0, None, None, 0) == 0
            assert library.cuLibraryGetKernel(ctypes.byref(found), handle, name.encode()) == 0
            code = types.SimpleNamespace(get_cufunc=lambda: types.SimpleNamespace(handle=found.value))
            return types.SimpleNamespace(_codelibrary=code)

        class Dispatcher:
            """What ``cuda.jit`` makes of signatures: it compiles nothing else."""

            __module__ = "numba.cuda.dispatcher"
            _can_compile = False

            def __init__(self, overloads):
                self.overloads = overloads
                self.specialized = len(overloads) == 1

            def py_func(self):
                pass

            def compile(self, kinds):
                if self.specialized:
                    return next(iter(self.overloads.values()))
                raise RuntimeError("Compilation disabled")

        class Devices:
            def __getitem__(self, index):
                return cupy.cuda.Device(index)

        numba.cuda = types.SimpleNamespace(gpus=Devices())
        array = of.float64[:]
        real = kernel_of("real", "q" * 8, ctypes.c_double)
        short = kernel_of("short", "q" * 7 + "i", ctypes.c_float)
        whole = kernel_of("whole", "q" * 7 + "i", ctypes.c_int32)
        one = stf.kernel(Dispatcher({(array, of.float64): real}))
        narrow = stf.kernel(Dispatcher({(array, of.float32): short}))
        several = stf.kernel(Dispatcher({(array, of.float64): real, (array, of.int32): whole}))
        with stf.context() as ctx:
            x = ctx.logical_data(np.zeros(3))
            total = 0.0
            for value in (2.0, 2, True, np.float32(0.5), np.int8(-3), np.uint64(7)):
                one[1, 1](x.rw(), value)
                narrow[1, 1](x.rw(), value)
                total += 2 * float(value)
                assert x.numpy()[0] == total
            for value in (2.5, 3, np.int64(-4)):
                several[1, 1](x.rw(), value)
                total += float(value)
                assert x.numpy()[0] == total
            g = ctx.task_graph()
            with g:
                one[1, 1](x.rw(), g.param("a", 1))
                narrow[1, 1](x.rw(), g.param("b", 1.0))
            for a, b in ((2.0, 3), (5, 0.25)):
                g.launch(a=a, b=b)
                total += a + b
                assert x.numpy()[0] == total
            plane, floats = ctx.logical_data_zeros((3, 2)), ctx.logical_data_zeros(3, np.float32)
            wrong = [(), (2.0, 3.0), (x.read(),), (1j,), ("2",)]
            for args in wrong:
                with pytest.raises((TypeError, ValueError)):
                    one[1, 1](x.rw(), *args)
            for data in (plane, floats):
                with pytest.raises(TypeError, match=r"is compiled for \(array\(float64.*float64\), got \(array"):
                    one[1, 1](data.rw(), 2.0)
            with pytest.raises(TypeError, match="is int32, and takes no 4294967296"):
                stf.kernel(Dispatcher({(array, of.int32): whole}))[1, 1](x.rw(), 1 << 32)
            with pytest.raises(TypeError, match="is compiled for .*int32.*, got .*float64"):
                stf.kernel(Dispatcher({(array, of.int32): whole}))[1, 1](x.rw(), 2.5)
            assert x.numpy()[0] == total

    run(body)


def test_kernels_with_many_bytes_of_parameters(run):
    """CUDA passes 32,764."""

    def body():
        def add_up(parameters):
            target = ctypes.c_uint64.from_address(parameters[0]).value
            values = (ctypes.c_int64.from_address(parameters[i]).value for i in range(1, 4001))
            ctypes.c_double.from_address(target).value = sum(values)

        wide = function("wide", "p" + "q" * 4000, add_up)
        with stf.context() as ctx:
            x = ctx.logical_data(np.zeros(1))
            ctx.launch_kernel(wide, (1, 1), x.write(), *range(4000))
            assert x.numpy()[0] == sum(range(4000))
            g = ctx.task_graph()
            with g:
                ctx.launch_kernel(wide, (1, 1), x.write(), *range(3999), g.param("a", 1))
            for a in (5, 70):
                g.launch(a=a)
                assert x.numpy()[0] == sum(range(3999)) + a
            with pytest.raises(
                TypeError, match="'kernel' has 33608 bytes of parameters, and CUDA passes 32764 at most"
            ):
                ctx.launch_kernel(function("wider", "p" + "q" * 4200, add_up), (1, 1), x.write(), *range(4200))

    run(body)


def test_what_is_no_pointer_gets_no_data(run):
    def body():
        kernel = function("stores", "pi", stores(ctypes.c_int))
        with stf.context() as ctx:
            x = ctx.logical_data(np.zeros(1))
            with pytest.raises(
                TypeError, match=r"parameter 1 of kernel 'kernel' is 4 bytes, which is no pointer.*order"
            ):
                ctx.launch_kernel(kernel, (1, 1), 3, x.rw())
            with pytest.raises(TypeError, match=r"has no memory; leave it out"):
                ctx.launch_kernel(kernel, (1, 1), ctx.token().rw(), 3)

    run(body)


def test_a_launch_that_the_driver_refuses_is_named(run):
    """Among many kernels nobody would know which one it was."""

    def body():
        kernel = function("stores", "pi", stores(ctypes.c_int))
        with stf.context() as ctx:
            x = ctx.logical_data(np.zeros(1))
            with pytest.raises(stf.DriverError) as caught:
                ctx.launch_kernel(kernel, (2, 4096), x.rw(), 3, name="mine")
            assert any(
                "kernel 'kernel' in task 'mine'" in note and "grid (2, 1, 1), block (4096, 1, 1)" in note
                for note in caught.value.__notes__
            ), caught.value.__notes__

    run(body)


def test_what_kernels_print_is_shown_when_the_host_has_waited(run):
    def body():
        from stf._backends.kernels import printing

        with stf.context(devices="cuda:0") as ctx:
            x = ctx.logical_data(np.zeros(4))
            for prints in False, True:
                printing[0] = prints
                ctx.fill(x, 1.0)
                ctx.synchronize()
                before = fakecuda.calls("cuStreamSynchronize")
                ctx.synchronize()  # all is done
                assert fakecuda.calls("cuStreamSynchronize") == before + prints
            printing[0] = False
        assert fakecuda.leaks() == {}

    run(body)
