# SPDX-License-Identifier: Apache-2.0

"""Commands: output, formats and exit codes, for right and wrong input."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from os_prefilter_agent.cli import context
from os_prefilter_tools.cli import candidates, filters_and_hosts
from os_prefilter_tools.cli.main import Program, main
from tests.support.commands import Cli
from tests.support.project import our_commands


def _fleet(cli: Cli, hosts: dict[str, Any]) -> str:
    return cli.place("fleet.json", {"hosts": hosts})


_RESOURCES = {"VCPU": 8, "MEMORY_MB": 8192}


def _lone_host(cli: Cli) -> str:
    host = {"resources": _RESOURCES, "traits": ["COMPUTE_NODE"]}
    return _fleet(cli, {"a": host})


def test_explain_lists_traits_that_the_request_itself_requires(
    cli: Cli,
) -> None:
    request = [
        "--property",
        "trait:HW_CPU_X86_AVX2=required",
        "--extra-spec",
        "hw:tpm_version=2.0",
    ]
    lines = cli.json("explain", *request, "--filter", "noop")
    assert [line["Trait"] for line in lines] == [
        "HW_CPU_X86_AVX2",
        "COMPUTE_SECURITY_TPM_2_0",
        "COMPUTE_SECURITY_TPM_TIS",
    ]
    assert {line["By"] for line in lines} == {"request"}


def _on_one_line(printed: tuple[str, str]) -> str:
    """Return what was printed, without the line breaks of a table."""
    return " ".join("".join(printed).replace("|", " ").split())


_MISSPELT = (
    "hw_vif_modle: Nova does not know it, and drops it. Did you mean"
    " hw_vif_model?"
)


@pytest.mark.parametrize("command", ["explain", "candidates", "diagnose"])
def test_misspelt_names_and_traits_without_their_property_are_noted(
    command: str, cli: Cli
) -> None:
    properties = ["--property", "hw_vif_modle=e1000"]
    traits = ["--extra-spec", "trait:COMPUTE_NET_VIF_MODEL_E1000E=required"]
    options = [*properties, *traits, "--filter", "image_metadata"]
    printed = _on_one_line(cli.run(command, *options))
    assert _MISSPELT in printed
    assert "it builds the guest by hw_vif_model" in printed


def test_misspelt_names_are_noted_by_an_audit(cli: Cli) -> None:
    images = [{"name": "a", "properties": {"hw_vif_modle": "e1000"}}]
    path = cli.place("images.json", images)
    options = ["--images", path, "--enable", "image_metadata"]
    assert _MISSPELT in _on_one_line(cli.run("audit", *options))


@pytest.mark.parametrize(
    ("model", "advice"),
    [
        ([], "as well"),
        (["--property", "hw_usb_model=none"], "instead of none"),
    ],
    ids=["no model", "none"],
)
def test_advice_for_an_incompatible_value_says_which_value_it_replaces(
    model: list[str], advice: str, cli: Cli
) -> None:
    properties = [
        "--property",
        "hw_input_bus=virtio",
        "--property",
        "hw_redirected_usb_ports=1",
        *model,
    ]
    lines = cli.json("explain", *properties)
    reasons = [line["Because of"] for line in lines]
    (reason,) = [each for each in reasons if "may not start" in each]
    _, _, found = reason.partition("; set ")
    assert found == f"hw_usb_model=qemu-xhci {advice}"


_REQUEST = ("--property", "hw_vif_model=e1000")
_ASKING = [
    ["explain", *_REQUEST],
    ["candidates", *_REQUEST],
    ["diagnose", *_REQUEST],
    ["audit"],
    ["readiness"],
    ["offer"],
]


@pytest.fixture(params=_ASKING, ids=[argv[0] for argv in _ASKING])
def run_with(request: pytest.FixtureRequest, cli: Cli) -> Callable[..., int]:
    """Return a function: run a command with a nova.conf of this text."""

    def run_with(text: str, *options: str) -> int:
        path = cli.place("nova.conf", text)
        return main([*options, *request.param, "--config-file", path])

    return run_with


@pytest.mark.parametrize("options", [[], ["-v"]], ids=["", "verbose"])
def test_misspelt_option_of_the_configuration_is_named_once(
    options: list[str],
    run_with: Callable[..., int],
    cli: Cli,
) -> None:
    """The service logs it, too."""
    text = "[prefilter]\nenabled_filters = image_metadata\ntrait_scop = root\n"
    warning = (
        f"{cli.folder / 'nova.conf'}: [prefilter] has no option 'trait_scop';"
        " the line is ignored. Did you mean trait_scope?"
    )
    assert run_with(text, *options) in (0, 2)
    assert cli.capsys.readouterr().err.count(warning) == 1


def test_misspelt_enabled_filters_is_an_error(
    run_with: Callable[..., int], cli: Cli
) -> None:
    assert run_with("[prefilter]\nenabled_filtres = image_metadata\n") == 1
    assert "Did you mean enabled_filters?" in cli.capsys.readouterr().err


def test_wrong_value_of_the_configuration_is_an_error(
    run_with: Callable[..., int], cli: Cli
) -> None:
    """As when a service starts."""
    text = (
        "[prefilter]\nenabled_filters = image_metadata\n"
        "facts_interval = soon\n"
    )
    assert run_with(text) == 1
    (error,) = cli.capsys.readouterr().err.splitlines()
    assert error.startswith("[prefilter] ")
    assert f"facts_interval in {cli.folder / 'nova.conf'}" in error
    assert "could not convert string to float: 'soon'. Correct it" in error


def test_broken_line_of_the_configuration_is_named_and_not_shown(
    run_with: Callable[..., int], cli: Cli
) -> None:
    """It may be a password."""
    text = "[placement]\nusername = nova\npassword hunter2secret\n"
    assert run_with(text) == 1
    printed = "".join(cli.capsys.readouterr())
    assert "nova.conf:3" in printed
    assert "hunter2" not in printed


_HOSTS_NOTE = "Hosts: the bundled example."
_ABOUT_HOSTS = [
    ["explain", "--example", "impossible", "-f", "json"],
    ["candidates", "--example", "intel-nic", "-f", "json"],
    ["diagnose", "--example", "impossible", "-f", "json"],
    ["audit", "-f", "json"],
    ["offer", "--format", "json"],
    ["readiness", "-f", "json"],
    ["snapshot"],
]


@pytest.mark.parametrize("argv", _ABOUT_HOSTS, ids=" ".join)
def test_result_is_about_the_example_fleet_and_says_so(
    argv: list[str], cli: Cli
) -> None:
    main(argv)
    out, error = cli.capsys.readouterr()
    assert error.startswith(_HOSTS_NOTE)
    assert "bundled" not in out
    assert json.loads(out)


@pytest.mark.parametrize("argv", _ABOUT_HOSTS, ids=" ".join)
def test_result_is_about_no_example_if_os_cloud_names_a_cloud(
    argv: list[str], cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This one is in no clouds.yaml."""
    monkeypatch.setenv("OS_CLOUD", "nosuch")
    out, error = cli.run(*argv, code=1)
    assert out == ""
    assert "The cloud 'nosuch' cannot be used" in error
    assert "bundled" not in error


