# SPDX-License-Identifier: Apache-2.0

"""Requests that pass our entry of Nova's list: what Placement is asked, what
users are told, what cells are asked.
"""

from __future__ import annotations

import re
from importlib.metadata import EntryPoint
from typing import Any

import pytest
from nova import context as nova_context
from nova import exception, objects
from nova.scheduler import request_filter
from nova.scheduler.manager import messaging
from stevedore import ExtensionManager

from os_prefilter import Request, Requirements
from os_prefilter.common.errors import ConfigurationError
from os_prefilter.nova.entry import RequestFilters
from os_prefilter.request.requirements import require
from os_prefilter.service import Service
from os_prefilter.service.loading import NAMESPACE, as_filter
from tests.support.nova_objects import nova_spec
from tests.support.nova_start import Start, our_entry, user_context
from tests.support.pages import DOCS
from tests.support.project import our_entry_points

_IMPOSSIBLE = {"hw_machine_type": "q35", "hw_disk_bus": "ide"}
_SHOWN = ("os_prefilter.nova", "os_prefilter.service.service")
_SILENT = nova_context.did_not_respond_sentinel


class _Cells:
    """The cells of a cloud, as Nova asks them all for the lowest versions of
    their services.
    """

    def __init__(self) -> None:
        self.answer: Any = 73
        """The version of the second cell; or what Nova finds in its place if
        there is none.
        """
        self.contexts: list[Any] = []

    def __call__(self, context: Any, *_arguments: Any) -> dict[str, Any]:
        self.contexts.append(context)
        second = (
            {"nova-compute": self.answer}
            if isinstance(self.answer, int)
            else self.answer
        )
        return {"cell1": {"nova-compute": 74}, "cell2": second}


def computes(
    _request: Request, *, minimum_compute_version: int
) -> Requirements:
    """Require, as a filter of another package, what each nova-compute reports
    from Nova 34 on.
    """
    return (
        require("OWNER_NOVA", "every request")
        if minimum_compute_version >= 73
        else Requirements()
    )


@pytest.fixture
def cells(monkeypatch: pytest.MonkeyPatch) -> _Cells:
    """Return two cells; until a test says otherwise, the lowest version is
    that of Nova 34.
    """
    cells = _Cells()
    monkeypatch.setattr(nova_context, "scatter_gather_all_cells", cells)
    points = our_entry_points(NAMESPACE)
    points.append(EntryPoint("computes", f"{__name__}:computes", NAMESPACE))
    monkeypatch.setitem(ExtensionManager.ENTRY_POINT_CACHE, NAMESPACE, points)
    return cells


def _select(scheduler: Any, properties: dict[str, Any]) -> Exception:
    """Return what the scheduler answers; there is never a host."""
    spec = nova_spec(
        properties,
        instance_uuid="11111111-1111-4111-8111-111111111111",
        project_id="project",
        availability_zone=None,
        is_bfv=False,
        num_instances=1,
        pci_requests=None,
        requested_destination=None,
        requested_networks=objects.NetworkRequestList(objects=[]),
        requested_resources=[],
        scheduler_hints={},
    )
    # What oslo.messaging sends to the caller at the other end.
    with pytest.raises(messaging.ExpectedException) as raised:
        scheduler.select_destinations(
            user_context(), spec_obj=spec, instance_uuids=[spec.instance_uuid]
        )
    error: Exception = raised.value.exc_info[1]
    return error


def test_request_spec_is_unchanged_without_enabled_filters(
    start: Start,
) -> None:
    start("")
    spec = nova_spec(
        {"hw_vif_model": "e1000e", "hw_time_hpet": True},
        {"resources:VGPU": "1"},
    )
    before = spec.obj_to_primitive()
    assert our_entry()(user_context(), spec) is True
    assert spec.obj_to_primitive() == before


_PACKED = "COMPUTE_NET_VIRTIO_PACKED"
_ENCRYPTED = "COMPUTE_EPHEMERAL_ENCRYPTION"
_DEVICES = (
    ("hpet", "CUSTOM_COMPUTE_TIME_HPET", "hw_time_hpet=true"),
    (
        "packed_virtqueue",
        _PACKED,
        "hw_virtio_packed_ring=true or hw:virtio_packed_ring=true",
    ),
    (
        "image_metadata",
        "COMPUTE_SECURITY_STATELESS_FIRMWARE",
        "hw_firmware_stateless=true",
    ),
    (
        "ephemeral_encryption",
        _ENCRYPTED,
        "hw_ephemeral_encryption=true or hw:ephemeral_encryption=true",
    ),
)


