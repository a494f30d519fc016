"""The current streams of array libraries, and torch's autograd, without these libraries: both forms of the module."""

from __future__ import annotations

import subprocess
import sys
import types

import pytest

from stf.interop import current


@pytest.fixture
def autograd(monkeypatch):
    """Whether a torch without CUDA has autograd on, as a list of one."""
    state = [True]
    torch = types.ModuleType("torch")
    torch.is_grad_enabled = lambda: state[0]
    torch._C = types.SimpleNamespace(_set_grad_enabled=lambda value: state.__setitem__(0, value))
    torch.cuda = types.SimpleNamespace(is_initialized=lambda: False)
    monkeypatch.setitem(sys.modules, "torch", torch)
    return state


def test_autograd_is_off_until_it_is_given_back(autograd):
    borrowed = current.without_grad()
    assert autograd == [False]
    inner = current.without_grad()
    inner.give_back()
    assert autograd == [False]
    borrowed.give_back()
    assert autograd == [True]


PROGRAM = """
import sys, types
from stf.interop import current

calls = []
torch = types.ModuleType("torch")
torch.__spec__ = types.SimpleNamespace(_initializing=True)
torch.is_grad_enabled = lambda: False
torch._C = types.SimpleNamespace(
    _set_grad_enabled=None,
    _cuda_getCurrentStream=lambda device: (0, device, 1),
    _cuda_setStream=lambda *stream: calls.append(stream),
)

def init():
    calls.append("init")
    if {refuses}:
        raise AssertionError("Torch not compiled with CUDA enabled")

torch.cuda = types.SimpleNamespace(
    init=init,
    is_initialized=lambda: bool(calls) and not {refuses},
    ExternalStream=lambda pointer, device: types.SimpleNamespace(stream_id=pointer, device_index=0, device_type=1),
)
sys.modules["torch"] = torch
current.Borrowed(64, 0).give_back()
assert calls == [], calls  # it is being imported
torch.__spec__._initializing = False
for _ in range(2):
    current.Borrowed(64, 0).give_back()
print(calls)
"""


@pytest.mark.parametrize("refuses", [False, True])
def test_torch_starts_cuda_before_the_first_body(refuses):
    """Once, and not while it is being imported; a torch that has no CUDA is left alone."""
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(refuses=refuses)], capture_output=True, text=True)
    uses = [(64, 0, 1), (0, 0, 1)] * 2
    assert done.stdout.strip() == str(["init"] if refuses else ["init", *uses]), done.stderr
