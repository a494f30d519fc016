"""The memory of NumPy's and CuPy's arrays; compiled."""

from typing import Any

from stf.interop.memory import Memory

def describe_numpy(obj: Any, on_cuda: bool) -> Memory: ...
def describe_cupy(obj: Any, on_cuda: bool) -> Memory: ...
