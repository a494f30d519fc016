cdef extern from *:
    """
    /* A method and its object, to be called: what a descriptor below gives, and what a with-block holds until it ends. */
    typedef struct {
        PyObject_HEAD
        PyObject *method;  /* the descriptor's, which lives as long as the type */
        PyObject *self;
        vectorcallfunc call;
    } stf_Bound;

    typedef struct {
        PyObject_HEAD
        PyObject *method;
    } stf_Binder;

    typedef PyObject *(*stf_fast_method)(PyObject *, PyObject *const *, Py_ssize_t, PyObject *);
    enum { STF_SPARE_BOUNDS = 8 };
    static stf_Bound *stf_spare_bounds[STF_SPARE_BOUNDS];
    static int stf_spare_bound_count = 0;

    static PyObject *stf_call_bound(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *names) {
        stf_Bound *bound = (stf_Bound *)callable;
        PyMethodDef *method = ((PyMethodDescrObject *)bound->method)->d_method;
        Py_ssize_t count = PyVectorcall_NARGS(nargsf);
        PyObject *whole, *result;
        if (method->ml_flags == (METH_FASTCALL | METH_KEYWORDS))
            return ((stf_fast_method)(void (*)(void))method->ml_meth)(bound->self, args, count, names);
        if (method->ml_flags == METH_NOARGS && count == 0 && names == NULL)
            return method->ml_meth(bound->self, NULL);
        whole = PyMethod_New(bound->method, bound->self);
        if (whole == NULL) return NULL;
        result = PyObject_Vectorcall(whole, args, nargsf, names);
        Py_DECREF(whole);
        return result;
    }

    static void stf_drop_bound(PyObject *object) {
        PyObject *self = ((stf_Bound *)object)->self;
        if (stf_spare_bound_count < STF_SPARE_BOUNDS) stf_spare_bounds[stf_spare_bound_count++] = (stf_Bound *)object;
        else PyObject_Free(object);
        Py_DECREF(self);
    }

    /* All but calls is done by the bound method that Python would have made. */
    static PyObject *stf_whole_bound(PyObject *object) {
        PyObject *method = ((stf_Bound *)object)->method, *self = ((stf_Bound *)object)->self;
        return Py_TYPE(method)->tp_descr_get(method, self, (PyObject *)Py_TYPE(self));
    }

    static PyObject *stf_bound_attribute(PyObject *object, PyObject *name) {
        PyObject *whole = stf_whole_bound(object), *found;
        if (whole == NULL) return NULL;
        found = PyObject_GetAttr(whole, name);
        Py_DECREF(whole);
        return found;
    }

    static PyObject *stf_bound_repr(PyObject *object) {
        PyObject *whole = stf_whole_bound(object), *text;
        if (whole == NULL) return NULL;
        text = PyObject_Repr(whole);
        Py_DECREF(whole);
        return text;
    }

    static Py_hash_t stf_bound_hash(PyObject *object) {
        PyObject *whole = stf_whole_bound(object);
        Py_hash_t hash;
        if (whole == NULL) return -1;
        hash = PyObject_Hash(whole);
        Py_DECREF(whole);
        return hash;
    }

    static PyObject *stf_bound_compare(PyObject *one, PyObject *other, int how) {
        PyObject *first, *second, *answer;
        if (Py_TYPE(one) != Py_TYPE(other)) Py_RETURN_NOTIMPLEMENTED;
        first = stf_whole_bound(one);
        if (first == NULL) return NULL;
        second = stf_whole_bound(other);
        answer = second == NULL ? NULL : PyObject_RichCompare(first, second, how);
        Py_DECREF(first);
        Py_XDECREF(second);
        return answer;
    }

    static PyTypeObject stf_BoundType = {
        PyVarObject_HEAD_INIT(NULL, 0)
        .tp_name = "stf.bound_method",
        .tp_basicsize = sizeof(stf_Bound),
        .tp_dealloc = stf_drop_bound,
        .tp_vectorcall_offset = offsetof(stf_Bound, call),
        .tp_call = PyVectorcall_Call,
        .tp_getattro = stf_bound_attribute,
        .tp_repr = stf_bound_repr,
        .tp_hash = stf_bound_hash,
        .tp_richcompare = stf_bound_compare,
        .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    };

    static PyObject *stf_bind(PyObject *binder, PyObject *self, PyObject *type) {
        PyObject *method = ((stf_Binder *)binder)->method;
        stf_Bound *bound;
        if (self == NULL || !PyObject_TypeCheck(self, ((PyMethodDescrObject *)method)->d_common.d_type))
            return Py_TYPE(method)->tp_descr_get(method, self, type);  /* of the type, or an error */
        if (stf_spare_bound_count > 0) {
            bound = stf_spare_bounds[--stf_spare_bound_count];
            PyObject_Init((PyObject *)bound, &stf_BoundType);
        } else {
            bound = PyObject_New(stf_Bound, &stf_BoundType);
            if (bound == NULL) return NULL;
        }
        Py_INCREF(self);
        bound->method = method;
        bound->self = self;
        bound->call = stf_call_bound;
        return (PyObject *)bound;
    }

    static PyObject *stf_call_binder(PyObject *binder, PyObject *args, PyObject *names) {
        return PyObject_Call(((stf_Binder *)binder)->method, args, names);
    }

    static PyObject *stf_binder_attribute(PyObject *binder, PyObject *name) {
        return PyObject_GetAttr(((stf_Binder *)binder)->method, name);
    }

    static PyTypeObject stf_BinderType = {
        PyVarObject_HEAD_INIT(NULL, 0)
        .tp_name = "stf.method",
        .tp_basicsize = sizeof(stf_Binder),
        .tp_descr_get = stf_bind,
        .tp_call = stf_call_binder,
        .tp_getattro = stf_binder_attribute,
        .tp_flags = Py_TPFLAGS_DEFAULT,
    };

    /* Put a binder of a method in the method's place; it is never dropped, as little as the type. */
    static int stf_bind_lightly(PyTypeObject *type, PyObject *name) {
    #if PY_VERSION_HEX < 0x030E0000 && !defined(Py_GIL_DISABLED)
        PyObject *method = PyDict_GetItemWithError(type->tp_dict, name);
        stf_Binder *binder;
        if (method == NULL || !Py_IS_TYPE(method, &PyMethodDescr_Type)) {
            if (!PyErr_Occurred()) PyErr_SetObject(PyExc_AttributeError, name);
            return -1;
        }
        if (PyType_Ready(&stf_BoundType) < 0 || PyType_Ready(&stf_BinderType) < 0) return -1;
        binder = PyObject_New(stf_Binder, &stf_BinderType);
        if (binder == NULL) return -1;
        Py_INCREF(method);
        binder->method = method;
        if (PyDict_SetItem(type->tp_dict, name, (PyObject *)binder) < 0) return -1;
        PyType_Modified(type);
    #else
        (void)type, (void)name;
    #endif
        return 0;
    }
    """
    int stf_bind_lightly(type kind, str name) except -1
