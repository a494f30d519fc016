"""The Cholesky benchmark for GPUs on the stand-in: with array functions, and with cuBLAS and cuSOLVER played by NumPy."""

from __future__ import annotations

# The bodies below run elsewhere, with the names of the prelude of conftest.py.
# ruff: noqa: F821

LIBRARIES = '''
import ctypes, pathlib, sys
sys.path.insert(0, str(pathlib.Path(stf.__file__).parents[2] / "benchmarks" / "workloads" / "cholesky_gpu"))
import kernels as kernels_module, libraries, stf_tiled
kernels_module.WORKSPACE = 1 << 12
from kernels import ArrayKernels, CudaKernels
from matrix import Matrix, relative_error

driver = ctypes.CDLL("libcuda.so.1")

def at(pointer, rows, columns, leading):
    """A column-major block of the device's memory, which is the host's here."""
    whole = (ctypes.c_double * (leading * (columns - 1) + rows)).from_address(pointer)
    return np.lib.stride_tricks.as_strided(np.frombuffer(whole), (rows, columns), (8, 8 * leading))

class Played:
    """The functions that the kernels call; each waits for the stream of its handle, and then works at once."""
    def __init__(self):
        self.streams, self.calls = {}, []

    def new(self, create):
        self.streams[len(self.streams) + 1] = None
        return len(self.streams)

    def set_stream(self, handle, stream):
        self.streams[handle] = stream

    cublasSetStream = cusolverDnSetStream = set_stream

    def cublasSetWorkspace(self, handle, pointer, nbytes):
        assert self.streams[handle] is not None, "the stream takes the workspace away"

    def ready(self, handle, name):
        assert driver.cuStreamSynchronize(ctypes.c_void_p(self.streams[handle])) == 0
        self.calls.append((name, self.streams[handle]))

    def cublasDgemm(self, handle, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):
        self.ready(handle, "gemm")
        assert (ta, tb) == (0, 1) and number(alpha) == -1 and number(beta) == 1
        at(c, m, n, ldc)[...] -= at(a, m, k, lda) @ at(b, n, k, ldb).T

    def cublasDsyrk(self, handle, uplo, trans, n, k, alpha, a, lda, beta, c, ldc):
        self.ready(handle, "syrk")
        assert (uplo, trans) == (0, 0) and number(alpha) == -1 and number(beta) == 1
        rows, target = at(a, n, k, lda), at(c, n, n, ldc)
        target[np.tril_indices(n)] -= (rows @ rows.T)[np.tril_indices(n)]

    def cublasDtrsm(self, handle, side, uplo, trans, diag, m, n, alpha, a, lda, b, ldb):
        self.ready(handle, "trsm")
        assert (side, uplo, trans, diag) == (1, 0, 1, 0) and number(alpha) == 1
        at(b, m, n, ldb)[...] = np.linalg.solve(np.tril(at(a, n, n, lda)), at(b, m, n, ldb).T).T

    def cusolverDnDpotrf_bufferSize(self, handle, uplo, n, a, lda, size):
        ctypes.cast(size, ctypes.POINTER(ctypes.c_int))[0] = 4 * n

    def cusolverDnDpotrf(self, handle, uplo, n, a, lda, work, elements, info):
        self.ready(handle, "potrf")
        assert elements == 4 * n and uplo == 0
        block = at(a, n, n, lda)
        try:
            block[np.tril_indices(n)] = np.linalg.cholesky(np.tril(block) + np.tril(block, -1).T)[np.tril_indices(n)]
        except np.linalg.LinAlgError:
            ctypes.cast(info, ctypes.POINTER(ctypes.c_int))[0] = 1

    def cublasDestroy(self, handle):
        self.streams.pop(handle)

    cusolverDnDestroy = cublasDestroy

def number(address):
    return ctypes.c_double.from_address(address).value

def factor(order, tile, chunk, devices, how="right", kernels=None):
    matrix = Matrix(cupy, order, tile, devices)
    matrix.fill()
    with stf.context(devices="cuda:" + ",".join(map(str, range(devices)))) as ctx:
        blocks = stf_tiled.Blocks.register(ctx, matrix.column, order, tile, chunk)
        stf_tiled.factor(blocks, kernels or ArrayKernels(), devices, how)
        ctx.synchronize()
        copies = ctx.statistics().total_copies
    return matrix, copies
'''


