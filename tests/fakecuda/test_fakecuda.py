"""The stand-in for CUDA's driver library behaves as CUDA's does, where our driver relies on it.

Each test runs in a process of its own, with the stand-in as its ``libcuda.so.1``.
"""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("cuda.bindings.driver", exc_type=ImportError)
if sys.platform != "linux":
    pytest.skip("streams and memory are made of Linux's threads and mmap", allow_module_level=True)

PRELUDE, NEEDS_STF = "from driver_tools import *\n", False

# The bodies below run elsewhere, with the names of the prelude.
# ruff: noqa: F821


def test_devices(run):
    def body():
        assert ok(driver.cuDriverGetVersion()) == 13000
        assert ok(driver.cuDeviceGetCount()) == 3
        A = driver.CUdevice_attribute
        assert ok(driver.cuDeviceGetAttribute(A.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 2)) == 9
        assert ok(driver.cuDeviceTotalMem(0)) == 1 << 20
        assert ok(driver.cuDeviceGetUuid(0)).bytes != ok(driver.cuDeviceGetUuid(1)).bytes
        assert ok(driver.cuDeviceCanAccessPeer(0, 1)) == 0
        assert b"Fake" in ok(driver.cuDeviceGetName(64, 0))
        fails(E.CUDA_ERROR_INVALID_DEVICE, driver.cuDeviceGet(3))
        fails(E.CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, driver.cuCtxEnablePeerAccess(contexts[1], 0))
        assert ok(driver.cuGetErrorName(E.CUDA_ERROR_NOT_READY)) == b"CUDA_ERROR_NOT_READY"
        assert ok(driver.cuGetErrorString(E.CUDA_ERROR_OUT_OF_MEMORY)) == b"out of memory"

    run(body, FAKECUDA_DEVICES="3", FAKECUDA_PEER="0", FAKECUDA_MEMORY=str(1 << 20))


def test_contexts(run):
    def body():
        assert int(ok(driver.cuCtxGetDevice())) == 0
        ok(driver.cuCtxPushCurrent(contexts[1]))
        assert int(ok(driver.cuCtxGetDevice())) == 1
        assert int(ok(driver.cuCtxPopCurrent())) == int(contexts[1])
        assert int(ok(driver.cuCtxGetDevice_v2(contexts[1]))) == 1
        ok(driver.cuCtxSynchronize_v2(contexts[1]))
        ok(driver.cuCtxEnablePeerAccess(contexts[1], 0))
        fails(E.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, driver.cuCtxEnablePeerAccess(contexts[1], 0))
        results = []
        thread = threading.Thread(target=lambda: results.append(driver.cuMemAlloc(8)))
        thread.start()
        thread.join()
        fails(E.CUDA_ERROR_INVALID_CONTEXT, results[0])  # what is current is so for one thread
        s = stream()
        ok(driver.cuMemAlloc(8))
        assert fakecuda.counts()["contexts"] == 2
        ok(driver.cuDevicePrimaryCtxRelease(0))
        assert fakecuda.counts()["contexts"] == 1
        assert fakecuda.counts()["dropped"] == 2  # the stream and the memory went with it
        fails(E.CUDA_ERROR_CONTEXT_IS_DESTROYED, driver.cuMemAlloc(8))
        fails(E.CUDA_ERROR_INVALID_HANDLE, driver.cuStreamSynchronize(s))

    run(body)


def test_streams_are_asynchronous_and_in_order(run):
    def body():
        s = stream()
        x, a = Pinned(1), ok(driver.cuMemAlloc(8))
        gate = Gate(s)
        for value in 1.0, 2.0:
            ok(driver.cuMemsetD32Async(a, 0, 2, s))
            ok(driver.cuMemcpyHtoDAsync(a, np.array([value]).ctypes.data, 8, s))
        x.array[0] = 0
        ok(driver.cuMemcpyDtoHAsync(x.address, a, 8, s))
        fails(E.CUDA_ERROR_NOT_READY, driver.cuStreamQuery(s))
        assert x.array[0] == 0
        gate.word.array[0] = 1
        ok(driver.cuStreamSynchronize(s))
        ok(driver.cuStreamQuery(s))
        assert x.array[0] == 2

    run(body, FAKECUDA_SEED="1")