@pytest.mark.parametrize(("enabled", "trait", "instead"), _DEVICES)
def test_device_by_its_trait_alone_is_rejected_in_the_words_of_its_author(
    start: Start, enabled: str, trait: str, instead: str
) -> None:
    """Nova would start the guest without it. Not where the server runs
    already, nor without the device's filter.
    """
    start(enabled)
    sources = {
        f"flavor extra spec trait:{trait}=required": nova_spec(
            {}, {f"trait:{trait}": "required"}
        ),
        f"image property trait:{trait}=required": nova_spec(
            {f"trait:{trait}": "required"}
        ),
        f"flavor extra spec trait1:{trait}=required": nova_spec(
            {}, {f"trait1:{trait}": "required", "resources1:VCPU": "1"}
        ),
    }
    for source, spec in sources.items():
        before = spec.obj_to_primitive()
        with pytest.raises(exception.RequestFilterFailed) as raised:
            our_entry()(user_context(), spec)
        reason = (
            f"{source} only chooses a host, and gives no guest of Nova the"
            f" device. Set {instead}."
        )
        assert str(raised.value) == f"Scheduling failed: {reason}"
        assert len(f"No valid host was found. {raised.value}".encode()) <= 255
        assert spec.obj_to_primitive() == before
    # Of another provider, or what must not be.
    for other in (
        {f"trait1:{trait}": "required", "resources1:VGPU": "1"},
        {f"trait:{trait}": "forbidden"},
    ):
        our_entry()(user_context(), nova_spec({}, other))
    exists = objects.Destination(
        cell=objects.CellMapping(uuid="11111111-1111-4111-8111-111111111111")
    )
    our_entry()(
        user_context(),
        nova_spec(
            {}, {f"trait:{trait}": "required"}, requested_destination=exists
        ),
    )


@pytest.mark.parametrize(
    ("own", "trait"),
    [each[:2] for each in _DEVICES],
    ids=[each[0] for each in _DEVICES],
)
def test_device_by_its_trait_alone_passes_where_only_other_filters_are_enabled(
    start: Start, own: str, trait: str
) -> None:
    """An operator who does not enable the filter of a device leaves requests
    for it as they are; a note remains.
    """
    filters = (
        "hpet",
        "packed_virtqueue",
        "image_metadata",
        "ephemeral_encryption",
        "compute_status",
    )
    start(",".join(name for name in filters if name != own))
    spec = nova_spec({}, {f"trait:{trait}": "required"})
    (note,) = our_entry().service.decide(spec).remarks
    assert str(note).startswith(
        f"flavor extra spec trait:{trait}=required: Nova only chooses a host"
        " by it"
    )
    our_entry()(user_context(), spec)


_VIRTIO = {"hw_input_bus": "virtio"}


@pytest.mark.parametrize(
    ("properties", "extra_specs", "disk_format", "notes"),
    [
        (_VIRTIO, {}, "raw", 1),
        (_VIRTIO, {"hw:usb_model": "nec-xhci"}, "raw", 0),
        (_VIRTIO | {"hw_disk_bus": "usb"}, {}, "raw", 0),
        ({"hw_input_bus": "usb"}, {}, "raw", 0),
        # The only disk of an ISO image is a CD-ROM; one on USB may not be
        # there.
        (_VIRTIO | {"hw_disk_bus": "usb"}, {}, "iso", 1),
        (_VIRTIO | {"hw_cdrom_bus": "usb"}, {}, "raw", 1),
        (_VIRTIO | {"hw_cdrom_bus": "usb"}, {}, "iso", 0),
    ],
)
def test_usb_device_of_a_guest_that_may_have_no_controller_is_noted(
    start: Start,
    properties: dict[str, str],
    extra_specs: dict[str, str],
    disk_format: str,
    notes: int,
) -> None:
    """No request has the volumes and the config drive of its server, which may
    be on USB.
    """
    start("image_metadata,image_type")
    spec = nova_spec(
        properties, {"hw:sound_model": "usb"} | extra_specs, disk_format
    )
    our_entry()(user_context(), spec)
    note = (
        "flavor extra spec hw:sound_model=usb: with image property"
        " hw_input_bus=virtio a guest of Nova may not start; set"
        " hw_usb_model=qemu-xhci as well"
    )
    assert [
        str(each)
        for each in our_entry().service.decide(spec).notes
        if each.warn
    ] == [note] * notes


