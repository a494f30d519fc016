"""What kernels print is shown when the host has waited, which CUDA does not do where it finds that all is done."""

from __future__ import annotations

from typing import Any

from stf._backends import kernels


class Functions:
    """What a driver has as `kernels`, which notes what is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def load(self, device: int, context: int, image: bytes, name: bytes) -> int:
        return 1

    def show_printed(self) -> None:
        self.asked.append("show")


def test_a_kernel_that_prints_is_known_by_its_code(monkeypatch: Any) -> None:
    monkeypatch.setattr(kernels, "printing", [False])
    functions = kernels.FunctionsAt(Functions(), 0, 0)
    functions.function(b".visible .entry f() { ret; }", "f")
    assert kernels.printing == [False]
    functions.function(b".extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b)", "f")
    functions.function(b".visible .entry f() { ret; }", "f")
    assert kernels.printing == [True]