def test_default_stream_waits_for_blocking_streams(run):
    def body():
        s, free = stream(0), stream()
        a, x = ok(driver.cuMemAlloc(8)), np.zeros(1, np.uint64)
        Gate(free)  # never opened: nobody waits for this one
        ok(driver.cuMemsetD8Async(a, 1, 8, s))
        ok(driver.cuMemcpyDtoH(x.ctypes.data, a, 8))
        assert x[0] == 0x0101010101010101

    run(body, FAKECUDA_SEED="3")


def test_events_order_streams(run):
    def body():
        s, t = stream(), stream()
        e = event()
        a, x = ok(driver.cuMemAlloc(8)), Pinned(1, np.uint64)
        gate = Gate(s)
        ok(driver.cuEventQuery(e))  # never recorded counts as complete
        ok(driver.cuStreamWaitEvent(t, e, 0))
        ok(driver.cuMemsetD8Async(a, 1, 8, s))
        ok(driver.cuEventRecord(e, s))
        fails(E.CUDA_ERROR_NOT_READY, driver.cuEventQuery(e))
        ok(driver.cuStreamWaitEvent(t, e, 0))
        ok(driver.cuMemcpyDtoHAsync(x.address, a, 8, t))
        fails(E.CUDA_ERROR_NOT_READY, driver.cuStreamQuery(t))
        gate.word.array[0] = 1
        ok(driver.cuStreamSynchronize(t))
        assert x.array[0] == 0x0101010101010101
        ok(driver.cuEventSynchronize(e))

    run(body)


def test_a_wait_keeps_to_the_record_it_found(run):
    def body():
        s, t, u = stream(), stream(), stream()
        e = event()
        ok(driver.cuEventRecord(e, s))
        ok(driver.cuStreamWaitEvent(t, e, 0))
        Gate(u)  # never opened
        ok(driver.cuEventRecord(e, u))
        ok(driver.cuStreamSynchronize(t))
        fails(E.CUDA_ERROR_NOT_READY, driver.cuEventQuery(e))
        ok(driver.cuEventDestroy(e))
        fails(E.CUDA_ERROR_INVALID_HANDLE, driver.cuEventQuery(e))

    run(body)


def test_time_between_events(run):
    def body():
        s = stream()
        a, b, quiet = event(), event(), event(2)  # CU_EVENT_DISABLE_TIMING
        fails(E.CUDA_ERROR_INVALID_HANDLE, driver.cuEventElapsedTime(a, b))
        ok(driver.cuEventRecord(a, s))
        gate = Gate(s)
        ok(driver.cuEventRecord(b, s))
        ok(driver.cuEventRecord(quiet, s))
        fails(E.CUDA_ERROR_NOT_READY, driver.cuEventElapsedTime(a, b))
        gate.word.array[0] = 1
        ok(driver.cuEventSynchronize(b))
        assert ok(driver.cuEventElapsedTime(a, b)) > 0
        fails(E.CUDA_ERROR_INVALID_HANDLE, driver.cuEventElapsedTime(a, quiet))
        ok(driver.cuCtxPushCurrent(contexts[1]))
        fails(E.CUDA_ERROR_INVALID_HANDLE, driver.cuEventRecord(event(), s))  # of another context

    run(body)


def test_destroyed_streams_finish_their_work(run):
    def body():
        s = stream()
        x, a = Pinned(1, np.uint64), ok(driver.cuMemAlloc(8))
        gate = Gate(s)
        ok(driver.cuMemsetD8Async(a, 1, 8, s))
        ok(driver.cuMemcpyDtoHAsync(x.address, a, 8, s))
        ok(driver.cuStreamDestroy(s))
        fails(E.CUDA_ERROR_INVALID_HANDLE, driver.cuStreamQuery(s))
        gate.word.array[0] = 1
        ok(driver.cuCtxSynchronize())
        assert x.array[0] == 0x0101010101010101

    run(body)


