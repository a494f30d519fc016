"""Registered host memory on the stand-in: what overlaps, who shares it, when it ends."""

from __future__ import annotations

import pytest

PRELUDE = """
from caller_tools import *

class Exporter:
    "Part of an array that is known by DLPack alone, as a torch tensor on the CPU is."
    def __init__(self, array):
        self.array = array
    def __dlpack_device__(self):
        return (1, 0)
    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

def registered():
    return fakecuda.counts()["registrations"]
"""

# The bodies below run elsewhere, with the names of the prelude.
# ruff: noqa: F821


@pytest.mark.parametrize("way", ["view", "dlpack", "numpy"])
def test_interleaved_blocks_of_one_matrix(run, way):
    """Their spans overlap, and CUDA copies nothing that is registered in part only."""

    def body():
        A = np.zeros((256, 512))
        known = []
        with stf.context(devices="cuda:0") as ctx:
            for j in range(2):
                part = A[:, 256 * j : 256 * (j + 1)]
                if way == "view":
                    part = stf.view(part.ctypes.data, part.shape, part.dtype, part.strides, owner=A)
                elif way == "dlpack":
                    part = Exporter(part)
                known.append(ctx.logical_data(part))
                add(ctx, known[j])
            assert registered() == 1
            known.clear()
        assert A[0, 0] == A[0, 511] == 1
        assert registered() == 0

    run(body, f"way = {way!r}\n")


@pytest.mark.parametrize("shared", [True, False])
def test_arrays_that_overlap_in_two_contexts(run, shared):
    def body():
        buffer = bytearray(1 << 21)
        first = np.frombuffer(buffer, np.float64, count=1 << 17)
        second = np.frombuffer(buffer, np.float64, count=1 << 17, offset=1 << 19)
        options = {"resources": stf.Resources()} if shared else {}
        one, two = stf.context(devices="cuda:0", **options), stf.context(devices="cuda:0", **options)
        known = one.logical_data(first, readonly=True)
        one.copy(known, one.logical_data_empty(first.shape))
        other = two.logical_data(second, readonly=True)
        out = two.logical_data_empty(second.shape)
        two.copy(other, out)
        assert out.numpy().sum() == 0 and registered() == 1
        one.finalize()
        assert registered() == 1  # the other one uses it still
        two.copy(other, out)
        two.finalize()
        if shared:
            options["resources"].close()
        assert registered() == 0

    run(body, f"shared = {shared}\n")


