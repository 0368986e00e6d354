"""The table of patterns: their marks, names, words and thresholds, for static/patterns.js."""

from __future__ import annotations

from typing import Any

from tensorboard_attention import scores
from tensorboard_attention.sentences import BROKEN, ROLES, SPREAD, THIS_TEXT, UNKNOWN

# The scores that the page measures.
PAGE = {*(rule.score for rule in scores.RULES), "entropy", "mean distance"}


def pattern_table() -> dict[str, Any]:
    """As plain values for JSON."""
    shown = [score for score in scores.SCORES if score.name in PAGE]
    return {
        "rules": [{**rule._asdict(), "marks": vars(rule.marks)} for rule in scores.RULES],
        "meanings": {score.name: score.meaning for score in shown},
        "units": {score.name: score.unit for score in shown if score.unit},
        "here": THIS_TEXT,
        "texts": {"unknown": UNKNOWN, "spread": SPREAD, "broken": BROKEN},
        "roles": {"unknown": ROLES[UNKNOWN], "spread": ROLES[SPREAD], "broken": ROLES[BROKEN]},
        "partly": scores.PARTLY,
        "mostly": scores.MOSTLY,
        "few": scores.FEW,
        "close": scores.CLOSE,
        "even": scores.EVEN,
        "example": scores.EXAMPLE,
    }
