"""Forecast atmospheric CO2 by Gaussian-process regression, with a tiled Cholesky factorization as its engine.

    potrf(0) --> trsm(1,0) --> syrk(1,0) --> potrf(1) --> trsm(2,1) --> syrk(2,1) --> potrf(2) --> ...
        |            '-------> gemm(2,1,0) ------------------^              ^
        '------> trsm(2,0) ------^  '--> syrk(2,0) -------------------------'

The covariance matrix of 2,225 weekly values is assembled, factored and used in tiles. Every tile is a logical data and every call of
LAPACK a task: which may run together follows from what they read and write, and with several devices the copies follow from the places.

    python examples/gp_cholesky.py --out demo                     the regression, its pictures, and the factorization beside SciPy's
    python examples/gp_cholesky.py --devices cpu:4 --out demo     the same on four emulated devices with memories of their own
    python examples/gp_cholesky.py --n 8192 --repeat 5            the factorization alone, of a synthetic matrix
    python examples/gp_cholesky.py --csv my.csv --date-column day --value-column level --out mine
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys

import _blas as blas
import numpy as np
import scipy
from gp import benchmark, model, pictures
from gp.cholesky import block_cyclic, factor
from gp.progress import Progress
from gp.regression import covariance_matrix, regress
from gp.series import MAUNA_LOA, read_series

import stf


def main(arguments: list[str] | None = None) -> None:
    options = _parse(arguments)
    if options.n is None:
        _run_regression(options)
    else:
        _run_benchmark(options, benchmark.synthetic_matrix(options.n))
    if options.out is not None:
        _draw_graph(options)


def _run_regression(options: argparse.Namespace) -> None:
    series = read_series(options.csv, options.date_column, options.value_column)
    data, held_out = series.split(series.years[-1] - options.hold_out) if options.hold_out else (series, series.split(np.inf)[1])
    _say("data", f"{len(data):,} values of {data.label}, {data.years[0]:.1f} to {data.years[-1]:.1f}; {data.missing} gaps")

    parameters = model.WEEKLY_CO2 if options.csv == MAUNA_LOA else model.WEEKLY_CO2.scaled(data.values.std() / 17.4)
    if options.fit:
        with Progress("fit") as progress:
            parameters = model.fit(data, parameters, progress=progress)
        _say("fitted", ", ".join(f"{name} {value:.3g}" for name, value in vars(parameters).items()))

    at = np.arange(data.years[0], data.years[-1] + options.years, 1 / 24)
    with blas.blas_threads(1), Progress("regression") as progress:
        result = regress(data, at, parameters, tile=options.tile or 256, devices=options.devices, progress=progress)
    _say("regression", f"{_work(result.statistics)}; {result.seconds:.2f} s on {_where(options.devices)}")
    _say("likelihood", f"log p(y) = {result.log_likelihood:.1f}")
    sigma = np.hypot(result.deviation, parameters.noise)
    _say("forecast", f"{result.mean[-1]:.1f} ± {1.96 * sigma[-1]:.1f} in {at[-1]:.0f} (95 %)")
    if len(held_out):
        inside = np.abs(np.interp(held_out.years, at, result.mean) - held_out.values) < 1.96 * np.interp(held_out.years, at, sigma)
        _say("held out", f"{inside.mean():.1%} of the last {options.hold_out:g} years' {len(held_out):,} values lie in the 95 % band")

    if options.out is not None:
        pictures.draw_fit(_output(options, "fit.png"), data, held_out, at, result.mean, sigma)
        title = f"Gaussian-process regression on {_where(options.devices)}, tiles of {options.tile or 256}"
        pictures.draw_timeline(_output(options, "timeline.png"), result.trace, title)
    _compare(options, covariance_matrix(data, parameters), options.tile or 256)


def _run_benchmark(options: argparse.Namespace, matrix: np.ndarray) -> None:
    tile = options.tile or (512 if options.n >= 4096 else 256)
    trace = _compare(options, matrix, tile)
    if options.out is not None:
        title = f"Cholesky of order {options.n:,} on {_where(options.devices)}, tiles of {tile}"
        pictures.draw_timeline(_output(options, "timeline.png"), trace, title)


def _compare(options: argparse.Namespace, matrix: np.ndarray, tile: int) -> dict:
    """Factor by tiles and by SciPy, say how they compare, and return the trace of the tiled run."""
    cores = blas.core_count()
    with Progress("factorization") as progress:
        found = benchmark.compare(matrix, tile=tile, devices=options.devices, repeat=options.repeat, progress=progress)
    _say("cholesky", f"order {len(matrix):,}, tiles of {tile}: {_work(found.statistics)}; median of {options.repeat}, on {cores} cores")
    for name, seconds in (
        (f"stf on {_where(options.devices)}", found.tiled_s),
        (f"scipy.linalg.cholesky ({scipy.__version__})", found.scipy_s),
        ("LAPACK dpotrf, called directly", found.lapack_s),
    ):
        _say("", f"{name:<40} {np.median(seconds):8.4f} s {found.gflops(seconds):8.1f} GFLOP/s")
    _say("ratio", f"stf takes {found.ratio:.2f} of SciPy's time")
    _say("residual", f"|L Lᵀ - A| / |A| = {found.residual:.1e}")
    if not found.residual < 1e-12:
        sys.exit("the factorization is wrong")
    return found.trace


def _draw_graph(options: argparse.Namespace, count: int = 5, tile: int = 8) -> None:
    """Draw the tasks of a factorization that is small enough to be read: the graph does not depend on the size of a tile."""
    from stf.observe import draw

    matrix = benchmark.synthetic_matrix(count * tile)
    with stf.context(devices=options.devices, name="small") as ctx:
        factor(ctx.logical_data(matrix, name="A").tiles((tile, tile)), block_cyclic(ctx.devices))
        ctx.synchronize()
        dot = ctx.dot()
    _output(options, "graph.dot").write_text(dot, encoding="utf-8")
    for name in ("graph.svg", "graph.png"):
        draw.render(dot, _output(options, name))


def _output(options: argparse.Namespace, name: str) -> pathlib.Path:
    options.out.mkdir(parents=True, exist_ok=True)
    _say("wrote", str(options.out / name))
    return options.out / name


def _work(statistics: dict) -> str:
    return f"{statistics['tasks']:,} tasks, {statistics['copies']:,} copies ({statistics['copied_bytes'] / 2**20:,.1f} MiB)"


def _where(devices: str) -> str:
    kind, _, count = devices.partition(":")
    return f"{count} emulated devices" if count else f"the {kind.upper()}"


def _say(what: str, text: str) -> None:
    print(f"{what:<12}{text}", flush=True)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", default=os.environ.get("STF_DEVICES", "cpu"), help="cpu, or cpu:N for N emulated devices (default: STF_DEVICES, else cpu)")
    parser.add_argument("--tile", type=_positive, help="rows and columns of a tile (default: 256, or 512 from order 4,096 on)")
    parser.add_argument("--out", type=pathlib.Path, help="folder for the pictures (default: none are drawn)")
    parser.add_argument("--n", type=_positive, help="factor a synthetic matrix of this order instead")
    parser.add_argument("--repeat", type=_positive, default=5, help="runs of each factorization (default: 5)")
    parser.add_argument("--csv", type=pathlib.Path, default=MAUNA_LOA, help="a series of your own, with a season of a year")
    parser.add_argument("--date-column", default="date", help="its column of dates: 19580329, 1958-03-29 or 1958.24")
    parser.add_argument("--value-column", default="co2", help="its column of values")
    parser.add_argument("--years", type=float, default=20.0, help="how far to forecast (default: 20)")
    parser.add_argument("--hold-out", type=float, default=0.0, metavar="YEARS", help="hide the last years from the fit, and check the forecast with them")
    parser.add_argument("--fit", action=argparse.BooleanOptionalAction, help="fit the hyper-parameters (default: for a series of your own)")
    options = parser.parse_args(arguments)
    if options.fit is None:
        options.fit = options.csv != MAUNA_LOA
    if not options.csv.is_file():
        parser.error(f"there is no file {options.csv}")
    return options


def _positive(text: str) -> int:
    value = int(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


if __name__ == "__main__":
    main()
