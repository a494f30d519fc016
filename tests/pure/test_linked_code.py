"""Functions whose code is in files, as those of cuda.coop: where they are found, and for which blocks they are."""

from __future__ import annotations

import types

import numpy as np
import pytest

import stf
from stf import con, par
from stf.kernels.captured import linked_files
from stf.kernels.compile.python import must_be_for

OF_128 = "block_reduce__cuda__std__int32_t__128____cub__BlockReduceAlgorithm__BLOCK_REDUCE_RAKING__1__1_Puint8_alloc"
OF_WARP = "warp_reduce__cuda__std__int32_t__32_Puint8_Rint32_Rint32_alloc"


class Linked:
    """What Numba calls by its name."""

    def __init__(self, *files):
        self.paths = list(files)

    @property
    def files(self):
        return self.paths

    def __call__(self, value):
        raise RuntimeError("it is for GPUs")


total = Linked("a.ltoir")
others = types.ModuleType("others_of_this_test")
others.total = Linked("module.ltoir")


def test_functions_are_found_wherever_a_body_has_them():
    inner, unused = Linked("b.ltoir", "c.ltoir"), Linked("d.ltoir")

    def helper(value):
        return inner(value)

    def body(x):
        return total(x) + helper(x) + others.total(x)

    def plain(x):
        return np.sin(x) + len(str(x))

    late: Linked

    def not_yet(x):
        return late(x)

    assert set(linked_files(body)) == {"a.ltoir", "b.ltoir", "c.ltoir", "module.ltoir"}
    assert linked_files(plain) == linked_files(not_yet) == ()
    assert linked_files(plain, (1.0, (unused,)), unused) == ("d.ltoir",)  # as further arguments of a body
    late = total
    assert linked_files(not_yet) == ("a.ltoir",)


def test_blocks_that_they_are_for():
    must_be_for(128, OF_128)
    must_be_for(64, OF_WARP)
    must_be_for(0, "transform_of_a_thread")
    with pytest.raises(NotImplementedError, match="for blocks of 128 threads, and here the innermost groups have 64"):
        must_be_for(64, OF_128)
    with pytest.raises(NotImplementedError, match="several dimensions"):
        must_be_for(128, OF_128.replace("__1__1_", "__8__1_"))
    with pytest.raises(NotImplementedError, match="block_reduce of cuda.coop together in groups"):
        must_be_for(0, OF_128)
    with pytest.raises(NotImplementedError, match="of other threads"):
        must_be_for(64, "block_of_unknown")


@pytest.mark.parametrize("spec", [None, par(4, con(8))], ids=["parallel_for", "launch"])
def test_a_cpu_says_that_they_are_for_gpus(spec):
    with stf.context(devices="cpu") as ctx:
        x = ctx.logical_data(np.zeros(32))

        def of_element(i, x):
            x[i] = total(x[i])

        def of_thread(th, x):
            x[th.rank()] = total(x[th.rank()])

        builder = ctx.launch(spec, x.rw()) if spec is not None else ctx.parallel_for(x.shape, x.rw())
        body = of_element if spec is None else of_thread
        with pytest.raises(TypeError, match="calls functions whose code is for GPUs"):
            builder(body)
        np.testing.assert_array_equal(x.numpy(), 0.0)
