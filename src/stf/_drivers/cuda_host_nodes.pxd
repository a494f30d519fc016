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

cdef int host_nodes  # that graphs of others have, in this process

cdef cu.CUresult add_host_node(cu.CUstream stream, object body) except *
cdef int forget_gone() except -1

cdef cu.CUresult keep_in_graph(cu.CUgraph graph, GraphKeep keep) noexcept

cdef class GraphKeep:
    cdef int* gone
    cdef list what

cdef class HostMemory:
    cdef void* start
    cdef object __weakref__
