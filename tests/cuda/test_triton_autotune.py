"""Triton's autotuner in tasks: it runs a kernel many times before its first launch, on the memory of the task."""

from __future__ import annotations

import numpy as np
import pytest

import stf

triton = pytest.importorskip("triton")
pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")  # those of the libraries
X = {n: np.arange(n, dtype=np.float32) for n in (1000, 3000, 5000)}


def grid_for(n):
    return lambda meta: (triton.cdiv(n, meta["BLOCK"]),)


@pytest.mark.parametrize("tuned_before", [True, False])
def test_a_kernel_that_adds_is_tuned_with_its_data_restored(run, tuned_before):
    """Tuned where it is captured, it would wait for the device: that launch runs as it is, or says so."""
    from triton_kernels_of_tests import add_tuned

    add_tuned.cache.clear()
    n = 1000

    def prepare(ctx):
        lX, lY = ctx.logical_data(X[n]), ctx.logical_data(np.ones(n, np.float32))
        if tuned_before:
            with stf.context(devices="cuda:0") as other:
                data = other.logical_data(X[n].copy()), other.logical_data(np.ones(n, np.float32))
                stf.kernel(add_tuned)[grid_for(n)](data[0].read(), data[1].rw(), n)
                np.testing.assert_array_equal(data[1].numpy(), 1 + X[n])
        return (
            lambda: stf.kernel(add_tuned)[grid_for(n)](lX.read(), lY.rw(), n),
            lambda count: np.testing.assert_array_equal(lY.numpy(), 1 + count * X[n]),
        )

    run(prepare)


def test_a_kernel_that_only_writes_needs_nothing(run):
    from triton_kernels_of_tests import double_tuned

    n = 3000
    with stf.context(devices="cuda:0") as ctx:
        lX, lY = ctx.logical_data(X[n]), ctx.logical_data_empty(n, np.float32)
        stf.kernel(double_tuned)[grid_for(n)](lX.read(), lY.write(), n=n)
        assert (lY.numpy() == 2 * X[n]).all()

    def prepare(ctx):
        lX, lY = ctx.logical_data(X[n]), ctx.logical_data_empty(n, np.float32)
        return (
            lambda: stf.kernel(double_tuned)[grid_for(n)](lX.read(), y=lY.write(), n=n),
            lambda count: np.testing.assert_array_equal(lY.numpy(), 2 * X[n]),
        )

    run(prepare)


def test_a_kernel_that_would_add_many_times_is_refused():
    from triton_kernels_of_tests import add_spoilt

    n = 5000
    with stf.context(devices="cuda:0") as ctx:
        lX, lY = ctx.logical_data(X[n]), ctx.logical_data(np.ones(n, np.float32))
        message = r"kernel 'add_spoilt' is autotuned.* and 'y' is read and written.*restore_value=\['y'\]"
        for given in ((lX.read(), lY.rw(), n), (lX.read(), ctx.token().rw(), lY.rw(), n)):
            with pytest.raises(TypeError, match=message):
                stf.kernel(add_spoilt)[grid_for(n)](*given)
        with pytest.raises(TypeError, match=message):
            stf.kernel(add_spoilt)[grid_for(n)](lX.read(), y=lY.rw(), n=n)
        assert (lY.numpy() == 1).all()
