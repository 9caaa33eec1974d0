# SPDX-License-Identifier: Apache-2.0

"""The audit as one self-contained web page.

No text of a tenant becomes markup.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Sequence
from datetime import datetime, timezone
from importlib.metadata import version
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

from os_prefilter.common.host_sets import numbers_in, size_of
from os_prefilter.common.quoting import escape_line, pluralize
from os_prefilter_tools.cli.audit_rows import SummaryLine, Totals
from os_prefilter_tools.operators.audit.image_audit import Audit, ImageVerdict
from os_prefilter_tools.operators.audit.server_audit import (
    MOST_HOSTS,
    ServerAudit,
    ServerVerdict,
)

Lines = list[tuple[SummaryLine, bool]]
"""Lines of the printed summary, each with whether it is a warning."""

_MOST_ROWS = 5_000
"""Maximum number of lines of a page, the worst first.

Browsers take seconds to lay out more.
"""


class _Section(NamedTuple):
    """The lines of one verdict."""

    verdict: ImageVerdict | ServerVerdict
    number: int
    """How many images or servers have the verdict."""
    lines: Sequence[Any]
    of: int
    """How many lines there are; the page has the first ones."""


def _sections_of(found: Audit | ServerAudit) -> list[_Section]:
    """Return the verdicts that occur, the worst first, and the first lines."""
    sections: list[_Section] = []
    left = _MOST_ROWS
    for verdict, group in groupby(found.lines, key=attrgetter("verdict")):
        lines = list(group)
        number = found.count(verdict)
        first = lines[:left]
        sections.append(_Section(verdict, number, first, len(lines)))
        left -= len(first)
    return sections


def _hash_of(text: str) -> str:
    """Return the hash that allows a script or style in the page.

    It is for the page's Content-Security-Policy.
    """
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{b64encode(digest).decode()}"


def _printable(value: object) -> object:
    """Escape what is no printable line, in any text that a template writes."""
    # Markup, which is another type, is the templates' own.
    return escape_line(value) if type(value) is str else value


def render_page(found: Audit | ServerAudit, lines: Lines) -> str:
    """Return the page of an audit of images or servers."""
    # Slow to import.
    from jinja2 import (  # noqa: PLC0415
        Environment,
        PackageLoader,
        StrictUndefined,
    )
    from markupsafe import Markup  # noqa: PLC0415

    loader = PackageLoader("os_prefilter_tools", "data")
    environment = Environment(
        loader=loader,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=_printable,
    )
    style, script = (
        Markup(loader.get_source(environment, f"audit.{name}")[0])  # noqa: S704
        for name in ("css", "js")
    )
    environment.filters |= {"pluralize": pluralize, "printable": _printable}
    what = "images" if isinstance(found, Audit) else "servers"
    template = environment.get_template(f"audit_{what}.html")
    return template.render(
        found=found,
        style=style,
        script=script,
        hash_of=_hash_of,
        lines=[
            (line, warning)
            for line, warning in lines
            if not isinstance(line, Totals)
        ],
        sections=_sections_of(found),
        most_rows=_MOST_ROWS,
        numbers_in=numbers_in,
        size_of=size_of,
        most_named=MOST_HOSTS,
        version=version("os-prefilter"),
        now=f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC",
    )
