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
    /* Whether this thread may have context variables, values of its own, or a trace: quicker to know. */
    static int stf_has_own(void) {
        PyThreadState *state = PyThreadState_Get();
        return state->context != NULL || state->dict != NULL || state->c_tracefunc != NULL || state->c_profilefunc != NULL;
    }
    """
    object stf_variables()
    bint stf_has_own()

cpdef object variables_here()
cpdef bint has_own_state()
