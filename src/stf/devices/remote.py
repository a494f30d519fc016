"""Remote devices as users ask for them."""

from __future__ import annotations

from typing import Any

from stf.devices.spec import Cluster, DeviceSpec
from stf.errors import PlaceError

__all__ = ["remote"]


def remote(
    client: Any,
    workers: Any = None,
    *,
    threads: int = 1,
    gpus: bool | str = "auto",
    batch: int = 64,
    batch_s: float = 1e-3,
) -> DeviceSpec:
    """Return the workers of a Dask cluster as devices, for ``stf.context(devices=)``.

    Parameters
    ----------
    client : distributed.Client
        Yours; the cluster stays when the context ends.
    workers : sequence of str, optional
        Addresses of workers; all that the cluster has now by default.
    threads : int
        Bodies that run at a time on each worker.
    gpus : bool or "auto"
        Whether each worker's device is its first GPU. "auto": where its process was given GPUs by
        ``CUDA_VISIBLE_DEVICES``, as by dask-cuda.
    batch : int
        So many commands are sent to a worker at once.
    batch_s : float
        Seconds after which fewer are sent, too.

    Returns
    -------
    DeviceSpec
        A device for each worker.

    Raises
    ------
    PlaceError
        The cluster has no worker, or not all of `workers`. When a context is opened: a worker has no GPU.
    TypeError
        `client` is no client of Dask's.
    ValueError
        `gpus` is neither a bool nor "auto".

    Examples
    --------
    With a client of yours it is ``stf.context(devices=stf.remote(client))``.

    >>> try:
    ...     stf.remote("tcp://10.0.0.1:8786")
    ... except TypeError as error:
    ...     print(error)
    client is a distributed.Client, got str; for Ray use devices='ray:8'
    """
    if not hasattr(client, "nthreads"):
        raise TypeError(f"client is a distributed.Client, got {type(client).__name__}; for Ray use devices='ray:8'")
    if gpus not in (True, False, "auto"):
        raise ValueError(f"gpus is True, False or 'auto', got {gpus!r}")
    there = list(client.nthreads())  # `scheduler_info` may forget workers while the client asks anew beside it
    chosen = there if workers is None else list(workers)
    missing = [each for each in chosen if each not in there]
    if missing or not chosen:
        what = f"no worker {', '.join(map(str, missing))}" if missing else "no workers"
        raise PlaceError(
            f"the Dask cluster has {what}; it has {', '.join(there) or 'none'}: client.wait_for_workers(n)"
        )
    cluster = Cluster("dask", client, tuple(chosen), threads, batch, batch_s, gpus=gpus)
    return DeviceSpec("remote", len(chosen), False, cluster=cluster)
