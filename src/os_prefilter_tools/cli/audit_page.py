"""The audit as one self-contained web page, in which a browser takes no text of a tenant for code."""

import base64
import hashlib
from collections import Counter
from collections.abc import Sequence
from importlib import resources
from typing import Any

from os_prefilter.common.quoting import escape_line
from os_prefilter.service import Service
from os_prefilter_tools.cli.audit_rows import destinations_of, format_cause, format_conflict, format_loss, format_name
from os_prefilter_tools.fleet.model import Fleet
from os_prefilter_tools.operators.audit.entry_list import LeftOut
from os_prefilter_tools.operators.audit.image_audit import (
    BECOMES_UNSCHEDULABLE,
    Audit,
    FilterChange,
    ImageLine,
    ImageVerdict,
)
from os_prefilter_tools.operators.audit.server_audit import STRANDED, URGENT, ServerAudit

MOST_COLUMNS = 24
"""Maximum number of host groups, the largest, with a column of their own; all others share one."""
_MOST_GROUPS = 200
_MOST_NAMES = 100
_MOST_ITEMS = 200
_MOST_SHOWN = 3
"""Of the destinations of a server."""
_KEPT, _LOST, _NEVER = "+", "-", "."


def page(audit: Audit, change: FilterChange, left_out: LeftOut | None = None, taken_at: str = "") -> str:
    """Return the page.

    :param left_out: the entries of the list that are not images.
    :param taken_at: the time at which the fleet was read; empty if unknown.
    """
    enabled = [each.name for each in change.before.filters]
    return _render(
        "audit.html",
        audit=audit,
        before=enabled,
        added=[each.name for each in change.after.filters if each.name not in enabled],
        left_out=left_out,
        taken_at=escape_line(taken_at),
        unserved=[(format_cause(cause), cause.because, images) for cause, images in audit.unserved[:_MOST_ITEMS]],
        unknown=audit.unknown[:_MOST_ITEMS],
        waits=audit.waits[:_MOST_ITEMS],
        host_groups=_host_groups(audit),
        data=_data(audit),
    )


def server_page(audit: ServerAudit, service: Service, left_out: LeftOut, fleet: Fleet, not_read: str = "") -> str:
    """Return the page of an audit of servers.

    :param not_read: why not all servers were read; empty if they were
    """
    lines = [
        {
            "names": [format_name(server) for server in line.servers],
            "count": len(line.servers),
            "host": line.host,
            "project": line.project,
            "now": line.now.bit_count(),
            "if_died": line.if_died.bit_count(),
            **({"without": line.without.bit_count()} if audit.drained else {}),
            "verdict": line.verdict,
            "reason": line.reason or format_conflict(line.conflict),
            "hosts": destinations_of(line, audit)[:_MOST_SHOWN],
        }
        for line in audit.lines
    ]
    return _render(
        "audit-servers.html",
        audit=audit,
        filters=[each.name for each in service.filters],
        drained=", ".join(map(escape_line, audit.drained)),
        left_out=left_out,
        not_read=not_read,
        fleet=fleet,
        most_items=_MOST_ITEMS,
        verdicts=[(verdict, audit.count(verdict)) for verdict in URGENT],
        data={"kind": "servers", "verdicts": URGENT, "worst": sorted(STRANDED), "lines": lines},
    )


def _render(template: str, **values: object) -> str:
    """Return a page with its style and its script, which alone a browser may use."""
    # Slow to import.
    from jinja2 import Environment, FunctionLoader  # noqa: PLC0415
    from markupsafe import Markup  # noqa: PLC0415

    environment = Environment(loader=FunctionLoader(_file), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    style, script = _file("audit.css"), _file("audit.js")
    return environment.get_template(template).render(
        style=Markup(style),  # noqa: S704 - ours
        script=Markup(script),  # noqa: S704 - ours
        policy=f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'; "
        "form-action 'none'",
        **values,
    )


def _data(audit: Audit) -> dict[str, Any]:
    """Return the data of the script; the template escapes it, so that it cannot end its element."""
    columns = audit.host_groups[:MOST_COLUMNS]
    # No host is in two groups.
    others = sum(group.hosts for group in audit.host_groups[MOST_COLUMNS:])
    groups = [group.hosts for group in columns]
    return {
        "kind": "images",
        "verdicts": list(ImageVerdict),
        "worst": sorted(BECOMES_UNSCHEDULABLE),
        "groups": [{"name": escape_line(group.names[0]), "hosts": len(group.names)} for group in columns],
        "others": others.bit_count(),
        "lines": [_line(line, groups, others, waiting=audit.is_waiting) for line in audit.lines],
    }


def _line(line: ImageLine, groups: Sequence[int], others: int, *, waiting: bool) -> dict[str, Any]:
    return {
        "names": line.names,
        "count": line.images,
        "flavor": line.flavor,
        "before": line.before.bit_count(),
        **({"waiting": line.waiting.bit_count()} if waiting else {}),
        "after": line.after.bit_count(),
        "verdict": line.verdict,
        "reason": line.reason,
        "lost": [[format_loss(loss), loss.cause.because] for loss in line.losses],
        "combined": line.combined,
        "cells": "".join(_cell(line, hosts) for hosts in groups),
        "others": [(line.before & others).bit_count(), (line.after & others).bit_count()],
    }


def _cell(line: ImageLine, hosts: int) -> str:
    if line.after & hosts:
        return _KEPT
    return _LOST if line.before & hosts else _NEVER


def _host_groups(audit: Audit) -> list[dict[str, Any]]:
    before, after = Counter[int](), Counter[int]()
    for line in audit.lines:
        before[line.before] += line.images
        after[line.after] += line.images

    def images(sets: Counter[int], group: int) -> int:
        return sum(images for hosts, images in sets.items() if hosts & group)

    return [
        {
            "names": [escape_line(name) for name in group.names[:_MOST_NAMES]],
            "hosts": len(group.names),
            "before": images(before, group.hosts),
            "after": images(after, group.hosts),
        }
        for group in audit.host_groups[:_MOST_GROUPS]
    ]


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def _file(name: str) -> str:
    return (resources.files("os_prefilter_tools") / "data" / name).read_text(encoding="utf-8")
