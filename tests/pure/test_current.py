"""The current streams of array libraries, and torch's autograd, without these libraries: both forms of the module."""

from __future__ import annotations

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
