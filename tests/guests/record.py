# SPDX-License-Identifier: Apache-2.0

"""Start all guests on a libvirt, and write down what became of them:
``python -m tests.guests.record``.

Into ``tests/guests/starts``; into ``tests/guests/hosts`` what the host is, for
tests that judge the reporter by them.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from os_prefilter.adapters.libvirt.host import LibvirtHost
from os_prefilter.adapters.nova_conf import LibvirtSettings
from os_prefilter.hosts.drivers.libvirt_facts import (
    GuestFacts,
    LibvirtFacts,
    version_text,
)
from tests.guests import ours
from tests.guests.cases import ROWS, Case, cases
from tests.guests.novas import NovasDriver
from tests.guests.records import RECORDS, STARTS
from tests.guests.starter import Guest, Outcome, Starter
from tests.support.hosts import EVERY_DEVICE
from tests.support.zipping import zip_equal

HOSTS = Path(__file__).parent / "hosts"
_NOT_OF_THE_HOST = (
    "built_by_nova",
    "nova_release",
    "templates",
)


def probed(uri: str, virt_type: str) -> LibvirtFacts:
    """Return what is known of the host at a URI; there are TPMs, because swtpm
    is installed, and SPICE consoles.
    """
    return LibvirtHost(
        uri,
        LibvirtSettings(
            virt_type=virt_type, swtpm_enabled=True, spice_enabled=True
        ),
    ).facts()


def as_built(facts: LibvirtFacts, *, by_nova: bool) -> LibvirtFacts:
    """Return the host with the driver that builds its guests: Nova's of the
    release that is installed, or ours.
    """
    return replace(
        facts,
        built_by_nova=by_nova,
        nova_release=NovasDriver.release() if by_nova else None,
    )


def built(
    some: Iterable[Case], facts: LibvirtFacts, uri: str, folder: Path
) -> Iterator[Guest]:
    if not facts.built_by_nova:
        yield from (ours.guest_of(case, facts) for case in some)
    else:
        driver = NovasDriver(uri, facts, folder)
        yield from map(driver.guest_of, some)


def started(
    some: list[Case], facts: LibvirtFacts, uri: str, root: Path = Path("/")
) -> dict[Case, Outcome]:
    """Start guests and return what became of each.

    :param root: of the file system that the libvirt sees
    """
    libvirt = import_module("libvirt")
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(libvirt.open(uri)) as connection,
        closing(Starter(connection, root)) as starter,
    ):
        return dict(
            zip_equal(
                some, starter.outcomes(built(some, facts, uri, Path(folder)))
            )
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--uri", default="qemu:///system")
    parser.add_argument("--virt-type", choices=("kvm", "qemu"), default="qemu")
    parser.add_argument(
        "--nova", action="store_true", help="as Nova's driver builds them"
    )
    parser.add_argument(
        "--root",
        type=Path,
        default=Path("/"),
        help="of the file system that this libvirt sees",
    )
    parser.add_argument(
        "--row",
        action="append",
        choices=ROWS,
        help="only of these; the others stay recorded",
    )
    arguments = parser.parse_args()
    facts = probed(arguments.uri, arguments.virt_type)
    facts = as_built(facts, by_nova=arguments.nova)
    # Unless Nova builds them, guests that are emulated are the same with KVM.
    is_new = facts.virt_type == "qemu" or facts.built_by_nova
    found = [
        case
        for case in cases(facts)
        if is_new or case.architecture == facts.architecture
    ]
    some = [
        case
        for case in found
        if not arguments.row or case.row in arguments.row
    ]
    outcomes = started(some, facts, arguments.uri, arguments.root)
    name = f"libvirt-{version_text(facts.libvirt_version)}-{facts.virt_type}"
    builder = f"nova-{facts.nova_release}" if facts.nova_release else "ours"
    path = RECORDS / f"{name}-{builder}.json"
    _write(
        path,
        _record(
            facts,
            outcomes,
            json.loads(path.read_text())["guests"] if arguments.row else {},
        ),
    )
    _write(HOSTS / f"{name}.json", _host(facts))
    start = sum(outcome.answer == STARTS for outcome in outcomes.values())
    sys.stdout.write(f"{len(outcomes)} guests: {start} start\n")


def _record(
    facts: LibvirtFacts, outcomes: dict[Case, Outcome], guests: dict[str, Any]
) -> dict[str, Any]:
    """Return the record of a libvirt, with the guests of an earlier run;
    outcomes of the same guests replace theirs.
    """
    for case, outcome in outcomes.items():
        platform = f"{case.architecture} {case.machine}".strip()
        told = (
            f"{outcome.answer}: {outcome.reason}"
            if outcome.reason
            else outcome.answer
        )
        guests.setdefault(platform, {}).setdefault(case.row, {})[
            case.value
        ] = told
    versions = {
        "libvirt": version_text(facts.libvirt_version),
        "qemu": version_text(facts.hypervisor_version),
    }
    return {
        **versions,
        "virt_type": facts.virt_type,
        "nova": facts.nova_release,
        "guests": guests,
    }


def _host(facts: LibvirtFacts) -> dict[str, Any]:
    found = {
        field.name: getattr(facts, field.name)
        for field in fields(facts)
        if field.name not in _NOT_OF_THE_HOST
    }
    names = [field.name for field in fields(GuestFacts)]
    guests = {
        name: {field: getattr(guest, field) for field in names}
        for name, guest in facts.guests.items()
    }
    for guest in guests.values():
        guest["devices"] = EVERY_DEVICE & (guest["devices"] or frozenset())
    return found | {"host": "recorded", "guests": guests}


def _write(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        json.dumps(content, indent=1, sort_keys=True, default=sorted) + "\n"
    )


if __name__ == "__main__":
    main()
