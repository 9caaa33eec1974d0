# SPDX-License-Identifier: Apache-2.0

"""The arguments that name a host: what is assumed, and which conflict."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from os_prefilter.hosts.drivers.vmware import VmwareFacts
from os_prefilter_agent.cli.context import Context
from os_prefilter_agent.cli.host import (
    HostArguments,
    builder_of,
    deprecated_of,
)
from os_prefilter_tools.cli.main import main
from tests.support.hosts import KVM
from tests.support.libvirt_xml import (
    FakeLibvirt,
    capabilities,
    domain_capabilities,
)
from tests.support.placements import nova_conf
from tests.support.qemu import device_list

Capture = pytest.CaptureFixture[str]

pytestmark = pytest.mark.usefixtures("files")

NODE = {
    "uuid": "6c3c5127-ede2-43ef-94f9-e7143943c080",
    "properties": {"cpu_arch": "x86_64"},
    "traits": ["CUSTOM_A"],
}
SAVED = (
    "--capabilities caps.xml --domain-capabilities pc.xml"
    " --domain-capabilities q35.xml"
)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    bios = {
        "BIOS setting name": "LogicalProc",
        "BIOS setting value": "Enabled",
    }
    documents: dict[str, bytes] = {
        "caps.xml": capabilities(),
        "pc.xml": domain_capabilities(),
        "q35.xml": domain_capabilities(machine="pc-q35-7.1", buses="sata"),
        "lxc.xml": capabilities(guests={"x86_64": "lxc"}),
        "nova.conf": (
            b"[libvirt]\nvirt_type = kvm\nhw_machine_type = x86_64=q35\n"
        ),
        "devices.txt": device_list("e1000").encode(),
        "lxc.conf": b"[libvirt]\nvirt_type = lxc\n",
        "node.json": json.dumps(NODE).encode(),
        "bios.json": json.dumps([bios]).encode(),
        "broken.json": b"[{",
    }
    for name, data in documents.items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


_ASSUMED = "libvirt {} is assumed, the oldest that Nova {} runs on."
_REFUSED = (
    "libvirt 7.0.0 is older than 8.0.0 and QEMU 5.2.0 is older than 6.2.0:"
    " nova-compute of Nova 34 does not start here"
)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (
            "--nova-release 34",
            (_ASSUMED.format("8.0.0", 34), "QEMU 6.2.0 is assumed"),
        ),
        (
            "--nova-release 29",
            (_ASSUMED.format("7.0.0", 29), "QEMU 5.2.0 is assumed"),
        ),
        # Of a release that is not known, the newest's.
        (
            "--nova-release 12",
            (_ASSUMED.format("8.0.0", 34), "QEMU 6.2.0 is assumed"),
        ),
        ("--nova-release 34 --libvirt-version 8.0.0 --qemu-version 6.2.0", ()),
        (
            "--nova-release 34 --libvirt-version 7.0.0 --qemu-version 5.2.0",
            (_REFUSED,),
        ),
        ("--nova-release 29 --libvirt-version 7.0.0 --qemu-version 5.2.0", ()),
        ("--alone --libvirt-version 6.0.0 --qemu-version 5.1.0", ()),
    ],
)
def test_versions_that_are_assumed_or_that_nova_refuses_are_reported(
    argv: str, says: tuple[str, ...], capsys: Capture
) -> None:
    assert main(["capabilities", "show", *SAVED.split(), *argv.split()]) == 0
    err = capsys.readouterr().err
    for each in says:
        assert each in err
    assert err.count("is assumed") == (2 if "is assumed" in str(says) else 0)
    is_refused = says == (_REFUSED,)
    assert err.count("does not start here") == (1 if is_refused else 0)


def test_devices_are_known_by_the_list_of_qemu(capsys: Capture) -> None:
    argv = ["capabilities", "show", *SAVED.split(), "-f", "csv"]
    argv += ["--libvirt-version", "9.0.0", "--qemu-version", "7.2.0"]
    assert main(argv) == 0
    without = capsys.readouterr()
    assert '"COMPUTE_NET_VIF_MODEL_E1000","not known",' in without.out
    assert " not known, 0 not owned." in without.err
    warning = "Which devices QEMU has for guests of x86_64 is not known: no"
    assert warning in without.err.replace("\n", " ")
    assert main([*argv, "--qemu-devices", "devices.txt"]) == 0
    found = capsys.readouterr()
    assert '"COMPUTE_NET_VIF_MODEL_E1000","yes",' in found.out
    reason = "this QEMU has no device pcnet"
    assert f'"COMPUTE_NET_VIF_MODEL_PCNET","no","{reason}"' in found.out
    assert "not known" not in found.out
    assert "not known, 0 not owned" not in found.err
    assert "Which devices" not in found.err


def test_lxc_needs_neither_domain_capabilities_nor_a_qemu(
    capsys: Capture,
) -> None:
    argv = (
        "capabilities show --capabilities lxc.xml --config-file lxc.conf"
        " --libvirt-version 9.0.0"
    )
    assert main(argv.split()) == 0
    assert "assumed" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (
            "--capabilities caps.xml",
            "caps.xml: no domain capabilities of x86_64",
        ),
        (
            "--capabilities pc.xml",
            "pc.xml: this is the output of 'virsh domcapabilities'",
        ),
        (
            "--capabilities caps.xml --domain-capabilities caps.xml",
            "this is the output of 'virsh capabi",
        ),
        ("--capabilities none.xml", "none.xml: there is no such file"),
        (
            f"{SAVED} --libvirt-version nine",
            "--libvirt-version: 'nine' is not a version",
        ),
        (
            f"{SAVED} --connect qemu:///system",
            "--connect: not allowed with argument --capabilities",
        ),
        ("--capabilities=", "argument --capabilities: the value is empty"),
        (
            "--domain-capabilities pc.xml",
            "--domain-capabilities: it goes with --capabilities FILE",
        ),
        (
            "--qemu-devices devices.txt",
            "--qemu-devices: it goes with --capabilities FILE",
        ),
        (
            f"{SAVED} --qemu-devices pc.xml",
            "is no line of QEMU's list of devices. Save the output of",
        ),
        (
            "--qemu-version 8.0.0",
            "--qemu-version: it goes with --capabilities FILE",
        ),
        ("--node node.json", "--node: it is for --driver ironic, not libvirt"),
        (
            "--driver vmware --capabilities caps.xml",
            "--capabilities: it is for --driver libvirt, not vm",
        ),
        (
            "--driver fake --connect qemu:///system",
            "--connect: it is for --driver libvirt, not fake",
        ),
        (
            "--driver vmware --config-file nova.conf",
            "--config-file: it is for --driver libvirt",
        ),
        ("--driver ironic --bios bios.json", "no node: give --node FILE"),
        (
            "--driver ironic --node node.json --bios broken.json",
            "column 3: broken JSON",
        ),
    ],
)
def test_conflicting_or_unusable_host_arguments_are_errors(
    argv: str, says: str, capsys: Capture
) -> None:
    """None is ever ignored."""
    assert main(["capabilities", "show", *argv.split()]) == 1
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("", "--libvirt-version"),
        ("--libvirt-version 9.3.0", "--qemu-version"),
        ("--qemu-version 8.0", "--libvirt-version"),
    ],
)
def test_versions_must_be_given_where_traits_are_written(
    given: str, says: str, capsys: Capture
) -> None:
    """What is not known of a host must not take traits from it."""
    report = "capabilities report --provider x --config-file placement.conf"
    Path("placement.conf").write_text(nova_conf("http://127.0.0.1:1"))
    assert main([*report.split(), *SAVED.split(), *given.split()]) == 1
    assert re.search(
        f"Give {says}.*not written by assumptions", capsys.readouterr().err
    )


def test_libvirt_is_probed_at_the_right_uri_if_no_files_are_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the URI of --connect, else of nova.conf, else the usual one.

    Versions that libvirt reports are never assumed.
    """
    Path("other.conf").write_text(
        "[libvirt]\nconnection_uri = qemu://other/system\n"
    )
    other = ("--config-file", "other.conf")
    every: tuple[tuple[dict[str, Any], str], ...] = (
        ({}, "qemu:///system"),
        ({"configuration": other}, "qemu://other/system"),
        (
            {"configuration": other, "connect": "test:///default"},
            "test:///default",
        ),
    )
    for given, uri in every:
        monkeypatch.setitem(sys.modules, "libvirt", libvirt := FakeLibvirt())
        host = HostArguments(**given)
        context = Context(sys.stderr, None, None, is_quiet=False)
        facts = host.facts(context, host.read_nova(), assume=False)
        assert host.assumptions(facts) == ()
        assert libvirt.calls[0] == ("open", uri)


