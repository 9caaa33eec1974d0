# SPDX-License-Identifier: Apache-2.0

"""History of decisions: one line of JSON each, in a logger of its own.

Whether, where and for how long lines are kept is the matter of the service's
logging: oslo.log's options, or handlers of ``[DEFAULT] log_config_append``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, Final

from os_prefilter.common.errors import (
    NoHostLeft,
    PrefilterError,
    RequestRejected,
)
from os_prefilter.common.logs import get_logger
from os_prefilter.common.quoting import describe_error, mask_passwords
from os_prefilter.pipeline.decision import Decision, ShadowRun
from os_prefilter.request.fields import field_of
from os_prefilter.request.requirements import (
    AggregateRequirement,
    Note,
    Preference,
    Requirement,
)
from os_prefilter.service.request_events import RequestEvent, ShadowResult

LOGGER: Final = "os_prefilter.decisions"
"""Name of the logger, for the readers of a log."""
MAX_BYTES: Final = 128 * 1024
"""Maximum length of a line, whatever the request contains."""

_HISTORY = get_logger(LOGGER)

_MOST_REQUIREMENTS = 100
_MOST_OTHERS = 10
_MOST = {
    "requirements": _MOST_REQUIREMENTS,
    "preferences": _MOST_OTHERS,
    "aggregates": _MOST_OTHERS,
    "notes": _MOST_OTHERS,
}
# Of one requirement.
_MOST_AGGREGATES = 20
# Of a trait; no suffix of a group and no identifier is longer than 64.
_TRAIT_LENGTH = 255
_NAME_LENGTH = 80
_TEXT_LENGTH = 200
_REASON_LENGTH = 1000
# Of all shadow filters in a line: with more, it could exceed MAX_BYTES.
_MOST_IN_SHADOW = 50
# What is beyond a text's end may show that a password is before it
# (common.quoting).
_LONGEST_LOGIN = 1000


def describe(decision: Decision) -> str:
    """Return the part of a line that depends on the decision alone."""
    return json.dumps(_parts_of(decision, _MOST))[1:]


def _parts_of(
    decided: Decision | ShadowRun, at_most: Mapping[str, int]
) -> dict[str, Any]:
    described: dict[str, Any] = {}
    left_out = 0
    for name, most in at_most.items():
        items = getattr(decided, name)
        described[name] = list(map(_describe, items[:most]))
        left_out += len(items[most:])
    for item in decided.aggregates[: at_most["aggregates"]]:
        left_out += len(item.aggregates[_MOST_AGGREGATES:])
    described["left_out"] = left_out
    return described


def _describe_shadow(results: Sequence[ShadowResult]) -> str:
    """Return the same part of a line about shadow filters."""
    left = {"requirements": _MOST_IN_SHADOW, "aggregates": _MOST_OTHERS}
    line = _parts_of(Decision(()), _MOST)
    line["shadow"] = []
    for run, candidates, lacking in results[:_MOST_IN_SHADOW]:
        parts = _parts_of(run, left)
        line["left_out"] += parts.pop("left_out")
        for name in left:
            left[name] -= len(parts[name])
        reason = None
        if run.reason is not None:
            reason = _cut(run.reason, _TEXT_LENGTH)
        line["shadow"].append(
            {
                "filter": _cut(run.filter, _NAME_LENGTH),
                "result": run.result,
                "reason": reason,
                "candidates": candidates,
                "lacking": lacking,
                **parts,
            }
        )
    return json.dumps(line)[1:]


def _describe(
    item: Requirement | Preference | AggregateRequirement | Note,
) -> Any:
    if isinstance(item, Note):
        return _cut(item, _TEXT_LENGTH)
    if isinstance(item, AggregateRequirement):
        subject = {
            "aggregates": list(item.aggregates[:_MOST_AGGREGATES]),
            "required": item.required,
        }
        return {
            **subject,
            "filter": _cut(item.filter, _NAME_LENGTH),
            "source": _cut(item.because, _TEXT_LENGTH),
        }
    described: dict[str, Any] = {"trait": _cut(item.trait, _TRAIT_LENGTH)}
    if isinstance(item, Requirement):
        described |= {
            "required": item.required,
            "scope": _cut(item.scope, _NAME_LENGTH),
        }
    return {
        **described,
        "filter": _cut(item.filter, _NAME_LENGTH),
        "source": _cut(item.source, _TEXT_LENGTH),
    }


_NOTHING_DECIDED = describe(Decision(()))


def record(event: RequestEvent) -> None:
    """Log a decision.

    A line has identifiers of the request and the server, but neither names of
    users nor any other text of tenants than the sources of requirements. The
    request ID is that of an oslo.context RequestContext.
    """
    error = event.error
    hosts: list[dict[str, Any]] = []
    result = "failed"
    if event.shadow:
        # A line of its own, after that of the decision.
        result = "shadow"
    elif error is None:
        result = "passed"
    elif isinstance(error, RequestRejected):
        result = "rejected"
    if isinstance(error, NoHostLeft):
        # As well.
        result = "no_host"
        hosts = [
            {**each._asdict(), "by": _cut(each.by, _NAME_LENGTH)}
            for each in error.hosts[:_MOST_REQUIREMENTS]
        ]
    reason = None
    if isinstance(error, PrefilterError):
        reason = _cut(error, _REASON_LENGTH)
    elif error is not None:
        reason = _cut(describe_error(error), _REASON_LENGTH)
    now = datetime.now(timezone.utc).replace(tzinfo=None)
    own = {
        "time": f"{now.isoformat(timespec='milliseconds')}Z",
        "worker": os.getpid(),
        "request": _identifier(getattr(event.context, "request_id", None)),
        "server": _identifier(field_of(event.request_spec, "instance_uuid")),
        "result": result,
        "reason": reason,
        "hosts": hosts,
    }
    described = _NOTHING_DECIDED
    if event.cached_decision:
        described = event.cached_decision.described
    elif event.shadow:
        described = _describe_shadow(event.shadow)
    _HISTORY.info("%s", f"{json.dumps(own)[:-1]}, {described}")


def _identifier(value: object) -> str | None:
    return None if value is None else _cut(value, _NAME_LENGTH)


def _cut(value: object, length: int) -> str:
    """Return printable ASCII of at most ``length`` characters, and "...".

    Passwords in URLs are masked.
    """
    text = str(value)[: length + _LONGEST_LOGIN]
    # Without a colon there is no password; most texts are names.
    if ":" in text:
        text = mask_passwords(text)
    if not (text.isascii() and text.isprintable()):
        text = ascii(text)[1:-1]
    return text if len(text) <= length else text[:length] + "..."
