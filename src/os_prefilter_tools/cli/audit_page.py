#    Licensed under the Apache License, Version 2.0 (the "License"); you may
#    not use this file except in compliance with the License. You may obtain
#    a copy of the License at
#
#         http://www.apache.org/licenses/LICENSE-2.0
#
#    Unless required by applicable law or agreed to in writing, software
#    distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
#    WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
#    License for the specific language governing permissions and limitations
#    under the License.

"""The audit as one self-contained web page without a script, in which no text of a tenant becomes markup."""

from collections.abc import Iterable, Sequence
from typing import Any

from os_prefilter.common.quoting import pluralize
from os_prefilter_tools.cli.audit_rows import image_rows, server_rows
from os_prefilter_tools.cli.listing import SummaryLine
from os_prefilter_tools.operators.audit.image_audit import Audit
from os_prefilter_tools.operators.audit.server_audit import ServerAudit

_MOST_ROWS = 5_000
"""Maximum number of rows of a table, the worst first: browsers take seconds to lay out more."""


def image_page(found: Audit, lines: Iterable[tuple[SummaryLine, bool]]) -> str:
    """Return the page of an audit of images.

    :param lines: of the summary that the command prints, each with whether it is a warning
    """
    title = f"Audit: {pluralize(found.images, 'image')} on {pluralize(found.hosts, 'host')}"
    return _render(title, lines, [("Images", *image_rows(found, only=None, is_csv=False))])


def server_page(found: ServerAudit, lines: Iterable[tuple[SummaryLine, bool]]) -> str:
    """Return the page of an audit of servers, with tables of hosts and projects.

    :param lines: of the summary that the command prints, each with whether it is a warning
    """
    title = f"Audit: {pluralize(found.servers, 'server')} on {pluralize(found.hosts, 'host')}"
    hosts = [(each.host, each.servers, each.stranded, str(each)) for each in found.of_hosts]
    projects = [(project or "no project", *numbers) for project, *numbers in found.of_projects]
    tables = [
        ("Servers", *server_rows(found, only_stranded=False, is_csv=False)),
        ("Hosts", ("Host", "Servers", "Without a destination", "If the host dies"), hosts),
        ("Projects", ("Project", "Servers", "Without a destination"), projects),
    ]
    return _render(title, lines, tables)


def _render(
    title: str,
    lines: Iterable[tuple[SummaryLine, bool]],
    tables: Sequence[tuple[str, Sequence[str], Sequence[Any]]],
) -> str:
    # Slow to import.
    from jinja2 import Environment, PackageLoader  # noqa: PLC0415

    loader = PackageLoader("os_prefilter_tools", "data")
    environment = Environment(loader=loader, autoescape=True, trim_blocks=True)
    template = environment.get_template("audit.html")
    return template.render(title=title, lines=lines, tables=tables, most_rows=_MOST_ROWS)
