"""A small neural network in torch, whose initial values and noise are random numbers of the context. It needs torch.

    rng --> W1, W2;  X, Y, W1, W2 --> gradients --> descend --> W1, W2

The initial values come from `ctx.random`. So they are the same on a CPU and on GPUs, whatever runs first, and the
training can be repeated. The step is a replayed function: on a GPU it is one CUDA graph.
"""

import importlib.util

import numpy as np

import stf

N, INPUTS, HIDDEN, STEPS = 256, 8, 32, 150


@stf.task(arrays="torch")
def gradients(x: stf.Read, y: stf.Read, w1: stf.Read, w2: stf.Read, g1: stf.Write, g2: stf.Write, loss: stf.Write):
    import torch

    with torch.enable_grad():
        first, second = w1.detach().requires_grad_(), w2.detach().requires_grad_()
        mean = ((torch.tanh(x @ first) @ second - y) ** 2).mean()
        slopes = torch.autograd.grad(mean, (first, second))
    g1.copy_(slopes[0])
    g2.copy_(slopes[1])
    loss.copy_(mean.detach())


@stf.task(arrays="torch")
def descend(w: stf.ReadWrite, g: stf.Read, rate: float):
    w -= rate * g


@stf.replay
def step(x, y, w1, w2, g1, g2, loss, rate: float):
    gradients(x, y, w1, w2, g1, g2, loss)
    descend(w1, g1, rate)
    descend(w2, g2, rate)


def train() -> tuple[np.ndarray, list[float]]:
    """Return the initial values of the first layer, and the losses."""
    with stf.context() as ctx:
        rng = ctx.random(2026)
        x, y = ctx.logical_data_empty((N, INPUTS)), ctx.logical_data_empty((N, 1))
        w1, w2 = ctx.logical_data_empty((INPUTS, HIDDEN)), ctx.logical_data_empty((HIDDEN, 1))
        rng.normal(x)
        rng.normal(w1, std=INPUTS**-0.5)
        rng.normal(w2, std=HIDDEN**-0.5)
        target = np.sin(x.numpy().sum(1, keepdims=True) / 3)
        ctx.copy(ctx.logical_data(target), y)
        initial, losses = w1.numpy().copy(), []
        g1, g2, loss = w1.empty_like(), w2.empty_like(), ctx.logical_data_empty(())
        for number in range(STEPS):
            step(x, y, w1, w2, g1, g2, loss, 0.2)
            if number in (0, STEPS - 1):
                losses.append(float(loss))
        return initial, losses


def main() -> None:
    if importlib.util.find_spec("torch") is None:
        print("torch is not installed: pip install torch")
        return
    (one, losses), (other, again) = train(), train()
    assert (one == other).all() and losses == again
    assert losses[1] < 0.7 * losses[0], losses
    print(f"the mean squared error fell from {losses[0]:.3f} to {losses[1]:.3f} in {STEPS} steps, twice the same")


if __name__ == "__main__":
    main()
