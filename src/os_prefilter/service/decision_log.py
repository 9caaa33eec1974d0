"""History of decisions: one line of JSON each, to a logger of its own.

Whether, where and for how long lines are kept is the matter of the service's logging: oslo.log's options, or handlers
of ``[DEFAULT] log_config_append``.
"""

import json
import os
from datetime import datetime, timezone
from typing import Final

from os_prefilter.common.errors import PrefilterError, RequestRejected
from os_prefilter.common.logs import get_logger
from os_prefilter.common.quoting import describe_error, mask_passwords
from os_prefilter.pipeline.decision import Decision
from os_prefilter.request.view import field_of
from os_prefilter.service.observed import Observed

LOGGER: Final = "os_prefilter.decisions"
"""Name of the logger, which readers of a log look for."""
MAX_BYTES: Final = 128 * 1024
"""No line is longer, whatever a request has in it."""

LOG = get_logger(__name__)
_HISTORY = get_logger(LOGGER)

_MOST_REQUIREMENTS = 100
# Preferences, and notes.
_MOST_OTHERS = 10
# Of one requirement.
_MOST_AGGREGATES = 20
# Of a trait; no suffix of a group and no identifier is longer than 64.
_TRAIT_LENGTH = 255
_NAME_LENGTH = 80
_TEXT_LENGTH = 200
_REASON_LENGTH = 1000
# What is beyond a text's end may show that a password is before it (common.quoting).
_LONGEST_LOGIN = 1000


def describe(decision: Decision) -> str:
    """Return the part of a line that is the same each time the decision is applied."""
    requirements, preferences = decision.requirements, decision.preferences
    aggregates, notes = decision.aggregates, decision.notes
    described = {
        "requirements": [
            {
                "trait": _cut(item.trait, _TRAIT_LENGTH),
                "required": item.required,
                "scope": _cut(item.scope, _NAME_LENGTH),
                "filter": _cut(item.filter, _NAME_LENGTH),
                "source": _cut(item.source, _TEXT_LENGTH),
            }
            for item in requirements[:_MOST_REQUIREMENTS]
        ],
        "preferences": [
            {
                "trait": _cut(item.trait, _TRAIT_LENGTH),
                "filter": _cut(item.filter, _NAME_LENGTH),
                "source": _cut(item.source, _TEXT_LENGTH),
            }
            for item in preferences[:_MOST_OTHERS]
        ],
        "aggregates": [
            {
                "aggregates": list(item.aggregates[:_MOST_AGGREGATES]),
                "required": item.required,
                "filter": _cut(item.filter, _NAME_LENGTH),
                "source": _cut(item.because, _TEXT_LENGTH),
            }
            for item in aggregates[:_MOST_OTHERS]
        ],
        "notes": [_cut(note, _TEXT_LENGTH) for note in notes[:_MOST_OTHERS]],
        "left_out": sum(
            (
                len(requirements[_MOST_REQUIREMENTS:]),
                len(preferences[_MOST_OTHERS:]),
                len(aggregates[_MOST_OTHERS:]),
                sum(len(item.aggregates[_MOST_AGGREGATES:]) for item in aggregates[:_MOST_OTHERS]),
                len(notes[_MOST_OTHERS:]),
            )
        ),
    }
    return json.dumps(described)[1:]


def record(observed: Observed) -> None:
    """Log a decision, which fails no request.

    A line has identifiers of the request and the server, but neither names of users nor any other text of tenants than
    the sources of requirements. The request ID is that of an oslo.context RequestContext.
    """
    try:
        _HISTORY.info("%s", _line(observed))
    except Exception as problem:  # noqa: BLE001 - the request matters, its history does not
        LOG.warning("Failed to log a decision: %s.", describe_error(problem))


_NOTHING_DECIDED = describe(Decision(()))


def _line(observed: Observed) -> str:
    error = observed.error
    result = "passed" if error is None else "rejected" if isinstance(error, RequestRejected) else "failed"
    now = datetime.now(timezone.utc).replace(tzinfo=None)
    own = {
        "time": f"{now.isoformat(timespec='milliseconds')}Z",
        "worker": os.getpid(),
        "request": _identifier(getattr(observed.context, "request_id", None)),
        "server": _identifier(field_of(observed.request_spec, "instance_uuid")),
        "result": result,
        "reason": None if error is None else _cut(_reason(error), _REASON_LENGTH),
        "hosts": observed.hosts,
    }
    described = observed.outcome.described if observed.outcome else _NOTHING_DECIDED
    return f"{json.dumps(own)[:-1]}, {described}"


def _reason(error: BaseException) -> str:
    return str(error) if isinstance(error, PrefilterError) else describe_error(error)


def _identifier(value: object) -> str | None:
    return None if value is None else _cut(value, _NAME_LENGTH)


def _cut(value: object, length: int) -> str:
    """Return text for a line of JSON: printable ASCII without passwords in URLs, cut after ``length``."""
    text = str(value)[: length + _LONGEST_LOGIN]
    # Without a colon there is no password; most texts are names.
    if ":" in text:
        text = mask_passwords(text)
    if not (text.isascii() and text.isprintable()):
        text = ascii(text)[1:-1]
    return text if len(text) <= length else text[:length] + "..."
