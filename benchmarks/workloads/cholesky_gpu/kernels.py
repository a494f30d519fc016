"""The four operations of a blocked Cholesky factorization, on blocks: by cuBLAS and cuSOLVER, or by an array library.

A program is written once for both: `CudaKernels` is for GPUs, `ArrayKernels` for NumPy, and for whatever has NumPy's
functions. Blocks are column-major, with any leading dimension. `level` says how urgent an operation is.
"""

from __future__ import annotations

from typing import Any

import libraries
import numpy as np
from libraries import LOWER, MINUS_ONE_AT, ONE_AT, PLAIN, RIGHT, TRANSPOSED

__all__ = ["CHAIN", "NEXT", "REST", "ArrayKernels", "CudaKernels"]

CHAIN, NEXT, REST = 0, 1, 2  # the critical path; what the next panel needs; all else

WORKSPACE = 32 << 20  # bytes, what cuBLAS asks for on sm_90 ("cublasSetWorkspace")
PRIORITIES = {CHAIN: (-5, 2), NEXT: (-3, 4)}  # of the streams of urgent work, and how many there are
NON_BLOCKING, WITHOUT_TIMING = 1, 2
MOST_PANELS = 1 << 16


class ArrayKernels:
    """The operations by functions of arrays, one at a time; `level` does not matter."""

    def potrf(self, a: Any, level: int = CHAIN) -> None:
        a[...] = np.linalg.cholesky(np.tril(a) + np.tril(a, -1).T)

    def trsm(self, triangle: Any, b: Any, level: int = REST) -> None:
        b[...] = np.linalg.solve(np.tril(triangle), b.T).T

    def syrk(self, a: Any, row: int, c: Any, level: int = REST) -> None:
        rows = a[row : row + len(c)]
        c -= rows @ rows.T

    def gemm(self, a: Any, row: int, b: Any, b_row: int, c: Any, level: int = REST) -> None:
        c -= a[row : row + len(c)] @ b[b_row : b_row + c.shape[1]].T

    def check(self) -> None:
        """Raise if a block was not positive definite; here it has been raised."""

    def close(self) -> None:
        """Give back what it holds: nothing."""


class Lane:
    """A CUDA stream with its library handles, each with a workspace of its own, so that streams wait for no other's."""

    def __init__(self, stream: int, priority: int | None = None) -> None:
        import cupy
        from cupy.cuda import runtime

        self.is_own = priority is not None
        self.stream = runtime.streamCreateWithPriority(NON_BLOCKING, priority) if self.is_own else stream
        self.workspace = cupy.cuda.alloc(WORKSPACE)
        self.blas = libraries.cublas().new("cublasCreate")
        libraries.cublas().cublasSetStream(self.blas, self.stream)  # takes the workspace away: first
        libraries.cublas().cublasSetWorkspace(self.blas, self.workspace.ptr, WORKSPACE)
        self.solver = 0
        self.works: list[Any] = []  # the last is the largest; the others may be in use
        self.begin, self.end = (runtime.eventCreateWithFlags(WITHOUT_TIMING) for _ in range(2))

    def potrf_work(self, pointer: int, order: int, leading: int) -> tuple[int, int]:
        """(address, elements) of cuSOLVER's workspace, which grows outside of timings: in warm-ups."""
        import cupy

        library = libraries.cusolver()
        if not self.solver:
            self.solver = library.new("cusolverDnCreate")
            library.cusolverDnSetStream(self.solver, self.stream)
        size = library.cusolverDnDpotrf_bufferSize
        elements = libraries.size_of(size, self.solver, LOWER, order, pointer, leading)
        if not self.works or self.works[-1].mem.size < 8 * elements:
            self.works.append(cupy.cuda.alloc(8 * max(elements, 1)))
        return self.works[-1].ptr, elements

    def close(self) -> None:
        from cupy.cuda import runtime

        libraries.cublas().cublasDestroy(self.blas)
        if self.solver:
            libraries.cusolver().cusolverDnDestroy(self.solver)
        for event in (self.begin, self.end):
            runtime.eventDestroy(event)
        if self.is_own:
            runtime.streamDestroy(self.stream)