def test_blocks_on_devices(run):
    def body():
        for order, tile, chunk in [(64, 16, 1), (100, 16, 2), (100, 16, 3), (96, 32, 8), (50, 64, 2)]:
            for how in ("right", "left"):
                for devices in (1, 2, 4, 8):
                    matrix, copies = factor(order, tile, chunk, devices, how)
                    assert relative_error(matrix) < 1e-14, (order, tile, chunk, how, devices)
                    assert copies == 0 if devices == 1 else copies <= len(matrix.parts) * 15
                    del matrix
        nothing_left()

    run(body, before=LIBRARIES, FAKECUDA_DEVICES="8")


def test_library_calls_are_ordered_by_their_streams(run):
    def body():
        played = Played()
        libraries.cublas = libraries.cusolver = lambda: played
        for devices, urgent, inner in [(1, False, 0), (1, True, 0), (2, True, 0), (2, True, 12)]:
            kernels = CudaKernels(inner, urgent)
            played.calls.clear()
            matrix, _ = factor(100, 16, 2, devices, kernels=kernels)
            kernels.check()
            assert relative_error(matrix) < 1e-14, (devices, urgent, inner)
            names = [name for name, _ in played.calls]
            assert names.count("potrf") == (7 if inner == 0 else 13)
            assert names.count("gemm") == 28
            panels = {stream for name, stream in played.calls if name == "potrf"}
            products = {stream for name, stream in played.calls if name == "gemm"}
            own = {lane.stream for pool in kernels.pools.values() for lane in pool}
            assert bool(own) == urgent and panels - own == (set() if urgent else panels)
            assert len(own) == 6 * devices * urgent and products - own and bool(products & own) == urgent
            kernels.close()
            assert not played.streams
            del matrix, kernels
        nothing_left()

    run(body, before=LIBRARIES, FAKECUDA_SEED="3")


def test_handles_are_made_beforehand(run):
    def body():
        played = Played()
        libraries.cublas = libraries.cusolver = lambda: played
        kernels, matrix = CudaKernels(), Matrix(cupy, 100, 16, 2)
        with stf.context(devices="cuda:0,1") as ctx:
            kernels.prepare(ctx, 2, 64)
            assert len({stream for _, stream in kernels.lanes}) == len(kernels.lanes) == 128
            assert sorted(device for device, _ in kernels.lanes) == [0] * 64 + [1] * 64
            for _ in range(2):
                matrix.fill()
                blocks = stf_tiled.Blocks.register(ctx, matrix.column, 100, 16, 2)
                stf_tiled.factor(blocks, kernels, 2)
                ctx.synchronize()
                assert relative_error(matrix) < 1e-14
                del blocks
            assert len(kernels.lanes) == 128
        kernels.close()
        del matrix, kernels
        nothing_left()

    run(body, before=LIBRARIES)


def test_what_is_not_positive_definite_is_told_after(run):
    def body():
        played = Played()
        libraries.cublas = libraries.cusolver = lambda: played
        kernels = CudaKernels()
        matrix = Matrix(cupy, 64, 16)
        matrix.fill()
        matrix.parts[0][40, 40] = -1.0
        with stf.context(devices="cuda:0") as ctx:
            blocks = stf_tiled.Blocks.register(ctx, matrix.column, 64, 16, 2)
            stf_tiled.factor(blocks, kernels, 1)
        with pytest.raises(np.linalg.LinAlgError, match="of device 0 are not positive definite"):
            kernels.check()
        kernels.check()
        kernels.close()

    run(body, before=LIBRARIES)
