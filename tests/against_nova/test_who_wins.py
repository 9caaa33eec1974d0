# SPDX-License-Identifier: Apache-2.0

"""Who wins where image and flavor give one row different values: what Nova's
own code of that row says, for each pair.

Nova has it in many functions, of its driver as well; here it is a field of the
row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from typing import Any
from unittest import mock

import pytest
from nova import exception
from nova.objects.image_meta import ImageMetaProps
from nova.virt import hardware
from nova.virt.libvirt import driver

from os_prefilter import (
    Flavor,
    Image,
    Request,
    RequestSpec,
    allocation_candidates_query,
)
from os_prefilter.common.errors import (
    FlavorImageConflict,
    NeverStarts,
    RequestRejected,
    UnknownValue,
)
from os_prefilter.hosts.driver_check import unsupported
from os_prefilter.request.requirements import Note
from os_prefilter.request.values import value_of
from os_prefilter.service import Service
from os_prefilter.vocabulary import BY_NAME, ROWS
from os_prefilter.vocabulary.model import Row, UnknownValues
from tests.against_nova.becomes import REFUSED
from tests.against_nova.requests import EXTRA_SPECS, IMAGE, PROPERTIES
from tests.conftest import conf_with, pipeline_of, spec_of
from tests.support.hosts import KVM
from tests.support.nova_objects import nova_spec

_driver = driver.LibvirtDriver.__new__(driver.LibvirtDriver)
_driver._host = mock.Mock()


def _watchdog(flavor: Any, image: Any) -> Any:
    guest = mock.Mock()
    _driver._guest_add_watchdog_action(guest, flavor, image)
    return (
        guest.add_device.call_args[0][0].action
        if guest.add_device.called
        else None
    )


def _constraint(name: str, part: str = "") -> Callable[[Any, Any], Any]:
    """Return a function of ``nova.virt.hardware``, looked up late: older Novas
    do not have all of them.
    """

    def call(flavor: Any, image: Any) -> Any:
        found = getattr(hardware, f"get_{name}")(flavor, image)
        return getattr(found, part, None) if part else found

    return call


_NOVA: Mapping[str, Callable[[Any, Any], Any]] = {
    "viommu_model": lambda flavor, image: _driver._get_iommu_model(
        mock.Mock(os_mach_type=None), image, flavor
    ),
    "sound_model": _constraint("sound_model"),
    "usb_model": _constraint("usb_model"),
    "usb_redirection": _constraint("redirected_usb_ports"),
    "watchdog": _watchdog,
    "packed_virtqueue": _constraint("packed_virtqueue_constraint"),
    "ephemeral_encryption": _constraint("ephemeral_encryption_constraint"),
    "ephemeral_encryption_format": _constraint("ephemeral_encryption_format"),
    "tpm_version": _constraint("vtpm_constraint", "version"),
    "tpm_model": _constraint("vtpm_constraint", "model"),
    "secure_boot": _constraint("secure_boot_constraint"),
    "maxphysaddr_mode": _constraint("maxphysaddr_mode"),
    "pci_numa_affinity_policy": _constraint("pci_numa_policy_constraint"),
    "mem_encryption": _constraint("mem_encryption_constraint", "model"),
    "mem_encryption_model": _constraint("mem_encryption_constraint", "model"),
    "cpu_policy": _constraint("cpu_policy_constraint"),
    "cpu_thread_policy": _constraint("cpu_thread_policy_constraint"),
}
"""Row -> Nova's code for it: ``(flavor, image) -> value``."""
_ENCRYPTED = {"hw_firmware_type": "uefi", "hw_machine_type": "q35"}
_BESIDE: Mapping[str, Mapping[str, str]] = {
    "tpm_model": {"hw_tpm_version": "2.0"},
    "ephemeral_encryption_format": {"hw_ephemeral_encryption": "true"},
    "mem_encryption": _ENCRYPTED,
    "mem_encryption_model": (
        _ENCRYPTED
        | {
            "hw_mem_encryption": "true",
            "hw_firmware_stateless": "true",
            "hw_video_model": "none",
        }
    ),
}
"""Row -> the other properties that it counts beside."""
_BASIS = {
    "tpm_model": "hw_tpm_version=2.0",
    "ephemeral_encryption_format": "hw_ephemeral_encryption=true",
    "mem_encryption": "hw_firmware_type=uefi",
    "mem_encryption_model": "hw_mem_encryption=true",
}
"""Row -> what a rejection says to set where nothing else is set."""
_READ_ALONE = "ephemeral_encryption_format"
"""A value that Nova reads of a request without its basis, and then ignores
(``nova/compute/api.py``).
"""
_BOTH = tuple(
    row.name
    for row in ROWS
    if row.image_property in ImageMetaProps.fields and row.extra_spec
)


