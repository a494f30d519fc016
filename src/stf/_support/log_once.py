"""What the log is told once: of what is launched, and the line that launched it."""

from __future__ import annotations

import logging

MANY = 1000  # of these, and all are forgotten
log = logging.getLogger("stf")
logged: set[tuple[str, str, str]] = set()


def log_once(description: str, call_site: str, text: str, *values: object) -> None:
    """Log ``description (call_site)`` and a text with its values, unless that text was of the two before."""
    key = description, call_site, text
    if key in logged:
        return
    if len(logged) >= MANY:
        logged.clear()
    logged.add(key)
    log.info(f"%s (%s) {text}", description, call_site, *values)
