"""Files read into replicas on a device, and written from them, by KvikIO and by cuFile.

Such a call takes an address, and knows nothing of streams unless it is told one. The memory of a replica is ready on
the task's stream, not before; so a body gives the stream to the call, or waits for the stream first.
"""

from __future__ import annotations

import ctypes
import os

import numpy as np
import pytest

import stf

cupy = pytest.importorskip("cupy")
pytestmark = pytest.mark.filterwarnings("ignore")  # those of the libraries
N = 1 << 20
X = np.arange(N, dtype=np.float32)
SPIN = r"""
extern "C" __global__ void late(float* x, float add, int n, long long cycles) {
    long long start = clock64();
    while (clock64() - start < cycles) {}
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) x[i] += add;
}"""


@stf.task(arrays="cupy")
def add_late(x: stf.ReadWrite, amount):
    """Add to the array, after 50 ms in which a call that does not wait would find the old content."""
    cupy.RawKernel(SPIN, "late")((64,), (256,), (x, np.float32(amount), np.int32(x.size), np.int64(75_000_000)))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "x.bin"
    X.tofile(path)
    return path


# -- KvikIO ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def kvikio():
    try:
        return pytest.importorskip("kvikio")
    except RuntimeError as error:  # it is there, and does not find NVIDIA's library
        if "libcufile" not in str(error):
            raise
        pytest.skip(f"KvikIO needs cuFile: {error}")


def test_kvikio_reads_and_writes_on_the_tasks_stream(run, kvikio, file, tmp_path):
    """Its asynchronous calls take the stream."""

    @stf.task(arrays="cupy")
    def load(x: stf.Write, path, stream: stf.Stream):
        with kvikio.CuFile(path, "r") as opened:
            future = opened.raw_read_async(x, int(stream))
            assert future.check_bytes_done() == x.nbytes

    @stf.task(arrays="cupy")
    def store(x: stf.Read, path, order: stf.ReadWrite, stream: stf.Stream):
        with kvikio.CuFile(path, "w") as opened:
            future = opened.raw_write_async(x, int(stream))
            assert future.check_bytes_done() == x.nbytes

    def prepare(ctx):
        lX, files = ctx.logical_data_empty(N, np.float32), ctx.token()
        copy = str(tmp_path / "copy.bin")

        def step():
            load(lX, str(file))
            add_late(lX, 3.0)
            store(lX, copy, files)

        def check(count):
            np.testing.assert_array_equal(lX.numpy(), X + 3)
            ctx.wait(files)
            np.testing.assert_array_equal(np.fromfile(copy, np.float32), X + 3)

        return step, check

    run(prepare)


def test_kvikio_in_a_body_that_waits_first(run, kvikio, file, tmp_path):
    """Its parallel reads and writes take no stream: the body waits for the task's, as they may start at once."""
    copy = str(tmp_path / "copy.bin")

    @stf.task(arrays="cupy")
    def load(x: stf.Write):
        cupy.cuda.get_current_stream().synchronize()
        with kvikio.CuFile(str(file), "r") as opened:
            assert opened.read(x) == x.nbytes

    @stf.task(arrays="cupy")
    def store(x: stf.Read, order: stf.ReadWrite):
        cupy.cuda.get_current_stream().synchronize()
        with kvikio.CuFile(copy, "w") as opened:
            assert opened.write(x) == x.nbytes

    def prepare(ctx):
        lX, files = ctx.logical_data_empty(N, np.float32), ctx.token()

        def step():
            load(lX)
            add_late(lX, 2.0)
            store(lX, files)

        def check(count):
            np.testing.assert_array_equal(lX.numpy(), X + 2)
            ctx.wait(files)
            np.testing.assert_array_equal(np.fromfile(copy, np.float32), X + 2)

        return step, check

    run(prepare)


# -- cuFile, by cuda.bindings ----------------------------------------------------------------------------------------


