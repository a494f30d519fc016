"""Automatic placement: random programs under every rule, and values that do not depend on the number of devices."""

from __future__ import annotations

import random

import drivers
import graph_programs
import numpy as np
import pytest
from drivers import ON_CUDA
from helpers import QUICK, put
from programs import run_program

import stf
from stf import config

PROGRAMS = 100 if QUICK else 150 if config.pure or ON_CUDA else 1200
CHUNK = 50


@pytest.fixture
def places_chosen(monkeypatch):
    monkeypatch.setattr(drivers, "PLACE", "auto")


@pytest.mark.usefixtures("places_chosen")
@pytest.mark.parametrize("first", range(100_000, 100_000 + PROGRAMS, CHUNK))
def test_programs_compute_what_one_task_at_a_time_does(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run_program(seed)


@pytest.mark.usefixtures("places_chosen")
@pytest.mark.parametrize("first", range(100_000, 100_000 + PROGRAMS, CHUNK))
def test_recorded_programs_compute_what_numpy_does(first: int) -> None:
    for seed in range(first, first + CHUNK):
        graph_programs.run_program(seed)


@stf.task
def combine(x: stf.ReadWrite, y: stf.Read, factor):
    put(x, np.sin(x) * factor + y)


@stf.task
def replace(x: stf.Write, y: stf.Read):
    put(x, y * 1.1)


def results(seed: int, devices: str, placement: object) -> list[bytes]:
    """What a random element-wise program leaves."""
    rng = random.Random(seed)
    size = rng.choice([3, 100, 5000])
    arrays = [np.random.default_rng(seed + i).random(size) for i in range(6)]
    with stf.context(devices=devices, place="auto", placement=placement) as ctx:
        data = [ctx.logical_data(array) for array in arrays]
        for _ in range(60):
            x, y = rng.sample(data, 2)
            if rng.random() < 0.7:
                combine(x, y, rng.random())
            elif rng.random() < 0.5:
                replace(x, y)
            else:
                ctx.copy(y, x)
    return [array.tobytes() for array in arrays]


def at_random(task, places):
    return places[hash(task.call_site) % len(places) if len(task.accesses) > 1 else -1]


@pytest.mark.skipif(ON_CUDA, reason="bodies are NumPy's")
@pytest.mark.parametrize("seed", range(3 if QUICK else 10))
def test_values_do_not_depend_on_the_devices(seed: int) -> None:
    expected = results(seed, "cpu:1", None)
    for count in range(2, 9):
        for rule in (
            stf.placement.eft(),
            stf.placement.eft(move_weight=8),
            stf.placement.planned(),
            stf.placement.planned(window=5, move_weight=1),
            stf.placement.owner(),
            at_random,
        ):
            assert results(seed, f"cpu:{count}", rule) == expected, (seed, count, rule)
