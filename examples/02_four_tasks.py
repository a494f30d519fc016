"""Four tasks on three arrays, and the graph that follows from what they read and write.

              T1  X rw
             /  \\
    X read  T2   T3  X read
    Y rw     \\  /    Z rw
              T4  Y read, Z rw

T2 and T3 only read X, so they may run at the same time, here on different devices where there are some. The
tasks are written in the four ways there are: a function, a decorated body, a callable, and a with-block.
"""

import numpy as np

import stf


@stf.task
def add_one(x: stf.ReadWrite) -> None:
    x += 1.0


def main() -> None:
    X, Y, Z = np.full(1000, 1.0), np.full(1000, 2.0), np.full(1000, 3.0)
    with stf.context() as ctx:
        x, y, z = (ctx.logical_data(array, name=name) for name, array in zip("XYZ", (X, Y, Z), strict=True))
        first, last = ctx.devices[0], ctx.devices[len(ctx.devices) - 1]

        add_one.named("T1")(x)

        @ctx.task(first, x.read(), y.rw(), name="T2")
        def _(x, y):
            y *= x

        def scale(x, z):
            z *= 10.0 * x

        ctx.task(last, x.read(), z.rw(), name="T3")(scale)

        with ctx.task(first, y.read(), z.rw(), name="T4") as t:
            y_view, z_view = t.arrays()
            z_view -= y_view

    assert np.all(X == 2.0)
    assert np.all(Y == 4.0)
    assert np.all(Z == 3.0 * 20.0 - 4.0)
    print(f"X = {X[0]}, Y = {Y[0]}, Z = {Z[0]}")


if __name__ == "__main__":
    main()
