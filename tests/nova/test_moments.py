# SPDX-License-Identifier: Apache-2.0

"""Every reason to reject a request, at each moment of a server's life: what it
has lived with is none.

The request specs are those that Nova's own conductor makes for each moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock
from urllib.parse import parse_qsl

import pytest
from nova import exception, objects
from nova.compute import task_states
from nova.conductor.manager import ComputeTaskManager
from nova.conductor.tasks.live_migrate import LiveMigrationTask
from nova.conductor.tasks.migrate import MigrationTask
from nova.scheduler.host_manager import HostState

from os_prefilter import (
    Destination,
    Flavor,
    Image,
    RequestSpec,
    allocation_candidates_query,
)
from os_prefilter.common import errors
from os_prefilter.common.errors import RequestRejected
from os_prefilter.service import Service
from os_prefilter.vocabulary.model import UnknownValues
from os_prefilter.vocabulary.options import Options, TraitScope
from tests.support.nova_objects import nova_spec
from tests.support.nova_start import Start, our_entry, user_context

_CELL = objects.CellMapping(uuid="11111111-1111-4111-8111-111111111111")
_SERVER = "22222222-2222-4222-8222-222222222222"
_FILTERS = (
    "image_metadata,hpet,packed_virtqueue,ephemeral_encryption,sound_model,"
    "tpm_secret_security,deploy_config"
)


class Rejection(NamedTuple):
    id: str
    reason: str
    """What a user who boots such a server reads."""
    properties: dict[str, Any]
    extra_specs: dict[str, str]
    at_resize: bool
    """Whether the new flavor is rejected beside the server's image."""
    at_rebuild: bool
    """Whether the new image is rejected beside the server's flavor."""


