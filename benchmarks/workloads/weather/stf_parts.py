"""The weather on columns of cells that are given out: a loop for each part, which reads two columns of its neighbours.

state.parts[p - 1]   state.parts[p]   state.parts[p + 1]          a stage along x: read(halo=(0, 0, 2)), periodic
       ··│            │            │            │··               a stage along z: the part alone
"""

from __future__ import annotations

from typing import Any

import contest
import numpy as np
from physics import C0, GAMMA, GRAVITY, SMOOTH, STAGES, at_rest, spacing

import stf


class Weather:
    """The loops of a stage, and the air at rest that they need."""

    def __init__(self, ctx: stf.Context, nz: int, nx: int) -> None:
        self.ctx, self.nz = ctx, nz
        self.dx, self.dz, self.dt = spacing(nz, nx)
        rest = at_rest((np.arange(nz) + 0.5) * self.dz)[:2], at_rest(np.arange(nz + 1) * self.dz)
        self.cells, self.walls = ([ctx.logical_data(item) for item in items] for items in rest)

    def along_x(self, base: Any, old: Any, new: Any, part: float) -> None:
        """Let `new` be `base` and what flows along x in a part of a step, by `old`."""
        damped, rate = SMOOTH * self.dx / (16 * self.dt), part * self.dt / self.dx

        def face(old, k, j, density0, heat0):  # between the second and the third of four cells from j on
            density = (7 * (old[0, k, j + 1] + old[0, k, j + 2]) - old[0, k, j] - old[0, k, j + 3]) / 12 + density0
            u = (7 * (old[1, k, j + 1] + old[1, k, j + 2]) - old[1, k, j] - old[1, k, j + 3]) / 12 / density
            w = (7 * (old[2, k, j + 1] + old[2, k, j + 2]) - old[2, k, j] - old[2, k, j + 3]) / 12 / density
            heat = (7 * (old[3, k, j + 1] + old[3, k, j + 2]) - old[3, k, j] - old[3, k, j + 3]) / 12 + heat0
            return density * u, density * u * u + C0 * heat**GAMMA, density * u * w, u * heat

        def rough(old, q, k, j):
            return damped * (3 * (old[q, k, j + 1] - old[q, k, j + 2]) - old[q, k, j] + old[q, k, j + 3])

        def stage_x(k, i, old, base, density0, heat0, new):
            a0, a1, a2, a3 = face(old, k, i, density0[k], heat0[k])
            b0, b1, b2, b3 = face(old, k, i + 1, density0[k], heat0[k])
            new[0, k, i] = base[0, k, i] - rate * (b0 - a0 + rough(old, 0, k, i + 1) - rough(old, 0, k, i))
            new[1, k, i] = base[1, k, i] - rate * (b1 - a1 + rough(old, 1, k, i + 1) - rough(old, 1, k, i))
            new[2, k, i] = base[2, k, i] - rate * (b2 - a2 + rough(old, 2, k, i + 1) - rough(old, 2, k, i))
            new[3, k, i] = base[3, k, i] - rate * (b3 - a3 + rough(old, 3, k, i + 1) - rough(old, 3, k, i))

        rest = [item.read() for item in self.cells]
        for a, b, c in zip(old.parts, base.parts, new.parts, strict=True):
            edges = a.read(halo=(0, 0, 2), halo_mode="periodic")
            self.ctx.parallel_for(c.shape[1:], edges, b.read(), *rest, c.write())(stage_x)

    def along_z(self, base: Any, old: Any, new: Any, part: float) -> None:
        """Let `new` be `base` and what flows along z, and falls, in a part of a step, by `old`."""
        damped, rate, nz, pull = SMOOTH * self.dz / (16 * self.dt), part * self.dt / self.dz, self.nz, part * self.dt

        def four(old, q, k, i):  # two cells below a face and two above; those beyond a wall are like the last one
            a, b = old[q, max(k - 2, 0), i], old[q, max(k - 1, 0), i]
            return a, b, old[q, min(k, nz - 1), i], old[q, min(k + 1, nz - 1), i]

        def lift(old, k, i):  # the momentum along z, which there is none of beyond a wall
            a = old[2, k - 2, i] if k >= 2 else 0.0
            b = old[2, k - 1, i] if k >= 1 else 0.0
            c = old[2, k, i] if k <= nz - 1 else 0.0
            d = old[2, k + 1, i] if k <= nz - 2 else 0.0
            return a, b, c, d

        def face(old, k, i, density0, heat0, pressure0):
            is_open = 0.0 if k in (0, nz) else 1.0
            a, b, c, d = four(old, 0, k, i)
            density, rough0 = (7 * (b + c) - a - d) / 12 + density0, is_open * (3 * (b - c) - a + d)
            a, b, c, d = four(old, 1, k, i)
            u, rough1 = (7 * (b + c) - a - d) / 12 / density, 3 * (b - c) - a + d
            a, b, c, d = lift(old, k, i)
            w, rough2 = is_open * (7 * (b + c) - a - d) / 12 / density, 3 * (b - c) - a + d
            a, b, c, d = four(old, 3, k, i)
            heat, rough3 = (7 * (b + c) - a - d) / 12 + heat0, 3 * (b - c) - a + d
            first, second = density * w + damped * rough0, density * w * u + damped * rough1
            third = density * w * w + C0 * heat**GAMMA - pressure0 + damped * rough2
            return first, second, third, w * heat + damped * rough3

        def stage_z(k, i, old, base, density0, heat0, pressure0, new):
            a0, a1, a2, a3 = face(old, k, i, density0[k], heat0[k], pressure0[k])
            b0, b1, b2, b3 = face(old, k + 1, i, density0[k + 1], heat0[k + 1], pressure0[k + 1])
            new[0, k, i] = base[0, k, i] - rate * (b0 - a0)
            new[1, k, i] = base[1, k, i] - rate * (b1 - a1)
            new[2, k, i] = base[2, k, i] - rate * (b2 - a2) - pull * GRAVITY * old[0, k, i]
            new[3, k, i] = base[3, k, i] - rate * (b3 - a3)

        rest = [item.read() for item in self.walls]
        for a, b, c in zip(old.parts, base.parts, new.parts, strict=True):
            self.ctx.parallel_for(c.shape[1:], a.read(), b.read(), *rest, c.write())(stage_z)


