"""Launches on the stand-in: which data they get, what they wait for, what is refused."""

from __future__ import annotations

import pytest

PRELUDE = """
from caller_tools import *
import types

axpy = kernel(b"axpy")  # (a, p, q, n): q[i] += a * p[i]
COOPERATIVE = types.SimpleNamespace(grid=(1,), block=(1,), shmem_size=0, cluster=None, is_cooperative=True)
OVERLAPPING = types.SimpleNamespace(grid=1, block=1, shmem_size=0, programmatic_stream_serialization=True)

class Telling:
    "A device array that tells what it is told."
    def __init__(self, address, kind="<f8"):
        self.__cuda_array_interface__ = dict(shape=(8,), typestr=kind, data=(address, False), version=3, strides=None)
"""

# The bodies below run elsewhere, with the names of the prelude.
# ruff: noqa: F821


def test_launches_in_a_block_get_the_data_that_they_name(run):
    def body():
        X, Y = np.arange(4.0), np.ones(4)
        with stf.context(devices="cuda:0") as ctx:
            x, y, z = ctx.logical_data(X, name="X"), ctx.logical_data(Y, name="Y"), ctx.logical_data_zeros(4)
            with ctx.cuda_kernel(x.rw(), y.read()) as k:
                k.launch(axpy, 1, 1, (2.0, y.read(), x.rw(), 4))
                with pytest.raises(stf.AccessError, match="'Y' .*the task was not: pass it to ctx.cuda_kernel too"):
                    k.launch(axpy, 1, 1, (2.0, x.read(), y.rw(), 4))  # to be read only
                with pytest.raises(stf.AccessError, match="the task was not"):
                    k.launch(axpy, 1, 1, (2.0, z.read(), x.rw(), 4))
                with pytest.raises(TypeError, match="integral number of bytes, got 1.5"):
                    k.launch(axpy, 1, 1, (2.0, y.read(), x.rw(), 4), shmem_size=1.5)
                with pytest.raises(ValueError, match="from 0 to 2147483647, got -1"):
                    k.launch(axpy, 1, 1, (2.0, y.read(), x.rw(), 4), shmem_size=-1)
        assert X.tolist() == [2, 3, 4, 5] and Y.tolist() == [1, 1, 1, 1]

    run(body)


@pytest.mark.parametrize("use_graph", [False, True])
def test_interfaces_of_arrays_in_a_block_of_launches(run, use_graph):
    def body():
        X, Y = np.arange(4.0), np.ones(4)

        class Pair(tuple):
            pass

        stf.register_data_interface(Pair, flatten=tuple, unflatten=lambda pair, parts: Pair(parts))
        with stf.context(devices="cuda:0", use_graph=use_graph) as ctx:
            x, y = ctx.logical_data(X), ctx.logical_data(Pair([np.zeros(2), Y]))
            for _ in range(3):
                with ctx.cuda_kernel(y.read(), x.rw(), name="block") as k:
                    memory = k.get_arg_cai(1).__cuda_array_interface__
                    assert memory["data"][0] == k.get_arg(1) and memory["shape"] == (4,)
                    with pytest.raises(TypeError, match="access 0 of task 'block' is to data made of several arrays"):
                        k.get_arg_cai(0)
                    k.launch(axpy, 1, 1, (2.0, y.parts[1].read(), memory["data"][0], 4))
            with pytest.raises(TypeError, match=r"got data made of several arrays, .*lA.parts\[0\].rw()"):
                ctx.launch_kernel(axpy, (1, 1), 2.0, y.read(), x.rw(), 4)
            ctx.launch_kernel(axpy, (1, 1), 2.0, y.parts[1].read(), x.rw(), 4, name="mine")
            assert "mine" in str(x.history())
            with pytest.raises(TypeError, match="a name is text, got 5"):
                ctx.launch_kernel(axpy, (1, 1), 2.0, y.parts[1].read(), x.rw(), 4, symbol=5)
        assert X.tolist() == [8, 9, 10, 11]

    run(body, f"use_graph = {use_graph}\n")


@pytest.mark.parametrize("config", ["COOPERATIVE", "OVERLAPPING", "(1, 1)"])
@pytest.mark.parametrize("where", ["None", "stf.exec_place.cuda_stream(new_stream())"])
def test_every_launch_waits_for_a_body_on_the_host(run, config, where):
    def body():
        A, X = np.zeros(8), np.zeros(8)
        with stf.context(devices="cuda:0") as ctx:
            a, x = ctx.logical_data(A), ctx.logical_data(X)

            def slow(values):
                time.sleep(0.2)
                values += 5

            ctx.host_launch(a.rw())(slow)
            ctx.launch_kernel(axpy, config, 1.0, a.read(), x.rw(), 8, place=where)
        assert (X == 5).all()

    run(body, f"config, where = {config}, {where}\n")


