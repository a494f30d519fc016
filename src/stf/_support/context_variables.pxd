cdef extern from *:
    """
    /* A copy of this thread's context variables; None if there are none. */
    static PyObject *stf_variables(void) {
        PyObject *variables;
        if (PyThreadState_Get()->context == NULL) Py_RETURN_NONE;
        variables = PyContext_CopyCurrent();
        if (variables != NULL && PyObject_Size(variables) == 0) {
            Py_DECREF(variables);
            Py_RETURN_NONE;
        }
        return variables;
    }
    """
    object stf_variables()

cpdef object variables_here()
