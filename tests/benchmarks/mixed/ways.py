"""The ways to schedule that are compared, as lines of nova.conf."""

from dataclasses import dataclass

from os_prefilter.conf.options import Options
from os_prefilter.filters.loading import load_filters
from os_prefilter.filters.report_scope import report_scope

_OPTIONS = """[scheduler]
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
SCOPE = report_scope(load_filters(_FILTERS.split(","), None), Options(reported_traits=tuple(_REPORTED.split(","))))
"""The traits that the agent reports in such a cloud."""


@dataclass(frozen=True)
class Way:
    """One way."""

    name: str
    what: str
    nova_conf: str
    ours: bool = False
    """Whether the filters are this library's, and its agent runs on the hosts."""


def _nova(*, prefilters: bool = False, host_filters: str = "") -> str:
    return _OPTIONS.format(prefilters=str(prefilters).lower(), host_filters=host_filters, more="")


WAYS: tuple[Way, ...] = (
    Way("no filter", "Nova 34 without ImagePropertiesFilter", _nova()),
    Way(
        "properties",
        "Nova 34 as it comes: ImagePropertiesFilter among the candidates",
        _nova(host_filters="ImagePropertiesFilter"),
    ),
    Way("prefilters", "Nova's prefilters for image properties and types, switched on", _nova(prefilters=True)),
    Way(
        "both",
        "Nova's prefilters, and ImagePropertiesFilter",
        _nova(prefilters=True, host_filters="ImagePropertiesFilter"),
    ),
    Way(
        "os-prefilter",
        "this library's filters in that nova-scheduler, its agent on the hosts",
        _OPTIONS.format(prefilters="false", host_filters="", more="available_filters = os_prefilter.nova.activate\n")
        + _OURS,
        ours=True,
    ),
)
