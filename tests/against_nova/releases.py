# SPDX-License-Identifier: Apache-2.0

"""The releases of Nova side by side, from ``releases.yaml``, which
``python -m tests.against_nova.record`` writes.

This module imports nothing of Nova.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import takewhile
from pathlib import Path

import yaml

from os_prefilter.common.dataclasses import dataclass
from os_prefilter.hosts.drivers.libvirt_facts import version_text
from os_prefilter.hosts.drivers.nova_releases import NOVA_RELEASES
from os_prefilter.vocabulary import ROWS
from tests.support.project import ROOT

README = ROOT / "README.md"
_DATA = Path(__file__).with_name("releases.yaml")
_TESTED_WITH = {27: "3.9", 29: "3.9"}
"""Release -> the Python of ``.ci/run``, where it is another than 3.11."""
_PYTHONS = ("3.9", "3.10", "3.11", "3.12", "3.13")
"""Those for which tox.ini has an environment."""


@dataclass(frozen=True, kw_only=True)
class Release:
    """What one release of Nova does and we do not, and the reverse; values are
    sorted.
    """

    pythons: list[str]
    """The versions of Python in its package's classifiers."""
    properties: list[str]
    """Image properties of the vocabulary that it drops."""
    values: dict[str, list[str]]
    """Image property -> values of the vocabulary that it does not know."""
    extra_specs: dict[str, list[str]]
    """Extra spec -> values of the vocabulary that its nova-api refuses from
    microversion 2.86 on.
    """
    request_filters: list[str]
    """Request filters of other Novas that ours could take the place of, and
    that it does not have.
    """
    traits: list[str]
    """Standard traits of the vocabulary that the os-traits of its constraints
    lacks.
    """
    unreported: list[str]
    """Standard traits that os-traits has, and that none of its virt drivers
    reports.
    """
    novas_request_filters: list[str]
    """Its request filters that have no counterpart here."""
    novas_properties: list[str]
    """Its image properties that are unknown here."""
    novas_values: dict[str, list[str]]
    """Image property of the vocabulary -> values of Nova that are unknown
    here.
    """


def releases() -> Mapping[int, Release]:
    documents = yaml.safe_load(_DATA.read_text(encoding="utf-8"))
    return {
        number: Release(**document) for number, document in documents.items()
    }


def write(number: int, release: Release) -> None:
    """Write one release; the others stay."""
    documents = (
        {each: asdict(found) for each, found in releases().items()}
        if _DATA.exists()
        else {}
    )
    documents[number] = asdict(release)
    head = (
        "# Written by python -m tests.against_nova.record, in the tox"
        " environment of each release; do not edit.\n"
    )
    _DATA.write_text(
        head + yaml.safe_dump(dict(sorted(documents.items())), width=118),
        encoding="utf-8",
    )


def readme_table() -> str:
    heads = [
        "OpenStack",
        "Nova",
        "libvirt, QEMU",
        *(f"Python {each}" for each in _PYTHONS),
    ]
    rows = [
        heads,
        ["---"] * len(heads),
        *(_row(number, release) for number, release in releases().items()),
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _row(number: int, release: Release) -> list[str]:
    known = NOVA_RELEASES[number]
    return [
        known.openstack,
        str(number),
        f"{version_text(known.libvirt)}, {version_text(known.qemu)}",
        *(
            (
                "tested"
                if each == _TESTED_WITH.get(number, "3.11")
                else "yes"
                if each in release.pythons
                else "-"
            )
            for each in _PYTHONS
        ),
    ]


def page() -> Iterator[tuple[int, list[tuple[str, str]]]]:
    """Yield each release, the newest first, with pairs of a heading and what
    it lists.
    """
    for number, release in sorted(releases().items(), reverse=True):
        yield (
            number,
            [
                (heading, text)
                for heading, text in (
                    (
                        "Image properties that it drops",
                        _names(release.properties),
                    ),
                    ("Values that it does not know", _pairs(release.values)),
                    (
                        "Extra specs that its nova-api refuses",
                        _pairs(release.extra_specs),
                    ),
                    (
                        "Traits that its os-traits lacks",
                        _traits(release.traits),
                    ),
                    (
                        "Other traits that none of its drivers reports",
                        _traits(release.unreported),
                    ),
                    (
                        "Request filters that it does not have",
                        _names(release.request_filters),
                    ),
                    (
                        "Request filters only in Nova",
                        _names(release.novas_request_filters),
                    ),
                    (
                        "Image properties only in Nova",
                        _names(release.novas_properties),
                    ),
                    ("Values only in Nova", _pairs(release.novas_values)),
                )
                if text
            ],
        )


def _traits(names: list[str]) -> str:
    """Return trait names; those of a row that has all of them in the list by
    their common part.
    """
    found = list(names)
    for row in ROWS:
        standard = {
            str(term.trait)
            for term in row.values.values()
            if term.kind == "standard"
        }
        if len(standard) > 1 and standard <= set(found):
            parts = zip(*(trait.split("_") for trait in standard))
            common = [
                first
                for first, *others in takewhile(
                    lambda each: len(set(each)) == 1, parts
                )
            ]
            found = sorted({*found, "_".join([*common, "*"])} - standard)
    return _names(found)


def _names(names: list[str]) -> str:
    return ", ".join(f"``{name}``" for name in names)


def _pairs(found: Mapping[str, list[str]]) -> str:
    return ", ".join(
        f"``{name}={'|'.join(values)}``" for name, values in found.items()
    )
