"""Locality domains of devices: the parts of a GPU that are near a part of its memory.

CUDA 13.4 is to tell them. Until stf knows a driver that does, a device is one domain: a program for domains runs.
"""

from __future__ import annotations

from typing import Any

from stf.devices.make import configured_devices
from stf.errors import PlaceError
from stf.places.places import ExecPlace, check_index

__all__ = ["SM_SPLITS", "domain_of", "locality_domains"]

SM_SPLITS = ("backfill", "aligned", "fine")


def locality_domains(device: Any, sm_split: Any = SM_SPLITS[0]) -> list[ExecPlace]:
    """Return the domains of a device."""
    if sm_split not in SM_SPLITS:
        raise ValueError(f"sm_split is one of {', '.join(SM_SPLITS)}, got {sm_split!r}")
    spec = configured_devices()
    if check_index(device) not in spec.numbers:
        raise PlaceError(f"there is no device {device} to have domains; there is {spec.text}")
    return [ExecPlace("device", int(device))]


def domain_of(device: Any, index: Any, sm_split: Any = SM_SPLITS[0]) -> ExecPlace:
    """Return one domain of a device."""
    domains = locality_domains(device, sm_split)
    if check_index(index) >= len(domains):
        raise PlaceError(f"device {device} has {len(domains)} locality domains, got domain {index}")
    return domains[index]
