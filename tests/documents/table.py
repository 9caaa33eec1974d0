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

"""The documents of outside input that os-prefilter reads, one row each."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from os_prefilter import Flavor, Image, RequestSpec, allocation_candidates_query
from os_prefilter.adapters.from_json import flavor_from, image_from, read_json, request_spec_from
from os_prefilter.adapters.libvirt.documents import capabilities_from, domain_capabilities_from, facts_from_xml
from os_prefilter.adapters.nova_conf import LibvirtSettings, libvirt_settings
from os_prefilter.common.errors import ConfigurationError, DocumentError, RequestRejected
from os_prefilter.documents.strict_yaml import parse_document
from os_prefilter.hosts.capabilities import capability_traits
from os_prefilter.hosts.drivers.ironic_facts import IronicFacts, facts_from_node
from os_prefilter.hosts.reporter import HostFacts
from os_prefilter.rules.checks import check_rules
from os_prefilter.rules.conditions import Clause, RuleCondition
from os_prefilter.rules.model import ALWAYS, Rule, RuleSet
from os_prefilter.rules.reader import rules_in
from os_prefilter.rules.schema import NAMED_KEYS, OTHER_KEYS
from os_prefilter.service.config_templates_file import load_templates
from os_prefilter.vocabulary import ROWS
from os_prefilter.vocabulary.config_templates import BUNDLED, Templates
from os_prefilter_tools.fleet.reader import example_fleet, load_fleet
from os_prefilter_tools.fleet.server import Server
from os_prefilter_tools.fleet.snapshot import snapshot
from os_prefilter_tools.operators.audit.destinations import Destinations
from os_prefilter_tools.operators.audit.entry_list import Broken
from os_prefilter_tools.operators.audit.image_list import read_images
from os_prefilter_tools.operators.audit.server_audit import audit_servers
from os_prefilter_tools.operators.audit.server_list import read_servers
from tests.conftest import pipeline_of
from tests.documents.laws import Document, check_message
from tests.support.libvirt_xml import capabilities
from tests.support.queries import traits_in, traits_required

_Entry = TypeVar("_Entry")
_HOSTS = tuple(capabilities(name) for name in ("x86_64", "aarch64"))
_PIPELINE = pipeline_of(
    "image_metadata", "hpet", "owner", "deploy_config", "image_type", "accelerators", "packed_virtqueue"
)


def _of_bytes(parse: Callable[[str, bytes], Any]) -> Callable[[Path], Any]:
    return lambda path: parse(str(path), path.read_bytes())


def _of_json(parse: Callable[[object, Path], Any]) -> Callable[[Path], Any]:
    return lambda path: parse(read_json(path), path)


def _read_domain_capabilities(where: str, data: bytes) -> bytes:
    domain_capabilities_from(where, data)
    return data


def _check_domain_capabilities(data: bytes) -> None:
    for host in _HOSTS:
        try:
            settings = LibvirtSettings(virt_type="kvm")
            domains, libvirt, qemu = [("domcaps.xml", data)], (9, 0, 0), (7, 2, 22)
            facts = facts_from_xml(host, domains, settings=settings, libvirt_version=libvirt, qemu_version=qemu)
        except DocumentError as error:
            check_message(str(error))
        else:
            _check_facts(facts)


def _check_facts(facts: HostFacts) -> None:
    assert set(map(type, capability_traits(facts).values())) == {bool}


def _rules(path: Path) -> list[Rule]:
    """Return the well-formed rules of a file; each problem of the others is one line that names the file."""
    rules, problems = rules_in(path.read_bytes(), str(path))
    for problem in (*problems, *check_rules(rules)):
        check_message(str(problem), str(path))
    assert problems or isinstance(parse_document(path.read_bytes(), path, as_written=True).value, dict)
    return rules


def _check_rules(rules: list[Rule]) -> None:
    assert repr(RuleSet(rules)).isprintable()
    for rule in rules:
        assert rule.when
        assert rule.require or rule.forbid or rule.prefer
        check_message(rule.conditions)
    _check_query(
        RequestSpec(Flavor(), Image({each.name: "true" for rule in rules for clause in rule.when for each in clause}))
    )


def _rules_written(rules: list[Rule]) -> bytes:
    """Return rules in a file that has each value as text in quotes, or as a boolean."""
    documents = []
    traits = list(dict.fromkeys(rule.hint_trait for rule in rules if rule.hint_trait))
    for rule in (each for each in rules if not each.hint_trait):
        document: dict[str, Any] = {"name": rule.name, "scope": rule.scope}
        if rule.when != ALWAYS:
            document["when"] = _alternatives(rule.when)
        if rule.unless:
            document["unless"] = _alternatives(rule.unless)
        lists = {"require": list(rule.require), "forbid": list(rule.forbid), "prefer": list(rule.prefer)}
        documents.append(document | {key: value for key, value in (*lists.items(), ("because", rule.because)) if value})
    return _yaml({"rules": documents, **({"hint_traits": traits} if traits else {})})


def _alternatives(clauses: tuple[Clause, ...]) -> dict[str, Any]:
    return {"any": [{"all": list(map(_condition, clause))} for clause in clauses]}


def _condition(each: RuleCondition) -> dict[str, Any]:
    key = {place: key for key, place in {**NAMED_KEYS, **OTHER_KEYS}.items()}[each.place]
    values: Any = list(each.values)
    if not each.name:
        return {key: values}
    if each.in_list:
        return {key: each.name, "contains": values[0]}
    return {key: each.name, **({"in": values} if values else {"present": True})}


def _yaml(document: object) -> bytes:
    """Return JSON that is YAML as well, which has no pairs of surrogates and no control characters."""
    text = json.dumps(document, ensure_ascii=False)
    return re.sub("[\x7f-\uffff]", lambda found: f"\\u{ord(found[0]):04x}", text).encode()


def _templates(path: Path) -> Templates:
    bundled = list(BUNDLED)
    return Templates(each for each in load_templates(path) if each not in bundled)


def _check_templates(templates: Templates) -> None:
    for each in templates:
        check_message(str(each))


def _plain(spec: RequestSpec) -> dict[str, Any]:
    requests = [{"request_id": each, "alias_name": "any"} for each in spec.pci_request_ids]
    return {**asdict(spec), "pci_requests": {"requests": requests}}


def _json(value: object) -> bytes:
    return json.dumps(value, default=sorted).encode()


def _stored(spec: RequestSpec) -> bytes:
    """Return a request spec as Nova stores it: in an envelope, the whole as text in a row."""
    enveloped = {"nova_object.name": "RequestSpec", "nova_object.data": _plain(spec)}
    return _json({"id": 1, "spec": _json(enveloped).decode()})


def _check_query(spec: RequestSpec) -> None:
    """Apply filters to a request and build its query: both keep what they promise, or reject it in one line."""
    try:
        decision = _PIPELINE.apply(spec)
        for item in (*decision.requirements, *decision.notes):
            assert str(item).isprintable()
        found = traits_in(allocation_candidates_query(spec))
        assert found == traits_required(spec)
        assert {item[:3] for item in decision.requirements} <= {(str(trait), *rest) for trait, *rest in found}
    except RequestRejected as error:
        check_message(str(error))


def _check_image(image: Image) -> None:
    _check_query(RequestSpec(Flavor(1, 512), image))


def _check_images(images: Iterable[Image]) -> None:
    for image in images:
        _check_image(image)


def _entries(read: Callable[[Path, Broken], Iterator[_Entry]]) -> Callable[[Path], list[_Entry]]:
    """Return a function that reads a list; what it says of entries that it leaves out is one line each."""
    return lambda path: list(read(path, check_message))


def _check_servers(servers: Iterable[Server]) -> None:
    for line in audit_servers(servers, Destinations(example_fleet(), _PIPELINE), ["arm-1"]).lines:
        for text in (line.host, line.project, line.reason, *(each.text + each.because for each in line.conflict)):
            check_message(text)


def _node(path: Path) -> IronicFacts:
    try:
        document = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DocumentError(path, "not JSON") from error
    if not isinstance(document, dict):
        raise DocumentError(path, "not an object")
    return facts_from_node(document.get("node", {}), document.get("bios", ()), path=path, bios_path=path)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_PROPERTIES = (
    *sorted({name for row in ROWS for name in (row.image_property, row.extra_spec, *row.legacy_names) if name}),
    *_words("trait:COMPUTE_NODE resources:VGPU resources1:CUSTOM_A trait1:CUSTOM_B group_policy traits_required"),
)
_SPEC = (
    *_words("flavor image is_bfv requested_resources pci_requests request_level_params spec requested_destination"),
    *_words(
        "nova_object.data properties extra_specs disk_format id name vcpus memory_mb ram disk root_gb swap requests"
    ),
    *_words("request_id alias_name requester_id resources required_traits forbidden_traits aggregates in_tree"),
    *_words("root_required same_subtree project_id availability_zone scheduler_hints"),
    *_words("requested_networks network_id port_id subnet_id vnic_type objects"),
    *_PROPERTIES,
)
_SERVER = (*_words("uuid name project node host machine_type spec availability_zone numa_topology"), *_SPEC)
_IMAGE = (*_words("properties disk_format id name"), *_PROPERTIES)

_FLAVOR = (*_words("name vcpus ram disk swap properties extra_specs memory_mb root_gb ephemeral_gb"), *_PROPERTIES)
_FLEET = _words(
    "hosts aggregates taken_at changed_while_read x-a uuid availability_zone description resources "
    "traits providers total used reserved allocation_ratio VCPU metadata <<"
)
_RULES = _words(
    "rules name when require forbid scope because image_property extra_spec is in present os_distro root "
    "unless any all hint project availability_zone flavor requires forbids contains hint_traits ports"
)
_TEMPLATES = _words(
    "templates config-type config-value traits variants bios steps node in-use interface step args priority driver "
    "vendor LogicalProc"
)
_NODE = (
    *_words("node bios uuid driver traits properties capabilities cpu_arch vendor secure_boot boot_mode name value"),
    *("allowable_values", "read_only", "Name", "Value", "bios_interface", "Allowable Values"),
)

DOCUMENTS = (
    Document("capabilities", _of_bytes(capabilities_from), lambda offered: check_message(offered.architecture)),
    Document("domain_capabilities", _of_bytes(_read_domain_capabilities), _check_domain_capabilities),
    Document("fleet", load_fleet, lambda fleet: None, lambda fleet: snapshot(fleet).encode(), _FLEET, ".yaml"),
    Document("rules", _rules, _check_rules, _rules_written, _RULES, ".yaml"),
    Document("templates", _templates, _check_templates, None, _TEMPLATES, ".yaml"),
    Document("request_spec", _of_json(request_spec_from), _check_query, lambda spec: _json(_plain(spec)), _SPEC),
    Document("stored_request_spec", _of_json(request_spec_from), _check_query, _stored, _SPEC),
    Document("image", _of_json(image_from), _check_image, lambda image: _json(asdict(image)), _IMAGE),
    Document("image_list", _entries(read_images), _check_images, None, ("images", "next", *_IMAGE), ".json"),
    Document("image_lines", _entries(read_images), _check_images, None, _IMAGE, ".jsonl"),
    Document("server_list", _entries(read_servers), _check_servers, None, ("servers", *_SERVER), ".json"),
    Document("server_lines", _entries(read_servers), _check_servers, None, _SERVER, ".jsonl"),
    Document(
        "flavor", _of_json(flavor_from), lambda it: _check_query(RequestSpec(it)), lambda it: _json(asdict(it)), _FLAVOR
    ),
    Document("ironic_node", _node, _check_facts, None, _NODE),
    Document("nova_conf", libvirt_settings, suffix=".conf", errors=ConfigurationError),
)
