"""CPUs in libvirt's documents and its CPU map: read as they are, or refused with the file and the reason."""

from pathlib import Path

import pytest

from os_prefilter.adapters.libvirt.cpu_documents import definitions_from, guest_cpu_from, host_cpus_from
from os_prefilter.adapters.libvirt.documents import MAX_BYTES
from os_prefilter.common.errors import DocumentError
from os_prefilter.hosts.cpu import Cpu, UnknownCpu
from os_prefilter.operators.cpu_groups import common_cpus, group_hosts, migrations
from tests.support.corpus import corpus
from tests.support.cpus import DEFINITIONS, FEATURES, MODELS, cpu, domain_capabilities, feature, write_cpu_map

_HOST = domain_capabilities("New", feature("e") + feature("d", "disable"))


def test_directory_has_a_host_in_each_xml_file_named_after_it(tmp_path: Path) -> None:
    (tmp_path / "kvm-1.example.org.xml").write_text(_HOST)
    (tmp_path / "kvm-2.xml").write_text(domain_capabilities("", domain_type="qemu", architecture="aarch64"))
    (tmp_path / "README").write_text("not XML")
    first, second = host_cpus_from([str(tmp_path)])
    assert (first.host, first.architecture, first.domain_type) == ("kvm-1.example.org", "x86_64", "kvm")
    assert first.cpu == cpu("New +e -d")
    assert first.models == MODELS
    assert first.where == str(tmp_path / "kvm-1.example.org.xml")
    assert (second.host, second.architecture, second.domain_type, second.cpu) == ("kvm-2", "aarch64", "qemu", None)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not XML, or incomplete"),
        (_HOST[:200], "not XML, or incomplete"),
        ("error: failed to connect to the hypervisor", "not XML, or incomplete"),
        ("<!DOCTYPE a [<!ENTITY b 'c'>]>" + _HOST, "a document type or entities"),
        ("<domainCapabilities>" * 60, "nested deeper"),
        ("<capabilities/>", "this is the output of 'virsh capabilities'; expected that of 'virsh domcapabilities'"),
        ("<cpus/>", "its root element is 'cpus', not domainCapabilities"),
        (domain_capabilities(architecture="pdp11"), "unknown architecture 'pdp11' in arch"),
        (domain_capabilities(domain_type=""), "the element domain is missing or empty"),
        (domain_capabilities("a&#x9b;31m"), "is not a name that libvirt gives"),
        (domain_capabilities("New", feature("e", "often")), "the CPU feature 'e' has policy 'often'"),
        (domain_capabilities("New", "<feature/>"), "the CPU feature '' has policy 'require'"),
    ],
)
def test_invalid_document_is_an_error_that_names_the_file(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "kvm-1.xml"
    path.write_text(text)
    with pytest.raises(DocumentError) as raised:
        host_cpus_from([str(path)])
    assert str(raised.value).startswith(f"{path}: ")
    assert says in str(raised.value)
    assert str(raised.value).isprintable()


def test_all_invalid_documents_are_named_at_once(tmp_path: Path) -> None:
    """An operator repairs them in one go: they are often of hosts that were down."""
    for number in range(14):
        (tmp_path / f"kvm-{number:02}.xml").write_text("" if number else _HOST)
    with pytest.raises(DocumentError) as raised:
        host_cpus_from([str(tmp_path)])
    assert str(raised.value).startswith(f"{tmp_path}/kvm-01.xml: not XML, or incomplete")
    assert f" 12 more files cannot be used either: {tmp_path}/kvm-02.xml, " in str(raised.value)
    assert str(raised.value).endswith(f"{tmp_path}/kvm-11.xml and 2 more.")


def test_missing_files_and_empty_directories_are_errors(tmp_path: Path) -> None:
    for path, says in ((tmp_path, "no file in the directory is named"), (tmp_path / "none", "no such file")):
        with pytest.raises(DocumentError, match=says):
            host_cpus_from([str(path)])
    (tmp_path / "a\nb.xml").write_text(_HOST)
    with pytest.raises(DocumentError, match="this is no name of one"):
        host_cpus_from([str(tmp_path)])
    huge = tmp_path / "huge.xml"
    huge.write_bytes(b" " * (MAX_BYTES + 1))
    with pytest.raises(DocumentError, match="larger than 8 MiB"):
        host_cpus_from([str(huge)])


@pytest.mark.parametrize(
    ("text", "wanted", "domain_type"),
    [
        (
            "<domain type='kvm'><os><type arch='x86_64' machine='q35'>hvm</type></os><cpu mode='custom' match='exact' "
            "check='full'><model fallback='forbid'>New</model><vendor>Acme</vendor><topology sockets='1'/>"
            f"{feature('e')}{feature('d', 'disable')}</cpu></domain>",
            cpu("New +e -d"),
            "kvm",
        ),
        ("<cpu match='strict'><model>Old</model></cpu>", Cpu("", "Old", strict=True), ""),
        (
            "<capabilities><host><cpu><arch>x86_64</arch><model>New</model><vendor>Acme</vendor><feature name='e'/>"
            "</cpu></host></capabilities>",
            cpu("New +e"),
            "",
        ),
    ],
)
def test_guest_cpu_is_that_of_a_domain_an_element_or_a_host(text: str, wanted: Cpu, domain_type: str) -> None:
    assert guest_cpu_from("a.xml", text.encode()) == (wanted, domain_type)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("<domain type='kvm'/>", "its CPU has no element cpu"),
        ("<domain type='kvm'><cpu mode='host-passthrough'/></domain>", "its CPU has mode 'host-passthrough'"),
        ("<domain type='kvm'><cpu mode='host-model'/></domain>", "its CPU has mode 'host-model'"),
        ("<domain type='kvm'><cpu><topology sockets='1'/></cpu></domain>", "its CPU has no model"),
        ("<capabilities><host><cpu><arch>x86_64</arch></cpu></host></capabilities>", "its CPU has no model"),
        (_HOST, "this is the output of 'virsh domcapabilities'; expected that of 'virsh dumpxml'"),
    ],
)
def test_guest_without_a_cpu_of_its_own_is_an_error(text: str, says: str) -> None:
    with pytest.raises(DocumentError, match=says):
        guest_cpu_from("a.xml", text.encode())


