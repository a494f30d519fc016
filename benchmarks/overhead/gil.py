"""Which functions run in parallel on threads: whether two threads that call one overlap, or take turns for the GIL.

    python benchmarks/overhead/gil.py
    python benchmarks/overhead/gil.py --rounds 9 --json build/gil.json

Each function works on arrays of its own for each thread, with BLAS held to one thread. Overlap is the time of both calls
in a row, divided by the time of both at once: 2.0 if they run in parallel, 1.0 if they take turns. What is compared runs
in turn; the shortest of the rounds counts. It needs two cores that nobody else uses.
"""

from __future__ import annotations

import os

os.environ.update(OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1", OMP_NUM_THREADS="1")

import argparse
import json
import pathlib
import sys
import threading
import time
from collections.abc import Callable

import numba
import numpy as np
import scipy.fft
import scipy.linalg
import scipy.sparse
import scipy.special
from report import print_table, show_machine

APART = 1.4  # below, calls took turns for at least a part of their time
BODY_S = 0.02  # of one call, as often as it is repeated

Work = Callable[[], object]


def loop(x, y):
    for i in range(x.size):
        y[i] = np.sqrt(x[i]) + np.sin(x[i])


compiled = numba.njit(loop)
released = numba.njit(nogil=True)(loop)


def python_loop(numbers: list[float]) -> float:
    total = 0.0
    for number in numbers:
        total += number * number
    return total


def functions() -> dict[str, Callable[[], Work]]:
    """What is measured: each makes the work of one thread, with arrays of its own."""
    n = 400

    def arrays() -> tuple[np.ndarray, np.ndarray]:
        x = np.random.default_rng(0).random(200_000)
        return x, np.empty_like(x)

    def matrix() -> np.ndarray:
        a = np.random.default_rng(0).random((n, n))
        return a @ a.T + n * np.eye(n)

    def sparse() -> tuple[object, np.ndarray]:
        return scipy.sparse.random_array((20_000, 20_000), density=5e-4, format="csr", rng=0), np.ones(20_000)

    def on(make: Callable[[], tuple[object, ...]], call: Callable[..., object]) -> Callable[[], Work]:
        def work() -> Work:
            given = make()
            return lambda: call(*given)

        return work

    def of_arrays(call: Callable[..., object]) -> Callable[[], Work]:
        return on(arrays, call)

    def of_matrix(call: Callable[..., object]) -> Callable[[], Work]:
        return on(lambda: (matrix(), np.empty((n, n))), call)

    return {
        "numpy: sin(x, out=y)": of_arrays(lambda x, y: np.sin(x, out=y)),
        "numpy: y += 2 * x": of_arrays(lambda x, y: np.add(y, 2 * x, out=y)),
        "numpy: x.sum()": of_arrays(lambda x, y: x.sum()),
        "numpy: sort": of_arrays(lambda x, y: np.sort(x)),
        "numpy: fft": of_arrays(lambda x, y: np.fft.rfft(x)),
        "numpy: a @ b": of_matrix(lambda a, out: np.matmul(a, a, out=out)),
        "numpy: linalg.cholesky": of_matrix(lambda a, out: np.linalg.cholesky(a)),
        "numpy: linalg.solve": of_matrix(lambda a, out: np.linalg.solve(a, a)),
        "numpy: fancy indexing": of_arrays(lambda x, y: x[np.arange(0, x.size, 2)]),
        "scipy: linalg.cholesky": of_matrix(lambda a, out: scipy.linalg.cholesky(a, check_finite=False)),
        "scipy: linalg.solve_triangular": of_matrix(
            lambda a, out: scipy.linalg.solve_triangular(a, a, lower=True, check_finite=False)
        ),
        "scipy: linalg.blas.dgemm": of_matrix(lambda a, out: scipy.linalg.blas.dgemm(1.0, a, a)),
        "scipy: special.erf": of_arrays(lambda x, y: scipy.special.erf(x, out=y)),
        "scipy: fft.rfft": of_arrays(lambda x, y: scipy.fft.rfft(x)),
        "scipy: sparse @ vector": on(sparse, lambda a, v: a @ v),
        "numba: @njit": of_arrays(compiled),
        "numba: @njit(nogil=True)": of_arrays(released),
        "python: a loop": on(lambda: ([0.5] * 200_000,), python_loop),
    }


def repeated(work: Work, times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        work()
    return time.perf_counter() - start


def at_once(works: list[Work], times: int) -> float:
    """Seconds until all threads are done with their work."""
    gate = threading.Barrier(len(works) + 1)

    def run(work: Work) -> None:
        gate.wait()
        repeated(work, times)
        gate.wait()

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    gate.wait()
    start = time.perf_counter()
    gate.wait()
    seconds = time.perf_counter() - start
    for thread in threads:
        thread.join()
    return seconds


def overlap(make: Callable[[], Work], rounds: int, body_s: float) -> tuple[float, float]:
    """Microseconds of one call, and how far two threads overlap."""
    works = [make(), make()]
    for work in works:
        work()
    call_s = repeated(works[0], 3) / 3
    times = max(int(body_s / call_s), 1)
    rows, both = [], []
    for _ in range(rounds):
        rows.append(repeated(works[0], times) + repeated(works[1], times))
        both.append(at_once(works, times))
    return call_s * 1e6, min(rows) / min(both)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--body-s", type=float, default=BODY_S, help="seconds of work for each thread and round")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args(arguments)
    show_machine()
    rows = [(name, *overlap(make, options.rounds, options.body_s)) for name, make in functions().items()]
    print_table(
        ("function", "µs a call", "overlap", "in parallel"),
        [(name, f"{us:,.0f}", f"{found:.2f}", "yes" if found > APART else "no") for name, us, found in rows],
        "lrrl",
        grouped=False,
    )
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({name: {"call_us": us, "overlap": found} for name, us, found in rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