class OpenFile:
    """A file that is registered with cuFile, while it is open."""

    def __init__(self, cufile, path, flags):
        self.cufile = cufile
        self.number = os.open(path, flags, 0o600)
        descriptor = cufile.Descr()
        descriptor.type = int(cufile.FileHandleType.OPAQUE_FD)
        descriptor.handle.fd = self.number
        self.handle = cufile.handle_register(descriptor.ptr)

    def __enter__(self):
        return self.handle

    def __exit__(self, *error):
        self.cufile.handle_deregister(self.handle)
        os.close(self.number)


@pytest.fixture
def cufile(file):
    """The library, if it reads a file here: it knows some file systems, and others in its compatible mode at most."""
    module = pytest.importorskip("cuda.bindings.cufile")
    x = cupy.zeros(N, np.float32)  # cuFile uses the current context
    try:
        module.driver_open()
    except Exception as error:  # the library or its driver: it says which
        pytest.skip(f"cuFile does not open: {error}")
    try:
        with OpenFile(module, file, os.O_RDONLY) as handle:
            module.read(handle, x.data.ptr, x.nbytes, 0, 0)
    except module.cuFileError as error:
        module.driver_close()
        pytest.skip(f"cuFile does not read a file of {file_system(file)}: {error}")
    np.testing.assert_array_equal(x.get(), X)
    yield module
    module.driver_close()


def file_system(path):
    """Return the kind of the file system that a file lies on."""
    device = os.stat(path).st_dev
    here = f" {os.major(device)}:{os.minor(device)} "
    with open("/proc/self/mountinfo") as mounts:
        return next((line.partition(" - ")[2].split()[0] for line in mounts if here in line), "an unknown kind")


def test_cufile_in_a_body_that_waits_first(run, cufile, file, tmp_path):
    copy = str(tmp_path / "copy.bin")

    def read_into(x, stream):
        stream.synchronize()
        with OpenFile(cufile, file, os.O_RDONLY) as handle:
            assert cufile.read(handle, x.data.ptr, x.nbytes, 0, 0) == x.nbytes

    def write_from(x, stream):
        stream.synchronize()
        with OpenFile(cufile, copy, os.O_CREAT | os.O_RDWR) as handle:
            assert cufile.write(handle, x.data.ptr, x.nbytes, 0, 0) == x.nbytes

    @stf.task(arrays="cupy")
    def load(x: stf.Write):
        read_into(x, cupy.cuda.get_current_stream())

    @stf.task(arrays="cupy")
    def store(x: stf.Read, order: stf.ReadWrite):
        write_from(x, cupy.cuda.get_current_stream())

    def prepare(ctx):
        lX, files = ctx.logical_data_empty(N, np.float32), ctx.token()

        def step():
            load(lX)
            add_late(lX, 4.0)
            store(lX, files)

        def check(count):
            np.testing.assert_array_equal(lX.numpy(), X + 4)
            ctx.wait(files)
            np.testing.assert_array_equal(np.fromfile(copy, np.float32), X + 4)

        return step, check

    run(prepare)


def test_cufile_on_the_tasks_stream(cufile, file):
    """The sizes that it is given are read when the stream gets there: they live until then."""
    with stf.context(devices="cuda:0") as ctx:
        lX = ctx.logical_data_empty(N, np.float32)
        sizes = [ctypes.c_size_t(X.nbytes), ctypes.c_int64(0), ctypes.c_int64(0), ctypes.c_ssize_t(0)]
        opened = OpenFile(cufile, file, os.O_RDONLY)
        with opened as handle:
            with ctx.task(lX.write()) as t:
                pointer = int(t.stream_ptr())
                cufile.stream_register(pointer, 0)
                cufile.read_async(handle, t.get_arg(0), *map(ctypes.addressof, sizes), pointer)
            add_late(lX, 1.0)
            np.testing.assert_array_equal(lX.numpy(), X + 1)
            assert sizes[3].value == X.nbytes
            cufile.stream_deregister(pointer)
