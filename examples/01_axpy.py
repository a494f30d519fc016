"""Y = Y + alpha X, twice: the smallest program.

    X ---read---.--------------.
                v              v
              axpy(2) --Y--> axpy(3) --> Y

The two tasks read X and write Y, so the second waits for the first; nobody says so. Where there is a second
device, it runs the second task, and the two arrays travel there because the task is there.
"""

import numpy as np

import stf


@stf.task
def axpy(alpha: float, x: stf.Read, y: stf.ReadWrite) -> None:
    y += alpha * x


def main() -> None:
    X, Y = np.arange(1 << 16, dtype=np.float64), np.ones(1 << 16)
    with stf.context() as ctx:
        x, y = ctx.logical_data(X, name="X"), ctx.logical_data(Y, name="Y")
        axpy(2.0, x, y)
        axpy.on(ctx.devices[len(ctx.devices) - 1])(3.0, x, y)
    # Leaving the block waits for the tasks and brings Y home.
    assert np.array_equal(Y, 1.0 + 5.0 * X)
    print(f"Y[:4] = {Y[:4]}")


if __name__ == "__main__":
    main()
