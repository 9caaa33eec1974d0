# SPDX-License-Identifier: Apache-2.0

"""Formats of an offer: Markdown and JSON.

They name no host and no software.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from os_prefilter.common.quoting import escape_line
from os_prefilter_tools.operators.offer.offered_values import (
    Offer,
    Status,
    Value,
)

_ALONE = (
    "Each value is offered by at least one host. Two values together may be on"
    " different hosts, and a host may be full."
)
_NOTHING = "No enabled host offers any of the values that are known."
_CODE = re.compile(r"[A-Za-z0-9_.:+-]+")
# ASCII punctuation that Markdown may take for markup, or for a link without
# markup.
_MARKUP = re.compile(r"[\\`*_{}\[\]<>()#+!|~&:.@-]")


def as_markdown(offer: Offer, *, count: bool = False) -> str:
    """Format the offer as Markdown with tables.

    ``count`` adds how many hosts serve a value.
    """
    names = ("Image property", "Flavor extra spec")
    places = tuple(map(_escape, offer.places)) or ("Values",)
    offered, free = [], []
    for each in offer.properties:
        own = (
            _code(each.image_property)
            or _code(each.image_field, " (a field of the image)"),
            _code(each.extra_spec),
        )
        # With the number of hosts in each place.
        served = [
            (value.value, value.by_place if offer.places else (value.hosts,))
            for value in each.values
            if value.status is Status.OFFERED
        ]
        if served:
            cells = []
            for place in range(len(places)):
                values = []
                for value, hosts in served:
                    if hosts[place]:
                        note = f" ({hosts[place]})" if count else ""
                        values.append(_code(value, note))
                cells.append(", ".join(values))
            offered.append((*own, *cells))
        free += [
            (*own, _code(value.value), value.reason)
            for value in each.values
            if value.status is Status.REQUIRES_NOTHING
        ]
    lines = ["# What this cloud offers", "", _ALONE if offered else _NOTHING]
    if offer.taken_at:
        lines += ["", f"As of {offer.taken_at}."]
    if offered:
        lines += _table((*names, *places), offered)
    if free:
        lines += [
            "",
            "## Values that require nothing of a host",
            *_table((*names, "Value", "Why"), free),
        ]
    return "\n".join(lines) + "\n"


def as_json(offer: Offer, *, count: bool = False) -> str:
    """Format the offer as JSON, with values that are not offered.

    ``count`` adds how many hosts serve a value.
    """
    document: dict[str, Any] = {}
    if offer.taken_at:
        document["taken_at"] = offer.taken_at
    if offer.by:
        document |= {"by": offer.by, "places": list(offer.places)}
    document["properties"] = properties = []
    for each in offer.properties:
        # The values come last: they are long.
        fields = {
            name: part
            for name, part in each._asdict().items()
            if part and name != "values"
        }
        fields["values"] = [
            _value(value, offer, count=count) for value in each.values
        ]
        properties.append(fields)
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


def _value(value: Value, offer: Offer, *, count: bool) -> dict[str, Any]:
    document: dict[str, Any] = {
        "value": value.value,
        "status": str(value.status),
    }
    if value.reason:
        document["reason"] = value.reason
    if value.status is Status.OFFERED:
        places = {
            name: number
            for name, number in zip(offer.places, value.by_place)
            if number
        }
        if count:
            document["hosts"] = value.hosts
        if offer.by:
            document["places"] = places if count else list(places)
    return document


def _table(
    columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]
) -> list[str]:
    rule = ["---"] * len(columns)
    lines = [f"| {' | '.join(cells)} |" for cells in (columns, rule, *rows)]
    return ["", *lines]


def _code(name: str, note: str = "") -> str:
    """Return untrusted text as code, followed by trusted text.

    Empty without the first.
    """
    if not name:
        return ""
    return (f"`{name}`" if _CODE.fullmatch(name) else _escape(name)) + note


def _escape(text: str) -> str:
    return _MARKUP.sub(r"\\\g<0>", escape_line(text))
