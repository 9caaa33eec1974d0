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

"""Files that tests start from: real answers, the library's own files, the examples of the documentation."""

import json
from collections.abc import Callable, Mapping
from importlib import resources

from os_prefilter_tools.fleet.reader import example_fleet
from os_prefilter_tools.fleet.snapshot import snapshot
from tests.support.corpus import corpus
from tests.support.libvirt_xml import ARM_MACHINES, TPM, X86_MACHINES, capabilities, domain_capabilities
from tests.support.pages import PAGES, files_of

_LARGEST = 64 * 1024
_FLEET = resources.files("os_prefilter_tools") / "data/fleet.yaml"

_IMAGE = {"disk_format": "qcow2", "id": "6c1f", "name": "appliance"}
_PROPERTIES = {
    "hw_vif_model": "e1000e",
    "hw_time_hpet": True,
    "vmware_adaptertype": "lsiLogic",
    "hw_tpm_version": "2.0",
    "hw_tpm_model": "tpm-crb",
    "trait:HW_CPU_X86_AVX2": "required",
    "traits_required": ["COMPUTE_NODE"],
}
_FLAVOR = {
    "name": "m1.small",
    "vcpus": 2,
    "ram": 2048,
    "disk": 20,
    "OS-FLV-EXT-DATA:ephemeral": 5,
    "swap": "",
    "properties": {
        "hw:sound_model": "ac97",
        "hw:cpu_policy": "mixed",
        "hw:cpu_dedicated_mask": "^0",
        "hw:pmem": "small,big",
        "hw:mem_encryption": "true",
        "resources:CUSTOM_GOLD": "1",
        "resources1:VGPU": "2",
        "trait1:CUSTOM_FAST": "required",
        "trait:OWNER_CYBORG": "forbidden",
        "group_policy": "isolate",
        "accel:device_profile": "fpga",
    },
}
_SPEC = {
    "flavor": {"vcpus": 1, "memory_mb": 512, "extra_specs": {"resources:VGPU": "1"}},
    "image": {**_IMAGE, "properties": _PROPERTIES},
    "is_bfv": True,
    "requested_resources": [
        {"requester_id": "port", "resources": {"NET_BW_EGR_KILOBIT_PER_SEC": 1000}, "required_traits": ["CUSTOM_PHYS"]},
        {"requester_id": "11111111-1111-4111-8111-111111111111-0", "resources": {"PCI_DEVICE": 1}, "in_tree": "a1"},
    ],
    "pci_requests": {"requests": [{"request_id": "11111111-1111-4111-8111-111111111111", "alias_name": "gpu"}]},
    "request_level_params": {"root_required": ["COMPUTE_NODE"], "same_subtree": [["port"]]},
    "requested_destination": {"aggregates": ["a1,a2"], "forbidden_aggregates": ["b1"], "in_tree": "c1"},
}
_NODE = {
    "node": {
        "uuid": "6d85703a-565d-469a-96ce-30b6de53079d",
        "driver": "idrac",
        "bios_interface": "idrac-redfish",
        "boot_mode": "uefi",
        "properties": {"cpu_arch": "x86_64", "vendor": "x", "capabilities": "boot_mode:uefi,secure_boot:true"},
        "secure_boot": False,
        "traits": ["CUSTOM_GOLD"],
    },
    "bios": {"bios": [{"name": "LogicalProc", "value": "Enabled", "allowable_values": ["Enabled", "Disabled"]}]},
}
_BIOS = [{"Name": "LogicalProc", "Value": "On", "Allowable Values": ["On"], "Read Only": None}]
_NOVA_CONF = b"""[DEFAULT]
force_raw_images = true
[libvirt]
virt_type = kvm
hw_machine_type = x86_64=q35,aarch64=virt
swtpm_enabled = yes
supported_tpm_secret_security = user,host
images_type = $cpu_mode
cpu_mode = host-model
[spice]
enabled = yes
"""


def _of_docs(*endings: str) -> list[bytes]:
    shown = {name: text for page in PAGES for name, text in files_of(page).items()}
    return [text.encode() for name, text in sorted(shown.items()) if name.endswith(endings)]


def _corpus(kind: str) -> list[bytes]:
    folder = corpus()
    paths = sorted((folder / kind).glob("*.xml")) if folder else []
    return [data for data in (path.read_bytes() for path in paths) if len(data) <= _LARGEST]


def _json(*documents: object) -> list[bytes]:
    return [json.dumps(each).encode() for each in documents]


def _capabilities() -> list[bytes]:
    machines = {"x86_64": X86_MACHINES, "aarch64": ARM_MACHINES}
    guests = {"x86_64": "qemu kvm", "i686": "qemu", "aarch64": "qemu"}
    return [capabilities(), capabilities("aarch64", guests, machines, ("0-1,4", "0,32")), *_corpus("capabilities")]


def _domain_capabilities() -> list[bytes]:
    whole = domain_capabilities(tpm=TPM, firmware="bios efi", secure="yes no", sev="<maxESGuests>10</maxESGuests>")
    return [whole, domain_capabilities("aarch64", "qemu", "virt"), *_corpus("domaincapabilities")]


def _image_lists() -> list[bytes]:
    image = {**_IMAGE, "properties": _PROPERTIES}
    flat = {**_IMAGE, **{key: value for key, value in _PROPERTIES.items() if key != "traits_required"}}
    (line,) = _json(flat)
    lists = _json([image, flat], {"images": [flat, image], "next": "/v2/images?marker=6c1f"})
    return [*lists, line + b"\n" + line, *_of_docs(".json")]


def _server_lists() -> list[bytes]:
    server = {"uuid": "1", "name": "a", "project": "p", "node": "kvm-new-1", "machine_type": "pc-q35-9.1"}
    stored = {**server, "spec": json.dumps({"nova_object.data": {**_SPEC, "availability_zone": "az-1"}})}
    plain = {**server, "spec": {**_SPEC, "instance_group": {}, "numa_topology": None}}
    (line,) = _json(stored)
    return [*_json([stored, plain], {"servers": [plain]}), line + b"\n" + line]


SEEDS: Mapping[str, Callable[[], list[bytes]]] = {
    "capabilities": _capabilities,
    "domain_capabilities": _domain_capabilities,
    "fleet": lambda: [_FLEET.read_bytes(), snapshot(example_fleet()).encode(), *_of_docs(".yaml", ".json")],
    "rules": lambda: _of_docs(".yaml"),
    "templates": lambda: _of_docs(".yaml"),
    "request_spec": lambda: [*_json(_SPEC), *_of_docs(".json")],
    "stored_request_spec": lambda: _json({"spec": json.dumps(_SPEC)}, {"nova_object.data": _SPEC}),
    "image": lambda: [*_json({**_IMAGE, "properties": _PROPERTIES}), *_of_docs(".json")],
    "image_list": _image_lists,
    "image_lines": _image_lists,
    "server_list": _server_lists,
    "server_lines": _server_lists,
    "flavor": lambda: [*_json(_FLAVOR), *_of_docs(".json")],
    "ironic_node": lambda: _json(_NODE, {**_NODE, "bios": _BIOS}),
    "nova_conf": lambda: [_NOVA_CONF, *_of_docs(".conf")],
}
"""Seeds of each document of the table."""
