"""Forecast atmospheric CO2 by Gaussian-process regression, with a tiled Cholesky factorization as its engine.

    potrf(0) --> trsm(1,0) --> syrk(1,0) --> potrf(1) --> trsm(2,1) --> syrk(2,1) --> potrf(2) --> ...
        |            '-------> gemm(2,1,0) ------------------^              ^
        '------> trsm(2,0) ------^  '--> syrk(2,0) -------------------------'

The regression gets the weekly values up to 1991, and forecasts the ten years after them. These were measured too:
the picture shows both, and the program says how far apart they are. About a quarter of what was measured lies
outside of the 95 % band: from 1992 on, CO2 grew more slowly than ever before in the record.

The covariance matrix of 1,703 weekly values is assembled, factored and used in tiles. Every tile is a logical
data and every call of LAPACK a task: which may run together follows from what they read and write, and with
several devices the copies follow from the places.

    the regression, its pictures, and the factorization beside SciPy's:
        python examples/gp_cholesky.py --out demo
    the same on four emulated devices with memories of their own:
        python examples/gp_cholesky.py --devices cpu:4 --out demo
    the factorization alone, of a synthetic matrix:
        python examples/gp_cholesky.py --n 8192
    a series of your own:
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
from gp import benchmark, model
from gp.progress import Progress
from gp.regression import covariance_matrix, regress
from gp.series import MAUNA_LOA, Series, read_series

STEP_YEARS = 1 / 24
DEFAULT_YEARS = 20.0


def main(arguments: list[str] | None = None) -> None:
    options = _parse(arguments)
    if options.n is None:
        data, parameters, trace = _predict(options)
        _compare(options, covariance_matrix(data, parameters))
        title = f"Gaussian-process regression on {_where(options)}, tiles of {options.tile}"
    else:
        matrix = benchmark.synthetic_matrix(options.n)
        _compare(options, matrix)
        title = f"Cholesky of order {options.n:,} on {_where(options)}, tiles of {options.tile}"
        if options.out is not None:  # seen in a run of its own: watching is not free
            trace = benchmark.factor_tiled(matrix, options.tile, options.devices, observe="trace")[1].trace()
    if options.out is not None:
        _draw_runs(options, trace, title)


def _predict(options: argparse.Namespace) -> tuple[Series, model.Hyperparameters, dict]:
    """Run the regression, say what it found and draw it; return what it was made from, and its trace."""
    series = read_series(options.csv, options.date_column, options.value_column)
    data, held_out = series.split(series.years[-1] - options.hold_out if options.hold_out else np.inf)
    years = options.years or options.hold_out or DEFAULT_YEARS
    span = f"{data.years[0]:.1f} to {data.years[-1]:.1f}"
    _say("data", f"{len(data):,} values of {data.label}, {span}; {series.missing} gaps")
    parameters = _parameters(options, data)

    at = np.arange(data.years[0], data.years[-1] + years + STEP_YEARS, STEP_YEARS)
    with Progress("regression") as progress:
        result = regress(data, at, parameters, tile=options.tile, devices=options.devices, progress=progress)
    sigma = np.hypot(result.deviation, parameters.noise)
    _say("regression", f"{_work(result.statistics)}; {result.seconds:.2f} s on {_where(options)}")
    _say("likelihood", f"log p(y) = {result.log_likelihood:.1f}")
    _say("forecast", f"{result.mean[-1]:.1f} ± {1.96 * sigma[-1]:.1f} at {at[-1]:.1f} (95 %)")
    if len(held_out):
        error = np.interp(held_out.years, at, result.mean) - held_out.values
        inside = (np.abs(error) < 1.96 * np.interp(held_out.years, at, sigma)).mean()
        _say(
            "held out",
            f"{len(held_out):,} values up to {held_out.years[-1]:.1f}, the last is {held_out.values[-1]:.1f}",
        )
        _say("", f"off by {np.sqrt((error**2).mean()):.2f} (root mean square); {inside:.1%} lie in the 95 % band")

    if options.out is not None:
        from gp.plot import draw_fit

        draw_fit(_output(options, "fit.png"), data, held_out, at, result.mean, sigma)
    return data, parameters, result.trace


def _parameters(options: argparse.Namespace, data: Series) -> model.Hyperparameters:
    start = model.WEEKLY_CO2
    if options.csv != MAUNA_LOA:
        start = start.scaled(data.values.std() / model.WEEKLY_CO2_DEVIATION)
    if not options.fit:
        return start
    with Progress("fit") as progress:
        fitted = model.fit(data, start, progress=progress)
    _say("fitted", ", ".join(f"{name} {value:.3g}" for name, value in vars(fitted).items()))
    return fitted


def _compare(options: argparse.Namespace, matrix: np.ndarray) -> None:
    """Factor by tiles and by SciPy, and say how they compare."""
    with Progress("factorization") as progress:
        found = benchmark.compare(
            matrix, tile=options.tile, devices=options.devices, repeat=options.repeat, progress=progress
        )
    _say("cholesky", f"order {len(matrix):,}, tiles of {options.tile}: {_work(found.statistics)}")
    for name, seconds in (
        (f"stf on {_where(options)}", found.tiled_s),
        (f"scipy.linalg.cholesky ({scipy.__version__})", found.scipy_s),
        ("LAPACK dpotrf, called directly", found.lapack_s),
    ):
        _say("", f"{name:<34} {np.median(seconds):8.4f} s {found.gflops(seconds):8.1f} GFLOP/s")
    cores = blas.core_count()
    _say("ratio", f"stf takes {found.ratio:.2f} of SciPy's time (median of {options.repeat}, {cores} cores)")
    _say("residual", f"|L Lᵀ - A| / |A| = {found.residual:.1e}")
    if not found.residual < 1e-12:
        sys.exit("the factorization is wrong")


def _draw_runs(options: argparse.Namespace, trace: dict, title: str) -> None:
    """Draw when what ran, and the graph of a factorization that is small enough to be read."""
    from stf.observe import draw, timeline

    timeline.timeline(trace, _output(options, "timeline.png"), title)
    _, ctx = benchmark.factor_tiled(benchmark.synthetic_matrix(40), 8, options.devices, observe="dot")
    dot = ctx.dot(color_by_device=len(ctx.devices) > 1)
    _output(options, "graph.dot").write_text(dot, encoding="utf-8")
    for name in ("graph.svg", "graph.png"):
        draw.render(dot, _output(options, name))


def _output(options: argparse.Namespace, name: str) -> pathlib.Path:
    options.out.mkdir(parents=True, exist_ok=True)
    _say("wrote", str(options.out / name))
    return options.out / name


def _work(statistics) -> str:
    copied_mib = statistics.total_copied_bytes / 2**20
    return f"{statistics.total_tasks:,} tasks, {statistics.total_copies:,} copies ({copied_mib:,.1f} MiB)"


def _where(options: argparse.Namespace) -> str:
    kind, _, count = options.devices.partition(":")
    return f"{count} emulated devices" if count else f"the {kind.upper()}"


def _say(what: str, text: str) -> None:
    print(f"{what:<12}{text}", flush=True)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    devices = os.environ.get("STF_DEVICES", "cpu")
    add("--devices", default=devices, help="cpu, or cpu:N for N emulated ones (default: STF_DEVICES or cpu)")
    add("--tile", type=_positive, help="rows and columns of a tile (default: 256, or 512 from --n 4096 on)")
    add("--out", type=pathlib.Path, help="folder for the pictures (default: draw none)")
    add("--n", type=_positive, help="factor a synthetic matrix of this order instead")
    add("--repeat", type=_positive, default=5, help="runs of each factorization (default: 5)")
    add("--csv", type=pathlib.Path, default=MAUNA_LOA, help="a series of your own, with a yearly season")
    add("--date-column", default="date", help="its column of dates: 19580329, 1958-03-29 or 1958.24")
    add("--value-column", default="co2", help="its column of values")
    add("--years", type=float, help="how far to forecast (default: as many as are held out, else 20)")
    held_out = model.WEEKLY_CO2_HELD_OUT_YEARS
    hold_help = f"forecast the last years from those before (default: {held_out:g}, or 0 if the series is yours)"
    add("--hold-out", type=float, metavar="YEARS", help=hold_help)
    fit_help = f"fit the model (default: if the series is yours, or more than {held_out:g} years are held out)"
    add("--fit", action=argparse.BooleanOptionalAction, help=fit_help)
    options = parser.parse_args(arguments)
    is_mine = options.csv != MAUNA_LOA
    if options.hold_out is None:
        options.hold_out = 0.0 if is_mine else held_out
    if options.fit is None:
        options.fit = is_mine or options.hold_out > held_out
    if options.tile is None:
        options.tile = 512 if (options.n or 0) >= 4096 else 256
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
