"""The current stream of CuPy and torch: a task's, for as long as its body runs. Compiled: every body passes here."""

from __future__ import annotations

import importlib
import logging
import sys

import cython

from stf.interop.streams import StreamPointer

modules: dict = sys.modules
cupy_streams: dict = {}  # by address and device: CUDA gives addresses out again
last_cupy: tuple = (None, None, None)  # the address and device that were looked for last, and what was found
torch_streams: dict = {}
log = logging.getLogger("stf")
owed: list = []  # what tasks borrowed that ended in another thread than that whose streams these are
torch_calls: list = []  # from when torch uses CUDA: the current stream, set it, whether autograd is on, set it


@cython.freelist(16)
@cython.no_gc
@cython.cclass
class Borrowed:
    """The streams that were current in CuPy and torch before a task's was.

    Those that are borrowed now form a chain, since tasks that are started and ended by hand may overlap: who gives back
    out of turn leaves what it found to the one that borrowed after it. With `on_other_device` the stream's device need
    not be the current one, as CuPy asks.

    CuPy's with-blocks for streams leave current what the with-block around them entered, whatever ``use()`` did since.
    So a task's stream is entered and left as a with-block does it: with-blocks in bodies end on the task's stream.

    What is current in a thread, only that thread can change. So where a task ends in another one, or goes on there, the
    first gives back what the task had borrowed when it submits or waits next, and no stream of the user's is current
    that came later (`return_owed`).
    """

    if not cython.compiled:
        ordinal = -1

    def __init__(self, pointer, ordinal, on_other_device=False):
        self.on_other_device = on_other_device
        self.begin(pointer, ordinal)

    def begin(self, pointer, ordinal):
        """Make a task's stream current, and join the chain."""
        global innermost
        self.pointer = pointer
        self.ordinal = ordinal
        self.grad_before = False
        if self.on_other_device:
            with on_device(ordinal):
                self.take()
        else:
            self.take()
        self.below = innermost
        innermost = self
        return 0

    def take(self):
        """Make the task's stream current in this thread."""
        global latest
        latest = self
        self.thread = this_thread()
        self.take_cupy()
        self.take_torch()
        return 0

    def take_cupy(self):
        """Make the stream CuPy's current one, if CuPy is there."""
        global last_cupy
        self.cupy = self.cupy_before = None
        pointer = self.pointer
        ordinal = self.ordinal
        last: tuple = last_cupy
        if (last[0] is not pointer or last[1] is not ordinal) and modules.get("cupy") is not None:
            last = last_cupy = (pointer, ordinal, known_cupy_stream(pointer, ordinal))
        if last[0] is pointer and last[1] is ordinal:
            stream: tuple = last[2]
            self.cupy_before = stream[CURRENT](ordinal)
            stream[ENTER]()
            self.entered = 1
            self.cupy = stream
        return 0

    def take_torch(self):
        """Make the stream torch's current one, and turn autograd off, if torch uses CUDA."""
        self.torch_before = None
        if torch_calls or (modules.get("torch") is not None and has_cuda()):
            self.torch = stream = known_torch_stream(self.pointer, self.ordinal)
            self.torch_before = torch_calls[0](self.ordinal)
            torch_calls[1](stream[0], stream[1], stream[2])
            self.turn_grad_off(torch_calls[2], torch_calls[3])
        return 0

    def is_current(self):
        """Return whether the stream is current in this thread."""
        if latest is not self or self.thread != this_thread():
            return False
        if self.cupy is not None and self.cupy[CURRENT](self.ordinal) is not self.cupy[STREAM]:
            return False
        return self.torch_before is None or self.is_current_in_torch()

    def is_current_in_torch(self):
        """Return whether the stream is current in torch in this thread."""
        return torch_calls[0](self.ordinal) == self.torch

    def renew(self):
        """Make the stream current again; its device is the current one.

        Another task's came after it, another thread goes on with the task, or the user has changed what is current.
        """
        global latest
        if self.thread != this_thread():
            return self.move()
        latest = self
        if self.cupy is None:
            self.take_cupy()
        elif self.is_crossed():
            self.cupy[ENTER]()
            self.entered += 1
        else:
            self.cupy[STREAM].use()
        torch_before, grad_before = self.torch_before, self.grad_before
        self.take_torch()
        if torch_before is not None and self.torch_before[0] != 0:  # else a with-block of the user's has ended
            self.torch_before = torch_before
        self.grad_before = grad_before or self.grad_before
        return 0

    def move(self):
        """Make the stream current in this thread, where the task goes on; the other one is given back what it had."""
        other: Borrowed = Borrowed.__new__(Borrowed)
        other.pointer, other.ordinal, other.thread = self.pointer, self.ordinal, self.thread
        other.on_other_device = self.on_other_device
        other.cupy, other.cupy_before, other.entered = self.cupy, self.cupy_before, self.entered
        other.torch, other.torch_before, other.grad_before = self.torch, self.torch_before, self.grad_before
        self.yield_place(other)
        other.return_streams()
        self.entered = 0
        return self.begin(self.pointer, self.ordinal)

    def yield_place(self, other):
        """Let another one stand in the chain where this one does."""
        global innermost
        above: Borrowed = innermost
        other.below = self.below
        if above is self:
            innermost = other
        while above is not None:
            if above.below is self:
                above.below = other
            above = above.below
        return 0

    def is_crossed(self):
        """Return whether the user's with-block that made current in CuPy what was before has ended since.

        It has left the task's stream instead of its own, which is current again, and is left instead of the task's.
        """
        before, stream = self.cupy_before, self.cupy
        if before is stream[NULL] or stream[CURRENT](self.ordinal) is not before:
            return False
        stream[ENTER]()
        stream[EXIT]()  # to what the with-block that is open made current, whatever ``use()`` did since
        if stream[CURRENT](self.ordinal) is not before:
            return False
        self.cupy_before = stream[NULL]
        return True

    def leave_cupy(self):
        """Make current in CuPy what was."""
        stream: tuple = self.cupy
        before = self.cupy_before
        if before is not stream[NULL] and self.is_crossed():
            before = stream[NULL]
        self.cupy = None
        while self.entered > 0:
            self.entered -= 1
            stream[EXIT]()
        if before is not stream[NULL] and stream[CURRENT](self.ordinal) is not before:
            before.use()
        return 0

    def keep_torch(self):
        """Let a stream that the user has made current in torch stay so: it need not nest with ours."""
        is_here: cython.bint = self.thread == this_thread()
        if is_here and self.torch_before is not None and latest is self and not self.is_current_in_torch():
            self.torch_before = None
        return 0

    def leave_chain(self):
        """Go from the chain; whoever borrowed after this in the same thread keeps what was before.

        That is autograd's state; and the streams, which the next on the same device keeps.
        """
        global innermost
        other: Borrowed = innermost
        after: list = []  # in the same thread, the last first
        if other is self:
            innermost = self.below
            return 0
        while other is not None:
            if other.thread == self.thread:
                after.append(other)
            if other.below is self:
                other.below = self.below
                break
            other = other.below
        if other is None or not after:  # it borrowed no stream, or is the last in its thread
            return 0
        next_here = cython.cast(Borrowed, after[len(after) - 1])
        next_here.grad_before = self.grad_before
        self.grad_before = False
        if self.cupy is not None and self.thread == this_thread():
            self.leave_cupy_below(after)
        for item in reversed(after):
            next_on_device: Borrowed = item
            if next_on_device.ordinal == self.ordinal:
                next_on_device.cupy_before = self.cupy_before
                if self.torch_before is not None and next_on_device.torch_before is not None:
                    next_on_device.torch_before = self.torch_before
                    self.torch_before = next_on_device.torch
                break
        return 0

    def leave_cupy_below(self, after):
        """`leave_cupy` while the streams of others were entered after this one."""
        entered = [other for other in after if cython.cast(Borrowed, other).cupy is not None]
        for item in entered:
            other: Borrowed = item
            with on_device(other.ordinal):
                for _ in range(other.entered):
                    other.cupy[EXIT]()
        with on_device(self.ordinal):
            self.leave_cupy()
        for item in reversed(entered):
            other = item
            with on_device(other.ordinal):
                for _ in range(other.entered):
                    other.cupy[ENTER]()
        return 0

    def give_back(self):
        """Make current what was; where CUDA failed, whoever uses it next is told."""
        try:
            self.return_streams()
        except Exception as error:
            log.debug("the current stream of device %d stays what it is: %s", self.ordinal, error)

    def return_streams(self):
        """Make current what was; once this has raised, the rest of it is done when it is called again."""
        global latest
        elsewhere: cython.bint = self.on_other_device or latest is not self  # another device may be the current one
        latest = None
        if self.thread != this_thread() and self.leave_to_its_thread():
            return_owed()  # of this thread, if the task began here
            return 0
        self.leave_chain()
        if self.thread != this_thread():
            return 0
        if self.grad_before:
            self.grad_before = False
            modules["torch"]._C._set_grad_enabled(True)
        if elsewhere and (self.cupy is not None or self.torch_before is not None):
            with on_device(self.ordinal):
                self.put_back()
        else:
            self.put_back()
        return 0

    def leave_to_its_thread(self):
        """Let the thread whose streams these are give them back; False if that is gone."""
        for item in list(owed):
            other: Borrowed = item
            if not is_alive(other.thread) and take_out(other):
                other.leave_chain()
        if not is_alive(self.thread):
            return False
        owed.append(self)
        return True

    def is_covered(self):
        """Return whether the user has made another stream current since, which stays so."""
        return self.cupy is not None and self.cupy[CURRENT](self.ordinal) is not self.cupy[STREAM]

    def put_back(self):
        """Make current the streams that were."""
        if self.cupy is not None:
            self.leave_cupy()
        if self.torch_before is not None:
            torch_calls[1](*self.torch_before)
        return 0

    def turn_grad_off(self, is_on, turn):
        """Turn torch's autograd off in this thread."""
        self.grad_before = is_on()
        if self.grad_before:
            turn(False)
        return 0