def test_a_wait_for_ever_is_refused_on_a_callers_stream(run):
    """The launch waits for the body, which waits for the launch's data."""

    def body():
        A, X = np.zeros(8), np.zeros(8)
        place = stf.exec_place.cuda_stream(new_stream())
        ctx = stf.context(devices="cuda:0")
        a, x = ctx.logical_data(A, name="A"), ctx.logical_data(X, name="X")
        box = [x]

        def submits(values):
            time.sleep(0.2)
            add(ctx, box[0])

        ctx.host_launch(a.rw())(submits)
        told = []
        try:
            ctx.launch_kernel(axpy, (1, 1), 1.0, a.read(), x.rw(), 8, place=place)
            ctx.finalize()
        except stf.Error as error:
            told.append(error)
        assert told and "waits for data that is not free before that body ends" in str(told[0])
        ctx.finalize()

    run(body)


def test_a_launch_that_cuda_will_refuse_is_refused_at_once(run):
    """Also where it would be given to CUDA later, behind a body on the host."""

    def body():
        X, Y, go = np.zeros(20000), np.zeros(20000), threading.Event()
        with stf.context(devices="cuda:0") as ctx:
            x, y = ctx.logical_data(X), ctx.logical_data(Y)
            add(ctx, y)
            ctx.host_launch(x.rw())(lambda values: go.wait(10) and None)
            for config in ((1, 2048), (1, (1, 1, 65)), ((1, 65536), 1), (1, 1, 1 << 20)):
                with pytest.raises(
                    stf.DriverError, match="cuLaunchKernel failed on cuda:0 with CUDA_ERROR_INVALID_VALUE"
                ):
                    ctx.launch_kernel(add_one, config, x.rw(), 20000)
            add(ctx, x)
            go.set()
        assert Y[0] == 1 and X[0] == 1
        del x, y, ctx
        nothing_left()

    run(body)


def test_arrays_with_gaps(run):
    """They are refused, unless the kernel is told of them; extents of 0 and 1 make no gaps."""

    def body():
        M = cupy.zeros((4, 10))
        packed = M[:1, :5], M[1:2], M[::2][:1], M[:0], M[:, :0], M[::2][1:2].T, cupy.zeros((0, 3))
        for view in packed:
            with stf.context(devices="cuda:0") as ctx:
                ctx.launch_kernel(add_one, (1, 1), ctx.logical_data(view).rw(), view.size)
        told, kind = [], ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)

        def tell(parameters, _):
            told.append([ctypes.c_int64.from_address(parameters[i]).value for i in range(5)])

        kept = kind(tell)
        fakecuda.add_kernel("shapes", "pqqqq", ctypes.cast(kept, ctypes.c_void_p).value)
        shapes = kernel(b"shapes")
        with stf.context(devices="cuda:0") as ctx:
            known = ctx.logical_data(M[:3, :5])
            with pytest.raises(ValueError, match=r"lies with gaps there; .*lX.read\(\).array"):
                ctx.launch_kernel(add_one, (1, 1), known.rw(), 15)
            ctx.launch_kernel(shapes, (1, 1), known.read().array)
            with ctx.cuda_kernel(known.rw()) as k:
                k.launch(shapes, 1, 1, [known.rw().array])
            scalar = ctx.logical_data_zeros(())
            ctx.launch_kernel(add_one, (1, 1), scalar.rw().array, 1)
            assert scalar.numpy() == 1
            with pytest.raises(TypeError, match="has no pointer"):
                ctx.token().rw().array
        assert told == [[M.data.ptr, 3, 5, 80, 8]] * 2

    run(body)


