"""Versions: the state of a data in a scope; outcomes: whether what wrote it succeeded.

Every scope that touches a data works on a version of its own. Leaving the scope commits the version to the scope
around it, as one task with the joined modes; a body that raises discards it.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from stf import _cython as cython  # type: ignore[no-redef]

from stf._engine.deps import EventSet
from stf._engine.failures import site_text

if not cython.compiled:
    from stf._engine.instances import Replica

    INVALID, SHARED, MODIFIED = 0, 1, 2

PRUNE_AT = 32


@cython.freelist(64)
@cython.no_gc
@cython.cclass
class Outcome:
    """Whether the task that wrote a data's present content succeeded.

    Most data have none: what a with-block wrote without raising is good. A late body leaves a pending outcome, and
    what is computed from it on a stream inherits it through `sources`.
    """

    if not cython.compiled:
        pending = failure = sources = None
        skipped = False
        name = code = None
        lasti = 0

    def __init__(self, pending=False, failure=None, sources=None):
        self.pending = pending
        self.failure = failure
        self.sources = sources

    def failed(self):
        """The failure that spoils this content, or None as far as is known now."""
        if self.failure is None and self.sources is not None:
            unsettled = []
            for source in self.sources:
                self.failure = source.failed()
                if self.failure is not None:
                    unsettled = []
                    break
                if is_open(source):
                    unsettled.append(source)
            self.sources = unsettled or None
        return self.failure


def is_open(outcome):
    """Whether the outcome may still turn into a failure."""
    return outcome.pending or (outcome.failed() is None and outcome.sources is not None)


def since_success(outcomes, surely):
    """Drop what is before the last writer that succeeded; one that has not run yet counts as such unless `surely`."""
    for i in range(len(outcomes) - 1, 0, -1):
        outcome: Outcome = outcomes[i]
        if not verdict(outcome) and not (surely and is_open(outcome)):
            return outcomes[i:]
    return outcomes


def verdict(outcome: Outcome):
    """Say "it failed" or "it was skipped" of a writer that wrote nothing good; "" as far as nothing is known."""
    failure = outcome.failed()
    if failure is None:
        return ""
    if outcome.skipped:
        return "it was skipped"
    name = outcome.name
    own = failure.site == site_text(outcome.code, outcome.lasti) and (name is None or failure.label == f"'{name}'")
    return "it failed" if own else ""


def writer_text(name, code, lasti):
    """Name a writer by its task and line."""
    return "its registration" if code is None else f"task '{name or 'task'}' at {site_text(code, lasti)}"


class Version:
    """Writers, readers, replicas, claims and outcome of one data in one scope."""

    def __init__(self, scope=None, parent=None):
        self.scope = scope
        self.parent = parent
        self.writers = EventSet()
        self.readers = EventSet()
        self.replicas = []
        self.valid = 0
        self.claims = 0
        self.accumulators = 0
        self.frozen = 0
        self.outcome = None
        self.partials = None
        self.op = None
        self.joined = 0
        self.wrote = None
        self.wrote_code = None
        self.wrote_lasti = 0
        self.wrote_outcome = None
        self.earlier = None
        self.prune_at = PRUNE_AT
        self.good = None
        self.good_code = None
        self.good_lasti = 0
        self.unwritten_tiles = False
        self.was_valid = False

    def is_untouched(self):
        """Whether no task, loan or copy of this context used the data: there is nothing to wait for at its end."""
        return self.joined == 0 and self.readers.count == 0

    def find(self, place):
        """The replica at a data place, or None."""
        for item in self.replicas:
            replica = cython.cast(Replica, item)
            if replica.place == place:
                return replica
        return None

    def own(self, replica):
        """Make `replica` the only valid one: a task wrote it."""
        if self.valid != 1 or replica.state != MODIFIED:
            for item in self.replicas:
                other: Replica = item
                other.state = INVALID
            replica.state = MODIFIED
            self.valid = 1
        return 0

    def forget_content(self):
        """Make every replica invalid: nobody wrote the data."""
        for item in self.replicas:
            replica: Replica = item
            replica.state = INVALID
        self.valid = 0
        return 0

    def share(self, source, target):
        """Make `target` valid: it was copied from `source`."""
        source.state = SHARED
        if target.state == INVALID:
            self.valid += 1
        target.state = SHARED
        return 0

    def set_writer(self, name, code, lasti, outcome):
        """Say which task wrote last; `outcome` is its own if it may fail, for then those before it still matter."""
        if outcome is not None:
            self.keep_writer()
            outcome.name = name
            outcome.code = code
            outcome.lasti = lasti
        else:
            self.earlier = None
        self.wrote = name
        self.wrote_code = code
        self.wrote_lasti = lasti
        self.wrote_outcome = outcome
        return 0

    def keep_writer(self):
        """Remember who wrote last, before a task that may fail takes its place; for `last_writers`."""
        outcome = self.wrote_outcome
        if outcome is None or (not outcome.pending and outcome.failure is None and outcome.sources is None):
            self.good = self.wrote
            self.good_code = self.wrote_code
            self.good_lasti = self.wrote_lasti
            self.earlier = None
            return 0
        if self.earlier is None:
            self.earlier = []
        elif len(self.earlier) >= self.prune_at:
            self.earlier = since_success(self.earlier, True)
            self.prune_at = 2 * len(self.earlier) + PRUNE_AT
        self.earlier.append(outcome)
        return 0

    def last_writers(self):
        """Name who last succeeded in writing the content, then who was to write it since and did not, and why not."""
        if self.wrote_outcome is None:
            return [(writer_text(self.wrote, self.wrote_code, self.wrote_lasti), "")]
        outcomes = since_success([None, *(self.earlier or ()), self.wrote_outcome], False)
        named = []
        for item in outcomes:
            if item is None:
                named.append((writer_text(self.good, self.good_code, self.good_lasti), ""))
            else:
                outcome: Outcome = item
                named.append((writer_text(outcome.name, outcome.code, outcome.lasti), verdict(outcome)))
        return named

    def imported(self, scope):
        """This data as a scope inside sees it: the same events and replicas, its own record of modes."""
        inner = Version(scope, self)
        inner.take_state(self)
        return inner

    def committed(self):
        """Hand the state to the scope around: its joined modes are those of one task there."""
        outer = self.parent
        outer.take_state(self)
        outer.joined |= self.joined
        return outer

    def take_state(self, other):
        self.writers = other.writers
        self.readers = other.readers
        self.replicas = other.replicas
        self.valid = other.valid
        self.frozen = other.frozen
        self.outcome = other.outcome
        self.partials = other.partials
        self.op = other.op
        self.wrote = other.wrote
        self.wrote_code = other.wrote_code
        self.wrote_lasti = other.wrote_lasti
        self.wrote_outcome = other.wrote_outcome
        self.earlier = other.earlier
        self.good = other.good
        self.good_code = other.good_code
        self.good_lasti = other.good_lasti
        return 0


class Scope:
    """A region whose effects become one task of the region around it.

    Parameters
    ----------
    parent : Scope or None
        The scope around it.
    """

    def __init__(self, parent=None, thread=0):
        self.parent = parent
        self.thread = thread
        self.touched = []


def import_into(innermost, data):
    """The version of a data for the innermost scope, through all scopes around it."""
    chain = []
    scope = innermost
    while scope is not None and data.version.scope is not scope:
        chain.append(scope)
        scope = scope.parent
    for inner in reversed(chain):
        data.version = data.version.imported(inner)
        inner.touched.append(data)
    return data.version