@cython.no_gc
@cython.cclass
class HostUse(Borrowed):
    """A with-block of a body on the host that gets memory of devices: the first of these is current in it.

    What it puts on the current streams of CuPy, torch and Numba nobody else waits for, so it is waited for at the end.
    """

    def __init__(self, ordinals):
        self.ordinals = ordinals
        self.ordinal = ordinals[0]
        self.thread = this_thread()

    def __enter__(self):
        self.device = on_device(self.ordinal)
        self.device.__enter__()
        torch = modules.get("torch")
        if torch is not None and hasattr(torch, "_C"):
            self.turn_grad_off(torch.is_grad_enabled, torch._C._set_grad_enabled)
        return self

    def __exit__(self, *exception):
        self.return_streams()

    def is_current(self):
        return True

    def return_streams(self):
        device, self.device = self.device, None
        if device is None:
            return 0
        if self.grad_before:
            self.grad_before = False
            modules["torch"]._C._set_grad_enabled(True)
        try:
            for ordinal in self.ordinals:
                wait_for_current_streams(ordinal)
        finally:
            device.__exit__(None, None, None)
        return 0


@cython.no_gc
@cython.cclass
class HostStream(Borrowed):
    """A CUDA stream that a with-block on the host has for its callbacks; `inner` is what it borrowed before, or None.

    Nobody else waits for what is on the stream, so it is waited for at the end, when `lent` takes it back.
    """

    def __init__(self, inner, lent):
        self.inner, self.lent = inner, lent
        self.address = lent.address
        self.ordinal = lent.ordinal
        self.thread = this_thread()

    def is_current(self):
        return True

    def return_streams(self):
        inner, lent = self.inner, self.lent
        self.inner = self.lent = None
        try:
            if lent is not None:
                lent.give_back()
        finally:
            if inner is not None:
                cython.cast(Borrowed, inner).return_streams()
        return 0