def test_kernels(run):
    def body():
        s = stream()
        module = ok(driver.cuModuleLoadData(b"anything"))
        fails(E.CUDA_ERROR_NOT_FOUND, driver.cuModuleGetFunction(module, b"nothing"))
        axpy = ok(driver.cuModuleGetFunction(module, b"axpy"))
        assert [tuple(ok(driver.cuFuncGetParamInfo(axpy, i))) for i in range(4)] == [(0, 8), (8, 8), (16, 8), (24, 8)]
        fails(E.CUDA_ERROR_INVALID_VALUE, driver.cuFuncGetParamInfo(axpy, 4))
        x, y = np.arange(100.0), np.ones(100)
        a, b = ok(driver.cuMemAlloc(800)), ok(driver.cuMemAlloc(800))
        ok(driver.cuMemcpyHtoD(a, x.ctypes.data, 800))
        ok(driver.cuMemcpyHtoD(b, y.ctypes.data, 800))
        kinds = ctypes.c_double, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64
        arguments = (2.0, int(a), int(b), 100), kinds
        fails(E.CUDA_ERROR_INVALID_VALUE, driver.cuLaunchKernel(axpy, 1, 1, 1, 2048, 1, 1, 0, s, arguments, 0))
        ok(driver.cuLaunchKernel(axpy, 1, 1, 1, 128, 1, 1, 0, s, arguments, 0))
        config = driver.CUlaunchConfig()
        config.gridDimX = config.gridDimY = config.gridDimZ = config.blockDimX = config.blockDimY = config.blockDimZ = 1
        config.hStream = s
        ok(driver.cuLaunchKernelEx(config, axpy, arguments, 0))
        ok(driver.cuMemcpyDtoHAsync(y.ctypes.data, b, 800, s))
        ok(driver.cuStreamSynchronize(s))
        assert (y == 1 + 4 * x).all()

        @ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_uint))
        def seven(parameters, dimensions):
            ctypes.c_int.from_address(ctypes.c_void_p.from_address(parameters[0]).value).value = 7 * dimensions[0]

        fakecuda.add_kernel("seven", "p", ctypes.cast(seven, ctypes.c_void_p).value)
        kernel = ok(driver.cuModuleGetFunction(module, b"seven"))
        ok(driver.cuLaunchKernel(kernel, 3, 1, 1, 1, 1, 1, 0, s, ((int(a),), (ctypes.c_void_p,)), 0))
        ok(driver.cuMemcpyDtoHAsync(x.ctypes.data, a, 8, s))
        assert x.view(np.int32)[0] == 21
        ok(driver.cuModuleUnload(module))

    run(body)


@pytest.mark.parametrize("peer", ["0", "1"])
def test_kernels_reach_peers_once_allowed(run, peer):
    def body():
        s = stream()
        module = ok(driver.cuModuleLoadData(b"anything"))
        add_one = ok(driver.cuModuleGetFunction(module, b"add_one"))
        ok(driver.cuCtxPushCurrent(contexts[1]))
        a = ok(driver.cuMemAlloc(8))
        ok(driver.cuCtxPopCurrent())
        if ok(driver.cuDeviceCanAccessPeer(0, 1)):
            ok(driver.cuCtxEnablePeerAccess(contexts[1], 0))
        arguments = (int(a), 1), (ctypes.c_void_p, ctypes.c_uint64)
        ok(driver.cuLaunchKernel(add_one, 1, 1, 1, 1, 1, 1, 0, s, arguments, 0))
        expected = E.CUDA_SUCCESS if ok(driver.cuDeviceCanAccessPeer(0, 1)) else E.CUDA_ERROR_ILLEGAL_ADDRESS
        assert driver.cuStreamSynchronize(s)[0] == expected

    run(body, FAKECUDA_PEER=peer)


