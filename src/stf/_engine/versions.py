"""Versions: the state of a data in a scope; outcomes: whether what wrote it succeeded.

Every scope that touches a data works on a version of its own (`recordings`).
"""

from __future__ import annotations

import cython

from stf._support.call_sites import site_text

PRUNE_AT: cython.int = 32
looks: cython.longlong = 0  # how often sources were looked at


@cython.freelist(1024)
@cython.no_gc
@cython.cclass
class Outcome:
    """Whether the task that wrote a data's present content succeeded.

    Most data have none: what a with-block wrote without raising is good. A queued body leaves a pending outcome, and
    what is computed from it on a stream inherits it through `sources`. These are pending or failed themselves
    (`derived_outcome`), so that however long a chain of such tasks is, each looks at the bodies that are yet to run.
    """

    def __init__(self, pending=False, failure=None, sources=None):
        self.pending = pending
        self.failure = failure
        self.sources = sources

    def failed(self):
        """Return the failure that spoils this content, or None as far as is known now."""
        global looks
        if self.failure is None and self.sources is not None:
            looks += 1
            self.look(looks)
        return self.failure

    def look(self, number):
        """Look at the sources, at each once; drop those that went well."""
        self.looked = number
        unsettled = []
        for item in self.sources:
            source: Outcome = item
            if source.failure is None and source.sources is not None and source.looked != number:
                source.look(number)
            if source.failure is not None:
                self.failure = source.failure
                self.sources = None
                return 0
            if source.pending or source.sources is not None:
                unsettled.append(source)
        self.sources = unsettled or None
        return 0


class Copied(Outcome):
    """How content went that was copied between processes: such a copy may get lost, and spoils only its target.

    `before` says how the content was written; `copies` are those that are not known to have arrived, in order, as
    (outcome, place of the target), one for each target.
    """

    def __init__(self, before, copies):
        Outcome.__init__(self, False, None, ([] if before is None else [before]) + [outcome for outcome, _ in copies])
        self.before = before
        self.copies = copies

    def with_copy(self, outcome, target):
        """Return what is known after one more copy."""
        others = [copy for copy in self.copies if copy[1] != target and (copy[0].pending or copy[0].failed())]
        return Copied(self.before, [*others, (outcome, target)])

    def of_replica(self, place):
        """Return the outcomes that the content at a place depends on."""
        return ([] if self.before is None else [self.before]) + self.copies_to(place)

    def copies_to(self, place):
        """Return the outcomes of copies to a place that are not known to have arrived."""
        return [outcome for outcome, target in self.copies if target == place and (outcome.pending or outcome.failed())]

    def lost(self):
        """Return the places of the targets that were lost, or made of a lost one; None if the content is bad itself."""
        if self.before is not None and self.before.failed() is not None:
            return None
        return {target for outcome, target in self.copies if outcome.failed() is not None}

    def without(self, places):
        """Return what is known but for copies to these places; None if all went well."""
        kept = [(outcome, target) for outcome, target in self.copies if target not in places and outcome.pending]
        if kept or (self.before is not None and is_open(self.before)):
            return Copied(self.before, kept)
        return None


def is_open(outcome):
    """Return whether the outcome may still turn into a failure."""
    return outcome.pending or (outcome.failed() is None and outcome.sources is not None)


def derived_outcome(outcomes, pending=False):
    """Return the outcome of what is computed from contents with these outcomes; None if all of them are good."""
    sources: dict = {}
    for item in outcomes:
        outcome: Outcome = item
        if outcome.failed() is not None or outcome.pending:
            sources[outcome] = None
        elif outcome.sources is not None:
            for source in outcome.sources:
                sources[source] = None
    return Outcome(pending, None, list(sources) or None) if sources or pending else None


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


