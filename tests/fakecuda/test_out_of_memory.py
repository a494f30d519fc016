"""Devices that have no room, on the stand-in: an error says who has what, and the context lives."""

# The bodies below run elsewhere, with the names of the prelude of conftest.py.
# ruff: noqa: F821
from __future__ import annotations


def test_what_does_not_fit_is_an_error_and_the_context_lives(run):
    def body():
        with stf.context(devices="cuda:0") as ctx:
            big, small = ctx.logical_data_empty(1 << 20, name="big"), ctx.logical_data(np.zeros(8))
            with pytest.raises(stf.OutOfMemoryError, match="'big'"), ctx.task(big.write()):
                pass
            add(small)
            assert small.numpy().tolist() == [1] * 8
        nothing_left()

    run(body, FAKECUDA_MEMORY=str(1 << 20))


def test_memory_that_another_context_has_is_told(run):
    def body():
        with stf.context(devices="cuda:0") as other, stf.context(devices="cuda:0") as ctx:
            held, big = other.logical_data(np.zeros(3 << 16)), ctx.logical_data(np.zeros(1 << 16), name="big")
            add(held)
            other.synchronize()
            told = f"0 bytes are in use and {3 << 19} in other contexts of this process, which finalize.. frees"
            with pytest.raises(stf.OutOfMemoryError, match=told):
                add(big)
            other.finalize()
            add(big)
            assert big.numpy()[-1] == 1
        nothing_left()

    run(body, FAKECUDA_MEMORY=str(7 << 18))
