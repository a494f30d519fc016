"""Automatic placement: rules by which the places of tasks are chosen.

See `stf.context`, whose `placement` takes one.
"""

from typing import TYPE_CHECKING

from stf._support.late_names import late_names

if TYPE_CHECKING:
    from stf.placement.asking import AccessView, Candidate, TaskView
    from stf.placement.rules import Rule, eft, owner, planned

__all__ = ["AccessView", "Candidate", "Rule", "TaskView", "eft", "owner", "planned"]

__getattr__ = late_names(
    __name__, {"asking": ("AccessView", "Candidate", "TaskView"), "rules": ("Rule", "eft", "owner", "planned")}
)
