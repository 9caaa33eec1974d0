# SPDX-License-Identifier: Apache-2.0

"""Requests that end outside the filters: ``explain`` says where, first what
Nova refuses, and what to write instead.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tests.support.commands import Cli


class _Case(NamedTuple):
    properties: dict[str, str]
    extra_specs: dict[str, str]
    texts: tuple[str, ...]
    """Parts of the explanation, in this order."""
    is_refused: bool = False
    """True if nova-api does, which stands first."""


def _image(name: str, value: str, *texts: str) -> _Case:
    refused = "Nova refuses this image (400 at each boot): "
    return _Case({name: value}, {}, (refused, *texts), is_refused=True)


def _flavor(name: str, value: str, *texts: str) -> _Case:
    return _Case({}, {name: value}, texts)


_OF_AN_IMAGE = [
    "hw:vif_model",
    "hw:video_model",
    "hw:firmware_type",
    "hw:machine_type",
]
_CASES = {
    "architecture of another system": _image(
        "hw_architecture", "arm64", "Did you mean aarch64?"
    ),
    "capitals": _image("hw_video_model", "VGA", "Did you mean vga?"),
    "unit": _image("hw_video_ram", "16MB", "not a number of MiB", "16?"),
    "operating system": _image("os_type", "other", "linux or windows"),
    "encrypted volume": _image(
        "cinder_encryption_key_id",
        "11111111-2222-4333-8444-555555555555",
        "encrypted volume. Create a volume from it",
    ),
    "no namespace": _flavor(
        "gpu",
        "true",
        "ComputeCapabilitiesFilter compares it",
        "trait:CUSTOM_GPU=required",
    ),
    "PCI alias": _flavor(
        "pci_passthrough:alias", "a100:1", "not examined", "[pci] alias"
    ),
    "device profile": _flavor(
        "accel:device_profile",
        "fpga",
        "flavor extra spec accel:device_profile=fpga",
        "not examined",
    ),
    "config drive on IDE of q35": _Case(
        {
            "hw_machine_type": "q35",
            "hw_cdrom_bus": "ide",
            "img_config_drive": "mandatory",
        },
        {},
        ("the config drive is a CD-ROM by default",),
    ),
    "bare metal": _flavor(
        "resources:CUSTOM_BAREMETAL1_SMALL",
        "1",
        "Set resources:VCPU=0, resources:MEMORY_MB=0",
    ),
    "property of an image": _Case(
        {},
        dict.fromkeys(_OF_AN_IMAGE, "x"),
        tuple(
            f"no effect: Nova reads {name.replace(':', '_')} of an image alone"
            for name in _OF_AN_IMAGE
        ),
    ),
    "other namespace": _flavor(
        "hw:secure_boot", "required", "Did you mean os:secure_boot?"
    ),
    "trait in the plural": _flavor(
        "traits:CUSTOM_LICENSED",
        "required",
        "a request group named s",
        "Did you mean 'trait:CUSTOM_LICENSED'?",
    ),
}


@pytest.mark.parametrize("case", _CASES.values(), ids=_CASES)
def test_explanation_says_where_a_request_ends_and_what_to_write(
    case: _Case, cli: Cli
) -> None:
    argv = [f"--property={name}={v}" for name, v in case.properties.items()]
    argv += [
        f"--extra-spec={name}={v}" for name, v in case.extra_specs.items()
    ]
    lines = cli.json("explain", *argv, code=int(case.is_refused))
    if case.is_refused:
        assert lines[0]["Rule"] == "refused"
        assert lines[0]["By"] == "nova-api"
    left = "\n".join(line["Because of"] for line in lines)
    for text in case.texts:
        assert text in left
        left = left.partition(text)[2]


def test_page_of_an_audit_shows_a_refused_value_as_text(cli: Cli) -> None:
    markup = "<script>alert(1)</script>"
    image = {
        "name": "a",
        "disk_format": "raw",
        "properties": {"os_type": markup},
    }
    path = cli.place("images.json", [image])
    page = cli.folder / "audit.html"
    cli.run("audit", "--images", path, "--enable=noop", "--html", str(page))
    text = page.read_text(encoding="utf-8")
    assert "os_type=&#39;&lt;script&gt;alert(1)" in text
    assert markup not in text


_APPS = """
- name: apps
  when: {extra_spec: "acme:apps", contains: sap}
  unless: {extra_spec: "acme:apps", is: sap}
  require: [CUSTOM_SAP]
"""


@pytest.mark.parametrize(
    ("apps", "traits"),
    [("web, sap", ["CUSTOM_SAP"]), ("sap", []), ("web", [])],
    ids=["one of two", "excepted", "another"],
)
def test_exception_of_a_rule_may_be_narrower_than_its_condition(
    apps: str, traits: list[str], cli: Cli
) -> None:
    rules = cli.folder / "rules"
    rules.mkdir()
    (rules / "apps.yaml").write_text(f"rules:{_APPS}", encoding="utf-8")
    conf = cli.place(
        "nova.conf",
        f"[prefilter]\nenabled_filters = rules\nrules_dirs = {rules}\n",
    )
    argv = ["--config-file", conf, "--extra-spec", f"acme:apps={apps}"]
    lines = cli.json("explain", *argv)
    assert [line["Trait"] for line in lines] == traits
