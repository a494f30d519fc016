from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from stf._engine.access cimport ACCUMULATE, READ, WRITE, Access, Data, DataHandle, make_access
from stf._engine.engine cimport Engine
from stf._engine.thread_turns cimport gathers
from stf._support.untracked cimport untrack
from stf._port.late_values cimport Asked
from stf._port.replicas cimport Layout
from stf.tasks.late_arrays cimport ResultSlot, access_when_known, first_of, has_open, is_of_numpy, late_array, layout_like, must_bind_late, new_handle
from stf.tasks.arguments cimport Parameter, check_access, check_context, check_elements, check_params, check_variadic, flattened, gives_accesses, is_plain, refuse_registered, with_further, without_mode
from stf.tasks.bodies cimport Body, make_body, store_results
from stf.tasks.running cimport begin_body, end_now, injected_value, may_move, runs_plainly, submit, take_back
from stf.tasks.closures cimport Taken, names_in, refuse_lost, snapshot, with_cells, with_globals, with_last_values
from stf.interop.current cimport Borrowed, borrow, owed, return_owed
from stf.tasks.placing cimport can_be_held, hold, place_as_function, settle, takes_pure
from stf.tasks.task cimport ContextCore, Task
from stf.tasks.undeclared cimport may_reach_arrays, refuse_undeclared
from stf.tasks.views cimport library_of, source_of, sources_of, view_of, views_between

cdef extern from *:
    """
    /* A call with what a list holds, of which no tuple is made. */
    static PyObject *stf_call_with(PyObject *callable, PyObject *values) {
        return PyObject_Vectorcall(callable, ((PyListObject *)values)->ob_item, PyList_GET_SIZE(values), NULL);
    }

    /* What a call of a weak reference gives, or None. */
    static PyObject *stf_referent(PyObject *reference) {
        PyObject *found;
        if (!PyWeakref_CheckRefExact(reference)) return PyObject_CallNoArgs(reference);
    #if PY_VERSION_HEX >= 0x030D0000
        if (PyWeakref_GetRef(reference, &found) < 0) return NULL;
        if (found == NULL) found = Py_NewRef(Py_None);
    #else
        found = Py_NewRef(PyWeakref_GET_OBJECT(reference));
    #endif
        return found;
    }

    /* From now on Python calls objects of this one's type through a pointer that each has, with the arguments where they are. */
    static void stf_use_vectorcall(PyObject *object, vectorcallfunc *pointer) {
        PyTypeObject *type = Py_TYPE(object);
        type->tp_vectorcall_offset = (char *)pointer - (char *)object;
        type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
        PyType_Modified(type);
    }
    """
    ctypedef PyObject* (*vectorcallfunc)(PyObject*, PyObject**, size_t, PyObject*)
    Py_ssize_t PyVectorcall_NARGS(size_t count)
    object stf_call_with(object callable, list values)
    object stf_referent(object reference)
    void stf_use_vectorcall(object function, vectorcallfunc* pointer)

cdef object TOKEN
cdef object JAX_COPY

cdef class TaskFunction:
    cdef vectorcallfunc vectorcall  # what Python calls
    cdef readonly object fn
    cdef object runs  # the function that bodies call; see `last_values`
    cdef tuple writes  # the positions of parameters that are written
    cdef bint owes  # a result, since it does not use all that it writes
    cdef public object symbol
    cdef object arrays_of
    cdef object library  # of its arrays: `arrays_of`, or the only one that annotations name
    cdef object where
    cdef readonly int priority  # of its tasks
    cdef bint is_fixed  # `where` is a number or the host, which contexts know
    cdef dict variants  # the same function elsewhere, by such a place
    cdef bint in_graphs
    cdef readonly bint pure  # its result depends on its arguments alone
    cdef list parameters
    cdef object signature
    cdef bint closes
    cdef bint reads  # global variables, or may do so
    cdef bint wraps  # another function, or is none in Python
    cdef bint holds  # variables, or defaults, that may be registered arrays
    cdef Taken taken  # of them, by the last call
    cdef bint positional
    cdef bint trails  # its last parameter is ``*args``, and all others are positional
    cdef bint trails_data  # and that has an access mode, and there are no new data
    cdef int accessed
    cdef list spare  # of arguments, for the next call
    cdef bint takes_task
    cdef bint movable
    cdef list injected  # what its parameters ask for: "stream", "task"
    cdef dict by_modes  # for calls with accesses where no annotation is: functions, by their modes
    cdef bint draws  # random numbers
    cdef bint has_elements  # a parameter says their type
    cdef bint is_checked
    cdef list kinds
    cdef list kinds_of_all  # with those of new data, for bodies that are recorded; or None
    cdef list likes  # the positions of parameters that new data are like; None where it is not as simple
    cdef bint returns_one  # new data, and no container of them
    cdef bint lends  # data to bodies that submit tasks
    cdef bint binds_late  # its bodies can get NumPy's arrays when they run
    cdef int makes  # so many new data are returned
    cdef list alone  # for each parameter: the list of its position
    cdef int given  # parameters that a call has arguments for; those of new data come after them
    cdef object results  # new data that calls return; or None
    cpdef object call(self, object context, Task task, list values, dict kwargs)
    cdef object make_results(self, object context, Task task, list values)
    cdef list layouts_of(self, list values)
    cdef Engine engine_of(self, object context, list values)
    cdef object without_data(self)
    cdef int submit(self, object context, Task task, list values) except -1
    cdef int hold(self, Task task, object fn, list values, dict shapes) except -1
    cdef int go_on(self, Task task, object fn, list values, dict shapes, bint was_held) except -1
    cdef Body body_of(self, Task task, object fn, list values, list late, list argument_sources)
    cdef TaskFunction for_accesses(self, list values)
    cdef object with_globals(self, object fn)
    cdef tuple accesses_of(self, list values)
    cdef dict walk(self, Task task, list values)
    cdef int add(self, list accesses, Parameter parameter, object value) except -1
    cdef tuple add_flat(self, list accesses, Parameter parameter, object value)
    cdef list put_arrays(self, Task task, list values, dict shapes, list argument_sources)
    cdef object container(self, Task task, int first, int position, tuple shape, object lib, list argument_sources)
    cdef int run_plainly(self, Engine engine, Task task, object fn, list values) except -1
    cdef list written(self, list values)
    cdef int keep(self, list values) except -1
    cdef int adopt(self, Task task, object context) except -1
    cdef int look_at_globals(self, Task task) except -1

cdef object vectorcall(TaskFunction function, PyObject** given, size_t count, PyObject* names)

cdef class HeldCall:
    cdef TaskFunction function
    cdef object fn
    cdef list values
    cdef dict shapes

cdef class BoundTaskFunction:
    cdef readonly TaskFunction function
    cdef readonly object instance