def _spec(
    row: Row,
    in_image: str | None,
    in_flavor: str | None,
    basis: Mapping[str, str] | None = None,
) -> Any:
    properties = dict(_BESIDE.get(row.name, {}) if basis is None else basis)
    if in_image is not None:
        properties[str(row.image_property)] = in_image
    extra_specs = {} if in_flavor is None else {str(row.extra_spec): in_flavor}
    spec = nova_spec(properties, extra_specs, is_bfv=False)
    spec.flavor.vcpus, spec.image.id, spec.image.name = 2, IMAGE, "i"
    return spec


def _nova(row: Row, in_image: str | None, in_flavor: str | None) -> Any:
    """Return what Nova makes of the two values; REFUSED if it refuses them."""
    spec = _spec(row, in_image, in_flavor)
    try:
        return _NOVA[row.name](spec.flavor, spec.image)
    except (exception.NovaException, ValueError):
        return REFUSED


def _in_nova(*filters: str) -> Service:
    conf = conf_with(
        enabled_filters=list(filters),
        wait_for_reports=False,
        reported_traits=["*"],
    )
    return Service.from_conf(conf, in_nova=True)


def test_every_row_with_two_sources_is_compared_with_novas_code() -> None:
    assert _NOVA.keys() >= set(_BOTH)
    assert {
        row.name for row in ROWS if row.image_property and row.extra_spec
    } == _NOVA.keys()


@pytest.mark.parametrize("is_of_image", [True, False], ids=["image", "flavor"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        (name, value)
        for name in _BESIDE
        for value, term in BY_NAME[name].values.items()
        if value in PROPERTIES.get(str(BY_NAME[name].image_property), ())
        if term.trait or (name, value) == ("mem_encryption", "true")
    ],
)
def test_value_without_its_basis_is_rejected_as_nova_ignores_or_refuses_it(
    name: str, value: str, *, is_of_image: bool
) -> None:
    """A user may forget the version of a TPM, or UEFI for encrypted memory."""
    row = BY_NAME[name]
    in_image = value if is_of_image else None
    in_flavor = None if is_of_image else value
    spec = _spec(row, in_image, in_flavor, basis={})
    try:
        theirs = _NOVA[name](spec.flavor, spec.image)
    except (exception.NovaException, ValueError):
        theirs = REFUSED
    assert theirs in (None, REFUSED) or name == _READ_ALONE
    ours = ""
    try:
        _in_nova("image_metadata", "ephemeral_encryption").apply(spec)
        allocation_candidates_query(spec)
    except RequestRejected as error:
        ours = str(error)
    assert _BASIS[name] in ours


