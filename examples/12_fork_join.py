"""Fork and join on two devices, recorded once as one graph, and launched with another factor each time.

            .--> work on the first device ---.
    split --|                                |--> join
            '--> work on the last device ----'

With one GPU, or none, both halves run on the same device; the program is the same.
"""

import numpy as np

import stf


@stf.task
def split(x: stf.Read, left: stf.Write, right: stf.Write) -> None:
    half = x.size // 2
    left[...] = x[:half]
    right[...] = x[half:]


@stf.task
def work(part: stf.ReadWrite, factor: float) -> None:
    part *= factor
    part += 1


@stf.task
def join(x: stf.Write, left: stf.Read, right: stf.Read) -> None:
    half = x.size // 2
    x[:half] = left
    x[half:] = right


def main() -> None:
    n = 1 << 12
    values = np.arange(n, dtype=float)
    expected = values.copy()

    with stf.context() as ctx:
        x = ctx.logical_data(values)
        left, right = ctx.logical_data_empty(n // 2), ctx.logical_data_empty(n // 2)
        g = ctx.task_graph("fork and join")
        factor = g.param("factor", 1.0)
        with g:
            split(x, left, right)
            work.on(ctx.devices[0])(left, factor)
            work.on(ctx.devices[-1])(right, factor)
            join(x, left, right)
        for k in range(10):
            g.launch(factor=0.5 + k / 10)
            expected = expected * (0.5 + k / 10) + 1
        print(f"{g.nodes} nodes, launched {g.launches} times on {len(ctx.devices)} device(s)")

    assert np.allclose(values, expected)


if __name__ == "__main__":
    main()
