"""The Mandelbrot set by a Python function for each pixel, its area by a reduction, and a picture.

    counts ---written---> mandelbrot --counts--> area ---area---> wait

The two loops are compiled for the device; on a CPU they are cut over its cores. `steps` is read at the call: another
number compiles nothing. `--out FOLDER` writes mandelbrot.png, with Matplotlib.
"""

import argparse
import pathlib

import numpy as np

import stf

HEIGHT, WIDTH = 480, 640
LEFT, RIGHT, TOP = -2.0, 0.5, 1.125  # of the plane


def picture(steps: int) -> tuple[np.ndarray, float]:
    """How many steps each point stays near zero, and the area of those that never leave."""
    pixel = (RIGHT - LEFT) / WIDTH, 2 * TOP / HEIGHT
    with stf.context() as ctx:
        counts = ctx.logical_data_empty((HEIGHT, WIDTH), np.int32, name="counts")
        area = ctx.logical_data_empty((), float, name="area")

        def mandelbrot(i, j, counts):
            a, b = LEFT + (j + 0.5) * pixel[0], TOP - (i + 0.5) * pixel[1]
            x, y, n = 0.0, 0.0, 0
            while n < steps and x * x + y * y <= 4.0:
                x, y, n = x * x - y * y + a, 2.0 * x * y + b, n + 1
            counts[i, j] = n

        ctx.parallel_for(counts.shape, counts.write())(mandelbrot)
        inside = ctx.parallel_for(counts.shape, counts.read(), area.reduce(stf.reducer.sum))
        inside(lambda i, j, counts: pixel[0] * pixel[1] if counts[i, j] == steps else 0.0)
        return counts.numpy(), ctx.wait(area)


def by_numpy(steps: int) -> np.ndarray:
    """The same, an array operation at a time."""
    a = LEFT + (np.arange(WIDTH) + 0.5) * ((RIGHT - LEFT) / WIDTH)
    b = TOP - (np.arange(HEIGHT)[:, None] + 0.5) * (2 * TOP / HEIGHT)
    x, y, n = np.zeros((HEIGHT, WIDTH)), np.zeros((HEIGHT, WIDTH)), np.zeros((HEIGHT, WIDTH), np.int32)
    for _ in range(steps):
        stays = x * x + y * y <= 4.0
        n += stays
        x, y = np.where(stays, x * x - y * y + a, x), np.where(stays, 2.0 * x * y + b, y)
    return n


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, help="folder for the picture")
    out = parser.parse_args().out
    counts, area = picture(60)
    assert np.array_equal(counts, by_numpy(60))
    counts, area = picture(400)
    assert abs(area - 1.5066) < 0.02  # T. Foerstemann: 1.5065918849 +- 0.0000000028, by counting pixels
    print(f"area {area:.4f}, {np.mean(counts == 400):.1%} of the picture")
    if out is not None:
        from matplotlib import image

        out.mkdir(parents=True, exist_ok=True)
        image.imsave(out / "mandelbrot.png", np.log1p(counts % 400), cmap="magma")


if __name__ == "__main__":
    main()