def test_slices_are_structs(run):
    """Of a pointer, the extents and the strides in elements; alone, among other launches, in graphs and replays."""

    def body():
        told, kind = [], ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)

        def tell(parameters, _):  # double, slice of two axes, int, slice of one axis; adds to each element
            words = [ctypes.cast(parameters[i], ctypes.POINTER(ctypes.c_int64)) for i in range(4)]
            amount = ctypes.c_double.from_address(parameters[0]).value
            told.append((words[1][1:5], words[3][1:3], ctypes.c_int32.from_address(parameters[2]).value))
            _, n, m, step, inner = words[1][:5]
            for i, j in itertools.product(range(n), range(m)):
                ctypes.c_double.from_address(words[1][0] + 8 * (i * step + j * inner)).value += amount
            for k in range(words[3][1]):
                ctypes.c_float.from_address(words[3][0] + 4 * k * words[3][2]).value += amount

        import itertools

        kept = kind(tell)
        fakecuda.add_kernel("slices", "d2i1", ctypes.cast(kept, ctypes.c_void_p).value)
        slices = kernel(b"slices")
        whole, line = cupy.zeros((4, 10)), cupy.zeros(12, np.float32)
        with stf.context(devices="cuda:0") as ctx:
            m, v = ctx.logical_data(whole[:3, 1:9:2], name="M"), ctx.logical_data(line[::-4], name="V")
            ctx.launch_kernel(slices, (1, 1), 1.0, m.rw().slice, 7, v.rw().slice)
            stf.kernel(slices)[1, 1](1.0, m.rw().slice, 7, v.rw().slice)
            with ctx.cuda_kernel(m.rw(), v.rw()) as k:
                k.launch(slices, 1, 1, (1.0, m.rw().slice, 7, v.rw().slice))
            with ctx.task_graph() as g:
                ctx.launch_kernel(slices, (1, 1), 10.0, m.rw().slice, 7, v.rw().slice)
            for _ in range(2):
                g.launch()
            other = ctx.logical_data_zeros((3, 4))
            with pytest.raises(
                TypeError, match="parameter 1 .* is 40 bytes, and .* as a slice of 1 axes is 24: a pointer"
            ):
                ctx.launch_kernel(slices, (1, 1), 1.0, v.rw().slice, 7, v.rw().slice)
            with pytest.raises(TypeError, match="is 40 bytes, which is no pointer"):
                ctx.launch_kernel(slices, (1, 1), 1.0, other.rw(), 7, v.rw().slice)
            with pytest.raises(TypeError, match="has no pointer; give a kernel an access to an array"):
                ctx.token().rw().slice
            scalar = ctx.logical_data_zeros(())
            ctx.launch_kernel(add_one, (1, 1), scalar.rw().slice, 1)
            assert scalar.numpy() == 1
        expected = np.zeros((4, 10))
        expected[:3, 1:9:2] = 23
        assert (whole.get() == expected).all() and line.get().tolist() == [0, 0, 0, 23.0] * 3
        assert told == [([3, 4, 10, 2], [3, -4], 7)] * 5

    run(body)


def test_strides_that_are_no_elements(run):
    def body():
        records = cupy.zeros(12, np.float32)[:].data.ptr
        with stf.context(devices="cuda:0") as ctx:
            odd = stf.view(records, 4, np.float64, (12,), data_place=stf.data_place.device(0))
            data = ctx.logical_data(odd, readonly=True)
            kind = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)
            kept = kind(lambda *_: None)
            fakecuda.add_kernel("odd", "1", ctypes.cast(kept, ctypes.c_void_p).value)
            with pytest.raises(ValueError, match=r"no whole elements there, got \(12,\) bytes; .*lX.read\(\).array"):
                ctx.launch_kernel(kernel(b"odd"), (1, 1), data.read().slice)

    run(body)


def test_what_is_no_argument_is_told_with_what_to_pass(run):
    def body():
        with stf.context(devices="cuda:0") as ctx:
            x, y = ctx.logical_data(np.zeros(4), name="X"), ctx.logical_data(np.zeros(4))
            with pytest.raises(TypeError, match=r"got logical data 'X'.*lX.read\(\), lX.write\(\) or lX.rw\(\)"):
                ctx.launch_kernel(axpy, (1, 1), 2.0, x, y.rw(), 4)
            with pytest.raises(TypeError, match="register it with ctx.logical_data and pass an access"):
                ctx.launch_kernel(axpy, (1, 1), 2.0, cupy.zeros(4), y.rw(), 4)
        with pytest.raises(stf.PlaceError, match="cannot be split"):
            stf.green_places(16)

    run(body)


def test_arrays_without_memory(run):
    """An address of 0 with elements, and Python objects, are no arrays of a device."""

    def body():
        with stf.context(devices="cuda:0") as ctx:
            with pytest.raises(ValueError, match=r"Telling of shape \(8,\) has no memory: its address is 0"):
                ctx.logical_data(Telling(0))
            with pytest.raises(TypeError, match="Python objects"):
                ctx.logical_data(Telling(cupy.zeros(8).data.ptr, "|O"))
            with pytest.raises(TypeError, match="Python objects"):
                stf.view(64, 8, object, data_place=stf.data_place.device(0))

    run(body)


def test_a_context_on_a_callers_stream_that_is_open_at_exit(run):
    def body():
        import subprocess
        import sys

        code = (
            "from caller_tools import *\nX, s = np.zeros(20000), new_stream()\nctx = stf.context(stream=s)\n"
            "add(ctx, ctx.logical_data(X))\nimport atexit\n"
        )
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode == 0 and "Exception ignored" not in done.stderr, done.stderr

    run(body)


