"""The kernels of the examples compile for GPUs, without one: where a compiler is there (``pip install '.[numba-cuda]'``)."""

from __future__ import annotations

import pathlib
import runpy
import sys

import pytest

from stf.kernels import gpu_tasks, gpu_threads
from stf.kernels.elements import Elements
from stf.kernels.launch import Threads

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
CONSTRUCTS = ("ctx.parallel_for(", "ctx.launch(")
WITH_KERNELS = [
    path for path in sorted(EXAMPLES.glob("[0-9][0-9]_*.py")) if any(c in path.read_text() for c in CONSTRUCTS)
]
CAPABILITIES = ((8, 0), (9, 0), (10, 0))
SMS = 132


@pytest.fixture
def images(monkeypatch):
    """The names of the kernels that were compiled for GPUs: all those that a program on a CPU submits."""
    pytest.importorskip("numba_cuda")
    found = []

    def load(kernel, context, place, where):
        sizes = [len(kernel.user_object.image(capability)) for capability in CAPABILITIES]
        assert min(sizes) > 200
        found.append(kernel.name)

    def compiled_for_both(construct):
        loop = construct.loop

        def both(self, task, over, signature):
            self.kernel(task, over, signature)
            return loop(self, task, over, signature)

        monkeypatch.setattr(construct, "loop", both)

    monkeypatch.setattr(gpu_tasks, "load", load)
    monkeypatch.setattr(gpu_threads, "load", load)
    monkeypatch.setattr(gpu_threads, "concurrency_at", lambda task: SMS)
    for module in (gpu_tasks, gpu_threads):
        monkeypatch.setattr(module, "blocks_at_once", lambda kernel, task, threads: SMS * (2048 // threads))
    compiled_for_both(Elements)
    compiled_for_both(Threads)
    return found


def test_there_are_examples_with_kernels():
    assert len(WITH_KERNELS) >= 9


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", WITH_KERNELS, ids=lambda path: path.stem)
def test_kernels_of_an_example_compile(images, monkeypatch, tmp_path, path):
    monkeypatch.setenv("STF_DEVICES", "cpu")
    monkeypatch.setattr(sys, "argv", [str(path)])
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")
    assert images