@pytest.mark.parametrize(
    ("package", "argv"), [("libvirt", ""), ("defusedxml.ElementTree", SAVED)]
)
def test_missing_package_error_names_the_extra_to_install(
    package: str, argv: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    if argv:
        monkeypatch.delitem(
            sys.modules,
            "os_prefilter.adapters.libvirt.documents",
            raising=False,
        )
    monkeypatch.setitem(sys.modules, package, None)
    assert main(["capabilities", "show", *argv.split()]) == 1
    assert re.search(
        r"pip install '\.\[(agent,)?libvirt\]'", capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("mode", "models", "by_nova", "expected"),
    [
        pytest.param("custom", "Haswell Penryn", True, True, id="several"),
        pytest.param("custom", "Haswell", True, False, id="one"),
        pytest.param("custom", "Haswell Haswell", True, False, id="twice"),
        pytest.param("custom", "", True, False, id="empty"),
        pytest.param("host-model", "", True, False, id="none"),
        pytest.param("custom", "Haswell Penryn", False, False, id="alone"),
    ],
)
def test_union_of_cpu_models_is_said(
    mode: str, models: str, by_nova: bool, expected: bool
) -> None:
    host = replace(
        KVM,
        cpu_mode=mode,
        cpu_models=tuple(models.split()),
        built_by_nova=by_nova,
        nova_release=34,
    )
    said = any("cpu_models has 2" in line for line in builder_of(host))
    assert said == expected


_OLD = frozenset(("pc-i440fx-1.4", "pc-q35-2.4"))


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        pytest.param(
            {"deprecated_machines": _OLD, "deprecated_cpu_models": _OLD},
            [
                "libvirt marks these machine types of x86_64 and i686 guests"
                " as deprecated: pc-i440fx-1.4, pc-q35-2.4. A later QEMU may not have"
                " them.",
                "libvirt marks these CPU models of x86_64 and i686 guests as"
                " deprecated: pc-i440fx-1.4, pc-q35-2.4. A later QEMU may not have"
                " them.",
            ],
            id="marked",
        ),
        pytest.param(
            {"deprecated_machines": None, "deprecated_cpu_models": None},
            [
                "Which machine types of x86_64 and i686 guests are deprecated"
                " is not known: libvirt 9.0.0 lists none, or is too old to"
                " mark them.",
                "Which CPU models of x86_64 and i686 guests are deprecated is"
                " not known: libvirt 9.0.0 lists none, or is too old to mark"
                " them.",
            ],
            id="not known",
        ),
        pytest.param(
            {
                "deprecated_machines": frozenset(),
                "deprecated_cpu_models": frozenset(),
            },
            [],
            id="none",
        ),
    ],
)
def test_what_libvirt_marks_as_deprecated_is_said_once(
    marked: dict[str, Any], expected: list[str]
) -> None:
    guest = replace(KVM.guests["x86_64"], **marked)
    host = replace(
        KVM,
        libvirt_version=(9, 0, 0),
        guests={"x86_64": guest, "i686": guest},
    )
    assert deprecated_of(host) == tuple(expected)