_REQUIRED = {"os_secure_boot": "required"}


def test_secure_boot_of_an_x86_guest_without_uefi_is_rejected_with_what_to_set(
    start: Start,
) -> None:
    """Nova would start the guest with a BIOS, and say nothing."""
    start("image_metadata")
    architecture = {"hw_architecture": "x86_64"}
    with pytest.raises(exception.RequestFilterFailed) as raised:
        our_entry()(user_context(), nova_spec(_REQUIRED | architecture))
    assert (
        str(raised.value)
        == "Scheduling failed: No guest of Nova has image property"
        " os_secure_boot=required with image property"
        " hw_architecture=x86_64. Set"
        " hw_firmware_type=uefi as well, or change one of the two."
    )
    assert len(f"No valid host was found. {raised.value}".encode()) <= 255
    our_entry()(
        user_context(),
        nova_spec(_REQUIRED | architecture | {"hw_firmware_type": "uefi"}),
    )


_X86 = {"HW_ARCH_X86_64"}


@pytest.mark.parametrize(
    ("properties", "extra_specs", "forbidden"),
    [
        (_REQUIRED, {}, _X86),
        ({}, {"os:secure_boot": "required"}, _X86),
        (_REQUIRED | {"hw_firmware_type": "uefi"}, {}, set()),
        # UEFI is their default.
        (_REQUIRED | {"hw_architecture": "aarch64"}, {}, set()),
        (_REQUIRED | {"hw_emulation_architecture": "aarch64"}, {}, set()),
        ({"os_secure_boot": "optional"}, {}, set()),
    ],
)
def test_secure_boot_without_uefi_goes_to_no_x86_host(
    start: Start,
    properties: dict[str, str],
    extra_specs: dict[str, str],
    forbidden: set[str],
) -> None:
    start("image_metadata")
    spec = nova_spec(properties, extra_specs)
    our_entry()(user_context(), spec)
    assert spec.root_forbidden & _X86 == forbidden


