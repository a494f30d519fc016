from cpython.pycapsule cimport PyCapsule_GetPointer

# NumPy's array interface, as its capsule holds it.
ctypedef struct PyArrayInterface:
    int two
    int nd
    char typekind
    int itemsize
    int flags
    Py_ssize_t* shape
    Py_ssize_t* strides
    void* data
    void* descr

cdef object new_tuple
cdef dict modules
cdef object current_stream

cpdef object describe_numpy(object obj, bint on_cuda)
cpdef object describe_cupy(object obj, bint on_cuda)
cdef tuple numpy_memory(object obj)
cdef tuple cupy_memory(object obj, bint on_cuda)
