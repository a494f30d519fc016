"""k-means in blocks, from several starts: tasks return data, and the best start wins.

    points --tiles--> assign each tile --(sums, counts, error)--> reduce in a tree --> centers --> ...

Each task returns new data, a dict of them or one; nobody makes arrays for results. `stf.map` submits a task for each
block, `stf.reduce` combines what they return. The starts are independent, so they run side by side.
"""

import numpy as np

import stf

K, ROUNDS, STARTS = 3, 8, 4


@stf.task
def assign(
    points: stf.Read, centers: stf.Read
) -> {  # what one block says of the next centers
    "sums": stf.Like["centers"],
    "counts": stf.New[lambda centers: centers.shape[:1]],
    "error": stf.New[lambda: ()],
}:
    distances = ((points[:, None, :] - centers[None, :, :]) ** 2).sum(axis=2)
    nearest = distances.argmin(axis=1)
    chosen = (nearest[:, None] == np.arange(len(centers))[None, :]).astype(points.dtype)
    return {"sums": chosen.T @ points, "counts": chosen.sum(axis=0), "error": distances.min(axis=1).sum()}


@stf.task
def add(a: stf.Read, b: stf.Read) -> stf.Like["a"]:
    return a + b


@stf.task
def divide(sums: stf.Read, counts: stf.Read, centers: stf.Read) -> stf.Like["sums"]:
    return np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centers)


def kmeans(blocks: list[stf.LogicalData], centers: stf.LogicalData) -> dict[str, stf.LogicalData]:
    """Return the centers after some rounds, and their error; nothing has run yet."""
    for _ in range(ROUNDS):
        parts = [assign.on("host")(block, centers) for block in blocks]
        total = {key: stf.reduce(add.on("host"), [part[key] for part in parts]) for key in parts[0]}
        centers = divide.on("host")(total["sums"], total["counts"], centers)
    return {"centers": centers, "error": total["error"]}


def main() -> None:
    rng = np.random.default_rng(3)
    truth = np.array([[0.0, 0.0], [5.0, 5.0], [0.0, 6.0]])
    points = np.concatenate([center + 0.3 * rng.standard_normal((400, 2)) for center in truth])
    rng.shuffle(points)
    with stf.context() as ctx:
        data = ctx.logical_data(points, name="points")
        tiles = list(data.tiles((300, 2)).ravel())
        starts = [ctx.logical_data(points[rng.choice(len(points), K, replace=False)]) for _ in range(STARTS)]
        runs = ctx.wait([kmeans(tiles, start) for start in starts])
        del tiles
    best = min(runs, key=lambda run: run["error"])
    centers = best["centers"][best["centers"].sum(axis=1).argsort()]
    assert np.allclose(centers, truth[truth.sum(axis=1).argsort()], atol=0.1), centers
    print(f"best of {STARTS} starts: error {float(best['error']):.1f}, centers {centers.round(1).tolist()}")


if __name__ == "__main__":
    main()
