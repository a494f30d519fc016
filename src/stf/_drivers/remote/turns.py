"""What a stream of the client calls when its turn comes, for work of other processes."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from stf.errors import WorkerLostError


def call_last(driver: Any, body: Any) -> None:
    """Make a call after which nobody asks for a launch any more."""
    launch = body.ends()
    try:
        body()
    finally:
        known = driver.numbers.pop(id(launch), None)
        if known is not None:
            driver.host_outcomes.pop(known[0], None)
            driver.launch_copies.pop(known[0], None)


def call_in_passing(driver: Any, call: Callable[[], None], number: int) -> None:
    """Make a call in the place of an exchange, of which nothing is to be sent."""
    try:
        call()
    except Exception as error:
        driver.inner.errors.append(error)


def lose_copy(driver: Any, tag: int, error: WorkerLostError | None) -> None:
    """Fail a copy from or to a worker that is gone: its content is not there."""
    with driver.client.receiving:
        if tag in driver.bodies or tag in driver.launch_copies:
            driver.client.learn(tag, tag, pickle.dumps((error, [])))
        driver.copies.pop(tag, None)


def lose_call(driver: Any, number: int, error: WorkerLostError) -> None:
    """Fail a body whose worker is gone, unless an input has failed before."""
    with driver.client.receiving:
        trip = driver.bodies.get(number)
        if trip is None:
            return
        failure = next((found for item in trip.needs() if (found := item.failed()) is not None), None)
        group = trip.group()
        if failure is None and group is not None:
            failure = group.failed()
        if failure is not None:
            driver.client.learn(number, driver.number_of_failure(failure), None)
        else:
            driver.client.learn(number, number, pickle.dumps((error, [])))
