"""The port: all that the engine asks of a backend. Events in, events out.

``begin`` opens a slot that starts after `waits`; work is put on the slot; ``end`` or ``abort`` closes it and gives
the event at which that work is complete. Data places and execution places are small integers: 0 is the host,
``1 + i`` is device ``i``.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from stf._support import uncompiled as cython  # type: ignore[no-redef]


class Port:
    """Base of the backends; a backend answers every verb it declares."""

    if not cython.compiled:
        captured = reads_back = False
        values = None
        writes = rewrites = rewritten = 0

    def begin(self, place, waits, kind):
        """Open a slot of `kind` at `place` that starts after `waits`; return its number."""
        raise NotImplementedError

    def join(self, slot, waits):
        """Make what follows on `slot` start after `waits` too."""
        raise NotImplementedError

    def end(self, slot):
        """Close the slot; return the event at which its work is complete."""
        raise NotImplementedError

    def abort(self, slot):
        """Close the slot of a task that failed: what it did must still be waited for."""
        return self.end(slot)

    def enqueues(self, place):
        """Whether bodies at an execution place only enqueue work on a stream; else they are the work."""
        return False

    def arrive(self, place, pointer):
        """The event at which all is done that is on a caller's stream now; `place` is on its device."""
        raise NotImplementedError

    def wait_on_external(self, slot, pointer):
        """Make what comes on `slot` start after all that is on a caller's stream now."""
        raise NotImplementedError

    def signal_external(self, slot, pointer):
        """Make what comes on a caller's stream start after all that is on `slot` now."""
        raise NotImplementedError

    def keep_alive(self, slot, what):
        """Keep an object alive until what is on `slot` now is done."""
        raise NotImplementedError

    def disown(self, replica):
        """The user's memory is not a data's home any more: what devices need until its last use is over, or None."""
        return None

    def enter(self, slot):
        """Wait, outside the engine, until a body may begin where it stands."""
        return 0

    def copy(self, slot, target, source, unless=None, number=0):
        """Copy one replica to another on the slot; not if ``unless()`` is not None when the slot gets there.

        It is the operation of that `number`, by which whoever watches copies knows it; 0 where nobody observes.
        """
        raise NotImplementedError

    def begin_readback(self, slot, replica):
        """Read a few bytes of a replica on the slot, for `end_readback` after its end; -1 if that is not possible now.

        Only of ports that have `reads_back`.
        """
        return -1

    def end_readback(self, landing, nbytes):
        """Wait, outside the engine, for what was read and return it; None if it must be asked for otherwise."""
        raise NotImplementedError

    def fill(self, slot, replica, pattern):
        """Fill a replica on a device with an element of the bytes `pattern`; False if that is not possible."""
        raise NotImplementedError

    def may_use(self, place, replica):
        """Whether work at an execution place may use a replica that is elsewhere as it is."""
        return True

    def add_place(self, device, foreign_handle):
        """Know one more place, on a device of the driver; return its number.

        `foreign_handle` is ``("stream", address)`` or ``("context", address)`` of the caller's, whose streams the place
        has; None for a memory.
        """
        raise NotImplementedError

    def open_event(self):
        """An event that somebody else completes: it takes no worker, and blocks no device but for who waits for it."""
        raise NotImplementedError

    def complete_event(self, event):
        """Let an event of `open_event` be complete; from any thread."""
        raise NotImplementedError

    def launch(self, slot, function, gx, gy, gz, bx, by, bz, shared, block, nbytes):
        """Launch a kernel on the slot; its arguments are the `nbytes` at the address `block`."""
        raise NotImplementedError

    def put_pointer(self, slot, offset, replica):
        """Say that an argument of the next launch on the slot, at an offset, is the address of a replica."""
        return 0

    def begin_capture(self, place, owner):
        """A stream at `place` whose work is recorded: an object with its `pointer`; ``end()`` is what was recorded.

        It is the stream of an earlier capture, whose `owner` is given, or with None one that no other has.
        """
        raise NotImplementedError

    def play_captured(self, slot, captured):
        """Put on the slot what such a recording has."""
        raise NotImplementedError

    def defers(self, slot, captured):
        """Whether the device would get it later: the slot waits for a body on the host, or launches of it do."""
        return False

    def queue_captured(self, slot, captured, changes):
        """Put it on the slot for later, after changes of all its nodes that may change; None: none may."""
        raise NotImplementedError

    def takes_graph(self, slot, place):
        """Whether a graph for a place can be launched on a slot."""
        return False

    def call(self, slot, body):
        """Call `body()` on the host when the slot gets there."""
        raise NotImplementedError

    def call_here(self, slot, body, targets):
        """Call `body()` on the host whenever the graph gets there that is captured, and launched here.

        It may write the replicas `targets`.
        """
        raise NotImplementedError

    def stream(self, slot):
        """The driver's stream of a slot."""
        raise NotImplementedError

    def alloc(self, slot, replica):
        """Give `replica` memory that may be used on `slot` at once. MemoryError if there is none."""
        raise NotImplementedError

    def free(self, replica, waits, want_event):
        """Take the memory back after `waits`; the event of that if it is wanted, else 0."""
        raise NotImplementedError

    def tails(self, into):
        """Add the last event of every lane."""
        raise NotImplementedError

    def tails_at(self, place, into):
        """Add the last event of every lane at an execution place."""
        raise NotImplementedError

    def wait(self, events, timeout_s):
        """Block the host until `events` are complete; False if `timeout_s` (negative: none) ran out first."""
        raise NotImplementedError

    def done(self, event):
        """Whether `event` is known to be complete; may say False of one that is."""
        raise NotImplementedError

    def fault(self):
        """The error that has lost a device, as far as is known; None if all is well."""
        return None

    def drain(self, slot):
        """Block the host until what is on the slot now is done."""
        return 0

    def expect_block(self, slot, name, nbytes):
        """Know what the with-block is that is about to be entered on a slot; only where `values` is not None."""
        return 0

    def park(self, baton, timeout_s):
        """Block the host until another thread releases the lock `baton`, and take it; False if the time ran out."""
        return baton.acquire(True, -1 if timeout_s < 0 else timeout_s)

    def runners(self, events, slot):
        """Threads that run a body which must end before `events`, and before what stands on `slot` (-1: none)."""
        return ()

    def flush(self):
        """Start whatever was recorded and not started."""
        return 0

    def shutdown(self):
        """Give everything back to the driver."""
        return 0
