"""CuPy, torch, JAX and cuda.compute on the same data, each in a task of its own. It needs a CUDA device, and CuPy.

             whiten (CuPy)
                  |
                  X  ------------------------.
                /   \\                         \\
      score (torch)  spread (JAX)         largest (cuda.compute)
            |             |                     |
            S             V                     M

A body gets the arrays of the library that it names, over the same memory, and that library's current stream is the
task's; so nothing is copied, and nobody waits on the host. JAX's arrays never change, so JAX gets a copy on the device
and its result is stored. The three readers of X run at the same time. A library that is not installed is left out.
"""

import importlib.util
import os

import numpy as np
from _needs import needs_gpu

import stf

N = 1 << 16

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # or JAX takes most of the device for itself


@stf.task(arrays="cupy")
def whiten(x: stf.ReadWrite) -> None:
    """Shift and scale to mean 0 and variance 1."""
    x -= x.mean()
    x /= x.std()


@stf.task(arrays="torch")
def score(x: stf.Read, s: stf.Write):
    """Return the mean of the logistic function, computed in bfloat16 as a model would."""
    import torch

    return torch.sigmoid(x.to(torch.bfloat16)).float().mean()


@stf.task(arrays="jax")
def spread(x: stf.Read, v: stf.Write):
    """Return the variance; what the body returns is stored."""
    return x.var()


@stf.task(arrays="cupy")
def largest(x: stf.Read, m: stf.Write, stream: stf.Stream) -> None:
    """Reduce on the task's stream, which the algorithm is told."""
    from cuda.compute import OpKind, reduce_into

    lowest = np.full(1, -np.inf, x.dtype)
    reduce_into(d_in=x, d_out=m, num_items=x.size, op=OpKind.MAXIMUM, h_init=lowest, stream=stream)


def is_installed(name: str) -> bool:
    """Whether a module can be imported."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def has_jax_on_gpus() -> bool:
    """Whether JAX is installed with what it needs for GPUs."""
    return is_installed("jax") and (is_installed("jax_cuda13_plugin") or is_installed("jax_cuda12_plugin"))


def main() -> None:
    needs_gpu("cupy")
    X = np.random.default_rng(0).gamma(2.0, 3.0, N).astype(np.float32)
    expected = (X - X.mean()) / X.std()
    reference = {
        score: (1 / (1 + np.exp(-expected))).mean(),
        spread: 1.0,
        largest: expected.max(),
    }
    wanted = {score: is_installed("torch"), spread: has_jax_on_gpus(), largest: is_installed("cuda.compute")}
    tasks = [task for task, is_there in wanted.items() if is_there]
    with stf.context(devices="cuda") as ctx:
        x = ctx.logical_data(X, name="X")
        results = {task: ctx.logical_data_empty(1 if task is largest else (), np.float32) for task in tasks}
        whiten(x)
        for task, result in results.items():
            task(x, result)
        for task, result in results.items():
            np.testing.assert_allclose(result.numpy(), reference[task], atol=1e-2)
    np.testing.assert_allclose(X, expected, atol=1e-4)
    assert abs(X.mean()) < 1e-3
    print(f"{N} values whitened by CuPy; then {', '.join(task.symbol for task in tasks) or 'nothing more'}")


if __name__ == "__main__":
    main()