@cython.freelist(1024)
@cython.no_gc
@cython.cclass
class Version:
    """Writers, readers, replicas, claims and outcome of one data in one scope.

    In a recording, `entries` are the places where the content from before must be, and `phantom` says that there is
    content though no replica has it yet: at a launch that finds none, the neutral element of the operator `neutral_op`.
    """

    def is_untouched(self):
        """Return whether no task, loan or copy of this context used the data.

        There is nothing to wait for at its end.
        """
        return self.joined == 0 and self.readers.count == 0

    def may_fail(self):
        """Return whether what wrote the content may still turn out to have failed."""
        return self.outcome is not None and self.outcome.failed() is None and is_open(self.outcome)

    def is_poisoned(self):
        """Return whether what wrote the content is known to have failed."""
        return self.outcome is not None and self.outcome.failed() is not None and not self.recover()

    def recover(self):
        """Go on without replicas that lost copies were to make; return whether another replica has the content."""
        outcome = self.outcome
        places = outcome.lost() if type(outcome) is Copied else None
        if places is None:
            return False
        spoilt = []
        for item in self.replicas:
            replica = cython.cast(Replica, item)
            if replica.state != INVALID and replica.place in places:
                spoilt.append(replica)
        if len(spoilt) == self.valid:
            return False
        for item in spoilt:
            replica = cython.cast(Replica, item)
            replica.state = INVALID
            self.valid -= 1
        self.outcome = outcome.without(places)
        return True

    def find(self, place):
        """Return the replica at a data place, or None."""
        for item in self.replicas:
            replica = cython.cast(Replica, item)
            if replica.place == place:
                return replica
        return None

    def own(self, replica):
        """Make `replica` the only valid one: a task wrote it, which is not among the writers yet.

        Return whether any state has changed.
        """
        if self.valid != 1 or replica.state != MODIFIED:
            for item in self.replicas:
                other: Replica = item
                if other.state != INVALID and not other.home:
                    other.ready.update(self.writers)
                    other.ready.update(self.readers)
                    other.left = True
                other.state = INVALID
            replica.state = MODIFIED
            replica.left = False
            replica.copy_round = 0
            self.valid = 1
            return 1
        return 0

    def forget_content(self):
        """Make every replica invalid: nobody wrote the data."""
        for item in self.replicas:
            replica: Replica = item
            replica.state = INVALID
            replica.left = False
        self.valid = 0
        return 0

    def share(self, source, target):
        """Make `target` valid: it was copied from `source`."""
        source.state = SHARED
        if target.state == INVALID:
            self.valid += 1
        target.state = SHARED
        target.left = False
        source.copy_round += 1
        target.copy_round = source.copy_round
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
        try:
            if self.earlier is None:
                self.earlier = []
            elif len(self.earlier) >= self.prune_at:
                self.earlier = since_success(self.earlier, True)
                self.prune_at = 2 * len(self.earlier) + PRUNE_AT
            self.earlier.append(outcome)
        except MemoryError:
            self.earlier = None  # only messages ask for it, and the end of a task must not fail
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

    def take_writers(self, inner):
        """Have the content that a recording left, which was launched: its writers, and how they go."""
        self.outcome = inner.outcome
        self.wrote, self.wrote_code, self.wrote_lasti = inner.wrote, inner.wrote_code, inner.wrote_lasti
        self.wrote_outcome, self.earlier = inner.wrote_outcome, inner.earlier
        self.good, self.good_code, self.good_lasti = inner.good, inner.good_code, inner.good_lasti
        return 0


def outermost(version):
    """Return the version of the root scope: recordings have shadows of its replicas."""
    while version.parent is not None:
        version = version.parent
    return version


def make_version(scope, parent):
    """Return the version of a data in a scope: the first one, or that after the one of the scope around."""
    version: Version = Version.__new__(Version)
    version.scope = scope
    version.parent = parent
    version.writers = EventSet.__new__(EventSet)
    version.readers = EventSet.__new__(EventSet)
    version.replicas = []
    untrack(version.replicas)  # only the version has it, which the collector does not look into either
    version.prune_at = PRUNE_AT
    return version
