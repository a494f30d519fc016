"""The verbs of a driver: flat, on integers.

A stream is a number; an event is a stream and a sequence number, recorded in increasing order. Devices count from 0;
-1 is the host, and `MANAGED` stands for memory that all share. Whoever writes a driver subclasses `Driver` and runs the
kit in `stf.testing` on it.
"""

from __future__ import annotations

import time

import cython

from stf._port.links import MEMORY, SAME_PLACE


def address_of(array):
    """Return the address of NumPy's array; other ways to ask may crash where memory runs out."""
    if not cython.compiled:
        return array.ctypes.data
    capsule = array.__array_struct__
    return cython.cast(cython.longlong, cython.cast("ArrayStruct*", PyCapsule_GetPointer(capsule, cython.NULL)).data)


def extent(address, strides, shape, itemsize):
    """Return the first address of an array, and the one behind it; they are the same if it is empty."""
    first: cython.longlong = address
    end: cython.longlong = address + itemsize
    for n, stride in zip(shape, strides, strict=True):
        if n == 0:
            return address, address
        reach: cython.longlong = (n - 1) * stride
        if reach < 0:
            first += reach
        else:
            end += reach
    return first, end


class Registered:
    """One use of registered memory of the host, and its owner: it ends when nothing holds this any more."""

    __slots__ = ("address", "driver", "nbytes", "owner")

    def __init__(self, driver, address, nbytes, owner):
        self.driver = driver
        self.address = address
        self.nbytes = nbytes
        self.owner = owner

    def __del__(self):
        self.driver.unpin(self.address, self.nbytes, self.owner)


