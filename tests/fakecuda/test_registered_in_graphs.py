"""Arrays that are registered in what is recorded, on the stand-in: they are their user's between launches."""

# The bodies below run elsewhere, with the names of the prelude.
# ruff: noqa: F821
from __future__ import annotations


def test_arrays_are_copied_again_when_they_are_their_users(run):
    """Those of data that the user holds, and of tiles of such data, are not."""

    def body():
        X, W = np.zeros(8), np.ones(8)
        with stf.context(devices="cuda:0") as ctx:
            lX, lW = ctx.logical_data(X), ctx.logical_data(W)
            tiles = lX.tiles((2,))
            parts, weights = ctx.task_graph(), ctx.task_graph()
            with parts:
                for tile in tiles:
                    add(tile)
            del tile, tiles
            with weights:
                add(lW)
            parts.launch(), weights.launch()
            ctx.synchronize()
            fakecuda.reset_calls()
            for _ in range(5):
                parts.launch(), weights.launch()
            assert calls(*COPIES) == 0
            del lW
            ctx.synchronize()
            fakecuda.reset_calls()
            for k in range(5):
                W[:] = 10 * k
                weights.launch()
                ctx.synchronize()
                assert W.tolist() == [10.0 * k + 1] * 8
            assert calls(*COPIES) == 10
        assert X.tolist() == [6.0] * 8
        nothing_left()

    run(body)


def test_pinned_memory_of_a_graph_that_the_collector_frees(run):
    """It is not cleared before it has said that its memory is free again."""

    def body():
        import gc
        import sys

        from stf._drivers.cuda_stages import Stage, StageHold

        told = []
        sys.unraisablehook = told.append
        circle = [StageHold(Stage(16))]
        circle.append(circle)
        del circle
        gc.collect()
        assert not told

    run(body)
