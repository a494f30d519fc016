"""What a stream of the client calls when its turn comes, for work of other processes."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from stf.errors import WorkerLostError


class Within:
    """An action that is done while nobody uses a device, as a watcher of the engine's sees to."""

    def __init__(self, watcher: Any, device: int, action: Callable[[], bool]) -> None:
        self.watcher, self.device, self.action = watcher, device, action

    def __call__(self) -> bool:
        return bool(self.watcher.regain_worker(self.device, self.action))


class EndOfCopy:
    """The end of a copy on a stream of the host."""

    def __init__(self, driver: Any, tag: int) -> None:
        self.driver, self.tag = driver, tag

    def __call__(self) -> None:
        self.driver.went_well(self.tag)


class LastCall:
    """A call after which nobody asks for a launch any more."""

    def __init__(self, driver: Any, body: Any) -> None:
        self.driver, self.body = driver, body

    def __call__(self) -> None:
        launch = self.body.ends()
        try:
            self.body()
        finally:
            known = self.driver.numbers.pop(id(launch), None)
            if known is not None:
                self.driver.host_outcomes.pop(known[0], None)
                self.driver.launch_copies.pop(known[0], None)

    def in_passing(self, number: int) -> None:
        """Do it in the place of an exchange, of which nothing is to be sent."""
        try:
            self()
        except Exception as error:
            self.driver.inner.errors.append(error)


class LostCopy:
    """A copy from or to a worker that is gone: its content is not there."""

    def __init__(self, driver: Any, tag: int, error: WorkerLostError | None) -> None:
        self.driver, self.tag, self.error = driver, tag, error

    def __call__(self) -> None:
        driver = self.driver
        with driver.client.receiving:
            if self.tag in driver.bodies or self.tag in driver.launch_copies:
                driver.client.learn(self.tag, self.tag, pickle.dumps((self.error, [])))
            driver.copies.pop(self.tag, None)


class LostCall:
    """A body whose worker is gone: it fails when its turn comes, unless an input has failed before."""

    def __init__(self, driver: Any, number: int, error: WorkerLostError) -> None:
        self.driver, self.number, self.error = driver, number, error

    def __call__(self) -> None:
        driver = self.driver
        with driver.client.receiving:
            trip = driver.bodies.get(self.number)
            if trip is None:
                return
            failure = next((found for item in trip.needs() if (found := item.failed()) is not None), None)
            group = trip.group()
            if failure is None and group is not None:
                failure = group.failed()
            if failure is not None:
                driver.client.learn(self.number, driver.number_of_failure(failure), None)
            else:
                driver.client.learn(self.number, self.number, pickle.dumps((self.error, [])))
