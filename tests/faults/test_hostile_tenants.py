# SPDX-License-Identifier: Apache-2.0

"""Hostile tenants: whatever is in an image or a flavor, the query, the log and
the metrics are as without it.
"""

from __future__ import annotations

import logging
import re
from functools import cache
from typing import Any

import prometheus_client
import pytest
from nova import objects

from os_prefilter import allocation_candidates_query
from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.common.errors import RequestRejected
from os_prefilter.service.loading import installed_filters
from tests.conftest import one_in, pipeline_of
from tests.faults.hostile import PLACES, Place, at, spec_with, texts
from tests.support.nova_objects import nova_flavor, nova_spec
from tests.support.queries import parts, traits_in, traits_required

_LONGEST = 2_000
_FILTERS = installed_filters()
_PIPELINE = pipeline_of(*_FILTERS, metrics=True)
_STRICT = pipeline_of(*_FILTERS, unknown_values="reject")


def _query(spec: Any, pipeline: Any = _PIPELINE) -> str | None:
    """Return the query after all filters; None if the request is refused, in
    one line.
    """
    try:
        pipeline.apply(spec)
        return allocation_candidates_query(spec)
    except RequestRejected as error:
        _check_line(str(error))
        return None


def _check_line(text: str) -> None:
    assert text.isprintable(), ascii(text[:500])
    assert len(text) < _LONGEST, text[:500]


@cache
def _plain_query() -> str:
    query = _query(spec_with())
    assert query
    return query


# What each place may change in the query, and nothing else: the value is that
# of a vocabulary row, or Nova reads it so.
_MAY_CHANGE = {
    "image property vmware_adaptertype": {
        "root_required"
    },  # any adapter is a SCSI one, as in Nova
    "extra spec resources:VCPU": {"resources"},
    "extra spec hw:pmem": {"resources"},
    "image field disk_format": {"root_required"},
    "mask of the CPUs of a realtime image": {"resources"},
}


def _novas(place: Place, value: Any) -> Any:
    """Return Nova's own object of a request; None where Nova takes no such
    value.
    """
    properties, extra_specs, fields = place.put(value)
    plain = spec_with()
    assert plain.image
    try:
        spec = nova_spec(
            {**plain.image.properties, **properties},
            {**plain.flavor.extra_specs, **extra_specs},
        )
        if fields:
            image = {
                "disk_format": "qcow2",
                "properties": plain.image.properties,
                **fields,
            }
            spec.image = objects.ImageMeta.from_dict(image)
        spec.flavor = nova_flavor(
            extra_specs={**plain.flavor.extra_specs, **extra_specs}
        )
    except (ValueError, TypeError, AttributeError):
        return None
    return spec


def _labels() -> set[tuple[str, tuple[tuple[str, str], ...]]]:
    return {
        (sample.name, tuple(sorted(sample.labels.items())))
        for family in prometheus_client.REGISTRY.collect()
        for sample in family.samples
        if sample.name.startswith("os_prefilter")
    }


# Of oslo.versionedobjects, for the ID of an image that is none.
@pytest.mark.filterwarnings("ignore:.* is an invalid UUID:FutureWarning")
@pytest.mark.parametrize("place", PLACES, ids=str)
def test_hostile_text_changes_no_query_no_log_line_and_no_metric(
    place: Place, placement: PlacementClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Refused, or the same query but for what the place is there for; the real
    Placement takes each (never a 400).

    With Nova's own objects as with ours, as far as Nova takes the value. At
    DEBUG, each record is one line.
    """
    _query(spec_with())
    labels, plain, taken = _labels(), parts(_plain_query()), 0
    queries: set[str] = set()
    assert {
        dict(each)["filter"] for _, each in labels if "filter" in dict(each)
    } >= set(_FILTERS)
    caplog.set_level(logging.DEBUG, "os_prefilter")
    # Each value in every second place.
    step = one_in(2)
    for each in list(at(place))[PLACES.index(place) % step :: step]:
        _query(spec_with(place, each.value), _STRICT)
        query = _query(spec := spec_with(place, each.value))
        if (novas := _novas(place, each.value)) is not None:
            taken += 1
            assert _query(novas) in (query, _plain_query()), each.purpose
        if query is None:
            continue
        queries.add(query)
        assert traits_in(query) == traits_required(spec)
        if isinstance(each.value, str) and re.fullmatch(
            place.names, each.value
        ):
            continue
        may_change = _MAY_CHANGE.get(place.name, set())
        rest = [part for part in parts(query) if part[0] not in may_change]
        assert rest == [part for part in plain if part[0] not in may_change], (
            each.purpose
        )
    assert taken or place.name in (
        "image property hw_vif_model",
        "image property architecture",
    )
    assert _labels() == labels
    assert caplog.records
    for record in caplog.records:
        _check_line(record.getMessage())
        assert record.exc_info is None
    for query in sorted(queries)[:: one_in(4)]:
        placement.ensure_traits(
            {
                item.trait
                for item in traits_in(query)
                if item.trait.startswith("CUSTOM_")
            }
        )
        classes = {
            name
            for key, value in parts(query)
            if key.startswith("resources")
            for name in value.split(",")
        }
        for name in {name.partition(":")[0] for name in classes}:
            if name.startswith("CUSTOM_"):
                placement.request("PUT", f"/resource_classes/{name}")
        assert placement.allocation_candidates(query).count >= 0


def test_thousands_of_properties_cost_one_line_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    spec = spec_with()
    assert spec.image
    spec.image.properties = {
        f"hw_{number}_{each.value[:20]}": each.value
        for number in range(60)
        for each in texts()
    }
    assert len(spec.image.properties) > 4_000
    spec.image.properties = {
        **spec.image.properties,
        **spec_with().image.properties,  # type: ignore[union-attr]
    }
    assert _query(spec) == _plain_query()
    (line,) = [record.getMessage() for record in caplog.records]
    assert len(line) < _LONGEST
