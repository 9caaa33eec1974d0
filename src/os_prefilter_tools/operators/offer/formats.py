"""Formats of an offer: Markdown, an HTML page and JSON. They name no host and no software."""

import json
import re
from collections.abc import Iterator
from importlib import resources
from typing import Any, NamedTuple, TypeAlias

from os_prefilter.common.quoting import escape_line
from os_prefilter_tools.operators.offer.offered_values import Offer, Status, Value

_TITLE = "What this cloud offers"
_ALONE = (
    "Each value is offered by at least one host. Two values together may be on different hosts, and a host may be full."
)
_NOTHING = "No enabled host offers any of the values that are known."
_REQUIRES_NOTHING = "Values that require nothing of a host"
_CODE = re.compile(r"[A-Za-z0-9_.:+-]+")
# ASCII punctuation that Markdown may take for markup, or for a link without markup.
_MARKUP = re.compile(r"[\\`*_{}\[\]<>()#+!|~&:.@-]")


class _CellPart(NamedTuple):
    """A part of a cell."""

    name: str = ""
    """Untrusted text, shown as code."""
    note: str = ""
    """Trusted text after it."""


_Row: TypeAlias = list[list[_CellPart]]


class _Table(NamedTuple):
    heading: str
    columns: tuple[str, ...]
    rows: list[_Row]


def as_markdown(offer: Offer, *, count: bool = False) -> str:
    """Format the offer as Markdown with tables; ``count`` adds how many hosts serve a value."""
    lines = [f"# {_TITLE}"]
    for sentence in _sentences(offer):
        lines += ["", sentence]
    for table in _tables(offer, count=count):
        if table.heading:
            lines += ["", f"## {table.heading}"]
        lines += ["", _line(map(_escape, table.columns)), _line("---" for _ in table.columns)]
        lines += [_line(", ".join(map(_markdown, cell)) for cell in row) for row in table.rows]
    return "\n".join(lines) + "\n"


def as_html(offer: Offer, *, count: bool = False) -> str:
    """Format the offer as one self-contained page; ``count`` adds how many hosts serve a value.

    :raises ModuleNotFoundError: Jinja2 is not installed
    """
    # Late: only the page needs Jinja2.
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415

    template = (resources.files("os_prefilter_tools") / "data" / "offer.html").read_text(encoding="utf-8")
    page = Environment(autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True).from_string(template)
    return page.render(title=_TITLE, sentences=list(_sentences(offer)), tables=list(_tables(offer, count=count)))


def as_json(offer: Offer, *, count: bool = False) -> str:
    """Format the offer as JSON, with values that are not offered; ``count`` adds how many hosts serve a value."""
    document: dict[str, Any] = {}
    if offer.taken_at:
        document["taken_at"] = offer.taken_at
    if offer.by:
        document |= {"by": offer.by, "places": list(offer.places)}
    document["properties"] = [
        {
            **{name: value for name, value in zip(each._fields, each, strict=True) if name != "values" and value},
            "values": [_value(value, offer, count=count) for value in each.values],
        }
        for each in offer.properties
    ]
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


def _value(value: Value, offer: Offer, *, count: bool) -> dict[str, Any]:
    document: dict[str, Any] = {"value": value.value, "status": str(value.status)}
    if value.reason:
        document["reason"] = value.reason
    if value.status is Status.OFFERED:
        places = {name: number for name, number in zip(offer.places, value.by_place, strict=True) if number}
        if count:
            document["hosts"] = value.hosts
        if offer.by:
            document["places"] = places if count else list(places)
    return document


def _sentences(offer: Offer) -> Iterator[str]:
    offered = any(value.status is Status.OFFERED for each in offer.properties for value in each.values)
    yield _ALONE if offered else _NOTHING
    if offer.taken_at:
        yield f"As of {offer.taken_at}."


def _tables(offer: Offer, *, count: bool) -> Iterator[_Table]:
    """Yield the tables of the Markdown and the HTML format."""
    places = tuple(map(escape_line, offer.places)) or ("Values",)
    offered, free = list[_Row](), list[_Row]()
    for each in offer.properties:
        own = [_cell(each.image_property) or _cell(each.image_field, " (a field of the image)"), _cell(each.extra_spec)]
        # With the number of hosts in each place.
        served = [
            (value.value, value.by_place if offer.places else (value.hosts,))
            for value in each.values
            if value.status is Status.OFFERED
        ]
        if served:
            cells = (
                [part for value, hosts in served if hosts[place] for part in _cell(value, f" ({hosts[place]})" * count)]
                for place in range(len(places))
            )
            offered.append([*own, *cells])
        free += [
            [*own, _cell(value.value), [_CellPart(note=value.reason)]]
            for value in each.values
            if value.status is Status.REQUIRES_NOTHING
        ]
    names = ("Image property", "Flavor extra spec")
    if offered:
        yield _Table("", (*names, *places), offered)
    if free:
        yield _Table(_REQUIRES_NOTHING, (*names, "Value", "Why"), free)


def _cell(name: str, note: str = "") -> list[_CellPart]:
    return [_CellPart(escape_line(name), note)] if name else []


def _markdown(part: _CellPart) -> str:
    return (f"`{part.name}`" if _CODE.fullmatch(part.name) else _escape(part.name)) + part.note


def _escape(text: str) -> str:
    return _MARKUP.sub(r"\\\g<0>", text)


def _line(cells: Any) -> str:
    return f"| {' | '.join(cells)} |"
