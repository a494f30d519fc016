"""Streams of other libraries as addresses, by the name of the module in `cuda.stf`."""

from __future__ import annotations

from stf.compat.cuda_stf.streams import get_stream_pointer

__all__ = ["get_stream_pointer"]
