"""Bodies on the host that a launch calls: from a queue of the driver's, or as nodes of a graph.

A node does not know which launch of its graph it belongs to. The driver does one launch of a graph after the other, so
it is the first of those that `GraphCalls` keeps::

    expect ──▶ in `launches` ──the first one's bodies are called──▶ end_first: the launch says how it went
                 │ the driver refused the launch: take_back
                 └ the driver lost its device: give_up

A thread that launches a graph waits in CUDA where too many launches are on their way, and has a lock of CUDA's then.
The bodies need the GIL; so a third thread that waits for that lock with the GIL held would stop all of them
(`tests/cuda/gil_and_host_nodes.py`). So there is `room` for a few launches, and who finds none waits outside of CUDA.
More of this is in docs/design/cuda-host-bodies.md.
"""

from __future__ import annotations

import collections
import threading

import cython

from stf._engine.failures import Cancellation

MOST_LAUNCHES = 8  # of a graph that calls bodies on the host, which the driver has at a time


class GraphCalls:
    """The bodies on the host that a graph calls, and its launches that have not called them all.

    Of each launch it keeps (launch, values of its parameters, whether it has room).
    """

    def __init__(self):
        self.all = []
        self.room = threading.Semaphore(MOST_LAUNCHES)
        self.remaining = 0  # that the first launch has not called yet
        self.launches = collections.deque()

    def expect(self, launch: Launch, values, has_room):
        """Add a launch that the driver is about to get, which `has_room`, or is put there later."""
        self.launches.append((launch, values, has_room))
        launch.remaining += 1
        launch.expected = True
        launch.engine.queued += len(self.all)
        launch.engine.calling[id(self)] = self

    def take_back(self, launch: Launch):
        """Remove the launch that was expected last, since the driver refused it; who found room gives that back."""
        if launch in [known[0] for known in self.launches]:  # else a lost device has taken all of them
            self.launches.pop()
            launch.remaining -= 1
            launch.engine.queued -= len(self.all)

    def one_done(self, launch: Launch):
        """Count a body of a launch that was called."""
        if not self.launches or self.launches[0][0] is not launch:
            return  # nobody waits for it any more
        self.remaining -= 1
        if self.remaining == 0:
            self.end_first()

    def end_first(self):
        """End the first launch, whose bodies were all called."""
        self.remaining = len(self.all)
        first: tuple = self.launches.popleft()
        launch: Launch = first[0]
        if first[2]:
            self.room.release()
        if not self.launches:
            launch.engine.calling.pop(id(self), None)
        launch.one_done()

    def give_up(self):
        """End all launches: the driver has lost its device, and calls nothing any more; it says so whoever asks."""
        while self.launches:
            launch: Launch = self.launches[0][0]
            for call in self.all:
                call.give_up()
            launch.engine.ran += self.remaining
            self.end_first()


class LaunchPart:
    """What one launch has the host, or another process, do."""

    def __init__(self, launch):
        self.launch = launch

    def group(self):
        """Return what fails with it."""
        return self.launch

    def surroundings(self):
        """Return the context variables of who launched it; None if there are none."""
        launch: Launch = self.launch
        return launch.variables

    def needs(self):
        """Return the outcomes that it is skipped for, where one of them turns out bad."""
        launch: Launch = self.launch
        return launch.inputs or ()


class Call(LaunchPart):
    """A recorded body, to be called in one launch: with those `values`, or with what `binding` makes of them."""

    def __init__(self, launch, body, values, binding=None):
        self.launch = launch
        self.body = body
        self.values = values  # those of a graph in another one are its own
        self.binding = binding

    def skip(self):
        """Count the body as run, where nothing is computed; return what it says about itself, or None."""
        launch: Launch = self.launch
        launch.engine.ran += 1
        return self.body.about() if isinstance(self.body, QueuedBody) else None

    def travels(self):
        """Return what another process calls to run it: see `QueuedBody.travels`."""
        if not isinstance(self.body, QueuedBody):
            return None
        self.body = self.again()
        return self.body.travels()

    def again(self):
        """Return the body with the values and the data of the launch."""
        body: QueuedBody = self.body
        values = self.values if self.binding is None else self.binding(self.values)
        return body.again(values, self.launch.rebinding)

    def result(self):
        """Return what has failed if it has: itself, as its launch has the outcome."""
        return self

    def set_out(self):
        """Say that it is on its way; return whether its times are wanted."""
        return self.body.set_out()

    def arrive(self, error, failure):
        """Say how it went elsewhere."""
        launch: Launch = self.launch
        failure = launch.note(failure) if error is None else launch.fail(error, self.body.task)
        launch.engine.ran += 1
        return failure

    def ran(self, thread, start, end):
        """Say when it ran elsewhere."""
        return self.body.ran(thread, start, end)

    def __call__(self):
        launch: Launch = self.launch
        try:
            if isinstance(self.body, QueuedBody):
                launch.attempt(self.again())
            elif launch.failed() is None:
                self.body()
        except BaseException as error:
            launch.fail(error)
        finally:
            launch.engine.ran += 1


