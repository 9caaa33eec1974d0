"""Rows and summary of an audit of images."""

from collections.abc import Iterator
from typing import Any

from os_prefilter.common.quoting import pluralize, shorten
from os_prefilter_tools.cli.audit_page import format_loss
from os_prefilter_tools.cli.listing import Cell, cut, escape_formula, first_of
from os_prefilter_tools.operators.audit.entry_list import LeftOut
from os_prefilter_tools.operators.audit.image_audit import (
    BECOMES_UNSCHEDULABLE,
    CHANGED,
    MOST_UNKNOWN,
    Audit,
    ImageLine,
    ImageVerdict,
)

_MOST_NAMES = 3
_ONLY = {"changed": CHANGED, "unschedulable": BECOMES_UNSCHEDULABLE}


def image_rows(found: Audit, *, only: str | None, is_csv: bool) -> tuple[tuple[str, ...], list[Any]]:
    """Return the columns and rows of the listing.

    :param only: ``changed``, ``unschedulable``, or None for all
    """
    waiting = ("Waiting",) * found.is_waiting
    columns = ("Images", "Count", "Flavor", "Before", *waiting, "After", "Verdict", "Lost to")
    verdicts = _ONLY[only] if only else frozenset(ImageVerdict)
    lines = (line for line in found.lines if line.verdict in verdicts)
    return columns, [_row(line, is_csv=is_csv, is_waiting=found.is_waiting) for line in lines]


def _row(line: ImageLine, *, is_csv: bool, is_waiting: bool) -> tuple[Any, ...]:
    names, flavor = "; ".join(line.names), line.flavor
    if is_csv:
        names, flavor = escape_formula(names), escape_formula(flavor)
    lost = [format_loss(loss) for loss in line.losses]
    lost += [f"only together: {line.combined}"] * bool(line.combined)
    losses = [
        {**loss.cause._asdict(), "hosts_lacking": loss.lacking, "hosts_lacking_only_this": loss.lacking_only}
        for loss in line.losses
    ]
    return (
        Cell(
            list(line.names),
            "\n".join(shorten([cut(name) for name in line.names[:_MOST_NAMES]], _MOST_NAMES, line.images)),
            names,
        ),
        line.images,
        flavor,
        *(each.bit_count() for each in (line.before, *[line.waiting] * is_waiting, line.after)),
        f"{line.verdict}: {line.reason}" if line.reason else str(line.verdict),
        Cell(losses, "\n".join(lost), "; ".join(lost)),
    )


def image_document(result: Audit, left_out: LeftOut) -> dict[str, Any]:
    """Return the summary for JSON and YAML."""
    return {
        "images": result.images,
        "flavors": result.flavors,
        "hosts": result.hosts,
        "verdicts": {str(verdict): result.count(verdict) for verdict in ImageVerdict},
        "not_met": [{**cause._asdict(), "images": images} for cause, images in result.unserved],
        "unused_hosts": list(result.unused),
        "newly_unused_hosts": list(result.newly_unused),
        "not_required_yet": dict(result.waits),
        "not_required": dict(result.unknown),
        "left_out": left_out.as_document(),
    }


def image_summary(result: Audit) -> Iterator[str]:
    """Yield the lines beside the listing."""
    flavors = f" with {pluralize(result.flavors, 'flavor')} each" * bool(result.flavors)
    groups = pluralize(len(result.lines), "group")
    yield f"{pluralize(result.images, 'image')}{flavors}, in {groups}, on {pluralize(result.hosts, 'host')}."
    if result.lines:
        yield (
            f"Become unschedulable: {result.count(*BECOMES_UNSCHEDULABLE)}. "
            f"Lose hosts: {result.count(ImageVerdict.LOSES)}. "
            f"Were unschedulable before: {result.count(ImageVerdict.ALREADY, ImageVerdict.ALREADY_REJECTED)}."
        )
        yield from first_of(
            "No host meets",
            [
                f"{cause.rule} {cause.trait} ({cause.because}; {pluralize(images, 'image')})"
                for cause, images in result.unserved
            ],
        )
        yield from first_of("Hosts that serve no image", result.unused)
        yield from first_of("Hosts of these that served one before", result.newly_unused)
    yield from first_of("Not required yet", [f"{text} ({pluralize(number, 'image')})" for text, number in result.waits])
    if result.is_waiting:
        yield (
            "Waiting: the hosts until every compute node has reported. After: the hosts from then on, where one that "
            "has not reported counts as one that cannot."
        )
    counted = f", of which {MOST_UNKNOWN} are counted" * (len(result.unknown) >= MOST_UNKNOWN)
    unknown = [f"{text} ({pluralize(number, 'image')})" for text, number in result.unknown]
    yield from first_of(f"Not required{counted}", unknown)
