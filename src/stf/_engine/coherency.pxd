cimport cython
from libc.stdint cimport int64_t
from stf._engine cimport adoption
from stf._engine.copy_log cimport logged
from stf._engine.access cimport Data, READ
from stf._engine.eviction_order cimport STAYS, EvictionOrder, key_of, version_of
from stf._port.events cimport EventSet
from stf._port.links cimport Links
from stf._port.replicas cimport INVALID, Replica, make_replica
from stf._port.port cimport COMPUTE, COPY_IN, COPY_OUT, Port
from stf._engine.scope cimport Scope
from stf._engine.versions cimport Version, outermost
from stf._engine.task cimport TaskCore

cdef enum:
    NEVER = -1  # of `Coherency.pauses`: who asks cannot pause
    AHEAD = -2  # nor may it take what is spared
    SHORT_COPY = 65536  # bytes: its transfer takes less than one lane's wait for another

cdef int LOG_LENGTH
cdef int MOST_SPARE

cdef class Pool:
    cdef readonly int place  # its number
    cdef public int64_t limit  # most bytes at a time; 0 for none
    cdef readonly int64_t used  # bytes of replicas, partial results and recordings that live
    cdef list leaving  # (event, bytes) of memory that was given up, the first one first; where there is a limit
    cdef int64_t leaving_bytes  # the sum of these
    cdef list spare  # replicas of no data, whose memory the next ones take; the one that was given up first comes first
    cdef readonly int64_t spare_bytes  # the sum of these,
    cdef public int64_t most_spare  # and the most that it may be
    cdef readonly dict partials  # its keys: the replicas there that are none of their data's, such as partial results
    cdef readonly EvictionOrder order  # of the replicas there; None where nothing was ever evicted, without a limit
    cdef bint spares(self, int64_t nbytes) noexcept
    cdef int find_spare(self, int64_t nbytes) except -2
    cdef Replica take_spare(self, int index)
    cdef int64_t live(self) except -1
    cdef int leave(self, int64_t event, int64_t nbytes) except -1
    cdef readonly int64_t peak  # the most bytes that were there at a time
    cdef readonly int64_t allocations  # how many,
    cdef readonly int64_t allocated_bytes  # of how many bytes,
    cdef readonly int64_t frees  # how many of these are over,
    cdef readonly int64_t evictions  # and how many by eviction
    cdef public int64_t tasks  # that ran at the place

cdef class Coherency:
    cdef readonly Port port  # of the innermost scope
    cdef readonly Scope scope  # the innermost one
    cdef readonly list pools  # of the places, by number
    cdef readonly dict data  # by id: those that live
    cdef readonly dict recordings  # by id: those that live, and what they hold
    cdef public object observer  # is told of copies, allocations and evictions; or None
    cdef readonly list places  # the records of all places, by number
    cdef dict copies  # by pair of places: how many copies
    cdef CopyCount last_count  # the one that was counted last
    cdef readonly int64_t write_backs  # how many
    cdef int64_t tick  # how many tasks have ended: the time of last uses
    cdef public int64_t spared  # what so many tasks used last goes after all others; 0 without a plan
    cdef EventSet waits  # room for what a copy or a free comes after
    cdef EventSet outside  # what others complete before the asking task, and before the copies for it; or None
    cdef readonly int64_t operations  # how many were numbered, for observers
    cdef readonly TaskCore asking  # the task that replicas are provided for; or None
    cdef int pauses  # how often what happens now was paused already; NEVER if it cannot be
    cdef list failures  # the engine's, of copies by custom data interfaces
    cdef readonly bint keeps_order  # some pool has an order of eviction
    cpdef Scope enter(self, Scope scope)
    cdef Replica provide(self, Data data, Version version, int place, int mode, int slot)
    cdef int fetch(self, Data data, Version version, Replica target) except -1
    cdef int transfer(self, Data data, Version version, Replica source, Replica target, object unless=*) except -1
    cdef int64_t number_operation(self) noexcept
    cdef int count_copy(self, Data data, int source, int target, int64_t nbytes, int64_t number, list before) except -1
    cdef int note(self, str kind, Data data, int source, int target, int64_t nbytes, int64_t number, list before) except -1
    cdef int allocate(self, Data data, Replica replica, int slot) except -1
    cdef int make_room(self, Pool pool, int64_t nbytes, Data data, int slot) except -1
    cdef bint reuse(self, Replica replica, int slot, Pool pool) except -1
    cdef int keep_spare(self, Replica replica, Pool pool) except -1
    cdef int free_spare(self, Pool pool, int64_t nbytes) except -1
    cpdef int free_all_spare(self) except -1
    cdef int settle_frees(self, Pool pool) except -1
    cdef bint evict(self, Pool pool, int64_t excess, EventSet freed) except -1
    cdef Replica next_to_go(self, Pool pool, list passed)
    cdef int put_back(self, EvictionOrder order, list passed) except -1
    cdef bint look_at_all(self, Pool pool) except -1
    cpdef bint stays_long(self, Version version, Replica replica) except -1
    cdef bint stays_now(self, Version version, Replica replica) except -1
    cpdef bint is_free_to_go(self, Version version, Replica replica) except -1
    cdef int note_use(self, Replica replica) except -1
    cdef int reorder(self, Version version) except -1
    cdef int own(self, Version version, Replica replica) except -1
    cdef int take_in(self, EvictionOrder order, Data data, Replica replica) except -1
    cdef int keep_order(self, Pool pool) except -1
    cdef int64_t discard(self, Version version, Replica replica, bint want_event) except -1
    cdef int add_uses(self, Version version, Replica replica, EventSet events) except -1
    cdef Replica cheapest(self, Version version, int place)
    cdef int write_home(self, Data data) except -1
    cdef int offer_home(self, Data data) except -1
    cdef int drop_replicas(self, Data data) except -1

cdef class CopyCount:
    cdef int pair
    cdef int64_t copies
    cdef int64_t nbytes