def test_host_functions(run):
    def body():
        s = stream()
        seen = []

        @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        def note(data):
            seen.append((data, driver.cuCtxSynchronize()[0]))

        pointer = driver.CUhostFn(_ptr=ctypes.addressof(ctypes.c_void_p(ctypes.cast(note, ctypes.c_void_p).value)))
        ok(driver.cuLaunchHostFunc(s, pointer, 5))
        ok(driver.cuStreamSynchronize(s))
        assert seen == [(5, E.CUDA_ERROR_NOT_PERMITTED)]

    run(body)


def test_planned_failures(run):
    def body():
        s = stream()
        x, a = np.zeros(4), None
        results = [driver.cuMemAlloc(8)[0] for _ in range(4)]
        assert [int(r) for r in results] == [0, 2, 0, 0]
        results = [driver.cuMemHostRegister(x.ctypes.data + 8 * i, 8, 0)[0] for i in range(3)]
        assert [int(r) for r in results] == [0, 801, 801]
        fakecuda.reset_calls("work:2:CUDA_ERROR_LAUNCH_FAILED")
        a = ok(driver.cuMemAlloc(8))
        ok(driver.cuMemsetD8Async(a, 0, 8, s))
        ok(driver.cuMemsetD8Async(a, 0, 8, s))
        fails(E.CUDA_ERROR_LAUNCH_FAILED, driver.cuStreamSynchronize(s))
        fails(E.CUDA_ERROR_LAUNCH_FAILED, driver.cuStreamQuery(s))
        ok(driver.cuDeviceGetCount())

    plan = "cuMemAlloc:2,cuMemHostRegister_v2:2+:CUDA_ERROR_NOT_SUPPORTED"
    run(body, FAKECUDA_FAIL=plan)


def test_counts(run):
    def body():
        assert fakecuda.leaks() == {}
        s, e = stream(), event()
        x = np.zeros(1)
        a, p = ok(driver.cuMemAlloc(8)), Pinned(1)
        ok(driver.cuMemHostRegister(x.ctypes.data, 8, 0))
        expected = {"streams": 1, "events": 1, "allocations": 1, "host_allocations": 1, "registrations": 1}
        assert fakecuda.leaks() == expected
        assert fakecuda.calls("cuMemAlloc") == 1
        ok(driver.cuMemHostUnregister(x.ctypes.data))
        ok(driver.cuMemFreeHost(p.address))
        ok(driver.cuMemFree(a))
        ok(driver.cuEventDestroy(e))
        ok(driver.cuStreamDestroy(s))
        assert fakecuda.leaks() == {}
        fakecuda.reset_calls()
        assert fakecuda.calls("cuMemAlloc") == 0

    run(body)


def test_what_is_not_supported_is_named(run):
    def body():
        fails(E.CUDA_ERROR_NOT_SUPPORTED, driver.cuGraphClone(driver.CUgraph(0)))

    assert "cuGraphClone is not supported" in run(body, FAKECUDA_TRACE="1")


def test_cuda_core_runs(run):
    pytest.importorskip("cuda.core", exc_type=ImportError)

    def body():
        from cuda.core import Device

        device = Device(0)
        device.set_current()
        s = device.create_stream()
        buffer = device.allocate(100, stream=s)
        s.record().sync()
        buffer.close(s)
        s.sync()
        s.close()
        assert fakecuda.counts()["allocations"] == 0

    run(body)


# -- captures --------------------------------------------------------------------------------------------------------


