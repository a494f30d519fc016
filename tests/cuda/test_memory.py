"""Memory on a GPU: eviction, other libraries' allocations, faults."""

from __future__ import annotations

import numpy as np
import pytest

import stf

MIB = 1 << 20


def test_a_working_set_four_times_the_limit():
    """A tiled Cholesky whose matrix is four times the memory it may use."""
    pytest.importorskip("cupy")
    n, tile = 1024, 128
    rng = np.random.default_rng(3)
    A = rng.random((n, n))
    A = A @ A.T + n * np.eye(n)
    expected = np.linalg.cholesky(A)
    with stf.context(devices="cuda:0", memory_limit=A.nbytes // 4) as ctx:
        tiles = ctx.logical_data(A).tiles((tile, tile))
        cholesky(tiles)
        del tiles
        assert sum(ctx.statistics().evictions.values()) > 0
    assert np.allclose(np.tril(A), expected)


@stf.task(arrays="cupy")
def potrf(a: stf.ReadWrite):
    import cupy

    a[...] = cupy.linalg.cholesky(a)


@stf.task(arrays="cupy")
def trsm(a: stf.Read, b: stf.ReadWrite):
    import cupyx.scipy.linalg

    b[...] = cupyx.scipy.linalg.solve_triangular(a, b.T, lower=True).T


@stf.task(arrays="cupy")
def gemm(a: stf.Read, b: stf.Read, c: stf.ReadWrite):
    c -= a @ b.T


def cholesky(tiles):
    count = len(tiles)
    for k in range(count):
        potrf(tiles[k, k])
        for i in range(k + 1, count):
            trsm(tiles[k, k], tiles[i, k])
        for i in range(k + 1, count):
            for j in range(k + 1, i + 1):
                gemm(tiles[i, k], tiles[j, k], tiles[i, j])


def test_memory_that_others_hold_is_evicted_for():
    """The device is full but for a gigabyte; four arrays of half of it are used in turn."""
    cupy = pytest.importorskip("cupy")
    free, _ = cupy.cuda.runtime.memGetInfo()
    hog = cupy.cuda.alloc(free - 1024 * MIB)
    try:
        with stf.context(devices="cuda:0") as ctx:
            data = [ctx.logical_data(np.full(50 * MIB, float(k))) for k in range(4)]  # 400 MiB each
            for _ in range(2):
                for x in data:
                    with ctx.task(x.rw()) as t:
                        t.cupy()[0][:1] += 1
            assert [x.numpy()[0] for x in data] == [2.0, 3.0, 4.0, 5.0]
        with stf.context(devices="cuda:0") as ctx:
            big = ctx.logical_data_empty(4096 * MIB, np.uint8, name="big")
            with pytest.raises(stf.OutOfMemoryError, match=r"no room for 4294967296 bytes of logical data 'big'"):
                with ctx.task(big.write()):
                    pass
            small = ctx.logical_data(np.zeros(10))
            with ctx.task(small.rw()) as t:
                t.cupy()[0][:] += 1
            assert small.numpy()[0] == 1
    finally:
        del hog
        cupy.get_default_memory_pool().free_all_blocks()


def test_free_memory_is_what_it_was_before(run_python):
    """CUDA itself says so: data, pinned memory, bodies' temporaries, graphs, captured bodies, and data of failed tasks."""
    program = """
    import contextlib, gc
    import cupy, numpy as np, stf
    from cuda.bindings import driver

    @stf.task(arrays="cupy")
    def scale(a: stf.ReadWrite, factor):
        a *= cupy.ones(a.shape) * factor

    @stf.task(arrays="cupy")
    def fail(a: stf.Write):
        raise ValueError("meant")

    @stf.replay
    def steps(x, y):
        for _ in range(3):
            scale(x, 1.0)
            scale(y, 1.0)

    def use():
        with stf.context(devices="cuda:0", memory_limit=1 << 28) as ctx:
            data = [ctx.logical_data(np.ones(1 << 22)) for _ in range(16)]  # 512 MiB
            for x in data:
                scale(x, 2.0)
            for _ in range(4):
                steps(*data[:2])
            with ctx.task_graph() as graph, ctx.repeat(3):
                scale(data[2], 1.0)
            graph.launch()
            assert data[5].numpy()[0] == 2.0
            with contextlib.suppress(stf.TaskFailedError):
                fail(ctx.logical_data_empty(1 << 20))
                ctx.finalize()
        steps.close()

    def free():
        gc.collect()
        cupy.get_default_memory_pool().free_all_blocks()
        cupy.cuda.Device(0).synchronize()
        return driver.cuMemGetInfo()[1]

    use()  # CUDA and CuPy keep what they loaded
    before = free()
    for _ in range(3):
        use()
    print(before - free())
    """
    done = run_python(program)
    assert done.stdout and int(done.stdout) <= 0, done.stdout + done.stderr


def test_pools_keep_what_they_have_while_they_are_used(run_python):
    """A synchronization gives nothing back, so that the next allocation is no call of the operating system's."""
    program = """
    import cupy, stf

    def free():
        return cupy.cuda.runtime.memGetInfo()[0]

    def use(ctx):
        x = ctx.logical_data_empty(1 << 29, "u1")
        with ctx.task(x.write()):
            pass
        del x
        ctx.synchronize()
        return free()

    with stf.context(devices="cuda:0") as ctx:
        ctx.synchronize()
        with ctx.task(ctx.token().rw()):
            pass
        before = free()
        kept = {before - use(ctx) for _ in range(5)}
    print(*kept, before - free(), cupy.cuda.runtime.memGetInfo()[1] // 64)
    """
    done = run_python(program)
    assert done.returncode == 0, done.stderr
    kept, after, part = map(int, done.stdout.split())  # the same each time
    assert 1 << 29 <= kept < 3 << 28
    assert after < part + (1 << 26)  # what the next context gets


def test_a_kernel_fault_costs_the_context_not_the_host(run_python):
    """In a process of its own, since CUDA does not recover."""
    program = """
    import numpy as np, stf
    from cuda.bindings import driver
    X, Y = np.ones(1 << 20), np.ones(4)
    ctx = stf.context(devices="cuda:0")
    lX, lY = ctx.logical_data(X, name="X"), ctx.logical_data(Y)
    import cupy
    bad = cupy.RawKernel('extern "C" __global__ void bad(double* x) { *(double*)8 = 1; }', "bad")
    ctx.launch_kernel(bad, (1, 1), lX.rw())
    try:
        ctx.wait(lX)
    except stf.DriverError as error:
        print("wait:", error.name)
    try:
        with ctx.task(lY.rw()):
            pass
    except stf.DriverError as error:
        print("task:", error.name)
    for call in (ctx.synchronize, ctx.check_errors, ctx.finalize):
        try:
            call()
        except stf.DriverError as error:
            print(call.__name__ + ":", error.name, *error.tasks)
    print(X.sum() == X.size, Y.sum() == 4)
    """
    done = run_python(program)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for line, call in zip(lines, ("wait", "task", "synchronize", "check_errors", "finalize"), strict=False):
        assert line.startswith(f"{call}: CUDA_ERROR_"), lines
    assert "bad" in lines[2]
    assert lines[-1] == "True True"


def test_ten_thousand_tasks_on_few_lanes_keep_their_order():
    pytest.importorskip("cupy")
    with stf.context(devices="cuda:0") as ctx:
        x = ctx.logical_data(np.zeros(16))
        for _ in range(10_000):
            with ctx.task(x.rw()) as t:
                t.cupy()[0][:] += 1
        assert x.numpy().tolist() == [10_000.0] * 16


def test_strided_arrays_of_any_rank():
    pytest.importorskip("cupy")
    rng = np.random.default_rng(5)
    base = rng.random((12, 10, 9, 8))
    views = [base[::2], base[:, ::3, 1:5], base.transpose(2, 0, 3, 1), base[::-1, :, ::-2], base[3, 4], base[..., 5]]
    for view in views:
        source = view.copy(order="K")
        strided = base.copy()
        target = np.lib.stride_tricks.as_strided(strided, view.shape, view.strides) if min(view.strides) > 0 else source
        expected = target + 1
        with stf.context(devices="cuda:0") as ctx:
            data = ctx.logical_data(target)
            with ctx.task(data.rw()) as t:
                t.cupy()[0][...] += 1
        assert (target == expected).all()


def test_no_body_on_the_host_works_on_what_a_fault_left(run_python):
    """It is submitted before anybody knows; in a process of its own."""
    program = """
    import numpy as np, stf
    import cupy
    X, seen = np.ones(1 << 20), []
    ctx = stf.context(devices="cuda:0")
    lX = ctx.logical_data(X, name="X")
    code = 'extern "C" __global__ void bad(double* x, long n) '
    code += '{ long t = clock64(); while (clock64() - t < n); *(double*)8 = 1; }'
    bad = cupy.RawKernel(code, "bad")
    ctx.launch_kernel(bad, (1, 1), lX.rw(), np.int64(500_000_000))
    ctx.host_launch(lX.rw())(lambda x: seen.append(x[0]))
    for call in (ctx.synchronize, ctx.finalize):
        try:
            call()
        except stf.DriverError as error:
            print(call.__name__ + ":", error.name)
    print(seen == [], X.sum() == X.size)
    """
    done = run_python(program)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split(" CUDA_ERROR_")[0] for line in lines[:2]] == ["synchronize:", "finalize:"], lines
    assert lines[-1] == "True True", lines
