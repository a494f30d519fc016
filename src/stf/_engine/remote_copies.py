"""Copies between processes, whose content can get lost on the way."""

from __future__ import annotations

from stf._engine.failures import Failure


class RemoteCopy:
    """A copy between two processes, as their driver knows it: see `QueuedBody.travels`."""

    def __init__(self, label, outcome, site, failures):
        self.label = label
        self.outcome = outcome
        self.site = site
        self.failures = failures

    def __call__(self):
        """It is not called off."""

    def needs(self):
        """Return nothing: who reads its target needs the same as itself."""
        return ()

    def group(self):
        """Return None: it is alone."""

    def result(self):
        """Return the outcome that says how it went."""
        return self.outcome

    def arrive(self, error, failure):
        """Say how it went."""
        if error is not None:
            failure = self.outcome.failed()
            if failure is None:
                failure = Failure(f"(copy of {self.label})", self.site, error, [self.label])
                if self.outcome.sources is None:  # else the body that it comes after says so, which was not over
                    self.failures.append(failure)
        if failure is not None:  # else it keeps what it knows of what the copy was made of
            self.outcome.failure = failure
        self.outcome.pending = False
        return failure