def test_a_captured_graph_is_replayed_in_an_order_of_its_edges(run):
    def body():
        a, b = stream(), stream()
        x, y = Pinned(1, np.int64), Pinned(1, np.int64)
        x.array[0] = y.array[0] = 0
        device = ok(driver.cuMemAlloc(16))
        fork, join = event(2), event(2)
        ok(driver.cuStreamBeginCapture(a, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
        ok(driver.cuMemcpyHtoDAsync(device, x.address, 8, a))
        ok(driver.cuEventRecord(fork, a))
        ok(driver.cuStreamWaitEvent(b, fork, 0))
        memory = ok(driver.cuMemAllocAsync(8, b))
        ok(driver.cuMemcpyDtoDAsync(memory, device, 8, b))
        ok(driver.cuMemcpyDtoHAsync(y.address, memory, 8, b))
        ok(driver.cuMemFreeAsync(memory, b))
        ok(driver.cuEventRecord(join, b))
        ok(driver.cuStreamWaitEvent(a, join, 0))
        graph = ok(driver.cuStreamEndCapture(a))
        fails(E.CUDA_ERROR_STREAM_CAPTURE_ISOLATION, driver.cuStreamWaitEvent(b, join, 0))
        executable = ok(driver.cuGraphInstantiate(graph, 0))
        for k in range(20):
            x.array[0] = k
            ok(driver.cuGraphLaunch(executable, a))
            ok(driver.cuStreamSynchronize(a))
            assert y.array[0] == k
        ok(driver.cuGraphExecDestroy(executable))
        ok(driver.cuGraphDestroy(graph))
        assert fakecuda.counts()["allocations"] == 1 and fakecuda.describe() == ""

    for seed in range(3):
        run(body, FAKECUDA_SEED=str(seed))


def test_what_ends_a_capture(run):
    def body():
        s, other = stream(), stream()
        e, outside = event(2), event(2)
        ok(driver.cuEventRecord(outside, other))
        x = np.zeros(4096)
        memory = ok(driver.cuMemAllocAsync(8, s))
        mode = driver.CUstreamCaptureMode
        cases = [
            (lambda: driver.cuStreamSynchronize(s), E.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
            (lambda: driver.cuStreamQuery(s), E.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
            (lambda: driver.cuEventQuery(e), E.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
            (lambda: driver.cuStreamWaitEvent(s, outside, 0), E.CUDA_ERROR_STREAM_CAPTURE_ISOLATION),
            (lambda: driver.cuMemHostRegister(x.ctypes.data, x.nbytes, 0), E.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
            (lambda: driver.cuMemAlloc(8), E.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
            (lambda: driver.cuEventQuery(outside), E.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
        ]
        for call, error in cases:
            ok(driver.cuStreamBeginCapture(s, mode.CU_STREAM_CAPTURE_MODE_GLOBAL))
            ok(driver.cuEventRecord(e, s))
            fails(error, call())
            fails(E.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, driver.cuEventRecord(e, s))
            fails(E.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, driver.cuStreamEndCapture(s))
        for call in (driver.cuEventQuery, driver.cuEventSynchronize):
            ok(driver.cuStreamBeginCapture(s, mode.CU_STREAM_CAPTURE_MODE_RELAXED))
            ok(driver.cuEventRecord(e, s))
            fails(E.CUDA_ERROR_CAPTURED_EVENT, call(e))
            fails(E.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, driver.cuStreamEndCapture(s))
        ok(driver.cuStreamBeginCapture(s, mode.CU_STREAM_CAPTURE_MODE_GLOBAL))
        fails(E.CUDA_ERROR_INVALID_VALUE, driver.cuMemFreeAsync(memory, s))  # it is not the graph's
        ok(driver.cuEventRecord(e, s))
        ok(driver.cuStreamWaitEvent(other, e, 0))
        ok(driver.cuMemsetD8Async(memory, 0, 8, other))
        fails(E.CUDA_ERROR_STREAM_CAPTURE_UNJOINED, driver.cuStreamEndCapture(s))
        ok(driver.cuStreamBeginCapture(s, mode.CU_STREAM_CAPTURE_MODE_GLOBAL))
        before = ok(driver.cuThreadExchangeStreamCaptureMode(mode.CU_STREAM_CAPTURE_MODE_RELAXED))
        ok(driver.cuMemHostRegister(x.ctypes.data, x.nbytes, 0))
        ok(driver.cuEventQuery(outside))
        ok(driver.cuThreadExchangeStreamCaptureMode(before))
        ok(driver.cuGraphDestroy(ok(driver.cuStreamEndCapture(s))))

    run(body)