def wait_for_current_streams(ordinal):
    """Wait for the current streams of the array libraries on a device."""
    with on_device(ordinal):
        if "cupy" in modules:
            modules["cupy"].cuda.get_current_stream().synchronize()
        if uses_cuda():
            modules["torch"].cuda.current_stream(ordinal).synchronize()
        if "numba.cuda" in modules:
            modules["numba.cuda"].default_stream().synchronize()


refuses_cuda: cython.bint = False  # torch does
innermost: Borrowed = None  # the end of the chain
latest: Borrowed = None  # whose stream was made current last


def on_device(ordinal):
    """Return a with-block in which a device is the current one."""
    from stf.devices.make import cuda

    return cuda("devices").DeviceBlock(ordinal)


def borrow(pointer, ordinal):
    """Return what gives back the streams that are current; a task's is so from now on."""
    borrowed: Borrowed = Borrowed.__new__(Borrowed)
    borrowed.begin(pointer, ordinal)
    return borrowed


def return_owed():
    """Give back what this thread's tasks borrowed that ended in another one, or went on there; the last first."""
    for item in reversed(list(owed)):
        borrowed: Borrowed = item
        if borrowed.thread == this_thread() and not borrowed.is_covered() and take_out(borrowed):
            if borrowed.torch_before is not None and not borrowed.is_current_in_torch():
                borrowed.torch_before = None  # the user's own stays
            borrowed.give_back()
    return 0


