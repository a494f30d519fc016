"""Automatic placement: rules by which the places of tasks are chosen.

See `stf.context`, whose `placement` takes one.
"""

from stf.placement.asking import AccessView, Candidate, TaskView
from stf.placement.rules import Rule, eft, owner, planned

__all__ = ["AccessView", "Candidate", "Rule", "TaskView", "eft", "owner", "planned"]