def test_audit_of_the_example_images_says_so_in_its_first_lines(
    cli: Cli,
) -> None:
    main(["audit"])
    hosts, images, *_ = cli.capsys.readouterr().err.splitlines()
    assert hosts.startswith("Hosts:")
    assert images.startswith("Images:")


def test_audit_of_the_example_images_with_other_hosts_says_so(
    cli: Cli,
) -> None:
    main(["audit", "--hosts", _lone_host(cli)])
    error = cli.capsys.readouterr().err
    assert error.partition("\n")[2].startswith("Images: the bundled examples.")
    assert "Hosts: the bundled" not in error


_NO_FILTERS = ["candidates", "--property", "a=b", "--filter", "noop"]


def test_hosts_file_beats_the_os_cloud_variable(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OS_CLOUD", "nosuch")
    fleet = _lone_host(cli)
    out, error = cli.run(*_NO_FILTERS, "--hosts", fleet, "-f", "value")
    assert out.startswith("a ")
    assert "bundled" not in error


def test_empty_os_cloud_variable_names_no_cloud(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OS_CLOUD", "")
    _, error = cli.run("readiness")
    assert error.startswith(_HOSTS_NOTE)


def test_os_cloud_option_beats_the_os_cloud_variable(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OS_CLOUD", "")
    error = cli.error("readiness", "--os-cloud", "other")
    assert "The cloud 'other' cannot be used" in error


def test_command_about_a_cloud_ends_although_a_library_waits_for_a_lock_without_end(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect(_name: str) -> None:
        lock = threading.Lock()
        lock.acquire()
        # As a library does that takes any error for one of the network.
        with suppress(Exception):
            lock.acquire()
        lock.acquire()

    monkeypatch.setattr(
        "os_prefilter_agent.adapters.connection.connect", connect
    )
    monkeypatch.setattr(context, "TIMEOUT", 0.2)
    error = cli.error("readiness", "--os-cloud", "c")
    assert "was ended after 0.2 seconds" in error


def test_os_cloud_variable_contradicts_no_argument_about_a_host(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node file stays a file, and other drivers have nothing to do with a
    cloud.
    """
    monkeypatch.setenv("OS_CLOUD", "nosuch")
    uuid = "1be26c0b-03f2-4d2e-ae87-c02d7f33c781"
    document = {"uuid": uuid, "properties": {}, "traits": []}
    node = cli.place("node.json", document)
    show = ["capabilities", "show", "--driver"]
    cli.run(*show, "fake")
    cli.run(*show, "ironic", "--node", node)
    error = cli.error(*show, "ironic", "--node", "metal-1")
    assert "The cloud 'nosuch' cannot be used" in error


_GPU: dict[str, Any] = {"gpu": {"resources": {"VGPU": 4}}}
_DISK: dict[str, Any] = {
    "resources": {"DISK_GB": 100},
    "traits": ["MISC_SHARES_VIA_AGGREGATE"],
}


def _capable(below: dict[str, Any]) -> dict[str, Any]:
    return {
        "resources": _RESOURCES,
        "traits": ["COMPUTE_NODE", "COMPUTE_NET_VIF_MODEL_IGB"],
        "providers": below,
    }


@pytest.mark.parametrize(
    ("hosts", "scopes", "providers"),
    [
        ({"a": _capable({})}, ["root", "unsuffixed"], "1 resource provider"),
        ({"a": _capable(_GPU)}, ["root"], "2 resource providers"),
        (
            {"a": _capable({}), "disk": _DISK},
            ["root"],
            "2 resource providers",
        ),
    ],
    ids=["flat", "nested", "shared"],
)
def test_explain_and_candidates_choose_the_trait_scope_by_the_fleet(
    hosts: dict[str, Any],
    scopes: list[str],
    providers: str,
    cli: Cli,
) -> None:
    fleet = _fleet(cli, hosts)
    request = ["--property", "hw_vif_model=igb", "--filter", "image_metadata"]
    request += ["--hosts", fleet, "-f", "json"]
    read_hosts = f"Hosts: 1 ({providers}) of {fleet}.\n"
    out, err = cli.run("explain", *request)
    assert [row["On"] for row in json.loads(out)] == scopes
    assert err == read_hosts
    out, err = cli.run("candidates", *request)
    assert [row["Host"] for row in json.loads(out)] == ["a"]
    assert err.startswith(f"{read_hosts}GET /allocation_candidates?")
    assert ("?required=" in err) is ("unsuffixed" in scopes)


def test_explanation_ends_with_what_filters_in_shadow_require(
    cli: Cli,
) -> None:
    conf = cli.place(
        "nova.conf",
        "[prefilter]\nenabled_filters = image_metadata\n"
        "shadow_filters = hpet, owner\n",
    )
    asked = ["--property", "hw_vif_model=e1000e"]
    asked += ["--property", "hw_time_hpet=yes"]
    lines = cli.json("explain", "--config-file", conf, *asked)
    assert [(line["By"], line["Rule"]) for line in lines] == [
        ("image_metadata", "required"),
        ("hpet", "required in shadow"),
        ("owner", "required in shadow"),
    ]


def test_explanation_says_what_a_filter_in_shadow_does_not_require(
    cli: Cli,
) -> None:
    conf = cli.place(
        "nova.conf",
        "[prefilter]\nenabled_filters = image_metadata\n"
        "shadow_filters = hpet\n",
    )
    asked = ["--property", "hw_time_hpet=nonsense"]
    (line,) = cli.json("explain", "--config-file", conf, *asked)
    assert line["Rule"] == "note"
    assert line["By"] == "hpet"
    assert line["Because of"] == (
        "in shadow: image property hw_time_hpet: 'nonsense' is not a boolean:"
        " taken as false, as in Nova"
    )


@pytest.mark.parametrize("command", ["explain --property a=b", "readiness"])
def test_filter_in_both_lists_is_refused_as_by_the_service(
    command: str, cli: Cli
) -> None:
    conf = cli.place(
        "nova.conf",
        "[prefilter]\nenabled_filters = hpet\nshadow_filters = hpet\n",
    )
    error = cli.error(*command.split(), "--config-file", conf)
    assert "shadow_filters: 'hpet' is in enabled_filters too." in error


_WRONG = {
    "explain": "no request: give --image",
    "explain --example nosuch": "argument --example: invalid choice: 'nosuch' (choose from ",
    "explain --example intel-nic --request-spec x": "--request-spec: not allowed with argument --example",
    "explain --property x": "--property: 'x' is not KEY=VALUE",
    "explain --image {tmp}/none": "none: there is no such file",
    "explain --flavor {tmp}/broken": "broken: line 1, column 2: broken JSON",
    "explain --request-spec {tmp}/empty": "empty: no flavor in it",
    "explain --flavor {tmp}/nothing": "nothing: the file is empty; expected JSON. Check the command that wrote it.",
    "demo --hosts {tmp}/nothing": "nothing: the file is empty; expected hosts. 'os-prefilter snapshot' writes",
    "audit --images {tmp}/nothing": "nothing: the file is empty; expected JSON. Check the command",
    "demo --hosts {tmp}/digits": "digits: a number has thousands of digits. Correct it.",
    "demo --hosts {tmp}/loop": "loop: the file cannot be read: Too many levels of symbolic links. Check the path",
    "explain --image {tmp}/flavor": "flavor: this is a flavor, no image. Expected the output of 'openstack image",
    "explain --flavor {tmp}/empty": "empty: this is no flavor",
    "explain --request-spec {tmp}/evil": "is not free to use",
    "candidates --property os_secure_boot=requird": "unknown value 'requird'",
    "candidates --extra-spec resources:VGPU=99999999999": "an amount of at most",
    "explain --example intel-nic --config-file {tmp}": "this is a directory; give the path of a file.",
    "explain --example intel-nic --config-file {tmp}/binary": "byte 12 is not UTF-8; save the file as UTF-8.",
    "diagnose --property a=b --config-file {tmp}/none": "none: there is no such file. Check the path.",
    "candidates --property trait:NO_SUCH_TRAIT=required": "Placement does not know: NO_SUCH_TRAIT",
    "candidates --property trait:a,b=required": "'trait:a,b' is not trait:NAME",
    "explain --extra-spec trait:Ü=required": r"'trait:\xdc' is not trait:NAME with a NAME of",
    "explain --extra-spec trait1:ü=required": r"'trait1:\xfc' is not trait1:NAME with a NAME of",
    "explain --extra-spec resources1:CUSTOM_ü=1": r"'resources1:CUSTOM_\xfc' is not resources1:CUSTOM_NAME with",
    "audit --images {tmp}/broken": "broken JSON",
    "audit --images {tmp}/null": "null: it holds null; expected a list of images.",
    "audit --flavor {tmp}/images": "the document is a list",
    "audit --flavor {tmp}/flavor --flavor {tmp}/flavor": "another --flavor has the same name",
    "audit --enable nosuch": "'nosuch' cannot be used: no installed package offers",
    "audit --html {tmp}": "this is not a file",
    "offer --by aggregate --hosts {tmp}/fleet": "no aggregate has a name here",
    "offer publish": "--os-cloud: it is needed, as the values go to the Glance of a cloud. Name a cloud.",
    "snapshot --hosts {tmp}/no-hosts": "at least one host",
    "snapshot --hosts {tmp}/unknown-key": "'x'",
}


_UUID = "11111111-2222-4333-8444-555555555556"
_VOLUME = {
    "id": _UUID,
    "bootable": "true",
    "size": 40,
    "properties": {"owner": "me"},
    "volume_image_metadata": {"hw_vif_model": "igb", "disk_format": "qcow2"},
}
_RAW = {"disk_format": "raw"}
_OTHERS: dict[str, dict[str, Any]] = {
    "a server": {
        "id": _UUID,
        "status": "ACTIVE",
        "flavor": {"ram": 512},
        "image": "",
        "properties": {},
    },
    "a hypervisor": {
        "hypervisor_hostname": "a",
        "vcpus": 8,
        "memory_mb": 4096,
        "properties": {},
    },
    "a quota": {"cores": 8, "ram": 4096, "properties": 128},
    "metadata definitions": {
        "namespace": "OS::Compute::X",
        "properties": {"hw_vif_model": {"type": "string"}},
    },
    "a file of hosts": {"hosts": {"a": {"resources": {"VCPU": 1}}}},
    "a list of images": {"images": []},
    "a list of flavors": {"flavors": []},
    "a list of servers": {"servers": []},
    "a list of volumes": {"volumes": []},
    "a volume snapshot": {"id": _UUID, "volume_id": _UUID, "size": 1},
    "a volume backup": {"volume_id": _UUID, "object_count": 1, "size": 1},
}
"""Other documents; some have the fields of an image or a flavor."""


@pytest.mark.parametrize("option", ["image", "flavor", "request-spec"])
@pytest.mark.parametrize("kind", _OTHERS)
def test_document_of_another_kind_is_named(
    option: str, kind: str, cli: Cli
) -> None:
    """Read as an image, a flavor or a request it would require nothing."""
    path = cli.place("document.json", _OTHERS[kind])
    expected = option.replace("-", " ")
    error = cli.error("explain", f"--{option}", path)
    assert error.startswith(
        f"{path}: this is {kind}, no {expected}. Expected "
    )


_NO_IMAGES: dict[str, tuple[object, str]] = {
    "volume that is not bootable": (
        {**_VOLUME, "bootable": "false"},
        "this is a volume that is not bootable. Expected a volume from which",
    ),
    "volume of the API that is not bootable": (
        {"volume": {**_VOLUME, "bootable": False}},
        "this is a volume that is not bootable",
    ),
    "volume of the API that is null": (
        {"volume": None},
        "this is a volume without bootable and volume_image_metadata.",
    ),
    "volume of the API that is a name": (
        {"volume": "vol-1"},
        "this is a volume without bootable and volume_image_metadata.",
    ),
    "volume of the API without fields": (
        {"volume": {}},
        "this is a volume without bootable and volume_image_metadata.",
    ),
    "metadata that is a list": (
        {**_VOLUME, "volume_image_metadata": ["hw_vif_model"]},
        "volume: volume_image_metadata is a list; expected names with values",
    ),
    "metadata that is no mapping": (
        {**_VOLUME, "volume_image_metadata": "hw_vif_model='igb'"},
        "volume_image_metadata is \"hw_vif_model='igb'\"; expected names",
    ),
    "metadata that is a program": (
        {**_VOLUME, "volume_image_metadata": "dict(a=__import__('os'))"},
        "expected names with values. Give the output of 'openstack volume",
    ),
    "metadata that is nested": (
        {**_VOLUME, "volume_image_metadata": "{" * 100_000},
        "expected names with values",
    ),
    "metadata of megabytes": (
        {**_VOLUME, "volume_image_metadata": f"{{'a': '{'x' * 2**20}'}}"},
        "expected names with values",
    ),
    "snapshot of the API": (
        {"snapshot": {"id": _UUID, "volume_id": _UUID}},
        "this is a volume snapshot, no image.",
    ),
    "server of the API": (
        {"server": {"id": _UUID}},
        "this is a server, no image.",
    ),
    "flavor of the API": (
        {"flavor": {"vcpus": 1}},
        "this is a flavor, no image.",
    ),
    "properties and one beside them": (
        {**_RAW, "properties": {}, "hw_disk_bus": "ide"},
        "'hw_disk_bus' is among",
    ),
    "snapshot": (
        {"properties": {}, "volume_id": _UUID, "name": "s"},
        "this is a volume snapshot, no image. Expected the output of",
    ),
    "list": (
        [{"ID": _UUID, "Name": "a"}],
        "the document is a list; expected names with values: 'show' prints",
    ),
    "empty list": ([], "the document is empty; expected names with values"),
    "null": (None, "the document is empty; expected names with values"),
    "nothing": (
        {},
        "this is no image. Expected the output of 'openstack image show -f"
        " json' or 'openstack volume show -f json'.",
    ),
}


@pytest.mark.parametrize(
    ("document", "message"), _NO_IMAGES.values(), ids=_NO_IMAGES
)
def test_image_that_would_have_no_properties_is_refused(
    document: object, message: str, cli: Cli
) -> None:
    path = cli.place("image.json", document)
    assert message in cli.error("explain", "--image", path)


@pytest.mark.parametrize("option", ["flavor", "request-spec"])
def test_volume_is_no_flavor_and_no_request_spec(
    option: str, cli: Cli
) -> None:
    path = cli.place("volume.json", _VOLUME)
    error = cli.error("explain", f"--{option}", path)
    expected = option.replace("-", " ")
    assert error.startswith(f"{path}: this is a volume, no {expected}. ")


_METADATA = {
    "hw_disk_bus": "scsi",
    "hw_vif_model": "igb",
    "disk_format": "vdi",
    "min_ram": "0",
}
_VOLUMES: dict[str, dict[str, Any]] = {
    "of the client": {"bootable": True, "volume_image_metadata": _METADATA},
    "of older clients": {
        "bootable": "true",
        "volume_image_metadata": _METADATA,
    },
    "as Python's text": {
        "bootable": "True",
        "volume_image_metadata": repr(_METADATA),
    },
    "as text in JSON": {
        "bootable": "true",
        "volume_image_metadata": json.dumps(_METADATA),
    },
}


@pytest.mark.parametrize(
    "document",
    [
        *({**_VOLUME, **fields} for fields in _VOLUMES.values()),
        {"volume": {**_VOLUME, "volume_image_metadata": _METADATA}},
        {"volume_image_metadata": _METADATA},
    ],
    ids=[*_VOLUMES, "body of the API", "metadata alone"],
)
def test_bootable_volume_is_the_image_in_its_metadata(
    document: dict[str, Any], cli: Cli
) -> None:
    """But for its format, which Nova ignores for a server on a volume."""
    path = cli.place("volume.json", document)
    filters = "--filter=image_metadata,image_type"
    lines = cli.json("explain", "--image", path, filters)
    assert [line["Because of"] for line in lines] == [
        "image property hw_vif_model=igb",
        "image property hw_disk_bus=scsi",
    ]


@pytest.mark.parametrize("bootable", [True, "true"])
@pytest.mark.parametrize("metadata", [None, "", {}])
def test_bootable_volume_without_metadata_requires_nothing(
    bootable: object, metadata: object, cli: Cli
) -> None:
    fields = {"bootable": bootable, "volume_image_metadata": metadata}
    path = cli.place("volume.json", {**_VOLUME, **fields})
    assert cli.json("explain", "--image", path, "--filter=image_type") == []


def test_flavor_of_the_api_is_read(cli: Cli) -> None:
    flavor = {"vcpus": 1, "extra_specs": {"trait:CUSTOM_A": "required"}}
    path = cli.place("flavor.json", {"flavor": flavor})
    (line,) = cli.json("explain", "--flavor", path, "--filter=noop")
    assert line["Trait"] == "CUSTOM_A"


def test_disk_of_the_flavor_is_not_requested_for_a_server_on_a_volume(
    cli: Cli,
) -> None:
    flavor = {"name": "a", "vcpus": 1, "ram": 512, "disk": 40}
    paths = [cli.place("v", _VOLUME), "--flavor", cli.place("f", flavor)]
    _, err = cli.run("candidates", "--image", *paths, "--filter=noop")
    assert "resources=MEMORY_MB:512,VCPU:1" in err


@pytest.mark.parametrize("wrap", [dict, lambda image: {"image": image}])
def test_properties_among_the_fields_of_an_image_are_read(
    wrap: Callable[[dict[str, Any]], dict[str, Any]], cli: Cli
) -> None:
    image = {
        "id": _UUID,
        "name": "win",
        "disk_format": "qcow2",
        "hw_disk_bus": "ide",
        "hw_machine_type": "q35",
        "status": "active",
    }
    path = cli.place("image.json", wrap(image))
    error = cli.error("explain", "--image", path, "--filter=image_metadata")
    assert "hw_disk_bus=ide" in error
    assert "hw_machine_type=q35" in error


def test_yaml_is_named_as_such(cli: Cli) -> None:
    path = cli.place("image.yaml", "disk_format: qcow2\n")
    problem = "YAML is not read here: print it with '-f json'."
    assert problem in cli.error("explain", "--image", path)


@pytest.mark.parametrize(
    "fields",
    [{}, {"status": "active", "min_ram": 0, "tags": []}],
    ids=["none", "some"],
)
def test_image_without_properties_is_one(
    fields: dict[str, object], cli: Cli
) -> None:
    document = {"disk_format": "qcow2", "name": "plain", **fields}
    path = cli.place("image.json", document)
    lines = cli.json("explain", "--image", path, "--filter=image_type")
    assert "COMPUTE_IMAGE_TYPE_QCOW2" in [line["Trait"] for line in lines]


def _options() -> list[tuple[str, str]]:
    """Return each command with each of its options that takes a text."""
    found = []
    for name, point in our_commands().items():
        actions = point.load()(Program("0"), None).get_parser(name)._actions
        found += [
            (name, action.option_strings[-1])
            for action in actions
            if action.option_strings
            and action.nargs in (None, "?")
            and not (action.type or action.choices)
        ]
    return found


@pytest.mark.parametrize("form", ["{option}=", "{option} "])
def test_empty_value_of_any_option_is_an_error(form: str, cli: Cli) -> None:
    """A variable of the shell without a value: the command must not run
    without the option.
    """
    options = _options()
    assert ("audit", "--servers") in options
    assert len(options) > 50
    problem = "the value is empty. Give one, or leave the option out"
    for name, option in options:
        value = form.format(option=option).split(" ")
        assert problem in cli.error(*name.split(), *value)


def test_empty_path_is_an_error(cli: Cli) -> None:
    error = cli.error("rules", "check", "")
    assert "argument PATH: the value is empty" in error


_GROUP = {"requester_id": "root", "resources": {"VGPU": 1}}
_FILES = {
    "broken": "{x",
    "empty": "{}",
    "nothing": "",
    "digits": f'{{"vcpus": {"9" * 5000}}}',
    "images": "[1]",
    "null": "null",
    "fleet": "hosts: {a: {traits: [COMPUTE_NODE]}}",
    "no-hosts": '{"hosts": {}}',
    "unknown-key": "hosts: {a: {x: 1}}",
    "flavor": '{"vcpus": 1, "ram": 1, "properties": {}}',
    "evil": json.dumps({"flavor": {}, "requested_resources": [_GROUP]}),
}


@pytest.mark.parametrize(("command", "message"), _WRONG.items(), ids=_WRONG)
def test_invalid_input_gives_a_one_line_error_and_exit_code_1(
    command: str, message: str, cli: Cli
) -> None:
    for name, text in _FILES.items():
        cli.place(name, text)
    (cli.folder / "loop").symlink_to(cli.folder / "loop")
    (cli.folder / "binary").write_bytes(b"[prefilter]\n\xff")
    argv = command.replace("{tmp}", str(cli.folder)).split()
    out, err = cli.run(*argv, code=1)
    assert out == ""
    assert message in err
    # What nova-api refuses is noted before.
    notes = [each for each in err.splitlines() if "Nova refuses" in each]
    assert len(err.splitlines()) == len(notes) + 1
    assert "Errno" not in err


@pytest.mark.parametrize("command", ["explain", "candidates", "diagnose"])
@pytest.mark.parametrize("option", ["--property", "--extra-spec"])
def test_key_that_is_given_twice_is_an_error(
    option: str, command: str, cli: Cli
) -> None:
    values = [option, "a:b=1", option, "c=1", option, "a:b=2"]
    assert cli.error(command, *values) == (
        f"{option}: 'a:b' is given twice. Give it once, with the value that"
        " counts.\n"
    )


@pytest.mark.parametrize(
    "argv",
    [
        ["explian"],
        ["candidates", "--bogus"],
        ["explain", "-f", "nosuch"],
        ["filter"],
        ["offer", "--by", "rack"],
        ["offer", "--format", "pdf"],
    ],
    ids=" ".join,
)
def test_usage_errors_give_exit_code_1(argv: list[str], cli: Cli) -> None:
    """Exit code 2 means that no host remains, and nothing else."""
    assert any(cli.run(*argv, code=1))


def test_candidates_lists_more_than_1000_hosts(cli: Cli) -> None:
    hosts = {f"host-{n}": {"resources": _RESOURCES} for n in range(1100)}
    fleet = _fleet(cli, hosts)
    out, err = cli.run(*_NO_FILTERS, "--hosts", fleet, "-f", "value")
    assert len(out.splitlines()) == 1100
    assert "1100 of 1100 hosts remain" in err


def test_demo_runs_on_a_fleet_given_by_file(cli: Cli) -> None:
    """Also where a bundled request asks for a resource class that the fleet
    does not have.
    """
    host = {
        "resources": {**_RESOURCES, "DISK_GB": 100},
        "traits": ["COMPUTE_IMAGE_TYPE_QCOW2"],
    }
    fleet = _fleet(cli, {"my-host": host})
    lines = cli.json("demo", "--hosts", fleet)
    rows = {line["Request"]["name"]: line for line in lines}
    assert rows["metal-threads"]["Hosts that remain"] == []
    assert rows["new-nic"]["Without filters, also"] == ["my-host"]


def test_permutations_of_many_groups_hide_no_host(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Placement has a candidate for each assignment of equal devices to
    groups: 120 for each of these hosts.
    """
    monkeypatch.setattr(filters_and_hosts, "MOST_CANDIDATES", 40)
    monkeypatch.setattr(candidates, "MOST_CANDIDATES", 40)
    hosts = {}
    for host in ("a", "b", "c"):
        gpus = [f"{host}-gpu-{number}" for number in range(5)]
        hosts[host] = {
            "resources": {**_RESOURCES, "DISK_GB": 100},
            "providers": {gpu: {"resources": {"VGPU": 1}} for gpu in gpus},
        }
    argv = [
        "--hosts",
        _fleet(cli, hosts),
        "--filter",
        "noop",
        "--extra-spec",
        "group_policy=isolate",
    ]
    for number in range(4):
        argv += ["--extra-spec", f"resources{number}:VGPU=1"]
    out, err = cli.run("candidates", *argv, "-f", "json")
    assert [row["Host"] for row in json.loads(out)] == ["a", "b", "c"]
    # An older Placement returns all.
    is_limited = Version(version("openstack-placement")) >= Version("13.0.0")
    note = "asked for 40 allocation candidates, some of each host"
    assert (note in err) is is_limited


_READS = """
audit --images {file}
audit --flavor {file}
baremetal steps --node {file} --property a=b
candidates --hosts {file} --property a=b
capabilities show --capabilities {file}
capabilities show --config-file {file}
capabilities report --provider a --driver fake --config-file {file}
decisions {file}
explain --config-file {file} --property a=b
explain --flavor {file}
explain --image {file}
explain --request-spec {file}
rules check {file}
snapshot --hosts {file}
"""


def test_no_command_waits_for_a_named_pipe_or_reads_a_device(
    tmp_path: Path,
) -> None:
    """In a process of its own: a command that waits must not keep the tests
    waiting.
    """
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "pipe.jsonl").symlink_to("pipe")
    (tmp_path / "zero.jsonl").symlink_to("/dev/zero")
    paths = [
        tmp_path / "pipe",
        tmp_path / "pipe.jsonl",
        Path("/dev/zero"),
        tmp_path / "zero.jsonl",
    ]
    reads = _READS.strip().splitlines()
    commands = [each.format(file=path) for path in paths for each in reads]
    script = (
        "from os_prefilter_tools.cli.main import main\nfor each in"
        f" {commands}: assert main(each.split()) == 1, each"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    problem = (
        "this is a named pipe, a socket or a device; give the path of a"
        " regular file."
    )
    assert done.stderr.splitlines() == [
        f"{path}: {problem}" for path in paths for _ in reads
    ]


def _words(text: str) -> set[str]:
    return set(re.findall("[A-Za-z0-9_]+", text))


@pytest.mark.parametrize(
    "command",
    [
        "audit",
        "capabilities show --driver fake",
        "diagnose --example impossible",
        "explain --example impossible",
        "filter list",
        "readiness",
        "vocabulary list",
    ],
)
def test_table_breaks_no_word_and_fits_the_terminal(
    command: str, cli: Cli
) -> None:
    """A trait can be copied, and searched for; where the words are too wide
    for a table, each row is a list.
    """
    main([*command.split(), "--max-width", "100000"])
    words = _words(cli.capsys.readouterr().out)
    assert any("_" in word for word in words)
    for width in (40, 100):
        main([*command.split(), "--max-width", str(width)])
        out = cli.capsys.readouterr().out
        table = re.findall("(?m)^[|+].*", out)
        assert _words(out) == words
        widths = {len(line) for line in table}
        assert len(widths) <= 1
        assert max(widths, default=0) <= width


@pytest.mark.parametrize("command", ["candidates", "diagnose"])
def test_commands_that_show_which_hosts_remain_ignore_preferences(
    command: str, cli: Cli
) -> None:
    request = ("--property", "hw_vif_model=e1000e", "--extra-spec")
    preference = "trait:HW_GPU_API_VULKAN=preferred"
    plain = cli.json(command, *request, "a:b=c")
    assert cli.json(command, *request, preference) == plain
