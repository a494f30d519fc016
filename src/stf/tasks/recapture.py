"""Recapture: what was captured of a task is captured anew for a launch, or runs in the call of the launch.

A recorded body was captured once, with the values and the data of that time. A launch with others needs another graph
of it: `BodyCapture` runs the body once more, on a stream that is captured, and keeps what it got for the next launch,
which mostly has the same. A with-block ran where it stood and cannot run again (`BlockCapture`). A body whose library
cannot be captured is no graph at all: it runs in the call of each launch (`PlayedBody`), between graphs.
"""

from __future__ import annotations

import cython

from stf._engine import host_waits
from stf._engine.failures import Failure
from stf._port.late_values import are_same
from stf._recording.recordings import Routine
from stf._support.call_sites import site_text
from stf._support.library_errors import is_out_of_memory, tells_of_capture
from stf.errors import CaptureError, TaskFailedError
from stf.tasks.annotations import Stream
from stf.tasks.bodies import stream_block
from stf.values.params import Param


@cython.no_gc
@cython.cclass
class Recaptured:
    """What was captured of a task, and may be captured anew for a launch.

    Called with what was captured of the recording, the values of a launch and its data, it returns what is captured
    for these.
    """

    def replicas(self):
        """Return the recorded replicas that others take the place of when it is captured anew for other data."""
        return []

    def can_play(self, error):
        """Return whether it can run in the call of a launch, where capturing it has failed with an error."""
        return False

    def describe(self, task: TaskCore):
        """Remember what messages call the task."""
        self.symbol, self.id, self.code, self.lasti = task.symbol, task.id, task.code, task.lasti

    @property
    def label(self):
        return f"'{self.symbol}'" if self.symbol else f"#{self.id}"

    @property
    def site(self):
        return site_text(self.code, self.lasti)


@cython.final
@cython.no_gc
@cython.cclass
class BlockCapture(Recaptured):
    """A with-block that was captured where it stood: it cannot be captured again. It has numbers, names and code."""

    def describe_block(self, task: TaskCore):
        """Remember what messages call the task, and its data."""
        self.describe(task)
        accesses: tuple = task.accesses
        if len(accesses) == 1:
            self.data = (cython.cast(Access, accesses[0]).core.id,)
        else:
            self.data = tuple([cython.cast(Access, access).core.id for access in accesses])
        return untrack(self.data)  # numbers

    def refuses(self, data):
        """Return whether it works on some of the data, by number, and cannot on others in their place."""
        return any([number in data for number in self.data])

    def __call__(self, first, values, rebinding=None):
        return first


def block_capture(task: TaskCore):
    """Return what stands for a with-block that was captured."""
    block: BlockCapture = BlockCapture.__new__(BlockCapture)
    block.describe_block(task)
    return block


