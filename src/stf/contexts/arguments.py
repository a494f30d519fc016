"""Checks of the options of a context: each error says what was got and what to do."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from stf import config
from stf._support.arguments import is_integer
from stf.contexts.next_uses import Foreseen
from stf.contexts.resources import Resources
from stf.devices.hardware import Model
from stf.devices.spec import DeviceSpec
from stf.places.places import ExecPlace, as_exec_place

if TYPE_CHECKING:
    from stf.placement.rules import Rule

MAX_PENDING = 8192
MOST_WORKERS = 4096  # each is a thread of the system's
MOST_PENDING = (1 << 31) - 1  # as the engine counts them


def check_graphs(use_graph: Any, graph: Any, stream: Any) -> None:
    """Raise TypeError unless these options go together."""
    if not isinstance(use_graph, (bool, np.bool_)):
        raise TypeError(f"use_graph is True or False, got {use_graph!r}; devices= says where tasks run")
    if graph is not None and stream is not None:
        raise TypeError("graph= and stream= both say where the work goes; give one of them")


def check_resources(resources: Any) -> None:
    """Raise unless `resources` is what contexts share."""
    if not isinstance(resources, Resources):
        raise TypeError(
            f"resources is what contexts share, got {resources!r}; make it once with stf.Resources(), pass it to each"
        )


def pending_limit(max_pending: Any) -> int:
    """Return how many bodies may be in flight; by default what the setting says."""
    max_pending = config.max_pending if max_pending is None else max_pending
    if max_pending is None:
        return MAX_PENDING
    hint = f"leave it out for {MAX_PENDING:,}"
    if not is_integer(max_pending):
        raise TypeError(f"max_pending is a positive number of tasks, got {max_pending!r}; {hint}")
    if int(max_pending) < 1:
        raise ValueError(f"max_pending is a positive number of tasks, got {max_pending}; {hint}")
    return min(int(max_pending), MOST_PENDING)


def worker_count(workers: Any) -> int:
    """Return how many bodies run on the host at a time."""
    if not is_integer(workers):
        raise TypeError(f"workers is a positive number of threads, got {workers!r}; leave it out for one a core")
    if not 1 <= int(workers) <= MOST_WORKERS:
        raise ValueError(f"workers is a number of threads from 1 to {MOST_WORKERS}, got {workers}")
    return int(workers)


def wants_finite(nan: Any, use_graph: Any, spec: DeviceSpec) -> bool:
    """Return whether a context is asked to look for values that are not finite, by `nan` or by ``STF_NAN``."""
    if nan is None and not config.nan:
        return False
    if nan is not None and nan != "error":
        raise ValueError(f"nan is 'error' or None, got {nan!r}")
    if nan is not None and use_graph:
        raise ValueError("nan='error' looks at each body, and use_graph=True gathers them in graphs; choose one")
    if spec.driver == "remote":
        raise ValueError(
            "nan='error' (STF_NAN) looks at the data of bodies in this process, and those of remote devices are in "
            "others; leave it out, or look for such values on devices='cpu:2'"
        )
    return True


def wants_submit_threads(submit_threads: Any, spec: DeviceSpec, has_caller: bool) -> bool:
    """Return whether each device gets a thread that calls bodies: it helps where there are several CUDA devices.

    Work on a caller's stream, or in a caller's graph, is given to CUDA in the thread of the caller.
    """
    if submit_threads is None:
        submit_threads = config.submit_threads
    elif not isinstance(submit_threads, (bool, np.bool_)):
        raise TypeError(f"submit_threads is True or False, got {submit_threads!r}; workers= is a number of threads")
    return bool(submit_threads) and spec.driver == "cuda" and spec.count > 1 and not has_caller


def memory_bound(memory_limit: Any) -> int:
    """Return how many bytes replicas on a device may take."""
    if not is_integer(memory_limit):
        raise TypeError(
            f"memory_limit is a positive number of bytes, got {memory_limit!r}; pass an integer such as 10**9 (only "
            "the variable STF_MEMORY_LIMIT takes text such as 1GB)"
        )
    if int(memory_limit) <= 0:
        raise ValueError(f"memory_limit is a positive number of bytes, got {memory_limit}; leave it out for no limit")
    return min(int(memory_limit), sys.maxsize)


def check_plan(plan: Any) -> None:
    """Raise TypeError unless `plan` is one."""
    if not isinstance(plan, Foreseen):
        raise TypeError(f"plan is what stf.plan(program, ...) returns, got {plan!r}; plan the program that is to run")


def how_placed(place: Any, placement: Any) -> tuple[ExecPlace | None, Rule]:
    """Return the default place that a context is given, and the rule by which others are chosen."""
    from stf.placement.rules import rule_of

    rule = rule_of(placement)
    return None if place is None and placement is None else as_exec_place("auto" if place is None else place), rule


def model_of(rule: Rule) -> Model | None:
    """Return what a rule was told of times and links: the calibration that its `model` is, or the file that has one."""
    if rule.model is None:
        return None
    from stf.contexts.calibration import Calibration

    found = rule.model if isinstance(rule.model, Calibration) else Calibration.load(rule.model)
    return Model(found.durations, found.links, found.submit_s)


def wants_replay(replay: Any, placement: Any) -> bool:
    """Return whether repeated windows of tasks are to be replayed."""
    if replay is None:
        return False
    if replay != "auto" or not isinstance(replay, str):
        raise ValueError(f"replay is 'auto' or None, got {replay!r}; functions are replayed by @stf.replay")
    if placement is not None and how_placed(None, placement)[1].window:
        raise ValueError(
            "replay='auto' holds tasks until their window is whole, stf.placement.planned() until they are planned: "
            "use one of them, such as placement=stf.placement.eft()"
        )
    return True