_HPET, _PACKED = (
    "trait:CUSTOM_COMPUTE_TIME_HPET",
    "trait:COMPUTE_NET_VIRTIO_PACKED",
)
_X86 = {"hw_architecture": "x86_64"}
_REJECTIONS = (
    Rejection(
        "flavor names a device",
        "only chooses a host",
        {},
        {_HPET: "required"},
        True,
        False,
    ),
    Rejection(
        "image names a device",
        "only chooses a host",
        {_HPET: "required"},
        {},
        False,
        True,
    ),
    Rejection(
        "flavor names a device, image has it off",
        "contradict each other",
        {"hw_time_hpet": False},
        {_HPET: "required"},
        True,
        False,
    ),
    Rejection(
        "flavor names packed rings, image has them off",
        "contradict each other",
        {"hw_virtio_packed_ring": False},
        {_PACKED: "required"},
        True,
        False,
    ),
    Rejection(
        "flavor forbids a device, image has it on",
        "contradict each other",
        {"hw_time_hpet": True},
        {_HPET: "forbidden"},
        True,
        False,
    ),
    Rejection(
        "image names a device and has it off",
        "contradict each other",
        {"hw_time_hpet": False, _HPET: "required"},
        {},
        False,
        True,
    ),
    Rejection(
        "flavor names packed rings, image another card",
        "is impossible with",
        {"hw_vif_model": "e1000"},
        {_PACKED: "required"},
        True,
        False,
    ),
    Rejection(
        "flavor has packed rings, image another card",
        "is impossible with",
        {"hw_vif_model": "e1000"},
        {"hw:virtio_packed_ring": "true"},
        True,
        True,
    ),
    Rejection(
        "image and flavor have different values",
        "contradict each other",
        {"hw_sound_model": "ich9"},
        {"hw:sound_model": "virtio"},
        True,
        True,
    ),
    Rejection(
        "flavor has an unknown value",
        "unknown value",
        {},
        {"hw:sound_model": "gramophone"},
        True,
        False,
    ),
    Rejection(
        "flavor has an unknown configuration",
        "unknown value",
        {},
        {"deploy-config:turbo": "on"},
        True,
        False,
    ),
    Rejection(
        "image has a device that its machine type lacks",
        "is impossible with",
        {"hw_machine_type": "q35", "hw_disk_bus": "ide"},
        {},
        False,
        True,
    ),
    Rejection(
        "flavor has a device that the machine type lacks",
        "is impossible with",
        {"hw_machine_type": "pc"},
        {"hw:viommu_model": "intel"},
        True,
        True,
    ),
    Rejection(
        "Secure Boot with a BIOS",
        "is impossible with",
        {"hw_firmware_type": "bios"},
        {"os:secure_boot": "required"},
        True,
        True,
    ),
    Rejection(
        "Secure Boot without UEFI",
        "Set hw_firmware_type=uefi",
        _X86,
        {"os:secure_boot": "required"},
        True,
        True,
    ),
    Rejection(
        "Secure Boot of an image without UEFI",
        "Set hw_firmware_type=uefi",
        {**_X86, "os_secure_boot": "required"},
        {},
        False,
        True,
    ),
    Rejection(
        "Secure Boot of a guest of 32 bits",
        "is impossible with",
        {
            "hw_architecture": "i686",
            "hw_firmware_type": "uefi",
            "os_secure_boot": "required",
        },
        {},
        False,
        True,
    ),
    Rejection(
        "TPM 1.2 with CRB",
        "is impossible with",
        {"hw_tpm_version": "1.2", "hw_tpm_model": "tpm-crb"},
        {},
        False,
        True,
    ),
    Rejection(
        "equal numbers of redirected ports",
        "hw:redirected_usb_ports",
        {"hw_redirected_usb_ports": 2},
        {"hw:redirected_usb_ports": "2"},
        True,
        True,
    ),
    Rejection(
        "machine type without a device of Nova's",
        "No guest of Nova has image property hw_machine_type=pc-q35-2.4",
        {"hw_machine_type": "pc-q35-2.4"},
        {},
        False,
        True,
    ),
    Rejection(
        "address bits of the flavor beside passthrough",
        "No guest of Nova has flavor extra spec hw:maxphysaddr_bits='42'",
        {"hw_maxphysaddr_mode": "passthrough"},
        {"hw:maxphysaddr_bits": "42"},
        True,
        True,
    ),
    Rejection(
        "address bits without a mode",
        "set hw_maxphysaddr_mode=emulate as well",
        {"hw_maxphysaddr_bits": 42},
        {},
        False,
        True,
    ),
    Rejection(
        "video memory without a limit in the flavor",
        "use one with hw_video:ram_max_mb=16",
        {"hw_video_ram": 16},
        {},
        # Of a flavor without extra specs, no resize is looked up.
        False,
        True,
    ),
    Rejection(
        "video memory above the flavor's limit",
        "the flavor allows 8 MiB of video memory",
        {"hw_video_ram": 16},
        {"hw_video:ram_max_mb": "8"},
        True,
        True,
    ),
    Rejection(
        "model of a TPM without a version",
        "Set hw_tpm_version=2.0 as well",
        {"hw_tpm_model": "tpm-crb"},
        {},
        False,
        True,
    ),
    Rejection(
        "model of a TPM without a version in the flavor",
        "Set hw_tpm_version=2.0 as well",
        {},
        {"hw:tpm_model": "tpm-tis"},
        True,
        False,
    ),
    Rejection(
        "model of memory encryption without encryption",
        "Set hw_mem_encryption=true as well",
        {"hw_mem_encryption_model": "amd-sev-es"},
        {},
        False,
        True,
    ),
    Rejection(
        "format of encrypted disks without encryption",
        "Set hw_ephemeral_encryption=true as well",
        {"hw_ephemeral_encryption_format": "luks"},
        {},
        False,
        True,
    ),
    Rejection(
        "address bits that QEMU does not take",
        "QEMU takes a whole number from 32 to 52",
        {"hw_maxphysaddr_mode": "emulate", "hw_maxphysaddr_bits": 53},
        {},
        False,
        True,
    ),
)
_each_rejection = pytest.mark.parametrize(
    "rejection", _REJECTIONS, ids=lambda rejection: rejection.id
)


@pytest.fixture(autouse=True)
def server() -> Iterator[Any]:
    """Return the server that Nova's databases have: of the flavor 1, in one
    cell.
    """
    server = SimpleNamespace(
        uuid=_SERVER, instance_type_id=1, task_state=None, system_metadata={}
    )
    mapping = objects.InstanceMapping(cell_mapping=_CELL)
    with (
        mock.patch.object(
            objects.InstanceMapping,
            "get_by_instance_uuid",
            return_value=mapping,
        ),
        mock.patch.object(
            objects.Instance, "get_by_uuid", return_value=server
        ),
        mock.patch("nova.context.target_cell"),
    ):
        yield server


def _boot(_spec: Any, _server: Any) -> None:
    pass


def _evacuate_or_unshelve(spec: Any, server: Any) -> None:
    ComputeTaskManager._restrict_request_spec_to_cell(
        user_context(), server, spec
    )


def _cold_migrate(spec: Any, server: Any) -> None:
    server.task_state = task_states.RESIZE_PREP
    task = mock.Mock(
        request_spec=spec, instance=server, context=user_context()
    )
    MigrationTask._set_requested_destination_cell(task, {})


