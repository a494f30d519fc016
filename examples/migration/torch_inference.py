"""Inference with PyTorch on several streams, before and after. It needs a CUDA device and PyTorch.

    request 0 --> encode --> features 0 --+--> classify --> label 0
                                          '--> score -----> score 0
    request 1 --> encode --> ...

Each request goes through an encoder, and then through two heads that do not depend on each other. `before` has streams,
events and `record_stream` by hand. `after` says what each function reads and writes. Both print their time.
"""

import sys
import time
from pathlib import Path
from typing import Any

import stf

sys.path.insert(0, str(Path(__file__).parents[1]))
from _needs import needs_gpu

REQUESTS, ROWS, WIDTH, HIDDEN, CLASSES, STREAMS, REPEATS = 48, 64, 1024, 2048, 100, 4, 5


def models(torch: Any) -> tuple[Any, Any, Any]:
    """The encoder and the two heads, with the same weights each time."""
    torch.manual_seed(0)
    nn = torch.nn
    encoder = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, HIDDEN), nn.GELU())
    classify, score = (
        nn.Linear(HIDDEN, CLASSES),
        nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, 1)),
    )
    return tuple(model.to("cuda").eval() for model in (encoder, classify, score))


def before(torch: Any, networks: Any, requests: list[Any], labels: list[Any], scores: list[Any]) -> None:
    """The loop with streams: requests in turn on `STREAMS` of them, the second head on a stream beside each."""
    encoder, classify, score = networks
    mains, sides = ([torch.cuda.Stream() for _ in range(STREAMS)] for _ in range(2))
    with torch.no_grad():
        for i, request in enumerate(requests):
            main, side = mains[i % STREAMS], sides[i % STREAMS]
            with torch.cuda.stream(main):
                features = encoder(request.to("cuda", non_blocking=True))
                encoded = main.record_event()
                labels[i].copy_(classify(features), non_blocking=True)
            with torch.cuda.stream(side):
                side.wait_event(encoded)
                features.record_stream(side)  # else its memory may be used again too early
                scores[i].copy_(score(features), non_blocking=True)
    for stream in (*mains, *sides):
        stream.synchronize()


def after(torch: Any, networks: Any, requests: list[Any], labels: list[Any], scores: list[Any]) -> None:
    """The same with tasks."""
    encoder, classifier, scorer = networks

    @stf.task
    def encode(request: stf.Read, features: stf.Write) -> None:
        features.copy_(encoder(request))

    @stf.task
    def classify(features: stf.Read, label: stf.Write) -> None:
        label.copy_(classifier(features))

    @stf.task
    def score(features: stf.Read, result: stf.Write) -> None:
        result.copy_(scorer(features))

    with stf.context(devices="cuda:0", arrays="torch") as ctx:  # autograd is off in bodies
        for i, request in enumerate(requests):
            features = ctx.logical_data_empty((ROWS, HIDDEN), torch.float32)
            encode(ctx.logical_data(request), features)
            classify(features, ctx.logical_data(labels[i]))
            score(features, ctx.logical_data(scores[i]))


def timed(run: Any, *arguments: Any) -> float:
    """Return the shortest time of some runs in milliseconds; the first is to warm up."""
    times = []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        run(*arguments)
        times.append(time.perf_counter() - start)
    return 1e3 * min(times[1:])


def main() -> None:
    torch = needs_gpu("torch")
    networks = models(torch)
    torch.cuda.synchronize()  # the weights are there
    requests = [torch.randn(ROWS, WIDTH).pin_memory() for _ in range(REQUESTS)]
    runs = []
    for run in (before, after):
        labels = [torch.zeros(ROWS, CLASSES).pin_memory() for _ in range(REQUESTS)]
        scores = [torch.zeros(ROWS, 1).pin_memory() for _ in range(REQUESTS)]
        runs.append((timed(run, torch, networks, requests, labels, scores), labels, scores))
    (before_ms, *expected), (after_ms, *found) = runs
    for ours, theirs in zip(found, expected, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
            assert float(one.abs().sum()) > 0
    print(f"{REQUESTS} requests of {ROWS} rows: streams {before_ms:.1f} ms, tasks {after_ms:.1f} ms")


if __name__ == "__main__":
    main()
