"""Whether a profiler listens to this process."""

from __future__ import annotations

import os

from stf import config

TOOLS = ("NVTX_INJECTION64_PATH", "NVTX_INJECTION32_PATH")  # with which a profiler says that it listens to NVTX
is_listening = any(map(os.environ.get, TOOLS))  # from the start of the process on


def shows_ranges() -> bool:
    """Return whether tasks are ranges of NVTX: as the setting says, or else where somebody listens."""
    return is_listening if config.nvtx is None else config.nvtx