def test_cpu_map_defines_models_by_the_bits_of_their_features(tmp_path: Path) -> None:
    found = definitions_from(str(write_cpu_map(tmp_path)))
    assert set(found.features) == set(FEATURES)
    assert list(found.models) == ["Plain", "Old", "New", "Hidden"]
    for name, model in DEFINITIONS.models.items():
        assert found.names(found.models[name].bits) == DEFINITIONS.names(model.bits)
        assert (found.models[name].vendor, found.models[name].for_guests) == (model.vendor, model.for_guests)
    # A missing ecx_in is 0, so c and f are bits of one register, and d is in another one.
    assert found.features["f"] == found.features["c"] << 1
    assert len({bits.bit_length() for bits in found.features.values()}) == len(FEATURES)
    with pytest.raises(UnknownCpu, match=f"'Next' is not in {tmp_path}"):
        found.model("Next")


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("index.xml", "<cpus/>", "defines no CPU model or no feature of x86"),
        ("index.xml", "<domain/>", "its root element is 'domain', not cpus"),
        ("index.xml", "<cpus><arch name='x86'><include filename='../x.xml'/></arch></cpus>", "includes '../x.xml'"),
        ("index.xml", "<cpus><arch name='x86'><include/></arch></cpus>", "includes ''"),
        ("x86_models.xml", "<cpus><model name='X'><model name='Y'/></model></cpus>", "'X' builds on an undefined one"),
        (
            "x86_models.xml",
            "<cpus><model name='X'><feature name='zz'/></model></cpus>",
            "has the undefined feature 'zz'",
        ),
        ("x86_features.xml", "<cpus><feature name='a'><cpuid edx='many'/></feature></cpus>", "'many' is not a hex"),
    ],
)
def test_invalid_cpu_map_is_an_error(tmp_path: Path, name: str, text: str, says: str) -> None:
    folder = write_cpu_map(tmp_path)
    (folder / name).write_text(text)
    with pytest.raises(DocumentError) as raised:
        definitions_from(str(folder))
    assert says in str(raised.value)
    assert str(raised.value).startswith(str(folder / name))


def test_directory_without_a_cpu_map_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="no such file"):
        definitions_from(str(tmp_path))


def test_libvirts_own_documents_are_read_and_never_mixed() -> None:
    """Groups of documents of many versions and architectures: each has one architecture and one domain type."""
    folder = corpus()
    hosts = host_cpus_from([str(folder / "domaincapabilities")]) if folder else []
    groups = group_hosts(hosts, DEFINITIONS)
    assert sum(len(group.hosts) for group in groups) == len(hosts)
    for group in groups:
        kinds = {(host.architecture, host.domain_type, host.cpu and host.cpu.vendor) for host in group.hosts}
        assert len(kinds) == 1
    kind_of = {group.number: (group.architecture, group.domain_type) for group in groups}
    for each in migrations(groups, DEFINITIONS):
        assert {kind_of[number] for number in each.targets} <= {kind_of[each.group.number]}
    assert len(common_cpus(hosts, DEFINITIONS)) <= len(groups)
