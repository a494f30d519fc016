"""The copies of a data, as its own log keeps them for `LogicalData.history`."""

from __future__ import annotations

import cython

from stf._support.call_sites import site_text


@cython.freelist(64)
@cython.no_gc
@cython.cclass
class LoggedCopy:
    """A copy in a data's log: between which places, and which task asked for it, if one did."""

    def describe(self, names):
        """Say it as `LogicalData.history` does."""
        description = f"copied {names[self.source]} -> {names[self.target]}"
        if self.number == 0:
            return description
        task = f"'{self.symbol}'" if self.symbol else f"#{self.number}"
        return f"{description} for task {task} at {site_text(self.code, self.lasti)}"


def logged(source, target, asked: TaskCore):
    copy: LoggedCopy = LoggedCopy.__new__(LoggedCopy)
    copy.source = source
    copy.target = target
    if asked is not None:
        copy.number = asked.id
        copy.symbol = asked.symbol
        copy.code = asked.code
        copy.lasti = asked.lasti
    return copy
