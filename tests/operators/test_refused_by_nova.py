# SPDX-License-Identifier: Apache-2.0

"""What nova-api refuses is what its own fields and validators refuse, and
commands say it first.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from nova import exception
from nova.api.validation.extra_specs import validators
from nova.compute import api
from nova.objects.image_meta import ImageMetaProps

from os_prefilter.common.errors import RequestRejected, UnknownValue
from os_prefilter.common.host_sets import size_of
from os_prefilter.request.spec import Flavor, Image, RequestSpec
from os_prefilter.service import Service
from os_prefilter.vocabulary.image_properties import (
    KEPT_BY_NOVA,
    LEGACY_NAMES,
)
from os_prefilter_tools.fleet.reader import example_fleet
from os_prefilter_tools.operators.audit.image_audit import (
    FilterChange,
    ImageVerdict,
    audit_images,
)
from os_prefilter_tools.operators.explain import explain
from os_prefilter_tools.operators.property_names import remarks_of_commands
from os_prefilter_tools.operators.refused_by_nova import (
    problems_of_image,
    refusals_of_flavor,
    refused_by_nova,
)
from tests.against_nova.record import values
from tests.conftest import pipeline_of, spec_of
from tests.support.commands import Capture, Cli
from tests.support.nova_objects import nova_spec


@pytest.fixture
def cli(tmp_path: Path, capsys: Capture) -> Cli:
    return Cli(tmp_path, capsys)


_PLAIN = ("", "0", "1", " 2 ", "-1", "16", "1.5", "16MB", "two", "yes", "none")
# Nova's client of Glance makes lists of their JSON.
_LISTS = {"block_device_mapping", "mappings"}
_COMPARISONS = (">=2.6", ">= 2.6, <3", "2.6", ">=", ">=2.6 <3", ",", "==1,")


def _spellings(kind: object) -> list[str]:
    known = kind if isinstance(kind, list) else []
    spelt = [
        spelling
        for value in known
        for spelling in (value, value.upper(), value.title(), f"{value}x")
    ]
    return [*_PLAIN, *_COMPARISONS, "VirtualE1000", "paraVirtual", *spelt]


# Nova takes any text for a UUID, so far with a warning.
@pytest.mark.filterwarnings("ignore:.* is an invalid UUID:FutureWarning")
@pytest.mark.parametrize(
    "name",
    sorted(
        {
            *KEPT_BY_NOVA,
            *(LEGACY_NAMES.keys() - _LISTS),
            *("vmware_adaptertype", "hw_numa_mem.0", "hw_numa_mem.1"),
            *("trait:CUSTOM_A", "os_version"),
        }
    ),
)
def test_image_property_is_refused_exactly_if_novas_field_refuses_it(
    name: str,
) -> None:
    current = LEGACY_NAMES.get(name, name)
    recorded = values()["image_properties"].get(current)
    for value in _spellings(recorded):
        try:
            ImageMetaProps.from_dict({name: value})
            refuses = False
        except ValueError:
            refuses = True
        found = [*problems_of_image(spec_of({name: value}))]
        assert bool(found) == refuses, value


@pytest.mark.parametrize("name", sorted(values()["extra_specs"]))
def test_extra_spec_is_refused_exactly_if_novas_validator_refuses_it(
    name: str,
) -> None:
    name = name.replace("*", "0")
    for value in _spellings(values()["extra_specs"].get(name)):
        try:
            validators.validate(name, value)
            refuses = False
        except exception.ValidationError:
            refuses = True
        found = [*refusals_of_flavor(spec_of({}, {name: value}))]
        assert bool(found) == refuses, value


def test_legacy_name_is_read_although_the_current_one_wins() -> None:
    properties = {"architecture": "arm64", "hw_architecture": "aarch64"}
    with pytest.raises(exception.InvalidRequest):
        api._get_image_meta_obj({"properties": dict(properties)})
    (problem,) = problems_of_image(spec_of(properties))
    assert problem.startswith("architecture='arm64' is not a value")


_TOLD = {
    "architecture spelt as elsewhere": (
        {"hw_architecture": "arm64"},
        "hw_architecture='arm64' is not a value that Nova has. Did you mean"
        " aarch64?",
    ),
    "architecture of Debian": (
        {"architecture": "armhf"},
        "architecture='armhf' is not a value that Nova has. Did you mean"
        " armv7l?",
    ),
    "capitals": (
        {"hw_video_model": "VGA"},
        "hw_video_model='VGA' is not a value that Nova has. Did you mean vga?",
    ),
    "amount with a unit": (
        {"hw_video_ram": "16MB"},
        "hw_video_ram='16MB' is not a number of MiB. Did you mean 16?",
    ),
    "amount with a large unit": (
        {"hw_numa_mem.0": "1GB"},
        "hw_numa_mem.0='1GB' is not a number of MiB",
    ),
    "number as a word": (
        {"hw_numa_nodes": "two"},
        "hw_numa_nodes='two' is not a number",
    ),
    "one of two values": (
        {"os_type": "other"},
        "os_type='other' is not a value that Nova has. Write linux or windows",
    ),
    "boolean where there is none": (
        {"img_config_drive": "true"},
        "img_config_drive='true' is not a value that Nova has. Write"
        " optional or mandatory",
    ),
    "longer than its value": (
        {"hw_rng_model": "virtio-rng"},
        "hw_rng_model='virtio-rng' is not a value that Nova has. Did you"
        " mean virtio?",
    ),
    "near to none of many": (
        {"hw_cdrom_bus": "nvme"},
        "hw_cdrom_bus='nvme' is not a value that Nova has. Write one of fdc,"
        " ide, sata, scsi, usb, virtio, xen, lxc, uml",
    ),
    "version": (
        {"hypervisor_version_requires": "2.6"},
        "hypervisor_version_requires='2.6' is no comparison of versions,"
        " such as >=2.6",
    ),
    "encrypted volume": (
        {"cinder_encryption_key_id": "11111111-2222-4333-8444-555555555555"},
        "cinder_encryption_key_id says that it was uploaded from an encrypted"
        " volume. Create a volume from it, and boot from that",
    ),
}


@pytest.mark.parametrize(("properties", "problem"), _TOLD.values(), ids=_TOLD)
def test_problem_names_the_value_that_is_meant(
    properties: dict[str, object], problem: str
) -> None:
    assert [*problems_of_image(spec_of(properties))] == [problem]


@pytest.mark.parametrize(
    ("name", "value"),
    [("os_type", "<b>\n" * 16384), ("hw_video_ram", "9" * 65536)],
    ids=["markup", "digits"],
)
def test_problem_of_64_kibibytes_is_one_short_printable_line(
    name: str, value: str
) -> None:
    (problem,) = problems_of_image(spec_of({name: value}))
    assert problem.isprintable()
    assert len(problem) < 160


_ENCRYPTED = {"cinder_encryption_key_id": "11111111"}


def test_image_of_an_encrypted_volume_is_refused_as_nova_refuses_it() -> None:
    with pytest.raises(exception.ImageUnacceptable):
        api.API._detect_nonbootable_image_from_properties(
            "image", {"properties": _ENCRYPTED}
        )
    assert [*problems_of_image(spec_of(_ENCRYPTED))]


@pytest.mark.parametrize(
    "spec",
    [
        RequestSpec(Flavor(vcpus=1), Image(_ENCRYPTED), is_bfv=True),
        spec_of({"cinder_encryption_key_id": ""}),
        spec_of({"hw_disk_bus": None}),
        nova_spec({"hw_vif_model": "virtio"}),
        RequestSpec(Flavor(vcpus=1)),
    ],
    ids=["from a volume", "empty key", "null", "Nova's object", "no image"],
)
def test_nothing_is_refused_that_nova_takes(spec: Any) -> None:
    assert refused_by_nova(spec) == ()


_FLAVORS = {
    "enumeration": (
        {"hw:cpu_policy": "pinned"},
        "hw:cpu_policy='pinned' is not a value that Nova has. Write dedicated"
        " or shared or mixed",
    ),
    "too small": ({"hw:cpu_cores": "0"}, "hw:cpu_cores='0' is below 1"),
    "too large": (
        {"hw:redirected_usb_ports": "16"},
        "hw:redirected_usb_ports='16' is not from 0 to 15",
    ),
    "boolean": (
        {"hw:pmu": "maybe"},
        "hw:pmu='maybe' is not a boolean. Write true or false",
    ),
    "memory of a node": (
        {"hw:numa_mem.1": "512MB"},
        "hw:numa_mem.1='512MB' is not a number of MiB. Did you mean 512?",
    ),
}


@pytest.mark.parametrize(
    ("extra_specs", "problem"), _FLAVORS.values(), ids=_FLAVORS
)
def test_refused_extra_spec_says_from_which_microversion_on(
    extra_specs: dict[str, str], problem: str
) -> None:
    assert refused_by_nova(spec_of({}, extra_specs)) == (
        "Nova refuses to set this in flavors (400 from microversion 2.86 on):"
        f" {problem}",
    )


_SERVICE = replace(pipeline_of("image_metadata"), remark=remarks_of_commands)
_ARM64 = "hw_architecture='arm64' is not a value that Nova has. Did you mean"


def test_explanation_begins_with_what_nova_refuses() -> None:
    spec = spec_of({"hw_vif_model": "virtio", "hw_architecture": "arm64"})
    first, *others = explain(spec, _SERVICE)
    assert first.rule == "refused"
    assert first.by == "nova-api"
    assert first.because == (
        f"Nova refuses this image (400 at each boot): {_ARM64} aarch64?"
    )
    assert "COMPUTE_NET_VIF_MODEL_VIRTIO" in {line.trait for line in others}
    assert "note" not in {line.rule for line in others}


def test_flavor_with_a_refused_value_is_noted_as_nova_boots_it() -> None:
    properties = {"hw_machine_type": "q35", "hw_disk_bus": "ide"}
    extra_specs = {"hw:pmu": "maybe"}
    (line,) = explain(spec_of({}, extra_specs), _SERVICE)
    assert line.rule == "note"
    assert line.by == "nova-api"
    with pytest.raises(RequestRejected):
        explain(spec_of(properties, extra_specs), _SERVICE)


def test_explanation_of_a_refused_image_is_not_the_filters_rejection() -> None:
    spec = spec_of({"hw_sound_model": "beep", "hw_architecture": "arm64"})
    with pytest.raises(UnknownValue):
        _SERVICE.apply(spec)
    assert {line.rule for line in explain(spec, _SERVICE)} == {"refused"}


def test_rejection_of_an_image_that_nova_takes_stays_an_error() -> None:
    spec = spec_of({"hw_machine_type": "q35", "hw_disk_bus": "ide"})
    with pytest.raises(RequestRejected):
        explain(spec, _SERVICE)


def test_other_schedulers_than_novas_have_no_refusals_of_nova() -> None:
    service = pipeline_of("image_metadata")
    lines = explain(spec_of({"hw_architecture": "arm64"}), service)
    assert "refused" not in {line.rule for line in lines}


@pytest.mark.parametrize("unknown_values", ["skip", "reject"])
def test_audit_shows_refused_images_first_and_never_as_ok(
    unknown_values: str,
) -> None:
    after = replace(
        pipeline_of("image_metadata", unknown_values=unknown_values),
        remark=remarks_of_commands,
    )
    images = [
        Image({}, name="plain"),
        Image({"hw_architecture": "arm64"}, name="arm"),
    ]
    found = audit_images(
        images, example_fleet(), FilterChange(Service(), after)
    )
    first, second = found.lines
    assert (first.names, first.verdict) == (["arm"], ImageVerdict.REFUSED)
    assert first.reason == f"{_ARM64} aarch64?"
    assert size_of(first.before) == size_of(first.after) == 0
    assert second.verdict == ImageVerdict.OK


def test_audit_notes_extra_specs_that_nova_refuses_to_set() -> None:
    change = FilterChange(Service(), _SERVICE)
    flavor = Flavor(1, 512, name="small", extra_specs={"hw:pmu": "maybe"})
    found = audit_images([Image()], example_fleet(), change, flavors=[flavor])
    ((text, count),) = found.unknown
    assert text.startswith("flavor small: Nova refuses to set this in flavors")
    assert count == 1


@pytest.mark.parametrize(
    ("command", "code"), [("candidates", 0), ("diagnose", 0), ("explain", 1)]
)
def test_commands_say_that_nova_refuses_the_image(
    command: str, code: int, cli: Cli
) -> None:
    asked = ["--property", "hw_architecture=arm64"]
    printed = "".join(cli.run(command, *asked, code=code))
    assert "Nova refuses this image (400 at each boot)" in printed
    assert printed.count("arm64") == 1


def test_candidates_say_so_of_an_image_that_a_filter_rejects_too(
    cli: Cli,
) -> None:
    asked = ["--property", "hw_architecture=arm64"]
    asked += ["--property", "hw_sound_model=beep"]
    assert "Nova refuses this image" in cli.error("candidates", *asked)


def test_audit_prints_how_many_images_nova_refuses(cli: Cli) -> None:
    image = {"name": "a", "disk_format": "raw"}
    refused = {
        "name": "b",
        "disk_format": "raw",
        "properties": {"os_type": "bsd"},
    }
    path = cli.place("images.json", [image, refused])
    out, err = cli.run("audit", "--images", path, "--enable", "noop")
    assert "Refused by Nova at each boot: 1.\n" in err
    assert "refused by Nova at each boot: os_type='bsd'" in out
