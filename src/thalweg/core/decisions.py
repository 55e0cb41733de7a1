"""Decisions of adaptive policies, as they are recorded in the metrics of a round.

A policy that changes the course of a run, such as a bank that opens a model, records what it did
and why. `thalweg explain` and the pages of comparisons show these records as sentences.
"""

from __future__ import annotations

from collections.abc import Mapping
from string import Formatter
from typing import Any

from thalweg.core.errors import require

# Code of a decision -> what was done, with the numbers of its record.
ACTIONS = {
    "open-session": "opened session {session}",
    "choose-start": "started the session with {candidate}",
    "restart-average": "restarted the average of the models",
    "open-model": "opened model {model}",
    "close-model": "closed model {model}",
    "merge-models": "merged model {other} into model {model}",
}

# The same of decisions about one of several models, which have the number of the model.
ABOUT_ONE_MODEL = {"restart-average": "restarted the average of model {model}"}


def make_decision(what: str, reason: str, **values: Any) -> dict[str, Any]:
    """Return the record of one decision: its code, the reason and the values of its sentence.

    `reason` is a clause with numbers, without a full stop.

    >>> make_decision("open-model", "the error of 14 clients increased", model=2)
    {'what': 'open-model', 'reason': 'the error of 14 clients increased', 'model': 2}
    """
    require(
        what in ACTIONS,
        f"decision {what!r}: expected one of {', '.join(ACTIONS)}. Add it to "
        "thalweg.core.decisions.ACTIONS.",
    )
    ACTIONS[what].format(**values)  # a missing value is an error here, not in the report
    return {"what": what, "reason": reason, **values}


def find_missing_values(decision: Mapping[str, Any]) -> list[str]:
    """Return the names of values that the sentence of a record needs and that it does not have.

    >>> find_missing_values({"what": "merge-models", "reason": "equal losses", "model": 2})
    ['other']
    """
    template = ACTIONS.get(str(decision["what"]), "")
    names = [name for _, name, _, _ in Formatter().parse(template) if name]
    return [name for name in names if not isinstance(decision.get(name), str | int | float)]


def describe_decision(decision: Mapping[str, Any]) -> str:
    """Return a decision as two sentences: the reason, then what was done.

    A record with an unknown code, such as one of a user's policy, is shown as it is.

    >>> describe_decision(make_decision("open-model", "the error of 14 clients increased", model=2))
    'The error of 14 clients increased. Opened model 2.'
    >>> describe_decision({"what": "wait", "reason": "too few clients"})
    'Too few clients. Wait.'
    """
    what = str(decision.get("what", ""))
    template = ACTIONS.get(what, what)
    if "model" in decision:
        template = ABOUT_ONE_MODEL.get(what, template)
    action = template.format(**decision) if what in ACTIONS else what
    return " ".join(_make_sentence(text) for text in (str(decision["reason"]), action) if text)


def _make_sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
