"""Each parser of outside input as a function of bytes, with what must hold whatever the bytes are.

A document loads, or it is refused by an error of ours: one printable line that begins with the name of the file. What
loads keeps its laws: written again and loaded again it is the same, and its query is one that Placement can read.
"""

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from tempfile import NamedTemporaryFile
from typing import Any

from os_prefilter import Flavor, Image, RequestSpec, allocation_candidates_query
from os_prefilter.adapters.libvirt_documents import capabilities_from
from os_prefilter.adapters.libvirt_xml import facts_from_xml
from os_prefilter.adapters.nova_conf import LibvirtSettings, libvirt_settings
from os_prefilter.capabilities import capability_traits
from os_prefilter.documents import flavor_from, image_from, read_json, request_spec_from
from os_prefilter.errors import ConfigurationError, DocumentError, PrefilterError, RequestRejected
from os_prefilter.operators.fleet_document import parse_fleet
from os_prefilter.operators.image_list import read_images
from os_prefilter.operators.snapshot import anonymous, snapshot
from os_prefilter.reporters.ironic_facts import facts_from_node
from os_prefilter.rule_checks import check_rules
from os_prefilter.rule_document import rules_in
from os_prefilter.rules import RuleSet
from os_prefilter.template_document import load_templates
from tests.conftest import pipeline_of
from tests.support.libvirt_xml import capabilities
from tests.support.queries import traits_asked, traits_in

NAME = "input"
"""What the documents are called in messages, where they have no path."""
_LONGEST_MESSAGE = 8_000
_HOSTS = tuple(capabilities(name) for name in ("x86_64", "aarch64"))
_PIPELINE = pipeline_of(
    "image_metadata", "hpet", "owner", "deploy_config", "image_type", "accelerators", "packed_virtqueue"
)

Target = Callable[[bytes], None]


def check_message(message: str, name: str = "") -> None:
    """Assert that a message is one printable line of a length that people read, and begins with a name."""
    assert message.isprintable(), ascii(message)
    assert len(message) <= _LONGEST_MESSAGE, len(message)
    assert message.startswith(name), message


class _OneLine(logging.Handler):
    """Lets a target fail at a log record that is more than one printable line."""

    def emit(self, record: logging.LogRecord) -> None:
        check_message(record.getMessage())


@contextmanager
def log_is_watched() -> Iterator[None]:
    """Check each log record of the library, and write none, while the context lasts."""
    logger, handler = logging.getLogger("os_prefilter"), _OneLine()
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]


@contextmanager
def _refused(*kinds: type[PrefilterError], name: str = NAME) -> Iterator[None]:
    """Let errors of these kinds pass, if they say what they should."""
    try:
        yield
    except kinds as error:
        check_message(str(error), name)


@contextmanager
def _file(data: bytes, suffix: str = "") -> Iterator[str]:
    with NamedTemporaryFile(suffix=suffix) as file:
        file.write(data)
        file.flush()
        yield file.name


def _capabilities(data: bytes) -> None:
    with _refused(DocumentError):
        offered = capabilities_from(NAME, data)
        assert offered.architecture.isprintable()


def _domain_capabilities(data: bytes) -> None:
    for host in _HOSTS:
        with _refused(DocumentError, name=""):
            facts = facts_from_xml(
                host, [(NAME, data)], settings=LibvirtSettings(virt_type="kvm"), libvirt_version=(9, 0, 0)
            )
            assert set(map(type, capability_traits(facts).values())) == {bool}


def _fleet(data: bytes) -> None:
    with _refused(DocumentError):
        fleet = parse_fleet(data, NAME)
        again = snapshot(fleet).encode()
        assert parse_fleet(again, "again") == fleet
        parse_fleet(snapshot(anonymous(fleet)).encode(), "anonymous")


def _rules(data: bytes) -> None:
    rules, problems = rules_in(data, NAME)
    for problem in (*problems, *check_rules(rules)):
        check_message(str(problem), NAME)
    found = RuleSet(rules)
    assert repr(found).isprintable()
    for rule in rules:
        check_message(" and ".join(map(str, rule.when)))
    spec = RequestSpec(Flavor(), Image({each.name: "true" for rule in rules for each in rule.when}))
    query_of(spec)


def _templates(data: bytes) -> None:
    with _file(data, ".yaml") as path, _refused(DocumentError, name=path):
        for template in load_templates(path):
            check_message(str(template))


def document_of(spec: RequestSpec) -> dict[str, Any]:
    """Return a request spec as the plain form of its document has it."""
    requests = [{"request_id": each, "alias_name": "any"} for each in spec.pci_request_ids]
    return {**_plain(asdict(spec)), "pci_requests": {"requests": requests}}


def _plain(value: object) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return [_plain(each) for each in value] if isinstance(value, list) else value


def query_of(spec: RequestSpec) -> None:
    """Apply filters to a request, and build its query: both do what they promise, or reject it in one line."""
    with _refused(RequestRejected, name=""):
        decision = _PIPELINE.apply(spec)
        for item in (*decision.requirements, *decision.notes):
            assert str(item).isprintable()
        found = traits_in(allocation_candidates_query(spec))
        assert found == traits_asked(spec)
        assert {item[:3] for item in decision.requirements} <= {(str(trait), *rest) for trait, *rest in found}


def _request_spec(data: bytes) -> None:
    with _file(data) as path, _refused(DocumentError, name=path):
        spec = request_spec_from(read_json(path), path)
        assert request_spec_from(document_of(spec), "again") == spec
        query_of(spec)


def _image(data: bytes) -> None:
    with _file(data) as path, _refused(DocumentError, name=path):
        image = image_from(read_json(path), path)
        assert image_from(asdict(image), "again") == image
        query_of(RequestSpec(Flavor(1, 512), image))


def _flavor(data: bytes) -> None:
    with _file(data) as path, _refused(DocumentError, name=path):
        flavor = flavor_from(read_json(path), path)
        assert flavor_from(asdict(flavor), "again") == flavor
        query_of(RequestSpec(flavor))


def _image_list(data: bytes) -> None:
    for suffix in (".json", ".jsonl"):
        told: list[str] = []
        with _file(data, suffix) as path, _refused(DocumentError, name=path):
            for image in read_images(path, told.append):
                query_of(RequestSpec(Flavor(1, 512), image))
        for each in told:
            check_message(each)


def _ironic_node(data: bytes) -> None:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return
    if isinstance(document, dict):
        with _refused(DocumentError):
            facts = facts_from_node(document.get("node", {}), document.get("bios", ()), path=NAME, bios_path=NAME)
            assert set(map(type, capability_traits(facts).values())) == {bool}


def _nova_conf(data: bytes) -> None:
    with _file(data, ".conf") as path, _refused(ConfigurationError, name=path):
        libvirt_settings(path)


TARGETS: Mapping[str, Target] = {
    "capabilities": _capabilities,
    "domain_capabilities": _domain_capabilities,
    "fleet": _fleet,
    "snapshot": _fleet,
    "rules": _rules,
    "templates": _templates,
    "request_spec": _request_spec,
    "image": _image,
    "image_list": _image_list,
    "flavor": _flavor,
    "ironic_node": _ironic_node,
    "nova_conf": _nova_conf,
}
"""Each target, by the name of its seeds."""
