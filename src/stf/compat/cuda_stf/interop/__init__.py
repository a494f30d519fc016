"""Numba and PyTorch: helpers that import these libraries when they are called."""

from __future__ import annotations

from stf.compat.cuda_stf.interop import numba, pytorch

__all__ = ["numba", "pytorch"]
