"""Batches that come twice, late, or in another order are done once, in order."""

from __future__ import annotations

import random

from stf._drivers.remote.endpoint import without_old_marks
from stf._drivers.remote.ordered import InOrder


def test_batches_are_done_once_in_order() -> None:
    found: list[bytes] = []
    inbox = InOrder(found.append)
    sent = [(sender, number) for sender in (0, 1) for number in range(1, 50)] * 2
    chance = random.Random(1)
    chance.shuffle(sent)
    for sender, number in sent:
        inbox.put(sender, 7, number, b"%d %d" % (sender, number))
    for sender in (0, 1):
        mine = [each for each in found if each.startswith(b"%d " % sender)]
        assert mine == [b"%d %d" % (sender, number) for number in range(1, 50)]


def test_another_process_in_place_of_a_sender_counts_anew() -> None:
    found: list[bytes] = []
    inbox = InOrder(found.append)
    inbox.put(1, 7, 1, b"a")
    inbox.put(1, 7, 3, b"never")
    inbox.put(1, 9, 2, b"c")
    inbox.put(1, 7, 2, b"of one that is gone")
    inbox.put(1, 9, 1, b"b")
    assert found == [b"a", b"b", b"c"]


def test_the_last_mark_of_a_stream_is_told_wherever_it_stands() -> None:
    """Whoever waits for mark 2 would wait for ever, if only the mark that comes last were told."""
    asked = ("reached", 1, 2)  # the answer to who asks for a mark: all that the stream has reached by then
    messages = [asked, ("reached", 3, 1), ("data", 8, b""), ("reached", 1, 1)]
    assert without_old_marks(messages) == messages[:3]
    assert without_old_marks([asked, ("reached", 1, 1)]) == [asked]
    assert without_old_marks([("reached", 1, 1), asked]) == [asked]
