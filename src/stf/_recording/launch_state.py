"""The state of one launch: its data, its failure, and how many of its bodies are still to be called."""

from __future__ import annotations

import cython

from stf._engine.failures import Failure


@cython.freelist(8)
@cython.final
@cython.cclass
class Launch:
    """One launch of a recording, or of a routine made of several."""

    def failed(self):
        """Return the failure that lets the bodies that are left be skipped; None as far as is known."""
        if self.failure is None and self.inputs is not None:
            for item in self.inputs:
                outcome: Outcome = item
                self.failure = outcome.failed()
                if self.failure is not None:
                    if self.outcome is not None:  # else that of the task is derived from its inputs
                        self.outcome.skipped = True
                    break
        return self.failure

    def attempt(self, body: QueuedBody):
        """Run a body, unless one before has failed; return its own failure, or None."""
        if self.failed() is not None:
            body.prepare()
            return None
        if body.outcome is None:  # else it was submitted once, and has those of its submission
            body.variables = self.variables
        return self.note(body.attempt())

    def note(self, failure):
        """Remember the first failure, of bodies that may run beside each other; return this one."""
        if failure is not None and self.failure is None:
            self.failure = failure
        return failure

    def fail(self, error, task=None):
        """Let the engine tell of an error of the launch, or of one of its tasks; return that failure."""
        failure = Failure.of(task or self.task, error)
        self.engine.failures.append(failure)
        return self.note(failure)

    def one_done(self):
        """Count one of those that call bodies, which has called all; after the last, say how the launch went."""
        self.remaining -= 1
        if self.remaining == 0:
            self.outcome.failure = self.failed()
            self.outcome.pending = False
        return 0

    def now(self, replica):
        """Return the replica that is used in place of a recorded one."""
        return replica if self.others is None else self.others.get(id(replica), replica)


def make_launch(engine, task, variables):
    """Return a launch that has not begun, by who has these context variables."""
    launch: Launch = Launch.__new__(Launch)
    launch.engine = engine
    launch.task = task
    launch.variables = variables
    launch.remaining = 1
    return launch