def test_secure_boot_without_uefi_says_what_to_set_in_the_log_and_in_the_reason_that_no_host_is_left(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    start("image_metadata")
    our_entry()(user_context(), nova_spec(_REQUIRED))
    assert (
        "os_secure_boot=required: Nova reads it under UEFI alone"
        in caplog.text
    )
    assert "set hw_firmware_type=uefi" in caplog.text
    requirements = (
        our_entry().service.decide(nova_spec(_REQUIRED)).requirements
    )
    (forbidding,) = [
        each for each in requirements if each.trait == "HW_ARCH_X86_64"
    ]
    assert forbidding.properties == (
        "os_secure_boot=required without hw_firmware_type=uefi",
    )


def test_secure_boot_without_uefi_is_left_to_a_driver_of_ones_own(
    start: Start,
) -> None:
    """Its settings have UEFI with Secure Boot."""
    start("image_metadata", "nova_builds_guests = false")
    spec = nova_spec(_REQUIRED | {"hw_architecture": "x86_64"})
    our_entry()(user_context(), spec)
    assert spec.root_forbidden.isdisjoint(_X86)


def test_trait_by_name_is_noted_and_logged_in_one_line_if_a_driver_of_ones_own_builds_guests(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    start("hpet", "nova_builds_guests = false")
    by_name = {"trait:CUSTOM_COMPUTE_TIME_HPET": "required"}
    our_entry()(user_context(), nova_spec({"hw_time_hpet": True}, by_name))
    assert "Ignored part" not in caplog.text
    our_entry()(user_context(), nova_spec({}, by_name))
    (record,) = [
        each
        for each in caplog.records
        if each.levelname == "WARNING" and each.name in _SHOWN
    ]
    assert (
        "Nova only chooses a host by it; it builds the guest by hw_time_hpet,"
        " which" in record.getMessage()
    )
    (note,) = our_entry().service.decide(nova_spec({}, by_name)).notes
    assert str(note) in record.getMessage()
    # Other schedulers have drivers that switch the device on.
    assert not Service.from_names("hpet").decide(nova_spec({}, by_name)).notes


@pytest.mark.usefixtures("cells")
@pytest.mark.parametrize(
    ("enabled", "architecture"),
    [
        ("", "HW_ARCH_I686"),
        ("hpet", "HW_ARCH_I686"),
        ("image_metadata", "HW_ARCH_X86_64"),
    ],
)
def test_placement_query_has_our_traits_beside_or_instead_of_novas(
    enabled: str, architecture: str, start: Start
) -> None:
    """``hw_architecture=i686`` is where two filters of one purpose would ask
    for what no host has together.
    """
    scheduler = start(
        enabled, "[scheduler]", "image_metadata_prefilter = true"
    )
    scheduler.placement_client.get_allocation_candidates.return_value = None
    assert isinstance(
        _select(scheduler, {"hw_architecture": "i686", "hw_time_hpet": True}),
        exception.NoValidHost,
    )
    (asked,) = scheduler.placement_client.get_allocation_candidates.mock_calls
    found = re.search("root_required=([^&]*)", asked.args[1].to_querystring())
    assert found
    traits = found[1].split("%2C")
    assert [each for each in traits if "HW_ARCH" in each] == [architecture]
    assert ("CUSTOM_COMPUTE_TIME_HPET" in traits) == (enabled == "hpet")
    assert "%21COMPUTE_STATUS_DISABLED" in traits


def test_failing_filter_is_logged_with_traceback_and_hidden_from_the_user(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_request: Request) -> Requirements:
        raise OSError("password=hunter2")

    start("")
    spec = nova_spec()
    with pytest.raises(exception.RequestFilterFailed) as raised:
        RequestFilters(Service((as_filter("broken", broken),)))(
            user_context(), spec
        )
    for inside in ("hunter2", "OSError", "broken", "os_prefilter"):
        assert inside not in str(raised.value)
    (record,) = [each for each in caplog.records if each.levelname == "ERROR"]
    assert record.exc_info
    assert "Traceback" in caplog.text
    assert "OSError: password=hunter2" in caplog.text
    assert spec.root_required == set()


@pytest.mark.usefixtures("cells")
def test_nova_rst_shows_the_real_log_lines_and_user_errors(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "os_prefilter")
    scheduler = start("image_metadata,hpet,owner")
    our_entry()(
        user_context(),
        nova_spec({"hw_vif_model": "e1000e", "hw_time_hpet": True}),
    )
    records = [each for each in caplog.records if each.name in _SHOWN]
    assert [f"{each.levelname} {each.name}" for each in records] == [
        "INFO os_prefilter.service.service",
        "INFO os_prefilter.nova",
        "DEBUG os_prefilter.service.service",
    ]
    shown = [each.getMessage() for each in records]
    error = _select(scheduler, _IMPOSSIBLE)
    assert isinstance(error, exception.NoValidHost)
    scheduler.placement_client.get_allocation_candidates.assert_not_called()
    shown.append(str(error))
    with pytest.raises(ConfigurationError):
        start("image_metdata")
    shown.append(caplog.records[-1].getMessage())
    text = (DOCS / "nova.rst").read_text(encoding="utf-8")
    if not hasattr(request_filter, "owner_nova_filter"):
        # The page shows what Nova 34 says.
        text = text.replace(", owner_nova_filter (owner)", "")
    for each in shown:
        assert f" {each}\n" in text


@pytest.mark.parametrize(
    ("rounds", "outages"),
    [
        ([(72, False), (73, True), (74, True)], 0),
        (
            [
                (73, True),
                (_SILENT, True),
                (ValueError("no database"), True),
                (73, True),
            ],
            1,
        ),
        ([(_SILENT, False), (73, True), (_SILENT, True)], 2),
        ([(73, True), (72, False), (_SILENT, False)], 1),
    ],
    ids=[
        "an upgrade",
        "an outage",
        "an outage at start, and another",
        "an old compute, then an outage",
    ],
)
def test_unresponsive_cell_keeps_the_last_known_minimum_compute_version(
    rounds: list[tuple[Any, bool]],
    outages: int,
    start: Start,
    cells: _Cells,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Asked at each request here. Nova's own filter would ignore the cell, and
    with it its old computes.
    """
    start("computes", "facts_interval = 0")
    for cells.answer, required in rounds:
        spec = nova_spec()
        our_entry()(user_context(), spec)
        assert spec.root_required == ({"OWNER_NOVA"} if required else set())
    assert caplog.text.count("minimum_compute_version (CellTimeout") == outages


def test_the_cells_are_asked_with_the_context_of_the_request_or_as_an_administrator(
    start: Start, cells: _Cells
) -> None:
    start("computes", "facts_interval = 0")
    context = user_context()
    our_entry()(context, nova_spec())
    our_entry()(None, nova_spec())
    assert cells.contexts[0] is context
    assert [each.is_admin for each in cells.contexts[1:]] == [True]
