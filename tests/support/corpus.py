# SPDX-License-Identifier: Apache-2.0

"""Hosts as libvirt's own answers describe them: the files in the folder that
OS_PREFILTER_LIBVIRT_DATA names.

``capabilities/ARCHITECTURE.xml`` and
``domaincapabilities/qemu_VERSION[-MACHINE_OR_ACCELERATOR].ARCHITECTURE.xml``,
as libvirt's own test data are named. Without the variable there are none: the
synthetic hosts are always compared.
"""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

from os_prefilter.adapters.libvirt.documents import (
    DomainCapabilities,
    domain_capabilities_from,
    facts_from_xml,
)
from os_prefilter.adapters.nova_conf import LibvirtSettings
from os_prefilter.hosts.drivers.libvirt_facts import LibvirtFacts, Version

VARIABLE = "OS_PREFILTER_LIBVIRT_DATA"

_FILE = re.compile(
    r"qemu_(?P<version>\d+\.\d+\.\d+)(?:-[^.]+)?\.(?P<architecture>\w+)\.xml"
)
# The libvirt of about the time of each QEMU, so that the versions matter.
_LIBVIRT: dict[int, Version] = {
    6: (8, 0, 0),
    7: (8, 7, 0),
    8: (9, 3, 0),
    9: (10, 4, 0),
}


def corpus() -> Path | None:
    """Return the folder; None if none is named."""
    folder = Path(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None
    # One that is named and has nothing must not look like one that is not
    # named.
    assert folder is None or any(
        (folder / "domaincapabilities").glob("*.xml")
    ), f"{VARIABLE}: {folder} has no files"
    return folder


def corpus_answers() -> tuple[DomainCapabilities, ...]:
    folder = corpus()
    paths = (
        sorted((folder / "domaincapabilities").glob("*.xml")) if folder else []
    )
    return tuple(
        domain_capabilities_from(path.name, path.read_bytes())
        for path in paths
    )


@cache
def _together() -> dict[tuple[str, str, str], list[Path]]:
    """Return the files of one host each, by QEMU's version, architecture and
    domain type.
    """
    folder = corpus()
    found: dict[tuple[str, str, str], list[Path]] = {}
    for path in (
        sorted((folder / "domaincapabilities").glob("*.xml")) if folder else ()
    ):
        match = _FILE.fullmatch(path.name)
        if (
            folder
            and match
            and (
                folder / "capabilities" / f"{match['architecture']}.xml"
            ).exists()
        ):
            kind = domain_capabilities_from(
                path.name, path.read_bytes()
            ).domain_type
            found.setdefault(
                (match["version"], match["architecture"], kind), []
            ).append(path)
    return found


@cache
def corpus_hosts() -> tuple[LibvirtFacts, ...]:
    """Return one host for each version, architecture and domain type that the
    files have.
    """
    folder = corpus()
    return (
        tuple(_host(folder, *key, paths) for key, paths in _together().items())
        if folder
        else ()
    )


def corpus_files(facts: LibvirtFacts) -> tuple[bytes, ...]:
    """Return the domain capabilities that the facts of a host come from."""
    return next(
        tuple(path.read_bytes() for path in paths)
        for (version, architecture, kind), paths in _together().items()
        if facts.host == f"{kind}-{version}-{architecture}"
    )


def _host(
    folder: Path, version: str, architecture: str, kind: str, paths: list[Path]
) -> LibvirtFacts:
    major, minor, micro = map(int, version.split("."))
    return facts_from_xml(
        (folder / "capabilities" / f"{architecture}.xml").read_bytes(),
        [(path.name, path.read_bytes()) for path in paths],
        settings=LibvirtSettings(virt_type=kind, swtpm_enabled=True),
        libvirt_version=_LIBVIRT.get(major, (12, 0, 0)),
        qemu_version=(major, minor, micro),
        host=f"{kind}-{version}-{architecture}",
    )
