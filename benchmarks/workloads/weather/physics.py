"""Air at rest, a warm bubble in it, and what is conserved, as in miniWeather (M. Norman, 2020).

The state of a cell is density, momentum along x, momentum along z, and density times potential temperature, as
differences from air at rest. The cells are a box that is periodic along x, between two walls along z.
"""

from __future__ import annotations

import numpy as np

LENGTH, HEIGHT = 20_000.0, 10_000.0  # m
GRAVITY, CP, RD, P0, THETA0 = 9.8, 1004.0, 287.0, 1e5, 300.0  # m/s2, J/(kg K), J/(kg K), Pa, K
GAMMA = CP / (CP - RD)
C0 = (RD / P0 ** (RD / CP)) ** GAMMA  # pressure = C0 (density x potential temperature)^GAMMA
SOUND, SMOOTH = 450.0, 0.05  # m/s, and how much fourth differences are damped
STAGES = (1 / 3, 1 / 2, 1.0)  # of a step, as parts of it


def spacing(nz: int, nx: int) -> tuple[float, float, float]:
    """Return the size of a cell along x and z in m, and the length of a step in s."""
    dx, dz = LENGTH / nx, HEIGHT / nz
    return dx, dz, 1.5 * min(dx, dz) / SOUND


def at_rest(z: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return density, density times potential temperature, and pressure at a height."""
    pressure = P0 * (1 - GRAVITY * z / (CP * THETA0)) ** (CP / RD)
    heat = (pressure / C0) ** (1 / GAMMA)
    return heat / THETA0, heat, pressure


def bubble(nz: int, nx: int) -> np.ndarray:
    """Return the state of air that is up to 3 K warmer within 2 km of a point 2 km above the ground."""
    x, z = (np.arange(nx) + 0.5) * LENGTH / nx, (np.arange(nz)[:, None] + 0.5) * HEIGHT / nz
    distance = np.hypot((x - LENGTH / 2) / 2000, (z - 2000) / 2000)
    state = np.zeros((4, nz, nx))
    state[3] = np.where(distance <= 1, 3 * np.cos(np.pi / 2 * distance) ** 2, 0) * at_rest(z)[0]
    return state


def mass_and_energy(state: np.ndarray) -> tuple[float, float]:
    """Return the mass and the energy of all air, in kg and J for each m of depth."""
    _, nz, nx = state.shape
    dx, dz, _ = spacing(nz, nx)
    z = (np.arange(nz)[:, None] + 0.5) * dz
    density0, heat0, _ = at_rest(z)
    density, heat = state[0] + density0, state[3] + heat0
    pressure = C0 * heat**GAMMA
    energy = pressure / (GAMMA - 1) + (state[1] ** 2 + state[2] ** 2) / (2 * density) + density * GRAVITY * z
    return float(density.sum() * dx * dz), float(energy.sum() * dx * dz)