@cython.final
@cython.cclass
class BodyCapture(Recaptured):
    """A recorded body, captured anew for a launch with other values of its parameters, or with other data."""

    def __init__(self, root, body, where, ordinal):
        self.root = root
        self.body = body
        self.where = where
        self.ordinal = ordinal
        self.last = None
        self.describe(self.body.task)
        self.varies = any([isinstance(argument, Param) for argument in self.body.args])
        if self.varies and any([isinstance(argument, TaskCore) for argument in self.body.args]):
            raise CaptureError(
                f"task {self.label} ({self.site}) takes itself (stf.Task) and a parameter of the graph, for which it "
                "is captured again when it has ended; take the stream (stf.Stream) instead"
            )
        self.taken = constants_of(self.body.fn)

    def refuses(self, data):
        """Return whether it works on some of the data, by number, and cannot on others in their place."""
        return self.body.refuses(data)

    def replicas(self):
        """Return the recorded replicas that others take the place of when it is captured anew for other data."""
        return [source[1] for source in self.body.argument_sources or ()]

    def __call__(self, first, values, rebinding=None):
        """Return what is captured for the values and the data of a launch; `first` is that of the defaults."""
        params = [argument for argument in self.body.args if isinstance(argument, Param)]
        defaults, wanted = [param.value_in(None) for param in params], [param.value_in(values) for param in params]
        others = [] if rebinding is None else rebinding.addresses(self.replicas())
        if not others and are_same(wanted, defaults):
            return first
        last: tuple = self.last
        if last is None or others != last[1] or not are_same(wanted, last[0]):
            self.last = None
            last = (wanted, others, self.capture_patiently(owner_of(first), values, rebinding))
            others_last = self.last
            self.last = last
            del others_last  # another thread's goes when this one is there
        return last[2]

    def can_play(self, error):
        """Return whether it can run in the call of a launch, where capturing it has failed with an error."""
        return tells_of_capture(error)

    def play(self, frame):
        """Run it for a launch, behind what is on the slot; what is launched once says itself how it went."""
        once: cython.bint = self.body.outcome is not None
        body: Body = self.body if once else self.body.again(frame.values, frame.launch.rebinding)
        engine, slot = frame.engine, frame.slot
        thread: object = PyThread_get_thread_ident()
        around = host_waits.RUNNING.get(thread)
        host_waits.enter(engine.root, frame.task, slot, engine.pending() != 0)
        pointer = engine.root.stream(slot)
        body.run_at(engine.root, slot, pointer)
        body.around = stream_block(engine.root, pointer, self.ordinal, body.around)
        body.watched = False
        engine.queued += 1
        try:
            if once:
                body()
            else:
                self.play_part(frame, body)
        finally:
            if around is not None:
                host_waits.RUNNING[thread] = around
            engine.root.stream(slot)  # the body may have left another device current
        return 0

    def play_part(self, frame, body: Body):
        """Run it as a part of a launch, unless that has failed; raise what it raises, if nobody is told of it later."""
        engine, launch = frame.engine, frame.launch
        failure = None
        try:
            failure = launch.attempt(body)
        finally:
            engine.ran += 1
        if failure is None or launch.outcome is not None:
            return 0
        if failure in engine.failures:
            engine.failures.remove(failure)
        failure.delivered = True
        if isinstance(failure.exception, KeyboardInterrupt):
            raise failure.exception
        raise failure.error()

    def capture_patiently(self, owner, values, rebinding):
        """Capture it; if memory runs out, again when the launches before are done, which keep what bodies allocated."""
        try:
            return self.capture(owner, self.body.again(values, rebinding))
        except TaskFailedError as error:
            if not is_out_of_memory(error.__cause__) or not self.outlast_launches():
                raise
        return self.capture(owner, self.body.again(values, rebinding))

    def outlast_launches(self):
        """Wait for all that was submitted; False if that would never end."""
        task: TaskCore = self.body.task
        engine = cython.cast("Engine", task.engine)
        events = EventSet()
        with engine.gate:
            engine.root.tails(events)
        return host_waits.settles(engine.root, events)

    def capture(self, owner, body: Body):
        root: Port = self.root
        capture = root.captures.begin(self.where, owner)
        try:
            borrowed: Borrowed = borrow(capture.pointer, self.ordinal)
            try:
                body.args = tuple([Stream(a.place, capture.pointer) if type(a) is Stream else a for a in body.args])
                pools = PrivatePools()
                with pools:
                    body.execute()
            except Exception as error:
                task: TaskCore = body.task
                raise Failure(task.label(), task.call_site, error, task.written(), True).error() from error
            finally:
                capture.make_current()  # the body may have left another device current
                borrowed.give_back()
        finally:
            captured = capture.end_body()
        if captured is not None:
            captured.memory = pools  # what the body allocated, for these values
        return captured


def owner_of(captured):
    """Return the owner of the stream on which something was captured, to capture more on it; None if nothing was."""
    return None if captured is None else captured.owner


class PlayedBody(Routine):
    """A recorded body that its library does not capture: it runs in the call of each launch, on a stream.

    What is before, between and behind such bodies is graphs of the driver's, as with bodies on the host.
    """

    def __init__(self, engine, again, error):
        Routine.__init__(self, engine, [], engine.scope.runs_once)
        self.again = again
        self.description = f"task {again.label}"
        self.reason = f"task {again.label} ({again.site}) calls what its library does not capture ({error})"

    def run(self, frame):
        """Run the body behind what is on the slot."""
        self.again.play(frame)

    def put(self, frame):
        """Raise CaptureError: a graph cannot have it."""
        raise CaptureError(self.reason)

    def refusal(self, where, memory, looped, unread, hosts=False):
        """Return why it cannot be one graph of the driver's."""
        return self.reason