class Driver:
    """Base of the drivers.

    Attributes
    ----------
    device_count : int
        How many devices there are.
    home : int
        The device that does what could be done by any, such as copies of memory that all share.
    shares_host : bool
        Device 0 works in host memory: no copies.
    runs_inline : bool
        A body given in a with-block runs on the calling thread and must wait for its inputs; otherwise it only
        enqueues.
    adopts : bool
        Its copies read and write any array of NumPy's, and not only what it allocated: an array may be the memory of
        data at a device.
    stamps : object or None
        Tells when work on a stream ran, where bodies only enqueue: ``put(stream)`` is a number for the time at which
        the stream gets here, ``collect()`` reads what there is by now, ``time_ns(stamp)`` is on
        `time.perf_counter_ns`, or -1 where it is not known (yet). Its `spans`, or None, measure how long work took:
        ``begin(stream)`` is a number, or -1; after ``end(number, stream, who)`` ``take()`` has `who` with the seconds,
        when the work is done.
    values : dict or None
        None where memory holds values and bodies are run. Else nothing is computed: the values that were given, by name
        of data.
    max_workers : int
        How many bodies run side by side on the host.
    kernels : Functions or None
        Finds the functions of devices and launches them.
    graphs : Graphs or None
        Makes graphs of what is put on captured streams. A driver that has it has `play_captured`, `queue_captured` and
        `call_in_graph`.
    loops : Loops or None
        Runs planned queues of compiled bodies on the driver's workers.
    parcels : Parcels or None
        Keeps recordings in the processes that are its devices. A driver that has it has `play_parcel`.
    has_callers : bool
        It has the verbs of callers' streams: `wait_on_external`, `signal_external`, `record_on`, `bind_to_caller`,
        `stream_adopt` and `stream_create_in`.
    reads_back : bool
        It has `begin_readback`; a driver around another has not.
    records_late : bool
        It has `record_lazy` and `commit`.
    waits_cheaply : bool
        To wait for what is over costs it less than to say that it is.
    """

    parcels = None

    def stream_create(self, device, priority=0):
        """Make a stream of `device`, of a priority that this has; return its number."""
        raise NotImplementedError

    def stream_adopt(self, device, pointer):
        """Make a stream of the caller's CUDA stream of `device`, which stays the caller's; return its number."""
        raise NotImplementedError

    def stream_create_in(self, device, context):
        """Make a stream of `device` in a CUDA context of the caller's; return its number."""
        raise NotImplementedError

    def stream_destroy(self, stream):
        """Take an idle stream back; its number may be given out again."""
        raise NotImplementedError

    def stream_enter(self, stream):
        """Wait until `stream` has done all it was given, and hold it until the next `record`."""
        raise NotImplementedError

    def try_enter(self, stream):
        """Hold an idle stream until the next `record`; return whether it was idle."""
        return False

    def record(self, stream, sequence):
        """Mark this point of `stream` with `sequence`."""
        raise NotImplementedError

    def record_lazy(self, stream, sequence):
        """As `record`; but the point may be a later one, until `commit`."""
        raise NotImplementedError

    def commit(self, stream, sequence):
        """Let `sequence`, an event of `stream`, stand for no more than what is there now."""
        raise NotImplementedError

    def record_on(self, stream, sequence, pointer):
        """Mark a point of the caller's CUDA stream `pointer`, the present one, with `sequence` of an idle `stream`."""
        raise NotImplementedError

    def wait_event(self, stream, other, sequence):
        """What follows on `stream` starts after `other` passed `sequence`."""
        raise NotImplementedError

    def completed(self, stream):
        """The highest sequence number that `stream` is known to have passed."""
        raise NotImplementedError

    def query(self, stream, sequence):
        """Return whether `stream` has passed `sequence`, as far as can be found out without waiting."""
        return self.completed(stream) >= sequence

    def synchronize(self, stream, sequence, timeout_s):
        """Block until `stream` passed `sequence`; False if `timeout_s` (negative: none) ran out first."""
        raise NotImplementedError

    def alloc(self, device, nbytes, stream):
        """Allocate memory that `stream` may use from here on; return its address. MemoryError if there is none."""
        raise NotImplementedError

    def free(self, device, address, nbytes, stream):
        """Free memory when `stream` gets here."""
        raise NotImplementedError

    def reserve(self, devices, page, runs):
        """Return one range of addresses, with its `address`, for memory of several devices; None if there is no such.

        `runs` are (first page, count, position in `devices`), with pages of so many bytes.
        """
        return None

    def map(self, mapping, place, device):
        """Have the pages of a place of a `reserve`; MemoryError if there is no room. `free` gives them back.

        Return an address by which `free` knows them, which is `place` bytes into the range.
        """
        raise NotImplementedError

    def owner(self, address):
        """The Python object that keeps an allocation alive, if there is one."""
        return None

    def copy(self, stream, target, target_strides, source, source_strides, shape, itemsize, keep, number=0):
        """Copy a strided array; `keep` is kept alive until the copy is done.

        That is the owners of target and source, and perhaps what is called when the stream gets there: if that returns
        anything but None, nothing is copied.
        """
        raise NotImplementedError

    def fill(self, stream, target, strides, shape, pattern):
        """Fill a strided array of a device with an element of the bytes `pattern`; False if that is not possible."""
        raise NotImplementedError

    def may_use(self, device, other, address, nbytes, owner):
        """Return whether work on `device` may use memory of `other`.

        0 no, 1 yes, 2 yes, and `pin` has one user more.
        """
        return 1

    def pin(self, address, nbytes, owner, lasting=False):
        """Prepare host memory of the user's for copies that run beside everything else; 0 if it stays as it is.

        With `lasting`, memory that its owner may take back stays as it is: to undo this waits for the devices.
        """
        return 0

    def unpin(self, address, nbytes, owner):
        """One user of such memory less, with which the devices are done. Never waits: a destructor may call it."""
        return 0

    def unpin_unused(self):
        """Undo `pin` for what nobody uses."""
        return 0

    def wait_on_external(self, stream, pointer):
        """What comes on `stream` starts after what is on the caller's CUDA stream `pointer` now."""
        raise NotImplementedError

    def launch(self, stream, function, gx, gy, gz, bx, by, bz, shared, block, nbytes):
        """Launch a kernel; its arguments are the `nbytes` at the address `block`."""
        raise NotImplementedError

    def play_captured(self, stream, captured, fixed):
        """Put what was captured on a stream; CUDA may still be busy with an earlier launch of it.

        In a graph that the stream captures it is `fixed` if it will not be renewed there.
        """
        raise NotImplementedError

    def play_all_captured(self, stream, captured):
        """Put on a stream, one after the other, what is in a list, as `play_captured` does if it is fixed."""
        for item in captured:
            self.play_captured(stream, item, True)
        return 0

    def defers(self, stream, captured):
        """Whether CUDA would get it later: the stream waits for the host, or launches of it do; None is any work."""
        return False

    def queue_captured(self, stream, captured, changes):
        """Put it on a stream by the stream's queue, after changes of all that `Graphs.renew` may change; None: none."""
        raise NotImplementedError

    def play_parcel(self, stream, run):
        """Let the process of a stream do its part of a parcel, after the mark that was just put on the stream."""
        raise NotImplementedError

    def deliver(self):
        """Return when the device's library has all that was submitted."""

    def signal_external(self, stream, pointer):
        """What comes on the caller's CUDA stream `pointer` starts after what is on `stream` now."""
        raise NotImplementedError

    def bind_to_caller(self, stream, captured, staged=0):
        """`stream`, a new one, works between a caller's work, and is never waited for; or is part of its capture."""
        raise NotImplementedError

    def keep_alive(self, stream, what):
        """Keep an object alive until `stream` has done what it has now; under capture, as long as the graph lives."""
        raise NotImplementedError

    def expect_block(self, stream, name, nbytes):
        """Let the with-block that is about to be entered on a stream take its time; only where `values` is not None."""
        raise NotImplementedError

    def set_workers(self, workers):
        """Let so many bodies run on the host at a time from now on; only where `values` is not None."""
        raise NotImplementedError

    def clock_ns(self):
        """Return the time, on the clock of `time.perf_counter_ns`."""
        return time.perf_counter_ns()

    def fault(self):
        """Return the error that has lost a device, as far as is known; None if all is well."""
        return None

    def is_lost_by_chance(self):
        """Whether a call failed, and all would be well with another driver in place of this one."""
        return False

    def look(self):
        """Return the error that work has failed with since, if any: asked where nobody waits for it."""
        return None

    def call(self, stream, body):
        """Call `body()` on the host when `stream` gets here."""
        raise NotImplementedError

    def tell_compiled(self):
        """Tell calls whose compiled code has run."""
        return 0

    def let_go_compiled(self, all_of_them):
        """Hold those no longer, perhaps only where there are some; no gate is held."""
        return 0

    def ask_first(self):
        """Make each call that has not begun, in place of its compiled code."""
        return 0

    def call_in_turn(self, stream, body):
        """As `call`, for a body that only enqueues work on `stream`: the device's own thread may call it.

        It calls one body after the other, in the order of these calls.
        """
        return self.call(stream, body)

    def keep_pace(self, device):
        """Wait a while, a few hundredths of a second at most, if many bodies of a device wait for their turn."""
        return 0

    def share(self, job, count):
        """Let up to `count` idle workers call a job beside who asks, who does what they leave; perhaps none does.

        With a loop, they do so whenever that is led.
        """
        return 0

    def call_in_graph(self, stream, body, written=None):
        """Call `body()` on the host whenever the graph that `stream` is captured into gets here.

        Others launch that graph; or, with the arrays that the body may write, (address, strides, shape, bytes of an
        item) each, who captures it.
        """
        raise NotImplementedError

    def drain(self, stream):
        """Block until `stream` has done all it was given; its driver does not run bodies on it."""
        return 0

    def park(self, baton, timeout_s):
        """Block the calling thread until the lock `baton` is released, and take it; False if the time ran out."""
        return baton.acquire(True, -1 if timeout_s < 0 else timeout_s)

    def runners(self, stream, sequence):
        """Threads that run a call which must end before `stream` passes `sequence` (0: all that it was given)."""
        return ()

    def handle(self, stream):
        """Return the driver's own object for a stream."""
        return stream

    def owns_thread(self, ident):
        """Whether the thread with this identifier is one of the driver's workers."""
        return False

    def copy_and_wait(self, stream, target, source, nbytes):
        """Copy bytes between a device's memory and the host's on a stream, and wait for it."""
        raise NotImplementedError

    def begin_readback(self, stream, address, nbytes):
        """Copy up to 64 bytes, in fours, of a device's memory on a stream, for `end_readback` after the next `record`.

        The number of where they land; -1 if that is not possible now.
        """
        return -1

    def end_readback(self, landing, nbytes):
        """Wait for the bytes of `begin_readback` and return them; None where they cannot be had any more."""
        raise NotImplementedError

    def watch_copies(self, watcher):
        """Let ``watcher(number, device, thread, start, end)`` know when copies ran, in ns; for who has no `stamps`."""

    def watch_loss(self, watcher):
        """Call ``watcher.on(device)`` when a device is lost, until `ignore_loss`: it names the suspects."""

    def ignore_loss(self, watcher):
        """Undo `watch_loss`."""

    def link(self, source, target):
        """Return the `Link` for copies from a device to another one, by its class or as it was measured."""
        return SAME_PLACE if source == target else MEMORY

    def priorities(self, device):
        """Return the lowest and the highest priority of streams of a device; a smaller number is a higher one."""
        return 0, 0

    def kind(self, device):
        """Return the kind of a device; bodies take as long on another one of the same kind."""
        return self.name

    def times(self):
        """Return what tells how long tasks and copies take on devices that are simulated; None on others."""
        return None

    def statistics(self):
        """Streams in use and spare, workers, live allocations, and bytes in use on the host and on each device."""
        return 0, 0, 0, 0, [0] * (self.device_count + 1)

    def retire(self):
        """Close it, or let it rest for the next one that needs such a driver: nobody uses it any more."""
        return self.close()

    def close(self):
        """Give everything back; a closed driver may be closed again."""
        return 0
