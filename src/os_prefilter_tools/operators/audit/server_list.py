# SPDX-License-Identifier: Apache-2.0

"""Reader of server lists: servers, their hosts, request specs of Nova.

``docs/audit.rst`` has the statement that selects them. An entry has ``uuid``,
``name``, ``project``, ``node`` or ``host``, ``machine_type``, ``vm_state``,
``launched_at``, ``ports``, ``group``, and as ``spec`` the column of that name
of Nova's table ``request_specs``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from os_prefilter.adapters.from_json import (
    request_spec_fields,
    request_spec_from,
)
from os_prefilter.common.errors import DocumentError
from os_prefilter.documents.schema import find_mistakes
from os_prefilter.request.view import UNKNOWN_MACHINE_TYPE
from os_prefilter_tools.fleet.server import (
    Server,
    ServerGroup,
    find_why_no_place,
    needs_of_ports,
)
from os_prefilter_tools.operators.audit.entry_list import Broken, read_entries

_TEXT = {"type": ["string", "null"], "expected": "text"}
_NUMBER = {
    "type": ["integer", "string"],
    "pattern": "^[0-9]+$",
    "minimum": 1,
    "expected": "a number of servers",
}
_SERVER = {
    "type": "object",
    "expected": "a server: an object with uuid, node, project and spec",
    "properties": {
        **dict.fromkeys(
            (
                "uuid",
                "name",
                "project",
                "node",
                "host",
                "machine_type",
                "vm_state",
                "launched_at",
            ),
            _TEXT,
        ),
        "ports": {
            "type": ["array", "null"],
            "items": {"type": ["string", "object", "null"]},
            "expected": "a list",
        },
        "group": {
            "type": ["object", "null"],
            "expected": (
                "a server group: an object with uuid, policy and rules"
            ),
            "properties": {
                **dict.fromkeys(("uuid", "policy"), _TEXT),
                "rules": {
                    "type": ["object", "null"],
                    "properties": {"max_server_per_host": _NUMBER},
                    "expected": "an object",
                },
            },
        },
    },
}
_ADVICE = "Select it with the statement in the documentation."


def read_servers(path: str | Path, broken: Broken) -> Iterator[Server]:
    """Yield the servers in a file; report entries that are none.

    :raises DocumentError: if there is no such file, it cannot be read, is too
        large, or is no list of servers.
    """
    return read_entries(
        path, "server", partial(server_from, groups={}), broken
    )


def server_from(
    entry: object, groups: dict[str, ServerGroup | None]
) -> Server:
    """Return the server in an entry of a list.

    :param groups: the server groups of other entries by UUID, and of this one
        afterwards
    :raises DocumentError: it is none, has no place for its host, or no request
        spec that can be read
    """
    mistakes = find_mistakes(_SERVER, entry, "it")
    if mistakes:
        raise DocumentError("", mistakes[0].text)
    data: Mapping[str, Any] = entry  # type: ignore[assignment]
    if "node" not in data and "host" not in data:
        raise DocumentError(
            "", f"neither node nor host: its host is not known. {_ADVICE}"
        )
    if "project" not in data:
        raise DocumentError("", f"no project. {_ADVICE}")
    if data.get("spec") is None:
        raise DocumentError(
            "",
            "no request spec in spec: Nova has none for it, or it was not"
            f" selected. {_ADVICE}",
        )
    fields = request_spec_fields(
        data if isinstance(data["spec"], str) else data["spec"], ""
    )
    request = request_spec_from(fields, "")
    if request.project_id is None:
        # The plain form may leave it out; filters and rules read it.
        request.project_id = data.get("project")
    not_judged = _needs_of_ports(data)
    # Of a flavor with an alias, the flavor says it as well.
    pci_requests = (fields.get("pci_requests") or {}).get("requests") or ()
    if any(not each.get("alias_name") for each in pci_requests):
        not_judged.append("PCI devices of ports")
    if fields.get("numa_topology"):
        not_judged.append("a NUMA topology")
    if "group" not in data and fields.get("instance_group"):
        # The group may have been deleted since, and its rules are not stored
        # here.
        not_judged.append("a server group, which is not in the entry")
    host = data.get("node") or data.get("host") or ""
    state = data.get("vm_state") or ""
    texts = {
        name: data.get(name) or "" for name in ("uuid", "name", "project")
    }
    return Server(
        request=request,
        host=host,
        **texts,
        machine_type=data.get("machine_type", UNKNOWN_MACHINE_TYPE),
        not_judged=tuple(dict.fromkeys(not_judged)),
        group=_group(data.get("group"), groups),
        no_place=find_why_no_place(state, host, data.get("launched_at")),
    )


def _needs_of_ports(data: Mapping[str, Any]) -> list[str]:
    """Return what the ports of a server require of its host."""
    if "ports" not in data:
        return ["ports, which are not in the entry"]
    ports = data["ports"] or ()
    types = [each for each in ports if isinstance(each, str)]
    # A port with a guaranteed bandwidth has the providers that give it.
    has_resources = any(isinstance(each, dict) for each in ports)
    return needs_of_ports(types, has_resources=has_resources)


def _group(
    data: Mapping[str, Any] | None, groups: dict[str, ServerGroup | None]
) -> ServerGroup | None:
    """Return the server group of an entry, one object for all members."""
    # A join that finds no group leaves an object without values.
    if data is None or not data.get("uuid"):
        return None
    uuid = data["uuid"]
    if uuid not in groups:
        policy, rules = data.get("policy"), data.get("rules")
        groups[uuid] = ServerGroup.of(uuid, policy, rules)
    return groups[uuid]
