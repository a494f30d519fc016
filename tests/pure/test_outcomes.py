"""Whether contents are good: outcomes of tasks whose inputs come from bodies that have not run yet."""

from __future__ import annotations

import pytest

from stf._engine.versions import Outcome, derived_outcome, is_open


def ladder(derive, first, second, steps):
    """Two contents, each of which is computed from both, again and again."""
    for _ in range(steps):
        first, second = derive([first, second]), derive([second, first])
    return first, second


def joined(outcomes):
    return Outcome(False, None, outcomes)


def joined_pending(outcomes):
    return Outcome(True, None, outcomes)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("derive", [derived_outcome, joined])
@pytest.mark.parametrize("fails", [0, 1, None])
def test_a_long_ladder_goes_as_its_first_two(derive, fails):
    first = Outcome(True), Outcome(True)
    last = ladder(derive, *first, 100)
    assert all(is_open(outcome) and outcome.failed() is None for outcome in last)
    failure = object()
    for number, outcome in enumerate(first):
        outcome.failure = failure if number == fails else None
        outcome.pending = False
    assert [outcome.failed() for outcome in last] == [None if fails is None else failure] * 2
    assert not any(is_open(outcome) for outcome in last)
    assert derived_outcome(last) is None if fails is None else derived_outcome(last).failed() is failure


@pytest.mark.timeout(20)
def test_copies_that_may_fail_are_looked_at_once_each():
    last = ladder(joined_pending, Outcome(True), Outcome(True), 60)
    assert all(is_open(outcome) and outcome.failed() is None for outcome in last)


def test_what_comes_from_unfinished_bodies_refers_to_those_alone():
    bodies = [Outcome(True) for _ in range(3)]
    content = derived_outcome(bodies)
    for _ in range(50):
        content = derived_outcome([content, bodies[0]])
    assert content.sources == bodies
    bodies[1].pending = False
    assert content.failed() is None and content.sources == [bodies[0], bodies[2]]
    assert derived_outcome([Outcome(False)]) is None
    copy = derived_outcome([content], True)
    assert copy.pending and copy.sources == [bodies[0], bodies[2]]