def test_memory_without_an_owner_is_registered_no_longer_than_it_is_used(run):
    """Its address may be other memory's as soon as it was released."""

    def body():
        size = 1 << 20
        libc = ctypes.CDLL(None)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
        libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        with stf.context(devices="cuda:0") as ctx:
            for _ in range(3):
                address = libc.mmap(None, size, 3, 0x22, -1, 0)
                data = ctx.logical_data(stf.view(address, size // 8, np.float64))
                before = fakecuda.calls("cuMemHostRegister")
                add(ctx, data)
                data.release()
                ctx.synchronize()
                assert fakecuda.calls("cuMemHostRegister") == before + 1 and registered() == 0
                assert (
                    np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_double)), (size // 8,)) == 1
                ).all()
                libc.munmap(address, size)
            X = np.zeros(size)
            for _ in range(3):  # NumPy's own memory stays: registering it anew takes long
                data = ctx.logical_data(X)
                add(ctx, data)
                del data
                ctx.synchronize()
            assert registered() == 1 and fakecuda.calls("cuMemHostRegister") == before + 2
        assert registered() == 0

    run(body)


def test_threads_that_share_resources(run):
    """Each finalizes while the other registers."""

    def body():
        shared, errors = stf.Resources(), []
        common = np.zeros(20000)

        def work():
            try:
                for _ in range(60):
                    own = np.zeros(20000)
                    with stf.context(devices="cuda:0", resources=shared) as ctx:
                        add(ctx, ctx.logical_data(own))
                        ctx.copy(ctx.logical_data(common, readonly=True), ctx.logical_data_empty(common.shape))
                    assert (own == 1).all()
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        shared.close()
        assert registered() == 0

    run(body)


def test_what_is_being_unregistered_is_not_taken_for_registered(run):
    """Who registers it meanwhile waits, and then registers it anew."""

    def body():
        from stf._drivers.pinning import Pins, table

        array, calls, inside, go = np.zeros(100000), [], threading.Event(), threading.Event()
        address = array.__array_interface__["data"][0]

        def unregister(start):
            inside.set()
            go.wait(10)
            calls.append("unregistered")

        pins = Pins(lambda start, size: calls.append("registered") or True, unregister)
        assert pins.hold(address, array.nbytes, array) == 1
        pins.let_go(address, array.nbytes, array)
        first = threading.Thread(target=pins.forget_unused)
        first.start()
        inside.wait(10)
        found = []
        second = threading.Thread(target=lambda: found.append(pins.hold(address, array.nbytes, array)))
        second.start()
        time.sleep(0.05)
        assert found == []
        go.set()
        first.join()
        second.join()
        assert found == [1] and calls == ["registered", "unregistered", "registered"] and len(pins) == 1
        pins.let_go(address, array.nbytes, array)
        pins.close()
        assert not table.pins and not table.starts and table.unused == 0 and table.changing == []

    run(body)


def test_a_buffer_that_its_owner_closes_is_registered_no_longer_than_it_is_used(run):
    """An array over shared memory keeps the segment, and not the segment from being closed; the next one may get its address."""

    def body():
        from multiprocessing.shared_memory import SharedMemory

        with stf.context(devices="cuda:0") as ctx:
            for _ in range(3):
                segment = SharedMemory(create=True, size=1 << 20)
                X = np.ndarray((1 << 17,), np.float64, buffer=segment.buf)
                X[:] = 0
                before = fakecuda.calls("cuMemHostRegister")
                data = ctx.logical_data(X)
                add(ctx, data)
                data.release()
                ctx.synchronize()
                assert (X == 1).all() and fakecuda.calls("cuMemHostRegister") == before + 1 and registered() == 0
                del X, data
                segment.close()
                segment.unlink()

    run(body)


@pytest.mark.parametrize("thread", ["0", "1"])
@pytest.mark.parametrize("kind", ["buffer", "segment", "file"])
def test_memory_stays_registered_until_every_device_is_done_with_it(run, kind, thread, tmp_path):
    """CUDA waits for some of the devices before it undoes that; a copy of another one would fail, and lose it."""

    def body():
        from multiprocessing.shared_memory import SharedMemory

        for k in range(20):
            if kind == "buffer":
                X = np.frombuffer(bytearray(160000))
            elif kind == "file":
                X = np.memmap(folder + f"/x{k}", np.float64, "w+", shape=(20000,))
            else:
                segment = SharedMemory(create=True, size=160000)
                X = np.ndarray((20000,), np.float64, buffer=segment.buf)
            X[:] = 0
            with stf.context(devices="cuda:0,1") as ctx:
                data = ctx.logical_data(X)
                ctx.launch_kernel(add_one, (1, 1), data.rw(), data.size, place=1)
                del data
            assert (X == 1).all() and registered() == 0, fakecuda.describe()
            if kind == "segment":
                del X
                segment.close()
                segment.unlink()

    before = f"kind, folder = {kind!r}, {str(tmp_path)!r}\n"
    run(body, before, STF_DEVICES="cuda:0,1", FAKECUDA_DEVICES="2", FAKECUDA_SEED="1", STF_SUBMIT_THREAD=thread)


def test_memory_that_grows_is_registered_anew_when_every_device_is_done_with_it(run):
    def body():
        for _ in range(20):
            buffer = bytearray(320000)
            first, second = np.frombuffer(buffer, count=20000), np.frombuffer(buffer, offset=80000, count=20000)
            with stf.context(devices="cuda:0,1") as one, stf.context(devices="cuda:0,1") as two:
                data = one.logical_data(first)
                one.launch_kernel(add_one, (1, 1), data.rw(), data.size, place=1)
                del data
                two.copy(two.logical_data(second, readonly=True), two.logical_data_empty(second.shape))
            assert (first == 1).all(), fakecuda.describe()

    run(body, STF_DEVICES="cuda:0,1", FAKECUDA_DEVICES="2", FAKECUDA_SEED="1")


def test_a_context_on_a_callers_stream_that_ends_waits_for_no_work_of_the_callers(run):
    """Memory that its owner may take back is not registered for it: to undo that waits for the devices."""

    def body():
        stream = new_stream(0)
        X = np.frombuffer(bytearray(160000))
        ctx = stf.context(stream=stream)
        data = ctx.logical_data(X)
        add(ctx, data)
        held = Held(stream)
        ctx.finalize()
        assert not is_idle(stream) and registered() == 0
        held.go.set()
        stream.synchronize()
        assert (X == 1).all()

    run(body)


def test_a_segment_that_was_closed_before_anybody_looked_is_not_taken_for_the_next_one(run):
    """A fence says that its copies are over, and lets nothing go."""

    def body():
        from multiprocessing.shared_memory import SharedMemory

        with stf.context(devices="cuda:0,1") as ctx:
            for k in range(6):
                segment = SharedMemory(create=True, size=1 << 20)
                X = np.ndarray((1 << 17,), np.float64, buffer=segment.buf)
                X[:] = k
                data = ctx.logical_data(X)
                ctx.launch_kernel(add_one, (1, 1), data.rw(), data.size, place=k % 2)
                data.release()
                ctx.fence().synchronize()
                assert (k + 1 == X).all(), fakecuda.describe()
                del X, data
                segment.close()
                segment.unlink()
        assert registered() == 0 and fakecuda.describe() == ""

    run(body, STF_DEVICES="cuda:0,1", FAKECUDA_DEVICES="2")