def take_out(borrowed):
    """Take one from what is owed; False if another thread has done so."""
    try:
        owed.remove(borrowed)
    except ValueError:
        return False
    return True


def without_grad():
    """Return what gives back torch's autograd, which is off from now on: for a body that has no stream."""
    borrowed: Borrowed = Borrowed.__new__(Borrowed)
    borrowed.cupy = borrowed.cupy_before = borrowed.torch_before = borrowed.below = None
    borrowed.thread = this_thread()
    torch = modules["torch"]
    borrowed.turn_grad_off(torch.is_grad_enabled, torch._C._set_grad_enabled)
    return borrowed


def has_cuda():
    """Return whether torch uses CUDA, which it is told to start to do: it takes no stream before.

    So its first use is not in a body, where it would be on torch's default stream, or outside of a capture.
    """
    global refuses_cuda
    torch = modules.get("torch")
    if torch is None or getattr(getattr(torch, "__spec__", None), "_initializing", False):  # by another thread
        return False
    if not refuses_cuda:
        try:
            torch.cuda.init()
        except Exception as error:  # a torch that is made without CUDA, or for another driver, or there is no memory
            refuses_cuda = True
            log.info("torch did not start CUDA: %s", error)
    return uses_cuda()


def uses_cuda():
    """Return whether torch uses CUDA by now, which it goes on to do."""
    torch = modules.get("torch")
    try:
        if torch is None or not torch.cuda.is_initialized():
            return False
        core = torch._C
        torch_calls[:] = [
            core._cuda_getCurrentStream,
            core._cuda_setStream,
            torch.is_grad_enabled,
            core._set_grad_enabled,
        ]
    except AttributeError:  # another thread is still importing it
        return False
    return True


def known_cupy_stream(pointer, ordinal):
    """Return what `cupy_stream` returns, made once per stream."""
    stream = cupy_streams.get((pointer, ordinal))
    if stream is None:
        cupy = importlib.import_module("cupy")  # another thread may be in the middle of it
        stream = cupy_streams[(pointer, ordinal)] = cupy_stream(cupy, pointer, ordinal)
    return stream


def cupy_stream(cupy, pointer, ordinal):
    """Return what is kept of a CUDA stream in CuPy, which has no `from_external` before CuPy 14."""
    if hasattr(cupy.cuda.Stream, "from_external"):
        stream = cupy.cuda.Stream.from_external(StreamPointer(pointer))
    else:
        stream = cupy.cuda.ExternalStream(pointer, ordinal)
    return stream.__enter__, cupy.cuda.get_current_stream, stream, stream.__exit__, cupy.cuda.Stream.null


def known_torch_stream(pointer, ordinal):
    """Return what `torch_stream` returns, made once per stream."""
    known: tuple = torch_streams.get((pointer, ordinal))
    if known is None:
        known = torch_streams[(pointer, ordinal)] = torch_stream(modules["torch"], pointer, ordinal)
    return known


def torch_stream(torch, pointer, ordinal):
    """Return how torch says which stream is current.

    Its ``set_stream``, which takes the stream, costs six microseconds.
    """
    stream = torch.cuda.ExternalStream(pointer, f"cuda:{ordinal}")
    return stream.stream_id, stream.device_index, stream.device_type
