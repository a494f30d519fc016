"""The port: all that the engine asks of a backend. Events in, events out.

``begin`` opens a slot that starts after `waits`; work is put on the slot; ``end`` or ``abort`` closes it and gives
the event at which that work is complete. Data places and execution places are small integers: 0 is the host,
``1 + i`` is device ``i``.

`Port` declares what every backend answers. What only some can do is a *role*: an object that such a port has, and that
is None elsewhere, so whoever needs it asks ``if port.captures is None``. An open recording has a `RecordingPort`, which
is told more. Nobody above the backends knows what a port stands on.

=============  ===============================  ==========================================================
role           class                            a port has it where
=============  ===============================  ==========================================================
`captures`     `_port.captures.Captures`        the driver makes graphs
`callers`      `_port.callers.Callers`          there are streams of others; a recording's refuses them
`readback`     `_port.readback.Readback`        a few bytes of a device can be shown without a task
`kernels`      `_backends.kernels.Kernels`      functions of devices can be found and launched
`loops`        `_drivers.roles.Loops`           workers run loops of compiled bodies
`parcels`      `_drivers.roles.Parcels`         devices are other processes, which keep recordings
=============  ===============================  ==========================================================
"""

from __future__ import annotations


class Port:
    """Base of the backends, which answer every verb that it declares.

    Attributes
    ----------
    captured : bool
        All is recorded in a caller's graph: nothing runs yet, and nothing can be waited for.
    captures, callers, readback, kernels, loops, parcels : role or None
        What only some backends can do.
    """

    @property
    def parcels(self):
        """The keeper of recordings in other processes; None where there are none."""
        return None

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

    def keep_alive(self, slot, what):
        """Keep an object alive until what is on `slot` now is done."""
        raise NotImplementedError

    def disown(self, replica):
        """The user's memory is not a data's home any more: what devices need until its last use is over, or None."""
        return None

    def enter(self, slot):
        """Wait, outside the engine, until a body may begin where it stands."""
        return 0

    def try_enter(self, slot):
        """Return whether a body may begin where it stands now; then nothing else begins on the slot before its end."""
        return False

    def copy(self, slot, target, source, unless=None, number=0):
        """Copy one replica to another on the slot; not if ``unless()`` is not None when the slot gets there.

        It is the operation of that `number`, by which whoever watches copies knows it; 0 where nobody observes.
        """
        raise NotImplementedError

    def copy_and_wait(self, slot, target, source, nbytes):
        """Copy bytes between the memory of the slot's device and the host's, by their addresses, and wait for it."""
        raise NotImplementedError

    def fill(self, slot, replica, pattern):
        """Fill a replica on a device with an element of the bytes `pattern`; False if that is not possible."""
        raise NotImplementedError

    def may_use(self, place, replica):
        """Return whether work at an execution place may use a replica that is elsewhere as it is."""
        return True

    def pin(self, replica):
        """Prepare the user's memory on the host for what a device does with it; elsewhere nothing is to be done."""
        return 0

    def add_place(self, device, foreign_handle):
        """Know one more place, on a device of the driver; return its number.

        `foreign_handle` is ``("stream", address, context)`` or ``("context", address, address)`` of the caller's, whose
        streams the place has; None for a memory.
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

    def play_parcel(self, slot, run):
        """Let another process do on the slot what it keeps of a recording; see `_drivers.roles.Parcels`."""
        raise NotImplementedError

    def defers(self, slot, captured):
        """Whether the device would get it later: the slot waits for a body on the host, or launches of it do.

        It is a graph that was captured, or None for any work.
        """
        return False

    def deliver(self):
        """Return when the device's library has all that was submitted."""
        return 0

    def call(self, slot, body):
        """Call `body()` on the host when the slot gets there."""
        raise NotImplementedError

    def tell_compiled(self):
        """Tell calls whose compiled code has run."""
        return 0

    def let_go_compiled(self, all_of_them):
        """Hold those no longer, perhaps only where there are some; no gate is held."""
        return 0

    def ask_first(self):
        """Let each call be made that has not begun: it knows whether it is called off, which compiled code does not."""
        return 0

    def call_in_turn(self, slot, body):
        """Call a body that only enqueues work on the slot; where the port `spreads`, in the thread of its device."""
        return self.call(slot, body)

    def keep_pace(self, place):
        """Wait a while if many bodies of an execution place wait for the thread that calls them."""
        return 0

    def stream(self, slot):
        """The device library's stream of a slot; None on the host."""
        raise NotImplementedError

    def stream_number(self, slot):
        """Return by which number the driver knows the stream of a slot, for who watches the driver."""
        raise NotImplementedError

    def max_workers(self):
        """Return how many bodies run side by side on the host."""
        return 1

    def share(self, job, count):
        """Let up to `count` idle workers call a job beside who asks, who does what they leave; perhaps none does.

        With a loop of `loops`, they do so whenever that is led.
        """
        return 0

    def owns_thread(self, ident):
        """Return whether the thread with this identifier is a worker, which runs bodies."""
        return False

    def reserve(self, places, page, runs):
        """Return one range of addresses for memory of several places; None if there is no such.

        `runs` are (first page, count, position in `places`), with pages of so many bytes. A replica whose owner is a
        `Piece` of it gets its memory by `alloc`.
        """
        return None

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

    def place_in_flight(self, event):
        """Return the execution place of an event that is not known to be complete, else -1; nothing is asked for it."""
        return -1

    def priorities(self, place):
        """Return the lowest and the highest priority of slots at a place; a smaller number is a higher one."""
        return 0, 0

    def fault(self):
        """The error that has lost a device, as far as is known; None if all is well."""
        return None

    def look(self):
        """Return the error that work has failed with since, if any: asked where nobody waits for it."""
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
