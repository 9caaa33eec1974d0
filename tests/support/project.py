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

"""pyproject.toml, as data."""

import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]


def our_commands() -> dict[str, EntryPoint]:
    """Return the commands of ``os-prefilter`` by what a user types."""
    ours = (it for it in entry_points(group="openstack.prefilter.v1") if it.value.startswith("os_prefilter_tools."))
    return {point.name.removeprefix("prefilter_").replace("_", " "): point for point in ours}


def project_table() -> dict[str, Any]:
    """Return the table ``[project]``."""
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return table
