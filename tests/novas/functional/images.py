# SPDX-License-Identifier: Apache-2.0

"""Images that ask for one thing: each value of the vocabulary, and which hosts
can do it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import os_prefilter
from os_prefilter import Flavor, Image, RequestSpec
from os_prefilter.vocabulary import rows_required_by
from os_prefilter.vocabulary.model import Row
from tests.novas.functional.hosts import FACTS

ROWS = (*rows_required_by("image_metadata"), *rows_required_by("hpet"))

Asked = tuple[str, str, str]
"""Image property, its value, and the format of the image's disk."""


def hosts_for(asked: Asked) -> list[str]:
    """Return the hosts whose late check accepts the image, in the order in
    which Nova tries them.
    """
    name, value, disk_format = asked
    request = RequestSpec(
        flavor=Flavor(vcpus=1, memory_mb=64, root_gb=1),
        image=Image({name: value}, disk_format=disk_format),
    )
    return [
        host
        for host, facts in FACTS.items()
        if not os_prefilter.unsupported(request, facts)
    ]


def possible(rows: Iterable[Row] = ROWS) -> Iterator[Asked]:
    for row in rows:
        # An empty one says that nothing is named.
        for value in filter(None, row.values):
            images = [
                (str(row.image_property), value, disk_format)
                for disk_format in ("raw", "vmdk")
            ]
            yield from [asked for asked in images if hosts_for(asked)][:1]


def impossible() -> Iterator[Asked]:
    for row in ROWS:
        known = {value for _, value, _ in possible([row])}
        yield from [
            (str(row.image_property), value, "raw")
            for value in row.values
            if value and value not in known
        ][:1]
