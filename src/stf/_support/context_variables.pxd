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
    /* Whether this thread may have context variables: quicker to know. */
    static int stf_has_context(void) {
        return PyThreadState_Get()->context != NULL;
    }
    """
    object stf_variables()
    bint stf_has_context()

cpdef object variables_here()
cpdef bint may_have_variables()