OPTIONS = {"place": "auto", "placement": stf.placement.owner()}


class Run:
    """The states that the stages of a step need, given out by columns of cells; `now` is the last one."""

    def __init__(self, ctx: stf.Context, start: np.ndarray) -> None:
        place = stf.data_place.composite(ctx.devices, stf.partition(None, None, "blocked"))
        self.now, self.first, self.second, self.last = (
            ctx.logical_data(start.copy(), data_place=place, name=name) for name in ("now", "first", "second", "last")
        )
        self.weather = Weather(ctx, *start.shape[1:])

    def advance(self, steps: int) -> None:
        """Go on for so many steps."""
        x, z = self.weather.along_x, self.weather.along_z
        for step in range(steps):
            for stage in (x, z) if step % 2 == 0 else (z, x):
                olds, news = (self.now, self.first, self.second), (self.first, self.second, self.last)
                for old, new, part in zip(olds, news, STAGES, strict=True):
                    stage(self.now, old, new, part)
                self.now, self.last = self.last, self.now


def program(ctx: stf.Context, start: np.ndarray, steps: int) -> Any:
    """Return the state after so many steps, as data."""
    run = Run(ctx, start)
    run.advance(steps)
    return run.now


def run(devices: str, start: np.ndarray, steps: int) -> tuple[float, np.ndarray]:
    """Return the seconds that so many steps took, after two that were not timed, and the state."""
    with stf.context(devices=devices, **OPTIONS) as ctx:
        states = Run(ctx, start)
        states.advance(2)
        with contest.timed(ctx.synchronize) as taken:
            states.advance(steps)
        return taken.seconds, states.now.numpy()
