"""Streams and contexts of the user's, as places where tasks run."""

from libc.stdint cimport uintptr_t

from cuda.bindings cimport cydriver as cu

from stf._drivers.cuda.devices cimport check
from stf._drivers.cuda.gil cimport call, host_nodes


def context_of_stream(uintptr_t pointer):
    """Return the address of the context that a stream is of; `DriverError` if it is none."""
    cdef cu.CUcontext context = NULL
    check(cu.cuInit(0), "cuInit", "this machine")
    check(call(host_nodes, cu.cuStreamGetCtx, <cu.CUstream>pointer, &context), "cuStreamGetCtx", "this machine")
    return <uintptr_t>context


def device_of_context(uintptr_t pointer):
    """Return (ordinal of its device, number that no other context ever has) of a context; `DriverError` if it is none."""
    cdef cu.CUdevice device = 0
    cdef unsigned long long number = 0
    cdef cu.CUcontext before = NULL
    check(cu.cuInit(0), "cuInit", "this machine")
    cu.cuCtxGetCurrent(&before)
    check(cu.cuCtxSetCurrent(<cu.CUcontext>pointer), "cuCtxSetCurrent", "this machine")
    code = cu.cuCtxGetDevice(&device)
    if cu.cuCtxGetId(<cu.CUcontext>pointer, &number) != cu.CUDA_SUCCESS:
        number = pointer
    cu.cuCtxSetCurrent(before)
    check(code, "cuCtxGetDevice", "this machine")
    return device, number


def current_context():
    """Return the address of this thread's current context, or 0."""
    cdef cu.CUcontext context = NULL
    cu.cuCtxGetCurrent(&context)
    return <uintptr_t>context


def make_current(uintptr_t pointer):
    """Make a context current; 0: none."""
    check(cu.cuCtxSetCurrent(<cu.CUcontext>pointer), "cuCtxSetCurrent", "this machine")
