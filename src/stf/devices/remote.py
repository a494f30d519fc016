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
        The cluster has no worker, or not all of `workers`.
    TypeError
        `client` is no client of Dask's.

    Examples
    --------
    With a client of yours it is ``stf.context(devices=stf.remote(client))``.

    >>> try:
    ...     stf.remote("tcp://10.0.0.1:8786")
    ... except TypeError as error:
    ...     print(error)
    client is a distributed.Client, got str; for Ray use devices='ray:8'
    """
    if not hasattr(client, "scheduler_info"):
        raise TypeError(f"client is a distributed.Client, got {type(client).__name__}; for Ray use devices='ray:8'")
    there = list(client.scheduler_info(n_workers=-1)["workers"])
    chosen = there if workers is None else list(workers)
    missing = [each for each in chosen if each not in there]
    if missing or not chosen:
        what = f"no worker {', '.join(map(str, missing))}" if missing else "no workers"
        raise PlaceError(
            f"the Dask cluster has {what}; it has {', '.join(there) or 'none'}: client.wait_for_workers(n)"
        )
    cluster = Cluster("dask", client, tuple(chosen), threads, batch, batch_s)
    return DeviceSpec("remote", len(chosen), False, cluster=cluster)
