"""The query string is Nova's, for any request that Nova takes: compared with Nova's own code on Nova's own objects.

CPU pinning and persistent memory are left out: ``allocation_candidates_query`` does not translate them yet.
"""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from nova import exception, objects
from nova.scheduler.utils import ResourceRequest

from os_prefilter import allocation_candidates_query
from os_prefilter.errors import RequestRejected
from os_prefilter.vocabulary import BY_NAME, rows_asked_by
from tests.nova_objects import nova_flavor

# What differs in either direction for one property alone is left to the comparison of the filters.
_ROWS = [row for row in rows_asked_by("query") if row.name != "cpu_thread_policy"] + [BY_NAME["firmware_type"]]
_TRAITS = ["HW_CPU_X86_AVX2", "OWNER_NOVA", "CUSTOM_RAID"]
_CLASSES = ["VCPU", "PCPU", "MEMORY_MB", "DISK_GB", "VGPU", "CUSTOM_IRON", "NO_SUCH_CLASS"]
_SUFFIXES = ["", "1", "_gpu"]


def _values(row: Any) -> list[str]:
    return list(row.values)


@st.composite
def properties(draw: st.DrawFn) -> dict[str, str]:
    """Return properties of an image."""
    rows = draw(st.lists(st.sampled_from([row for row in _ROWS if row.image_property]), max_size=4, unique_by=id))
    found = {str(row.image_property): draw(st.sampled_from(_values(row))) for row in rows}
    return found | {f"trait:{each}": "required" for each in draw(st.sets(st.sampled_from(_TRAITS), max_size=2))}


@st.composite
def extra_specs(draw: st.DrawFn) -> dict[str, str]:
    """Return extra specs of a flavor."""
    rows = draw(st.lists(st.sampled_from([row for row in _ROWS if row.extra_spec]), max_size=3, unique_by=id))
    found = {str(row.extra_spec): draw(st.sampled_from(_values(row))) for row in rows}
    amounts = st.sampled_from(["0", "1", "7", "-1", "one"])
    for suffix, name in draw(st.sets(st.tuples(st.sampled_from(_SUFFIXES), st.sampled_from(_CLASSES)), max_size=4)):
        found[f"resources{suffix}:{name}"] = draw(amounts)
    for suffix, name in draw(st.sets(st.tuples(st.sampled_from(_SUFFIXES), st.sampled_from(_TRAITS)), max_size=3)):
        found[f"trait{suffix}:{name}"] = draw(st.sampled_from(["required", "forbidden", "wanted"]))
    if draw(st.booleans()):
        found["group_policy"] = draw(st.sampled_from(["none", "isolate", "other"]))
    return found


@st.composite
def request_specs(draw: st.DrawFn) -> Any:
    """Return a request spec of Nova's."""
    flavor = nova_flavor(extra_specs=draw(extra_specs()))
    for name in ("vcpus", "memory_mb", "root_gb", "ephemeral_gb", "swap"):
        setattr(flavor, name, draw(st.integers(1 if name == "vcpus" else 0, 5000)))
    image = objects.ImageMeta.from_dict({"name": "i", "disk_format": "raw", "properties": draw(properties())})
    spec = objects.RequestSpec(flavor=flavor, image=draw(st.sampled_from([image, None])), is_bfv=draw(st.booleans()))
    groups = []
    for name in draw(st.sets(st.sampled_from(["pci-0", "device_profile_0", "22222222-2222-4222-8222-222222222222"]))):
        group = objects.RequestGroup(requester_id=name, resources={draw(st.sampled_from(["VGPU", "FPGA"])): 1})
        group.obj_set_defaults()
        group.required_traits |= draw(st.sets(st.sampled_from(_TRAITS), max_size=2))
        groups.append(group)
    spec.requested_resources = groups
    spec.root_required.update(draw(st.sets(st.sampled_from(_TRAITS))))
    spec.root_forbidden.update(draw(st.sets(st.sampled_from(["COMPUTE_STATUS_DISABLED"]))))
    return spec


@settings(max_examples=400)
@given(request_specs())
def test_the_query_is_novas(spec: Any) -> None:
    """Where Nova rejects a request, ours may too; where Nova takes it, the strings are equal."""
    try:
        # Nova gives groups without resources an empty parameter, which Placement refuses.
        theirs = "&".join(part for part in _nova_query(spec).split("&") if not part.endswith("="))
    except (exception.NovaException, ValueError):
        return
    assert _our_query(spec) == theirs


def _nova_query(spec: Any) -> str:
    request = ResourceRequest.from_request_spec(spec.obj_clone())
    # resources_from_request_spec, which asks the database for hosts, does this too.
    if request.get_num_of_suffixed_groups() >= 2 and not request.group_policy:
        request.group_policy = "none" if request.suffixed_groups_from_flavor <= 1 else None
    query: str = request.to_querystring()
    return query


def _our_query(spec: Any) -> str:
    try:
        return allocation_candidates_query(spec)
    except RequestRejected as error:
        return f"rejected: {error}"