class CudaKernels:
    """The operations by cuBLAS and cuSOLVER, on CuPy's current stream.

    Where `urgent`, an operation of level CHAIN or NEXT runs on a stream of higher priority that starts after the
    current one and joins it again: else its small kernels stand behind all the thread blocks of products that are in
    flight, a hundred microseconds or more for each kernel. `inner` is the block size in which a diagonal block is
    factored; 0 leaves all of it to cuSOLVER. Where `whole`, diagonal blocks are updated by dgemm, twice the operations
    in one kernel that is faster at them, instead of dsyrk; what is above the diagonal is changed then.
    """

    def __init__(self, inner: int = 0, urgent: bool = True, whole: bool = False) -> None:
        from cupy.cuda import runtime

        self.inner = inner
        self.urgent = urgent
        self.whole = whole
        self.runtime = runtime
        self.lanes: dict[tuple[int, int], Lane] = {}
        self.pools: dict[tuple[int, int], list[Lane]] = {}
        self.turns: dict[tuple[int, int], int] = {}
        self.infos: dict[int, Any] = {}
        self.panels: dict[int, int] = {}
        blas = libraries.cublas()
        self.dgemm, self.dsyrk, self.dtrsm = blas.cublasDgemm, blas.cublasDsyrk, blas.cublasDtrsm
        self.dpotrf = libraries.cusolver().cusolverDnDpotrf

    # -- the operations --------------------------------------------------------------------------------------------

    def potrf(self, a: Any, level: int = CHAIN) -> None:
        lane, outer = self.enter(level)
        order, leading, pointer = len(a), leading_of(a), a.data.ptr
        inner = self.inner or order
        for first in range(0, order, inner):
            last = min(first + inner, order)
            corner = pointer + 8 * (first + first * leading)
            below = pointer + 8 * (last + first * leading)
            self.potrf_at(lane, corner, last - first, leading)
            if last < order:
                rest = order - last
                self.trsm_at(lane, corner, leading, below, leading, rest, last - first)
                target = pointer + 8 * (last + last * leading)
                self.syrk_at(lane, below, leading, target, leading, rest, last - first)
        self.leave(lane, outer)

    def trsm(self, triangle: Any, b: Any, level: int = REST) -> None:
        lane, outer = self.enter(level)
        rows, columns = b.shape
        self.trsm_at(lane, triangle.data.ptr, leading_of(triangle), b.data.ptr, leading_of(b), rows, columns)
        self.leave(lane, outer)

    def syrk(self, a: Any, row: int, c: Any, level: int = REST) -> None:
        if self.whole:
            self.gemm(a, row, a, row, c, level)
            return
        lane, outer = self.enter(level)
        self.syrk_at(lane, a.data.ptr + 8 * row, leading_of(a), c.data.ptr, leading_of(c), len(c), a.shape[1])
        self.leave(lane, outer)

    def gemm(self, a: Any, row: int, b: Any, b_row: int, c: Any, level: int = REST) -> None:
        lane, outer = self.enter(level)
        (m, n), k = c.shape, a.shape[1]
        self.dgemm(
            lane.blas, PLAIN, TRANSPOSED, m, n, k, MINUS_ONE_AT, a.data.ptr + 8 * row, leading_of(a),
            b.data.ptr + 8 * b_row, leading_of(b), ONE_AT, c.data.ptr, leading_of(c),
        )  # fmt: skip
        self.leave(lane, outer)

    def prepare(self, ctx: Any, devices: int, streams: int) -> None:
        """Make the handles of all streams that tasks of a context may get, so that no timed run does."""
        for place in list(ctx.devices)[:devices]:
            tasks = [ctx.task(place, ctx.token().rw(), name="prepare").start() for _ in range(streams)]
            for task in reversed(tasks):  # as they are all open, each has a stream of its own
                pointer = task.stream_ptr()
                self.lane_of(self.runtime.getDevice(), pointer)
                task.end()

    def check(self) -> None:
        """Raise if a block was not positive definite; after synchronizing."""
        import cupy

        for device, info in self.infos.items():
            with cupy.cuda.Device(device):
                bad = cupy.nonzero(info)[0].get()
                info.fill(0)
            self.panels[device] = 0
            if len(bad):
                raise np.linalg.LinAlgError(f"{len(bad)} blocks of device {device} are not positive definite")

    # -- on a lane -------------------------------------------------------------------------------------------------

    def potrf_at(self, lane: Lane, pointer: int, order: int, leading: int) -> None:
        work, elements = lane.potrf_work(pointer, order, leading)
        self.dpotrf(lane.solver, LOWER, order, pointer, leading, work, elements, self.next_info())

    def trsm_at(self, lane: Lane, triangle: int, leading: int, b: int, b_leading: int, rows: int, columns: int) -> None:
        self.dtrsm(
            lane.blas, RIGHT, LOWER, TRANSPOSED, 0, rows, columns, ONE_AT, triangle, leading, b, b_leading
        )  # fmt: skip

    def syrk_at(self, lane: Lane, a: int, leading: int, c: int, c_leading: int, order: int, inner: int) -> None:
        self.dsyrk(lane.blas, LOWER, PLAIN, order, inner, MINUS_ONE_AT, a, leading, ONE_AT, c, c_leading)

    def next_info(self) -> int:
        """Where the next factorization of the current device says whether it could be done."""
        import cupy

        device = self.runtime.getDevice()
        if device not in self.infos:
            self.infos[device] = cupy.zeros(MOST_PANELS, np.int32)
            cupy.cuda.get_current_stream().synchronize()
            self.panels[device] = 0
        slot = self.panels[device] % MOST_PANELS
        self.panels[device] += 1
        return int(self.infos[device].data.ptr) + 4 * slot

    def enter(self, level: int) -> tuple[Lane, int]:
        """A lane for an operation, and the stream that it must join again, if it is another one."""
        from cupy.cuda import get_current_stream

        device, stream = self.runtime.getDevice(), get_current_stream().ptr
        if level == REST or not self.urgent:
            return self.lane_of(device, stream), 0
        pool = self.pools.get((device, level))
        if pool is None:
            priority, count = PRIORITIES[level]
            pool = self.pools[device, level] = [Lane(0, priority) for _ in range(count)]
            self.turns[device, level] = 0
        turn = self.turns[device, level] = (self.turns[device, level] + 1) % len(pool)
        lane = pool[turn]
        self.runtime.eventRecord(lane.begin, stream)
        self.runtime.streamWaitEvent(lane.stream, lane.begin)
        return lane, stream

    def lane_of(self, device: int, stream: int) -> Lane:
        """The handles for a stream of the current device."""
        lane = self.lanes.get((device, stream))
        if lane is None:
            lane = self.lanes[device, stream] = Lane(stream)
        return lane

    def leave(self, lane: Lane, outer: int) -> None:
        if outer:
            self.runtime.eventRecord(lane.end, lane.stream)
            self.runtime.streamWaitEvent(outer, lane.end)

    def close(self) -> None:
        """Give handles, streams and workspaces back."""
        import cupy

        owned = [(device, lane) for (device, _), lane in self.lanes.items()]
        owned += [(device, lane) for (device, _), pool in self.pools.items() for lane in pool]
        for device, lane in owned:
            with cupy.cuda.Device(device):
                lane.close()
        self.lanes.clear()
        self.pools.clear()


def leading_of(a: Any) -> int:
    """The leading dimension of a column-major block."""
    if a.strides[0] != 8 and len(a) > 1:
        raise ValueError(f"a column-major block is needed, got strides {a.strides} for shape {a.shape}")
    return max(a.strides[1] // 8 if a.shape[1] > 1 else 0, len(a), 1)