@cython.no_gc
@cython.cclass
class LoopCall(HostCall):
    """A loop of compiled bodies, to be run in one launch, which perhaps `ends` with it.

    Called, its `run` returns the body that failed with its values, or None; so does ``run.again()`` where its code was
    run in place of it (`HostCall`), and failed. That body is called once more, for its error.
    """

    def __init__(self, launch, run, ends):
        self.launch = launch
        self.run = run
        self.ends = ends

    def __call__(self):
        self.perform(self.run)

    def perform(self, run):
        """Run it, or look for what has failed, unless it is called off or skipped; say how it went."""
        launch: Launch = self.launch
        host_waits.running_bodies += 1
        try:
            if launch.engine.cancelled is not None:
                self.call_off()
            elif launch.failed() is None:
                self.note(run(launch.variables))
        except BaseException as error:
            launch.fail(error)
        finally:
            host_waits.running_bodies -= 1
            self.run.end(0)
            launch.engine.ran += 1
            if self.ends:
                launch.one_done()

    def note(self, failed):
        """Let the body that failed say how; with True, say that the context was cancelled."""
        if failed is None:
            return
        if failed is True:
            return self.call_off()
        launch: Launch = self.launch
        body: QueuedBody = failed[0]
        if launch.attempt(body.again(failed[1], launch.rebinding)) is None:
            raise RuntimeError(f"a compiled body of task {body.label} failed, and did not fail again")

    def call_off(self):
        """Say that it is not done, or no further, since the context was cancelled."""
        launch: Launch = self.launch
        failure = Cancellation.of(launch.task)
        launch.engine.cancelled.append(failure)
        launch.note(failure)

    # -- as compiled code ----------------------------------------------------------------------------------------

    def may_run_compiled(self):
        return self.launch.engine.cancelled is None and self.launch.failed() is None

    def begins(self):
        return cython.address(self.launch.task.fate)

    def ran_compiled(self):
        self.launch.engine.ran += 1
        self.launch.one_done()
        return 0

    def call_again(self):
        self.perform(self.run.again)
        return 0

    def took(self, ns):
        self.run.end(ns)
        return 0


class CarriedLaunch(LaunchPart):
    """A launch of a recording that other processes keep, with its `bodies`: see `parcels`."""

    def __init__(self, launch, bodies, values):
        self.launch = launch
        self.bodies = bodies
        self.values = values

    def trip(self, number):
        """Return a body of it, as one that travels."""
        return Call(self.launch, self.bodies[number], self.values)

    def copies(self):
        """Return what says how its copies went."""
        return LaunchCopy(self.launch)

    def set_out(self):
        """Say that its bodies are on their way."""
        launch: Launch = self.launch
        launch.engine.queued += len(self.bodies)
        launch.called = True

    def went_well(self, count):
        """Say that so many of its bodies have ended, and none of these has failed."""
        launch: Launch = self.launch
        launch.engine.ran += count


class LaunchCopy(LaunchPart):
    """A recorded copy between processes, in one launch: if its content gets lost, that fails; see `RemoteCopy`."""

    def __call__(self):
        """It is not called off."""

    def arrive(self, error, failure):
        """Say how it went."""
        launch: Launch = self.launch
        if error is not None and launch.failed() is None:
            launch.fail(error)
        launch.note(failure)
        return launch.failed()


class Last(LaunchPart):
    """A call after the last body of a launch."""

    def ends(self):
        """Return what is over when it is called."""
        return self.launch

    def skip(self):
        """Let the launch say that it went well; it takes no time."""
        self()

    def __call__(self):
        launch: Launch = self.launch
        launch.one_done()
        launch.engine.ran += 1


class GraphCall:
    """A recorded body, as a node of a graph: to be called in each of its launches.

    `binding` makes the values of a graph in the graph; `own_launch` is what has an outcome of its own there. What is
    called as it is `tells` itself how it went: a body of a program that is launched once, or the last call.
    """

    def __init__(self, calls, body, binding, own_launch, tells):
        self.calls = calls
        self.body = body
        self.binding = binding
        self.own_launch = own_launch
        self.tells = tells

    def give_up(self):
        """Say of what it would have told that nobody waits for it any more, since it will not be called."""
        if isinstance(self.body, Last):
            inner: Launch = self.body.launch
            if inner.remaining:
                inner.one_done()
        elif self.tells:
            late: QueuedBody = self.body
            late.give_up(None)

    def __call__(self):
        if not self.calls.launches:
            return
        launch, values, _ = self.calls.launches[0]
        try:
            if self.tells:
                self.body()
            else:
                Call(launch if self.own_launch is None else self.own_launch, self.body, values, self.binding)()
        finally:
            self.calls.one_done(launch)