def test_each_architecture_has_its_own_deprecated_machine_types() -> None:
    guest = replace(KVM.guests["x86_64"], deprecated_cpu_models=frozenset())
    host = replace(
        KVM,
        guests={
            "x86_64": replace(guest, deprecated_machines=_OLD),
            "i686": replace(guest, deprecated_machines=frozenset()),
        },
    )
    (sentence,) = deprecated_of(host)
    assert "machine types of x86_64 guests" in sentence


def test_vmware_host_has_no_marks_of_libvirt() -> None:
    assert deprecated_of(VmwareFacts()) == ()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param(
            {"cpu_mode": "custom", "cpu_models": ("Penryn", "Old")},
            "Guests get Old by default: change [libvirt] cpu_models.",
            id="model of nova.conf",
        ),
        pytest.param(
            {"cpu_mode": "host-model", "cpu_models": ("Old",)},
            "",
            id="models that Nova ignores",
        ),
        pytest.param(
            {"cpu_mode": "custom", "cpu_models": ("Penryn",)},
            "",
            id="another model",
        ),
    ],
)
def test_deprecated_cpu_model_that_guests_get_is_said(
    changes: dict[str, Any], expected: str
) -> None:
    guest = replace(
        KVM.guests["x86_64"],
        deprecated_machines=frozenset(),
        deprecated_cpu_models=frozenset(("Old",)),
    )
    host = replace(KVM, guests={"x86_64": guest}, **changes)
    (sentence,) = deprecated_of(host)
    assert sentence.partition("not have them. ")[2] == expected


@pytest.mark.parametrize(
    ("default", "expected"),
    [
        pytest.param(
            "pc",
            "Guests get pc by default: change [libvirt] hw_machine_type.",
            id="marked",
        ),
        pytest.param("q35", "", id="not marked"),
    ],
)
def test_deprecated_default_machine_type_is_said(
    default: str, expected: str
) -> None:
    guest = replace(
        KVM.guests["x86_64"],
        default_machine=default,
        deprecated_machines=frozenset(("pc", "pc-i440fx-1.4")),
        deprecated_cpu_models=frozenset(),
    )
    (sentence,) = deprecated_of(replace(KVM, guests={"x86_64": guest}))
    assert sentence.partition("not have them. ")[2] == expected
