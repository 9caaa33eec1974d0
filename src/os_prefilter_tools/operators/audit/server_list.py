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

"""Reader of server lists: servers with their hosts and the request specs that Nova stores.

``docs/audit.rst`` has the statement that selects them. An entry has ``uuid``, ``name``, ``project``, ``node``
or ``host``, ``machine_type``, and as ``spec`` the column of that name of Nova's table ``request_specs``.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from os_prefilter.adapters.from_json import request_spec_fields, request_spec_from
from os_prefilter.common.errors import DocumentError
from os_prefilter.documents.schema import find_mistakes
from os_prefilter.request.view import UNKNOWN_MACHINE_TYPE
from os_prefilter_tools.fleet.server import Server
from os_prefilter_tools.operators.audit.entry_list import Broken, read_entries

_TEXT = {"type": ["string", "null"], "expected": "text"}
_SERVER = {
    "type": "object",
    "expected": "a server: an object with uuid, node, project and spec",
    "properties": dict.fromkeys(("uuid", "name", "project", "node", "host", "machine_type"), _TEXT),
}
_ADVICE = "Select it with the statement in the documentation."


def read_servers(path: str | Path, broken: Broken) -> Iterator[Server]:
    """Yield the servers in a file; report an entry that is none to ``broken``, and skip it.

    :raises DocumentError: if there is no such file, it cannot be read, is too large, or is no list of servers.
    """
    return read_entries(path, "server", server_from, broken)


def server_from(entry: object) -> Server:
    """Return the server in an entry of a list.

    :raises DocumentError: it is none, has no place for its host, or no request spec that can be read
    """
    mistakes = find_mistakes(_SERVER, entry, "it")
    if mistakes:
        raise DocumentError("", mistakes[0].text)
    data: Mapping[str, Any] = entry  # type: ignore[assignment]
    if "node" not in data and "host" not in data:
        raise DocumentError("", f"neither node nor host: its host is not known. {_ADVICE}")
    if "project" not in data:
        raise DocumentError("", f"no project. {_ADVICE}")
    if data.get("spec") is None:
        raise DocumentError("", f"no request spec in spec: Nova has none for it, or it was not selected. {_ADVICE}")
    fields = request_spec_fields(data if isinstance(data["spec"], str) else data["spec"], "")
    request = request_spec_from(fields, "")
    if request.project_id is None:
        # The plain form may leave it out; filters and rules read it.
        request.project_id = data.get("project")
    not_judged = {
        # What nova-scheduler's own host filters judge.
        "PCI devices": (fields.get("pci_requests") or {}).get("requests"),
        "a NUMA topology": fields.get("numa_topology"),
        "a server group": fields.get("instance_group"),
        "a device profile": request.flavor.extra_specs.get("accel:device_profile"),
    }
    return Server(
        request=request,
        host=data.get("node") or data.get("host") or "",
        uuid=data.get("uuid") or "",
        name=data.get("name") or "",
        project=data.get("project") or "",
        machine_type=data.get("machine_type", UNKNOWN_MACHINE_TYPE),
        not_judged=tuple(what for what, value in not_judged.items() if value),
    )
