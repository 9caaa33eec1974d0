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

"""The ways to schedule that are compared, as lines of nova.conf."""

from typing import NamedTuple

from os_prefilter.service.loading import load_filters
from os_prefilter.service.wanted import wanted_parts
from os_prefilter.vocabulary.options import Options

_NOVA = """[scheduler]
image_metadata_prefilter = {prefilters}
query_placement_for_image_type_support = {prefilters}
[filter_scheduler]
available_filters = nova.scheduler.filters.all_filters
{more}enabled_filters = {host_filters}
weight_classes =
shuffle_best_same_weighed_hosts = true
"""
_FILTERS = (
    "image_metadata,image_type,hpet,packed_virtqueue,sound_model,tpm_secret_security,deploy_config,"
    "ephemeral_encryption,accelerators,compute_status,owner"
)
# What the images of this cloud name, and its drivers do not report.
_REPORTED = "CUSTOM_COMPUTE_*MACHINE_*,COMPUTE_FIRMWARE_UEFI,CUSTOM_HYPERVISOR_TYPE_*"
_OURS = f"""[prefilter]
enabled_filters = {_FILTERS}
reported_traits = {_REPORTED}
trait_scope = root_and_unsuffixed
"""
WANTED = wanted_parts(load_filters(_FILTERS.split(","), None), Options(reported_traits=tuple(_REPORTED.split(","))))
"""The traits that the agent reports in such a cloud."""


class Way(NamedTuple):
    name: str
    what: str
    nova_conf: str
    ours: bool = False
    """Whether the filters are this library's, and its agent runs on the hosts."""


def _conf(*, prefilters: bool = False, host_filters: str = "", more: str = "") -> str:
    return _NOVA.format(prefilters=str(prefilters).lower(), host_filters=host_filters, more=more)


_PROPERTIES, _ACTIVATE = "ImagePropertiesFilter", "available_filters = os_prefilter.nova.activate\n"
WAYS: tuple[Way, ...] = (
    Way("no filter", f"Nova 34 without {_PROPERTIES}", _conf()),
    Way("properties", f"Nova 34 as it comes: {_PROPERTIES} among the candidates", _conf(host_filters=_PROPERTIES)),
    Way("prefilters", "Nova's prefilters for image properties and types, switched on", _conf(prefilters=True)),
    Way("both", f"Nova's prefilters, and {_PROPERTIES}", _conf(prefilters=True, host_filters=_PROPERTIES)),
    Way(
        "os-prefilter",
        "this library's filters in that nova-scheduler, its agent on the hosts",
        _conf(more=_ACTIVATE) + _OURS,
        ours=True,
    ),
)
