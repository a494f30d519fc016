"""Queued bodies: what runs when its data are ready, and how it says that it failed."""

from __future__ import annotations

from time import perf_counter_ns

import cython

from stf._engine import host_waits
from stf._engine.failures import Cancellation, Failure
from stf._port.native import NotNativeError
from stf.errors import PlanError, TaskStateError, no_value
from stf.observe.observer import nobody_hears

RUNNING: dict = host_waits.RUNNING
NO_MEMORY = Failure("#?", "", MemoryError("there was no memory to say which task failed, and how"))


@cython.no_gc
@cython.cclass
class QueuedBody(HostCall):
    """A body that runs later, on a worker: it checks its inputs, runs, and says how it went."""

    if not cython.compiled:
        targets = ()

    def adopt(self, task):
        """Take over what the call needs of an open task."""
        self.engine = task.engine
        self.task = task
        self.outcome = task.outcome
        self.inputs = task.inputs
        self.watched = self.engine.observer is not None or task.choice is not None
        self.variables = variables_here()
        if self.engine.root.values is not None:
            self.nbytes = task.data_nbytes()
        return 0

    def again(self, values, rebinding):
        """Return a call of the same body, to be run once: a recorded body runs in every launch."""
        call: QueuedBody = QueuedBody.__new__(QueuedBody)
        self.copy_to(call)
        call.body = self.body if rebinding is None or self.make is None else self.make(rebinding)
        return call

    @property
    def label(self):
        """What messages call its task."""
        return self.task.label()

    @property
    def site(self):
        """The line that submitted its task."""
        return self.task.call_site

    def copy_to(self, call):
        """Give another call what this one has of its task."""
        call.engine, call.task, call.watched, call.variables = self.engine, self.task, self.watched, self.variables
        call.nbytes = self.nbytes
        return 0

    def prepare(self):
        """Do what must be done even if the body is skipped."""
        return 0

    def execute(self):
        """Run the body itself; subclasses say how."""
        return self.body()

    def __call__(self):
        if self.outcome is None:
            return self.run_in_graph()
        try:
            failure = self.run_if_sound()
        except BaseException as error:
            failure = self.failure_of(error)
        self.tell(failure)

    def run_if_sound(self):
        """Run the body, or skip it if an input is poisoned; return the failure, or None."""
        if self.inputs is not None and self.task.fate != CALLED_OFF:
            for item in self.inputs:
                outcome: Outcome = item
                failure = outcome.failed()
                if failure is not None:
                    if self.engine.cancelled is not None and isinstance(failure, Cancellation):
                        break
                    self.outcome.skipped = True
                    self.prepare()
                    return failure
        failure = self.attempt()
        self.outcome.skipped = isinstance(failure, Cancellation)
        return failure

    def failure_of(self, error):
        """Return what the engine tells of an error; whatever happens, others must not wait for this call for ever."""
        engine: EngineState = self.engine
        try:
            failure = Failure.of(self.task, error)
            engine.failures.append(failure)
        except MemoryError:
            return NO_MEMORY
        return failure

    def attempt(self):
        """Run the body, unless its context cancels what has not begun; return its failure, or None."""
        task: TaskCore = self.task
        if self.engine.cancelled is None and task.fate != CALLED_OFF:
            task.fate = BEGUN
            return self.run()
        failure = Cancellation.of(task)
        if self.engine.cancelled is not None:
            self.engine.cancelled.append(failure)
        self.prepare()
        return failure

    def tell(self, failure):
        """Say how it went."""
        self.outcome.failure = failure
        self.outcome.pending = False
        self.engine.ran += 1
        if failure is not None and self.engine.observer is not None:
            failure.tell(self.engine.observer, self.task.id, self.outcome.skipped)
        return 0

    # -- as compiled code ----------------------------------------------------------------------------------------

    def may_run_compiled(self):
        if self.outcome is None or self.engine.cancelled is not None or self.task.fate != WAITS:
            return False
        if self.inputs is not None:
            for item in self.inputs:
                outcome: Outcome = item
                if outcome.failed() is not None:
                    return False
        return True

    def begins(self):
        return cython.address(self.task.fate)

    def call_again(self):
        try:
            failure = self.run_if_sound()
            if failure is None:
                site = f"task {self.label} ({self.site})"
                failure = self.failure_of(RuntimeError(f"a compiled body of {site} failed, and did not fail again"))
        except BaseException as error:
            failure = self.failure_of(error)
        self.tell(failure)
        return 0

    def ran_compiled(self):
        self.outcome.pending = False
        self.engine.ran += 1
        return 0

    def skip(self):
        """Count the body as run, where nothing is computed; return what `about` does.

        Raises
        ------
        PlanError
            It was to bring values to the host.
        """
        task: TaskCore = self.task
        if task.kind == "wait":
            raise PlanError(no_value(task.accesses[0].data_name, task.call_site))
        if self.outcome is not None:
            task.fate = BEGUN
            self.outcome.pending = False
            self.engine.ran += 1
        return self.about()

    def about(self):
        """Return the name of the body and the bytes of its data, by which one knows how long it takes."""
        task: TaskCore = self.task
        return task.symbol or task.kind, self.nbytes

    # -- as a step of a loop -----------------------------------------------------------------------------------

    def may_be_native(self):
        """Return whether `native` may find steps; a quick look."""
        return False

    def native(self, workers):
        """Return the `NativeBody` that does the same on up to so many workers; NotNativeError if there is none."""
        raise NotNativeError("has a body of Python's")

    def varying(self):
        """Return the arguments of the body, some of which are parameters; and where each replica is among them."""
        return (), ()

    def arguments_in(self, values, rebinding):
        """Return the arguments of the body in a launch."""
        return ()

    # -- on the way to another process -------------------------------------------------------------------------

    def travels(self):
        """Return (function, who calls it there, with what else), to be run in another process; None if it cannot."""
        return None

    def surroundings(self):
        """Return the context variables of who submitted it; None if there are none."""
        return self.variables

    def needs(self):
        """Return the outcomes that it is skipped for, where one of them turns out bad."""
        return self.inputs or ()

    def result(self):
        """Return the outcome that says how it went."""
        return self.outcome

    def group(self):
        """Return what fails with it: the launch that it is a part of; None if it is alone."""
        return None

    def set_out(self):
        """Say that it is on its way, so that nobody can call it off any more; return whether its times are wanted."""
        task: TaskCore = self.task
        task.fate = BEGUN
        return self.watched

    def arrive(self, error, failure):
        """Say how it went elsewhere: it raised an error, was skipped for a failure, or neither."""
        if error is not None:
            failure = self.failure_of(error)
        self.outcome.skipped = error is None and failure is not None
        self.tell(failure)
        return failure

    def ran(self, thread, start, end):
        """Say when it ran elsewhere, on the clock of `time.perf_counter_ns`."""
        if self.engine.observer is not None:
            self.engine.observer.began(self.task.id, self.task.symbol or self.task.kind)
            self.engine.observer.ended(self.task.id)
        return self.tell_times(thread, start, end)

    def give_up(self, failure):
        """It will not run, since the launch that it is a part of did not begin."""
        if self.outcome is not None and self.outcome.pending:
            self.outcome.failure, self.outcome.pending = failure, False

    def run_in_graph(self):
        """Run the body once more: others launch the graph that it is a node of.

        The first failure is told by the context, if that is open; else it is raised, where nobody catches it.
        """
        engine: EngineState = self.engine
        if self.graph is not None and self.graph.closed:
            raise TaskStateError(
                f"task {self.label} ({self.site}) was not run: {self.graph.description} was closed, "
                "and with it its memory"
            )
        call = self.again(None, None)
        failure = call.run()
        if failure is None:
            return None
        failure.written = []  # nothing is poisoned
        others = [one for one in engine.failures if one is not failure]
        if engine.closed is None and (self.label, self.site) not in [(one.label, one.site) for one in others]:
            return None
        if failure in engine.failures:
            engine.failures.remove(failure)
        if engine.closed is not None:
            raise failure.error()
        return None

    def run(self):
        """Run the body with the context variables of who submitted it; return its failure, or None."""
        return self.run_here() if self.variables is None else self.variables.copy().run(run_in, self)

    def run_here(self):
        """Run the body; return its failure, or None."""
        engine: EngineState = self.engine
        thread: object = PyThread_get_thread_ident()  # one object, since the end of this must not ask for another
        task = self.task
        start = perf_counter_ns() if self.watched else 0
        host_waits.running_bodies += 1
        try:
            RUNNING[thread] = task
            if engine.observer is not None:
                tell = engine.observer.began
                if tell is not nobody_hears:
                    tell(task.id, task.symbol or task.kind)
            self.prepare()
            fault = engine.root.fault()
            if fault is not None:  # its data may be anything; the context itself tells it
                return Failure.of(task, fault)
            self.execute()
        except BaseException as exception:
            return self.failure_of(exception)
        finally:
            RUNNING.pop(thread, None)
            host_waits.running_bodies -= 1
            if engine.observer is not None:
                tell = engine.observer.ended
                if tell is not nobody_hears:
                    tell(task.id)
            if self.watched:
                self.tell_times(thread, start, perf_counter_ns())
        return None

    def tell_times(self, thread, start, end):
        """Tell the observer, and who chose the place of the task, when the body ran."""
        engine: EngineState = self.engine
        task = self.task
        if task.choice is not None:
            task.choice.ran(start, end)
        if engine.observer is not None:
            engine.observer.ran(task.id, task.symbol or task.kind, task.where - 1, thread, start, end, "task")
        return 0


def run_in(body: QueuedBody):
    """Run a body in the context that is current."""
    return body.run_here()


@cython.no_gc
@cython.cclass
class FoldCall(QueuedBody):
    """What folds partial results: also when one of those who added to them failed, so that the others' are kept."""

    def run_if_sound(self):
        failure = self.run()
        for item in self.inputs or ():
            failure = failure or item.failed()
        return failure


def fold_call(task: TaskCore, body):
    """Return a late call that folds partial results."""
    call: FoldCall = FoldCall.__new__(FoldCall)
    call.adopt(task)
    call.body = body
    return call
