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

"""Device models and guest types that an image requests, as traits of the host (spec image-metadata-prefiltering)."""

from os_prefilter.request.requirements import Requirements
from os_prefilter.request.row_requirements import forbid_incapable_hosts, require_rows
from os_prefilter.request.values import rows_of
from os_prefilter.request.view import Request
from os_prefilter.vocabulary import ROWS
from os_prefilter.vocabulary.machine_types import families_without
from os_prefilter.vocabulary.options import Options

# Nova requires their traits, which say nothing of the machine type.
_ROWS_OF_NOVA = frozenset(
    row for row in ROWS if "query" in row.required_by and any(families_without(row.name, each) for each in row.values)
)


def image_metadata(request: Request, *, options: Options) -> Requirements:
    """Require what the host must emulate: VIF, video, buses, architecture, vIOMMU, sound, USB, firmware, machine type.

    :raises ImpossibleCombination: for a device that the requested machine type can never have.
    """
    requirements = require_rows(request, rows_of(request, "image_metadata"), options)
    others = [row for row in rows_of(request, "query") if row in _ROWS_OF_NOVA]
    return requirements + forbid_incapable_hosts(request, others, options) if others else requirements
