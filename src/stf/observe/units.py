"""Numbers as people read them."""

from __future__ import annotations


def format_duration(duration_ns: float) -> str:
    """Return a duration with three significant digits and its unit.

    >>> format_duration(1_234_567)
    '1.23 ms'
    """
    for factor, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if duration_ns >= factor * 0.9995:
            return f"{_three_digits(duration_ns / factor)} {unit}"
    return f"{duration_ns:.0f} ns"


def format_bytes(nbytes: float) -> str:
    """Return a number of bytes with three significant digits and its binary unit.

    >>> format_bytes(8 << 20)
    '8.00 MiB'
    """
    for factor, unit in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if nbytes >= factor:
            return f"{_three_digits(nbytes / factor)} {unit}"
    return f"{nbytes:.0f} B"


def place_name(device: int) -> str:
    """Return what the place of a device is called; a negative number is the host's."""
    return "host" if device < 0 else f"device({device})"


def _three_digits(value: float) -> str:
    decimals = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{decimals}f}"
