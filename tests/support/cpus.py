"""CPUs of a vendor that exists only here, their definitions, and the documents that libvirt would write of them."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from os_prefilter.hosts.cpu import Cpu, CpuDefinitions, HostCpu, Model

FEATURES = ("a", "b", "c", "d", "e", "f")
OLD, NEW = "Old", "New"
"""``Old`` has a and b; ``New`` has a to d. Both are of the vendor Acme; ``Plain`` has a, and no vendor."""

DEFINITIONS = CpuDefinitions(
    "the test",
    {name: 1 << index for index, name in enumerate(FEATURES)},
    {
        "Plain": Model("Plain", "", 0b1),
        OLD: Model(OLD, "Acme", 0b11),
        NEW: Model(NEW, "Acme", 0b1111),
        "Hidden": Model("Hidden", "Acme", 0b111, for_guests=False),
    },
)
MODELS = MappingProxyType({"Plain": True, OLD: True, NEW: None})


def cpu(text: str, vendor: str = "Acme", architecture: str = "x86_64") -> Cpu:
    """Return the CPU of a text such as ``New +e -d``; ``?`` is optional, ``=`` force, ``!`` forbid."""
    model, *words = text.split()
    policies = {"+": "require", "-": "disable", "?": "optional", "=": "force", "!": "forbid"}
    return Cpu(architecture, model, vendor, tuple(sorted((word[1:], policies[word[0]]) for word in words)))


def host(  # noqa: PLR0913 - most tests give one or two
    name: str,
    text: str = NEW,
    *,
    vendor: str = "Acme",
    architecture: str = "x86_64",
    domain_type: str = "kvm",
    models: Mapping[str, bool | None] = MODELS,
) -> HostCpu:
    """Return a host; an empty text is a host without host-model."""
    return HostCpu(
        host=name,
        where=f"{name}.xml",
        architecture=architecture,
        domain_type=domain_type,
        cpu=cpu(text, vendor, architecture) if text else None,
        models=models,
    )


def domain_capabilities(
    model: str = NEW,
    features: str = "",
    *,
    architecture: str = "x86_64",
    domain_type: str = "kvm",
    vendor: str = "Acme",
) -> str:
    """Return the domain capabilities of a host; no model is no host-model."""
    text = f"<model fallback='forbid'>{model}</model><vendor>Acme</vendor>{features}"
    mode = f"supported='yes'>{text}</mode>" if model else "supported='no'/>"
    listed = "".join(
        f"<model usable='{'yes' if usable else 'unknown'}'>{name}</model>" for name, usable in MODELS.items()
    )
    return (
        f"<domainCapabilities><domain>{domain_type}</domain><arch>{architecture}</arch><cpu>"
        f"<mode name='host-model' {mode}<mode name='custom' supported='yes'>{listed}</mode></cpu></domainCapabilities>"
    )


def feature(name: str, policy: str = "require") -> str:
    """Return the element of a feature."""
    return f"<feature policy='{policy}' name='{name}'/>"


CPU_MAP = """<cpus><arch name='x86'>
<vendor name='Acme' string='AcmeAcmeAcme'/>
<include filename='x86_features.xml'/><include filename='x86_models.xml'/>
</arch><arch name='ppc64'><include filename='missing.xml'/></arch></cpus>"""
CPU_MAP_FEATURES = """<cpus>
<feature name='a'><cpuid eax_in='0x01' edx='0x00000001'/></feature>
<feature name='b'><cpuid eax_in='0x01' edx='0x00000002'/></feature>
<feature name='c'><cpuid eax_in='0x07' ecx_in='0x00' ebx='0x00000001'/></feature>
<feature name='d'><cpuid eax_in='0x07' ecx_in='0x01' ebx='0x00000001'/></feature>
<feature name='e'><msr index='0x10a' eax='0x00000001' edx='0x00000000'/></feature>
<feature name='f' migratable='no'><cpuid eax_in='0x07' ebx='0x00000002'/></feature>
</cpus>"""
CPU_MAP_MODELS = """<cpus>
<model name='Plain'><decode host='on' guest='on'/><feature name='a'/></model>
<model name='Old'><model name='Plain'/><vendor name='Acme'/><feature name='b'/><feature name='e' removed='yes'/></model>
<model name='New'><model name='Old'/><feature name='c'/><feature name='d'/></model>
<model name='Hidden'><decode host='off' guest='off'/><model name='Old'/><feature name='c'/></model>
</cpus>"""


def write_cpu_map(folder: Path) -> Path:
    """Write the definitions as libvirt's CPU map is written; return the folder."""
    folder.mkdir(exist_ok=True)
    files = {"index.xml": CPU_MAP, "x86_features.xml": CPU_MAP_FEATURES, "x86_models.xml": CPU_MAP_MODELS}
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder
