from cpython.weakref cimport PyWeakref_NewRef
from libc.stdint cimport int64_t
from stf._engine.access cimport AddressBook, Data, DataHandle, MemorySpan
from stf._engine cimport user_arrays
from stf._port.events cimport EventSet
from stf._port.replicas cimport Layout, layout_of
from stf._engine.engine cimport Engine
from stf._engine.task cimport stf_call_site_outside
from stf._support.sync cimport NestingGate
from stf.interop.known_arrays cimport Memory, cupy_memory, numpy_memory
from stf.tasks.late_arrays cimport new_handle
from stf.tasks.task cimport ContextCore

cdef class RegistryEntry(MemorySpan):
    cdef int take(self, Memory memory) except -1
    cdef bint is_same(self, RegistryEntry other) except -1
    cdef object living(self)
    cdef int find_site(self) except -1

cdef class Registry(AddressBook):
    cdef list sorted
    cdef int64_t longest
    cdef NestingGate gate
    cdef int64_t added
    cdef readonly dict leaving
    cdef readonly dict shared
    cdef Py_ssize_t position(self, int64_t low, int64_t ident) except -1
    cpdef object find(self, RegistryEntry wanted)
    cpdef list overlapping(self, RegistryEntry wanted)
    cdef bint is_free(self, RegistryEntry wanted) except -1
    cdef bint add(self, RegistryEntry entry, dict known, int64_t seen) except -1
    cpdef EventSet last_use(self, int64_t ident)
    cdef int remove(self, MemorySpan span) except -1

cdef str FOLDER
cdef dict NOTHING
cdef dict KNOWN
cdef object OF_CUPY
cdef object OF_NUMPY

cdef class Registration:
    cdef ContextCore context
    cdef Engine engine
    cdef Registry registry
    cdef object obj  # the array
    cdef object data_place  # where the user says it is; or None
    cdef object label
    cdef bint write_back
    cdef bint readonly  # at the user's wish
    cdef bint was_readonly  # the array, when it was looked at
    cdef Memory memory  # where it lies
    cdef RegistryEntry entry
    cdef dict before  # by the id of who had its memory, the last events there; None where all is to be done again
    cdef int64_t seen  # how many were registered before
    cdef int look(self) except -1
    cdef object make_way(self)
    cdef object add(self)

cdef object register(ContextCore context, object obj, object data_place, object label, bint write_back, bint readonly)
cdef RegistryEntry entry_of(Memory memory)
cdef bint nests(Layout layout) except -1
cdef bint is_dropping(Data data) except -1
cdef object known_data(Engine engine, Registry registry, RegistryEntry wanted, object producer)
cdef object reference_to(object handle)
cdef int place_of(object context, Engine engine, Memory memory, object data_place) except -1
cdef dict last_uses(Engine engine, Registry registry, RegistryEntry entry, object name)
cdef bint is_live(Engine engine, Data data) except -1
