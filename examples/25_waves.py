"""Waves of light through two slits, by finite differences in time and space (K. S. Yee, 1966), and a picture.

    ez --curl--> hx, hy --curl--> ez ...          ez --far--> brightness on a screen

A Python function for each cell; the speeds of a step are numbers of the closure. `--out FOLDER` writes waves.png, with
Matplotlib.
"""

import argparse
import math
import pathlib

import numpy as np

import stf

HEIGHT, WIDTH, STEPS = 240, 320, 600
WAVE, SLIT, APART, WALL = 16.0, 12, 60, 100  # in cells: a wave, a slit, the slits from each other, the wall
COURANT = 0.5


def medium(height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """How much of the electric field stays in a step, and how much the magnetic one adds: a wall, and damped edges."""
    i, j = np.indices((height, width))
    edge = np.minimum.reduce([i, j, height - 1 - i, width - 1 - j])
    stays = 1.0 - 0.3 * np.clip(1 - edge / 20, 0, 1) ** 3
    centers = (height - APART) // 2, (height + APART) // 2
    is_slit = np.logical_or.reduce([abs(i - center) <= SLIT // 2 for center in centers])
    is_wall = (abs(j - WALL) <= 2) & ~is_slit
    return np.where(is_wall, 0.0, stays), np.where(is_wall, 0.0, COURANT)


def shine(height: int, width: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """The electric field after so many steps, and its square on a screen, on average over the last third of them."""
    keep, gain = medium(height, width)
    with stf.context() as ctx:
        ez, hx, hy = (ctx.logical_data_zeros((height, width)) for _ in range(3))
        keeps, gains = ctx.logical_data(keep), ctx.logical_data(gain)
        screen = ctx.logical_data_zeros(height)
        inner = stf.box[1 : height - 1, 1 : width - 1]

        def magnetic(i, j, ez, hx, hy):
            hx[i, j] -= COURANT * (ez[i + 1, j] - ez[i, j])
            hy[i, j] += COURANT * (ez[i, j + 1] - ez[i, j])

        def electric(i, j, hx, hy, keeps, gains, ez):
            curl = hy[i, j] - hy[i, j - 1] - hx[i, j] + hx[i - 1, j]
            ez[i, j] = keeps[i, j] * ez[i, j] + gains[i, j] * curl

        for step in range(steps):
            phase = math.sin(2 * math.pi * COURANT * step / WAVE) * min(1.0, step / 60)
            ctx.parallel_for(inner, ez.read(), hx.rw(), hy.rw())(magnetic)
            ctx.parallel_for(inner, hx.read(), hy.read(), keeps.read(), gains.read(), ez.rw())(electric)

            @ctx.parallel_for(stf.box[30 : height - 30], ez.rw())
            def lamp(i, ez):  # a plane wave
                ez[i, 30] += COURANT * phase

            if step >= 2 * steps // 3:

                @ctx.parallel_for(screen.shape, ez.read(), screen.rw())
                def expose(i, ez, screen):
                    screen[i] += ez[i, width - 30] ** 2 / (steps / 3)

        return ez.numpy(), screen.numpy()


def by_numpy(height: int, width: int, steps: int) -> np.ndarray:
    """The field, an array operation at a time."""
    keep, gain = medium(height, width)
    ez, hx, hy = (np.zeros((height, width)) for _ in range(3))
    at = np.s_[1:-1, 1:-1]
    for step in range(steps):
        hx[at] -= COURANT * (ez[2:, 1:-1] - ez[at])
        hy[at] += COURANT * (ez[1:-1, 2:] - ez[at])
        curl = hy[at] - hy[1:-1, :-2] - hx[at] + hx[:-2, 1:-1]
        ez[at] = keep[at] * ez[at] + gain[at] * curl
        ez[30:-30, 30] += COURANT * math.sin(2 * math.pi * COURANT * step / WAVE) * min(1.0, step / 60)
    return ez


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, help="folder for the picture")
    out = parser.parse_args().out
    assert np.allclose(shine(HEIGHT, WIDTH, 150)[0], by_numpy(HEIGHT, WIDTH, 150), atol=1e-12)
    field, screen = shine(HEIGHT, WIDTH, STEPS)
    peaks = [
        i for i in range(40, HEIGHT - 40) if screen[i] == screen[i - 8 : i + 9].max() and screen[i] > 0.1 * screen.max()
    ]
    print(f"{STEPS} steps of {HEIGHT} x {WIDTH} cells; bright stripes of the screen at {peaks}")
    distance = WIDTH - 30 - WALL
    first = distance * math.tan(math.asin(WAVE / APART))  # T. Young: where the paths differ by a wave
    middle = min(peaks, key=lambda i: abs(i - HEIGHT / 2))
    assert abs(middle - HEIGHT / 2) <= 4
    assert any(abs(abs(i - middle) - first) < 0.2 * first for i in peaks)
    if out is not None:
        from matplotlib import image

        out.mkdir(parents=True, exist_ok=True)
        most = abs(field[:, WALL:]).max()
        image.imsave(out / "waves.png", field, cmap="RdBu", vmin=-most, vmax=most)


if __name__ == "__main__":
    main()
