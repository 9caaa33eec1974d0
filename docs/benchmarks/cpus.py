"""How long ``os-prefilter fleet cpu`` takes for 10,000 hosts with 200 CPUs: ``python docs/benchmarks/cpus.py [HOSTS]``.

The documents have the size of real ones, 10 kB. Once the hosts with one CPU have the same document, as with equal
hardware and one version of QEMU, and once each document differs from all others.
"""

import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from os_prefilter.adapters.libvirt.cpu_documents import host_cpus_from
from os_prefilter.hosts.cpu import CpuDefinitions, Model
from os_prefilter.operators.cpu_groups import common_cpus, group_hosts, migrations

HOSTS = 10_000
CPUS = 200
_FEATURES = [f"feature-{number}" for number in range(220)]
_VENDORS = ("Intel", "AMD")
_MODELS = 60
_BYTES = 10_000

_Result = TypeVar("_Result")


def _definitions() -> CpuDefinitions:
    """Return definitions of the size of libvirt's, in which each model adds to the one before of its vendor."""
    models = {}
    for number in range(_MODELS):
        name = f"model-{number}"
        models[name] = Model(name, _VENDORS[number % 2], (1 << (40 + 2 * (number // 2))) - 1)
    return CpuDefinitions("the benchmark", {name: 1 << index for index, name in enumerate(_FEATURES)}, models)


def _document(number: int) -> str:
    choose = random.Random(number)
    model = choose.randrange(_MODELS)
    features = choose.sample(_FEATURES[100:], 30)
    listed = "".join(f"<model usable='yes'>model-{each}</model>" for each in range(_MODELS))
    text = "".join(f"<feature policy='require' name='{name}'/>" for name in sorted(features))
    rest = (_BYTES - len(text) - len(listed)) // 22
    devices = f"<devices><enum name='model'>{'<value>virtio</value>' * rest}</enum></devices>"
    return (
        f"<domainCapabilities><domain>kvm</domain><arch>x86_64</arch><cpu><mode name='host-model' supported='yes'>"
        f"<model>model-{model}</model><vendor>{_VENDORS[model % 2]}</vendor>{text}</mode>"
        f"<mode name='custom' supported='yes'>{listed}</mode></cpu>{devices}</domainCapabilities>"
    )


def _timed(what: str, action: Callable[[], _Result]) -> _Result:
    start = time.perf_counter()
    result = action()
    print(f"  {what:44}{time.perf_counter() - start:6.2f} s")
    return result


def _measure(folder: str) -> None:
    definitions = _definitions()
    hosts = _timed("read the documents", lambda: host_cpus_from([folder]))
    groups = _timed("group the hosts", lambda: group_hosts(hosts, definitions))
    directions = _timed("compare each group with each other", lambda: migrations(groups, definitions))
    common = _timed("find the baselines", lambda: common_cpus(hosts, definitions))
    assert len(groups) == len({each.group.number for each in directions})
    assert len(common) == len(_VENDORS)
    print(f"  {len(groups)} groups")


def main(hosts: int) -> None:
    """Measure both cases."""
    texts = [_document(number) for number in range(CPUS)]
    for what, marker in (("the same documents", ""), ("each document differs", "<!-- {} -->")):
        with tempfile.TemporaryDirectory() as folder:
            for number in range(hosts):
                text = texts[number % CPUS] + marker.format(number)
                (Path(folder) / f"kvm-{number}.xml").write_text(text)
            print(f"{hosts} hosts, {CPUS} CPUs, {what}")
            _measure(folder)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else HOSTS)
