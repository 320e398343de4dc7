"""Alerts: what somebody should look at in a run, by rules that a project sets."""

from repotrace.runs.alerts.evaluation import alerts_of
from repotrace.runs.alerts.keeping import look_over, look_over_ended
from repotrace.runs.alerts.rules import DEFAULTS, Rules, rules_from, rules_in

__all__ = [
    "DEFAULTS",
    "Rules",
    "alerts_of",
    "look_over",
    "look_over_ended",
    "rules_from",
    "rules_in",
]
