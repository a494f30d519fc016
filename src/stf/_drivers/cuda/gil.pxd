from cuda.bindings cimport cydriver as cu

cdef extern from *:
    """
    template <class T> struct stf_same { typedef T type; };

    /* A call into CUDA; others may have the GIL meanwhile if CUDA may wait for a body of a host node. */
    template <class... P>
    static inline CUresult stf_call(int nodes, CUresult (*function)(P...), typename stf_same<P>::type... arguments) {
        if (!nodes) return function(arguments...);
        PyThreadState *state = PyEval_SaveThread();
        CUresult code = function(arguments...);
        PyEval_RestoreThread(state);
        return code;
    }
    """
    cu.CUresult call "stf_call"(int nodes, ...) noexcept

cdef int host_nodes

cdef inline void point_to_block(void** extra, void* block, size_t* nbytes) noexcept nogil:
    """Say of a launch that its arguments lie in one block."""
    extra[0], extra[1] = <void*>1, block  # CU_LAUNCH_PARAM_BUFFER_POINTER
    extra[2], extra[3], extra[4] = <void*>2, nbytes, NULL  # CU_LAUNCH_PARAM_BUFFER_SIZE, CU_LAUNCH_PARAM_END