def test_errors_are_checked_after_shared_resources_were_closed(run):
    def body():
        s, X, shared = new_stream(), np.zeros(8), stf.Resources()
        with stf.context(stream=s, resources=shared) as ctx:
            add(ctx, ctx.logical_data(X))
        s.synchronize()
        shared.close()
        assert X[0] == 1 and ctx.check_errors() is None

    run(body)


def test_tasks_of_launches_are_built_as_other_tasks_are(run):
    def body():
        X = np.ones(8)
        with stf.context(devices="cuda:0,1") as ctx:
            x, y = ctx.logical_data(X), ctx.logical_data(np.zeros(8))
            with ctx.cuda_kernel(x.read(), symbol="first").add_dep(y.rw()).set_symbol("axpy").on(1) as k:
                assert k.task.symbol == "axpy" and k.task.place == stf.exec_place.device(1)
                k.launch(axpy, 1, 1, (2.0, k.get_arg(0), k.get_arg(1), 8), shmem=0)
                assert k.get_arg_cai(1).__cuda_array_interface__["data"][0] == k.get_arg(1)
                with pytest.raises(stf.TaskStateError, match="which has started"):
                    k.add_deps(x.read())
            k = ctx.cuda_kernel().add_deps(x.read(), y.rw()).set_exec_place(0).start()
            k.launch(axpy, 1, 1, (3.0, x.read(), y.rw(), 8))
            k.end()
            with pytest.raises(stf.TaskStateError, match="launch outside"):
                k.launch(axpy, 1, 1, (3.0, x.read(), y.rw(), 8))
            assert y.numpy().tolist() == [5] * 8

    run(body)


def test_what_stands_for_no_parameter_is_told(run):
    def body():
        with stf.context(devices="cuda:0") as ctx:
            x, token = ctx.logical_data(np.zeros(8), name="X"), ctx.token(name="T")
            with pytest.raises(TypeError, match="got <rw access to token 'T'>, which has no memory; leave it out"):
                ctx.launch_kernel(axpy, (1, 1), 1.0, token.rw(), x.rw(), 8)
            with pytest.raises(
                TypeError, match="got <rw access to .*'X'.*> as an array, which takes a pointer, the ext"
            ):
                ctx.launch_kernel(axpy, (1, 1), 1.0, x.rw().array, x.rw(), 8)
            with ctx.cuda_kernel(x.rw()) as k:  # which is there
                k.launch(axpy, 1, 1, (1.0, x.rw(stf.data_place.device(0)), x.rw(), 8))
            with ctx.cuda_kernel(x.rw(stf.data_place.host())) as k:
                with pytest.raises(
                    stf.AccessError, match=r"at device\(0\), and the task was not: pass it to ctx.cuda_k"
                ):
                    k.launch(axpy, 1, 1, (1.0, x.rw(stf.data_place.device(0)), x.rw(), 8))

    run(body)


def test_stream_objects_are_made_once(run):
    """A repeated task builds none."""

    def body():
        seen = []

        @stf.task
        def look(x: stf.ReadWrite, s: stf.Stream):
            seen.append(s)

        with stf.context(devices="cuda:0") as ctx:
            x = ctx.logical_data(np.zeros(8))
            for _ in range(10):
                look(x)
            with ctx.task(x.rw()) as t:
                assert t.stream is t.stream is seen[0] and int(t.stream) == t.stream_ptr()
            assert len({id(s) for s in seen}) == 1

    run(body)


def test_what_speaks_dlpack_refuses_a_stream_that_is_none_and_leaves_nothing(run):
    def body():
        with stf.context(devices="cuda:0") as ctx:
            with ctx.task(ctx.logical_data(np.zeros(8)).rw()) as t:
                memory = t.get_arg_cai(0)
                assert memory.__cuda_array_interface__["version"] == 3
                before = fakecuda.counts()["events"]
                for _ in range(5):
                    with pytest.raises(TypeError):
                        memory.__dlpack__(stream="x")
                assert fakecuda.counts()["events"] == before

    run(body)


def test_addresses_of_streams_are_streams(run):
    """Ints that have ``__cuda_stream__``, of tasks at one place, on grids, and of fences."""

    def body():
        with stf.context(devices="cuda:0,1") as ctx:
            x = ctx.logical_data_zeros(3)
            with ctx.task(x.rw()) as t:
                found = [t.stream_ptr(), *t.stream_ptrs()]
                assert len(set(found)) == 1 and type(int(t.stream)) is int
            with ctx.task(ctx.devices, x.rw(stf.data_place.device(0))) as t:
                found += [t.stream_ptr(), *t.stream_ptrs()]
            found.append(ctx.fence().ptr)
            for pointer in found:
                assert isinstance(pointer, int) and pointer.__cuda_stream__() == (0, int(pointer))
            with ctx.task("host", x.read()) as t:
                assert t.stream_ptrs() == [t.stream_ptr()]

    run(body)
