"""A training step in PyTorch by replay, with a learning rate that changes at each step. It needs torch.

    w, X, y --> gradient --g, loss--> momentum --m--> descend --> w

The step is recorded when it is called again, on a GPU as one CUDA graph; the rate is a number, so each launch may give
another one. Autograd is off in bodies, and switched on where one wants it: forward and backward are in the graph too.
"""

import importlib.util

import numpy as np

import stf

N, FEATURES, STEPS = 512, 16, 200


@stf.task(arrays="torch")
def gradient(w: stf.Read, x: stf.Read, y: stf.Read, g: stf.Write, loss: stf.Write) -> None:
    import torch

    with torch.enable_grad():
        weights = w.detach().requires_grad_()
        score = (x * weights).sum(1)
        mean = torch.nn.functional.binary_cross_entropy_with_logits(score, y)
        (slope,) = torch.autograd.grad(mean, weights)
    g.copy_(slope)
    loss.copy_(mean.detach())


@stf.task(arrays="torch")
def momentum(g: stf.Read, m: stf.ReadWrite, decay: float) -> None:
    m.mul_(decay).add_(g)


@stf.task(arrays="torch")
def descend(w: stf.ReadWrite, m: stf.Read, rate: float) -> None:
    w -= rate * m


@stf.replay
def train(w, x, y, g, m, loss, rate: float) -> None:
    gradient(w, x, y, g, loss)
    momentum(g, m, 0.9)
    descend(w, m, rate)


def by_hand(x: np.ndarray, y: np.ndarray, rates: list[float]) -> np.ndarray:
    w, m = np.zeros(FEATURES), np.zeros(FEATURES)
    for rate in rates:
        m = 0.9 * m + ((1 / (1 + np.exp(-x @ w)) - y)[:, None] * x).mean(0)
        w = w - rate * m
    return w


def main() -> None:
    if importlib.util.find_spec("torch") is None:
        print("torch is not installed: pip install torch")
        return
    random = np.random.default_rng(0)
    x, truth = random.standard_normal((N, FEATURES)), random.standard_normal(FEATURES)
    y = (random.random(N) < 1 / (1 + np.exp(-x @ truth))).astype(float)
    rates = [0.5 / (1 + k / 50) for k in range(STEPS)]

    with stf.context() as ctx:
        w, m = ctx.logical_data_zeros(FEATURES), ctx.logical_data_zeros(FEATURES)
        features, labels = ctx.logical_data(x), ctx.logical_data(y)
        g, loss = ctx.logical_data_empty(FEATURES), ctx.logical_data_empty(())
        losses = []
        for k, rate in enumerate(rates):
            train(w, features, labels, g, m, loss, rate)
            if k % 50 == 0:
                losses.append(float(loss))
        weights = w.numpy()
        print(train.explain())
        train.close()

    print("loss:", " ".join(f"{value:.3f}" for value in losses))
    assert losses == sorted(losses, reverse=True)
    assert np.allclose(weights, by_hand(x, y, rates))


if __name__ == "__main__":
    main()
