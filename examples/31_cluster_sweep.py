"""A parameter sweep with shared data on the workers of a cluster: which rate of decay fits a series of measurements.

measured (read by all, copied to each worker once) --> misfit(rate) for each rate --> the best one

python examples/31_cluster_sweep.py               # two processes of this machine
python examples/31_cluster_sweep.py ray:8         # eight actors of the Ray cluster that is there, else of a local one
"""

import importlib.util
import sys

import numpy as np

import stf

RATES = np.linspace(0.01, 0.2, 39)
TRUE_RATE = 0.06


@stf.task
def misfit(rate: float, data: stf.Read, error: stf.Write) -> None:
    error[...] = np.sum((np.exp(-rate * np.arange(len(data))) - data) ** 2)


def sweep(devices: str, rates: np.ndarray, measured: np.ndarray) -> np.ndarray:
    """The misfit of each rate."""
    with stf.context(devices=devices) as ctx:
        data = ctx.logical_data(measured, readonly=True, name="measured")
        errors = [ctx.logical_data_empty(()) for _ in rates]
        for rate, error in zip(rates, errors, strict=True):
            misfit(float(rate), data, error)
        return np.array([error.numpy() for error in errors])


def main() -> None:
    if importlib.util.find_spec("cloudpickle") is None:
        sys.exit(f"{sys.argv[0]} needs pip install cloudpickle")
    devices = sys.argv[1] if len(sys.argv) > 1 else "loopback:2"
    measured = np.exp(-TRUE_RATE * np.arange(1000)) + np.random.default_rng(1).normal(0, 1e-3, 1000)
    errors = sweep(devices, RATES, measured)
    best = RATES[np.argmin(errors)]
    assert abs(best - TRUE_RATE) < 1e-9
    print(f"the best of {len(RATES)} rates is {best:.3f}, with a squared error of {errors.min():.6f}")


if __name__ == "__main__":
    main()