def _cold_migrate_to_any_cell(spec: Any, server: Any) -> None:
    spec.requested_destination = objects.Destination(
        allow_cross_cell_move=True, host="there"
    )
    _cold_migrate(spec, server)


def _live_migrate(spec: Any, server: Any) -> None:
    task = mock.Mock(
        request_spec=spec, instance=server, context=user_context()
    )
    task.network_api.get_requested_resource_for_instance.return_value = (
        [],
        objects.RequestLevelParams(),
    )
    task._get_source_cell_mapping.return_value = _CELL
    spec.pci_requests = objects.InstancePCIRequests(requests=[])
    with (
        mock.patch("nova.conductor.tasks.live_migrate.scheduler_utils"),
        mock.patch("nova.conductor.tasks.live_migrate.compute_utils"),
        mock.patch.object(objects.RequestSpec, "ensure_project_and_user_id"),
        mock.patch.object(objects.RequestSpec, "ensure_network_information"),
    ):
        LiveMigrationTask._get_request_spec_for_select_destinations(task)


def _resize(spec: Any, server: Any) -> None:
    spec.flavor.id = 2
    _cold_migrate(spec, server)


_Moment = Callable[[Any, Any], None]
_MOVES = (
    _evacuate_or_unshelve,
    _cold_migrate,
    _cold_migrate_to_any_cell,
    _live_migrate,
)


def _scheduled(rejection: Rejection, moment: _Moment, server: Any) -> Any:
    """Return the request that Nova's conductor makes of a rejected one at a
    moment.
    """
    spec = nova_spec(
        rejection.properties, rejection.extra_specs, instance_uuid=_SERVER
    )
    spec.flavor.id = 1
    moment(spec, server)
    return spec


def _refused(spec: Any) -> str:
    """Return why the scheduler rejects a request; empty if it does not."""
    try:
        our_entry()(user_context(), spec)
    except exception.RequestFilterFailed as error:
        return str(error)
    return ""


@_each_rejection
def test_new_server_is_rejected_with_the_reason(
    start: Start, rejection: Rejection, server: Any
) -> None:
    start(_FILTERS, "unknown_values = reject")
    assert rejection.reason in _refused(_scheduled(rejection, _boot, server))


@_each_rejection
@pytest.mark.parametrize(
    "moment", _MOVES, ids=lambda moment: moment.__name__.strip("_")
)
def test_server_that_moves_is_not_rejected_for_what_it_has_lived_with(
    start: Start, rejection: Rejection, moment: _Moment, server: Any
) -> None:
    start(_FILTERS, "unknown_values = reject")
    spec = _scheduled(rejection, moment, server)
    assert _refused(spec) == ""
    query = parse_qsl(allocation_candidates_query(spec))
    traits = {
        trait
        for key, value in query
        if "required" in key
        for trait in value.split(",")
    }
    # No host has and lacks a trait.
    assert not [trait for trait in traits if f"!{trait}" in traits]


@_each_rejection
def test_resize_is_rejected_if_and_only_if_the_new_flavor_has_a_part_in_it(
    start: Start, rejection: Rejection, server: Any
) -> None:
    start(_FILTERS, "unknown_values = reject")
    reason = _refused(_scheduled(rejection, _resize, server))
    assert rejection.reason in reason if rejection.at_resize else reason == ""


@_each_rejection
def test_rebuild_is_rejected_if_and_only_if_the_new_image_has_a_part_in_it(
    start: Start, rejection: Rejection, server: Any
) -> None:
    """A trait in the flavor has given the server no device, so that no image
    contradicts it.

    Whether the host has what the image requires is another matter: a rebuild
    of which that is not known goes on.
    """
    scheduler = start(
        _FILTERS,
        "unknown_values = reject",
        "[filter_scheduler]",
        "enabled_filters = RebuildFilter",
    )
    spec = _scheduled(rejection, _evacuate_or_unshelve, server)
    # What nova-api adds (API.rebuild in nova/compute/api.py).
    spec.scheduler_hints = {"_nova_check_type": ["rebuild"]}
    spec.force_hosts = ["here"]
    manager = scheduler.host_manager
    state = HostState("here", "here", _CELL.uuid)
    state.uuid = _SERVER
    reason = ""
    try:
        manager.filter_handler.get_filtered_objects(
            manager.enabled_filters, [state], spec
        )
    except exception.NoValidHost as error:
        reason = str(error)
    assert rejection.reason in reason if rejection.at_rebuild else reason == ""


