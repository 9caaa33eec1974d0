# SPDX-License-Identifier: Apache-2.0

"""Record what the installed Nova knows, beside what we know:
``python -m tests.against_nova.record``.

Run it in the environment of each release, after its tests:
``.tox/nova29/bin/python -m tests.against_nova.record``.
"""

import re
from collections.abc import Callable
from importlib.metadata import metadata
from pathlib import Path

import nova
import os_traits
from nova import exception
from nova.api.validation.extra_specs import validators
from nova.objects.image_meta import ImageMetaProps
from nova.scheduler import request_filter

from os_prefilter.nova.activation import SAME_PURPOSE, STAYS_WITH_NOVA
from os_prefilter.vocabulary import ROWS
from os_prefilter.vocabulary.image_properties import KEPT_BY_NOVA, LISTS
from os_prefilter.vocabulary.model import Row
from tests.against_nova.nova import NOVA
from tests.against_nova.releases import Release, write

"""Image properties that are no texts, numbers or booleans: Nova's own
business.
"""
_PARTS = (
    "compute/provider_tree.py",
    "virt/driver.py",
    "virt/libvirt",
    "virt/vmwareapi",
    "virt/ironic",
)
"""The source of what a nova-compute reports."""


def record() -> Release:
    """Return what the installed Nova does and we do not, and the reverse."""
    named, known = (
        [row for row in ROWS if row.image_property],
        set(os_traits.get_traits()),
    )
    standard = {
        str(term.trait)
        for row in ROWS
        for term in row.values.values()
        if term.kind == "standard"
    }
    filters = {each.__name__ for each in request_filter.ALL_REQUEST_FILTERS}
    elsewhere = {name for name, _ in STAYS_WITH_NOVA.values()}
    words = _words()
    return Release(
        pythons=_pythons(),
        properties=sorted(
            {str(row.image_property) for row in named}
            - set(ImageMetaProps.fields)
        ),
        values=_difference(
            named, lambda row, enumerated: set(row.values) - enumerated
        ),
        extra_specs={
            str(row.extra_spec): refused
            for row in sorted(ROWS, key=lambda row: str(row.extra_spec))
            if row.extra_spec
            and (
                refused := sorted(
                    value for value in row.values if _is_refused(row, value)
                )
            )
        },
        request_filters=sorted(set(SAME_PURPOSE.values()) - filters),
        traits=sorted(standard - known),
        unreported=sorted(
            trait for trait in standard & known if not _is_named(trait, words)
        ),
        novas_request_filters=sorted(
            filters - set(SAME_PURPOSE.values()) - elsewhere
        ),
        novas_properties=sorted(
            set(ImageMetaProps.fields) - LISTS - KEPT_BY_NOVA
        ),
        novas_values=_difference(
            named,
            lambda row, enumerated: (
                enumerated - set(row.values) - set(row.spelling.older)
            ),
        ),
    )


def _pythons() -> list[str]:
    classifiers: list[str] = metadata("nova").get_all("Classifier", [])
    found = [
        each.rpartition(" :: ")[2]
        for each in classifiers
        if "Python :: 3." in each
    ]
    return sorted(found, key=lambda text: int(text.partition(".")[2]))


def _difference(
    rows: list[Row], of: Callable[[Row, set[str]], set[str]]
) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in sorted(rows, key=lambda row: str(row.image_property)):
        enumerated = getattr(
            getattr(
                ImageMetaProps.fields.get(row.image_property),
                "AUTO_TYPE",
                None,
            ),
            "ALL",
            None,
        )
        if enumerated and (different := sorted(of(row, set(enumerated)))):
            found[str(row.image_property)] = different
    return found


def _is_refused(row: Row, value: str) -> bool:
    try:
        validators.validate(row.extra_spec, value)
    except exception.ValidationError:
        return True
    return False


def _words() -> set[str]:
    root = Path(str(nova.__file__)).parent
    places = [root / part for part in _PARTS]
    files = [
        path
        for place in places
        for path in (
            [place] if place.is_file() else sorted(place.rglob("*.py"))
        )
    ]
    return {
        word
        for path in files
        for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))
    }


def _is_named(trait: str, words: set[str]) -> bool:
    """Whether the source names the trait, or makes it of its prefix:
    ``f"COMPUTE_STORAGE_BUS_{bus}"``.
    """
    parts = trait.split("_")
    prefixes = (
        "_".join(parts[:number]) + "_" for number in range(2, len(parts))
    )
    return trait in words or any(prefix in words for prefix in prefixes)


if __name__ == "__main__":
    write(NOVA, record())