@pytest.mark.parametrize("name", _BOTH)
def test_value_that_counts_is_the_one_that_nova_takes(name: str) -> None:
    """Where Nova starts the server, neither a filter nor the late check
    refuses it as a contradiction.
    """
    row = BY_NAME[name]
    for in_image, in_flavor in product(
        PROPERTIES[str(row.image_property)], EXTRA_SPECS[str(row.extra_spec)]
    ):
        pair, theirs, spec = (
            (in_image, in_flavor),
            _nova(row, in_image, in_flavor),
            _spec(row, in_image, in_flavor),
        )
        try:
            found = value_of(Request(spec), row, UnknownValues.SKIP)
            filters = [each for each in row.required_by if each != "query"]
            _in_nova(*filters).apply(spec.obj_clone())
            unsupported(spec, KVM)
        except (FlavorImageConflict, NeverStarts, UnknownValue):
            assert theirs == REFUSED, pair
            continue
        if (
            row.precedence.wins == "flavor"
            and row.canonical(in_flavor) is None
            and in_flavor
        ):
            # Nova gives the guest that of the flavor, and no trait is for it.
            assert (found, theirs) == (None, in_flavor), pair
            continue
        assert found, pair
        by_flavor = found.source.place.startswith("flavor")
        if theirs == REFUSED:
            # An unknown value is left out, with a warning
            # (tests/against_nova/differences.py).
            assert row.canonical(in_flavor) is None, pair
        elif (
            row.canonical(in_flavor) is not None
            or row.precedence.wins == "image"
        ):
            assert theirs == _nova(
                row, *((None, in_flavor) if by_flavor else (in_image, None))
            ), pair


@pytest.mark.skipif(
    not hasattr(hardware, "get_redirected_usb_ports"),
    reason="This Nova has no redirected ports.",
)
def test_equal_numbers_of_redirected_ports_are_refused_where_nova_builds_the_guest() -> (
    None
):
    """Nova compares the image's number with the flavor's text, and refuses
    each such guest but one without ports.
    """
    row = BY_NAME["usb_redirection"]
    for number in ("1", "15"):
        assert _nova(row, number, number) == REFUSED
        with pytest.raises(
            NeverStarts,
            match=(
                "with flavor extra spec hw:redirected_usb_ports. Set"
                " hw_redirected_usb"
            ),
        ):
            _in_nova("image_metadata").apply(_spec(row, number, number))
        # As the message advises.
        assert _nova(row, "0", number) == int(number)
        _in_nova("image_metadata").apply(_spec(row, "0", number))
        both = spec_of(
            {str(row.image_property): number}, {str(row.extra_spec): number}
        )
        (found,) = unsupported(
            both, replace(KVM, built_by_nova=True, spice_enabled=True)
        )
        assert (
            "none has it with flavor extra spec hw:redirected_usb_ports; set"
            in found.reason
        )
    assert _nova(row, "0", "0") == 0
    _in_nova("image_metadata").apply(_spec(row, "0", "0"))
    in_nova = replace(KVM, built_by_nova=True)
    assert unsupported(_spec(row, "0", "0"), in_nova) == []


def test_equal_numbers_of_redirected_ports_agree_where_another_driver_builds_the_guest() -> (
    None
):
    spec = _spec(BY_NAME["usb_redirection"], "2", "2")
    pipeline_of("image_metadata").apply(spec)
    assert unsupported(spec, KVM) == []


@pytest.mark.parametrize(
    ("name", "in_image", "in_flavor", "place"),
    [
        ("viommu_model", "intel", "amd", "flavor extra spec hw:viommu_model"),
        ("watchdog", "odd", "reset", "image property hw_watchdog_action"),
    ],
)
def test_unknown_value_of_the_source_that_wins_leaves_the_other_out(
    name: str, in_image: str, in_flavor: str, place: str
) -> None:
    """Nova's ImageMeta takes no unknown action; that of another scheduler may
    have one.
    """
    row, notes = BY_NAME[name], list[Note]()
    flavor = Flavor(1, 1, extra_specs={str(row.extra_spec): in_flavor})
    request = Request(
        RequestSpec(flavor, Image({str(row.image_property): in_image}))
    )
    assert value_of(request, row, UnknownValues.SKIP, notes) is None
    assert [note.source for note in notes] == [place]
    with pytest.raises(UnknownValue, match=place):
        value_of(request, row, UnknownValues.REJECT)