def test_resize_of_which_nothing_is_known_is_rejected_for_nothing_the_server_may_have_lived_with(
    start: Start, server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    start(_FILTERS)
    with mock.patch.object(
        objects.Instance,
        "get_by_uuid",
        side_effect=RuntimeError("the cell is down"),
    ):
        assert _refused(_scheduled(_REJECTIONS[0], _resize, server)) == ""
    assert (
        f"Failed to look up the server '{_SERVER}' (RuntimeError: the cell is"
        " down): no host is excluded because of its default machine type, and"
        " nothing in a new flavor is a reason to reject the request."
        in caplog.text
    )


def test_whether_a_server_is_resized_is_asked_only_of_one_that_exists_with_extra_specs(
    start: Start, server: Any
) -> None:
    start("hpet")
    with mock.patch.object(
        objects.Instance, "get_by_uuid", return_value=server
    ) as look_up:
        for extra_specs, moment in (
            ({}, _cold_migrate),
            ({"hw:cpu_policy": "shared"}, _boot),
        ):
            spec = nova_spec({}, extra_specs, instance_uuid=_SERVER)
            moment(spec, server)
            assert _refused(spec) == ""
        look_up.assert_not_called()


def test_move_and_resize_of_the_same_content_are_decided_apart(
    start: Start, server: Any
) -> None:
    start("hpet")
    rejection = _REJECTIONS[0]
    assert _refused(_scheduled(rejection, _cold_migrate, server)) == ""
    assert rejection.reason in _refused(_scheduled(rejection, _resize, server))
    assert _refused(_scheduled(rejection, _cold_migrate, server)) == ""
    assert rejection.reason in _refused(_scheduled(rejection, _boot, server))


_AT_EACH_MOMENT = {
    "MalformedRequest": "Placement takes no such query",
    "ContradictingRequirements": (
        "no host has and lacks a trait: rules of the operator, or the request"
        " spec itself"
    ),
    "ContradictingAggregates": "the operator lets the server run nowhere",
    "NoAggregate": "the operator lets the server run nowhere",
    "RejectedByFilter": "the filter of another package decides",
    "NoHostServes": "Placement has no host",
    "NoHostLeft": "Placement or a host filter leaves none",
    "UnsupportedByHost": "raised on a host, never by a filter",
}


def _subclasses(kind: type[Exception]) -> Iterator[str]:
    for each in kind.__subclasses__():
        if each.__module__ == errors.__name__:
            yield each.__name__
            yield from _subclasses(each)


def test_table_has_each_error_that_depends_on_the_moment(
    start: Start, server: Any
) -> None:
    start(_FILTERS, "unknown_values = reject")
    found = set()
    for rejection in _REJECTIONS:
        with pytest.raises(RequestRejected) as raised:
            our_entry().service.decide(_scheduled(rejection, _boot, server))
        found.add(type(raised.value).__name__)
    assert found.isdisjoint(_AT_EACH_MOMENT)
    assert found | _AT_EACH_MOMENT.keys() == {
        *_subclasses(RequestRejected)
    } - {"ContradictingSources"}


_UNKNOWN_VALUES = {
    "image property": {"hw_vif_model": "wire"},
    "legacy": {"hypervisor_type": "cloud"},
}


@pytest.mark.parametrize(
    "properties", _UNKNOWN_VALUES.values(), ids=_UNKNOWN_VALUES
)
def test_unknown_value_of_an_image_rejects_a_new_server_alone(
    properties: dict[str, object],
) -> None:
    """Nova's own objects have none; nova-api refuses it."""
    service = Service.from_names(
        "image_metadata", options=Options(unknown_values=UnknownValues.REJECT)
    )
    spec = RequestSpec(Flavor(), Image(properties))
    with pytest.raises(RequestRejected):
        service.decide(spec)
    spec.requested_destination = Destination(cell="one")
    (note,) = service.decide(spec).notes
    assert "unknown value" in note.reason


@pytest.mark.parametrize("scope", TraitScope)
def test_value_whose_trait_the_flavor_forbids_is_required_of_no_host_that_a_server_moves_to(
    scope: TraitScope,
) -> None:
    """Else no host would be left."""
    service = Service.from_names(
        "image_metadata", options=Options(trait_scope=scope)
    )
    forbidden = {"trait:COMPUTE_NET_VIF_MODEL_E1000": "forbidden"}
    spec = RequestSpec(
        Flavor(extra_specs=forbidden), Image({"hw_vif_model": "e1000"})
    )
    spec.requested_destination = Destination(cell="one")
    decision = service.decide(spec)
    assert decision.requirements == ()
    assert [note.source for note in decision.notes] == [
        "image property hw_vif_model=e1000"
    ]
