cdef extern from "pythread.h":
    unsigned long PyThread_get_thread_ident() noexcept nogil

cdef extern from *:
    """
    /* A thread by a number that no other one ever has: the system gives its own numbers out again. */
    static unsigned long long stf_this_thread(void) { return PyThreadState_GetID(PyThreadState_Get()); }
    static int stf_is_alive(unsigned long long number) {
        PyThreadState *state = PyInterpreterState_ThreadHead(PyInterpreterState_Get());
        while (state != NULL && PyThreadState_GetID(state) != number) state = PyThreadState_Next(state);
        return state != NULL;
    }

    /* How many calls deeper Python may go; where it does not say so, it has a limit for C's stack of its own. */
    static int stf_calls_left(int wanted) {
    #if PY_VERSION_HEX >= 0x030C0000
        return PyThreadState_Get()->py_recursion_remaining;
    #else
        return PyThreadState_Get()->recursion_remaining;
    #endif
    }
    """
    int calls_left "stf_calls_left"(int wanted) noexcept
    unsigned long long this_thread "stf_this_thread"() noexcept
    bint is_alive "stf_is_alive"(unsigned long long number) noexcept

cdef int BEGINS
cdef int ENDS
cdef int LAUNCHES
cpdef int must_have_room(int calls=*) except -1
cdef int refuse_depth(int calls) except -1

cdef class Gate:
    cdef bint busy
    cdef unsigned long owner
    cdef int waiters
    cdef object baton
    cdef object mutex
    cdef int enter(self) except -1
    cdef int enter_slow(self) except -1
    cdef int wait_for_turn(self) except -1
    cdef int leave(self) except -1
    cdef int reenter(self) except -1

cdef class NestingGate(Gate):
    cdef int depth
