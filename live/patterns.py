"""Names, words and thresholds of scores and sentences, which static/patterns.js measures."""

from __future__ import annotations

from typing import Any

from tensorboard_attention import scores
from tensorboard_attention.sentences import BROKEN, ROLES, SPREAD, THIS_TEXT, UNKNOWN


def pattern_table() -> dict[str, Any]:
    """As plain values for JSON. Rules are in the order of their scores."""
    rules = {rule.score: rule._asdict() for rule in scores.RULES}
    for rule in rules.values():
        del rule["keys"]
    shown = [score for score in scores.SCORES if score.needs not in ("losses", "random ids")]
    return {
        "rules": [rules[score.name] for score in shown if score.name in rules],
        "order": [*rules],
        "meanings": {score.name: score.meaning for score in shown},
        "units": {score.name: score.unit for score in shown if score.unit},
        "here": THIS_TEXT,
        "texts": {"unknown": UNKNOWN, "spread": SPREAD, "broken": BROKEN},
        "roles": {"unknown": ROLES[UNKNOWN], "spread": ROLES[SPREAD], "broken": ROLES[BROKEN]},
        "near": scores.NEAR,
        "partly": scores.PARTLY,
        "mostly": scores.MOSTLY,
        "few": scores.FEW,
        "close": scores.CLOSE,
        "even": scores.EVEN,
        "example": scores.EXAMPLE,
    }
