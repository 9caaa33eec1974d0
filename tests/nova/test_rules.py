# SPDX-License-Identifier: Apache-2.0

"""rules in Nova's scheduler: what its objects let a rule see, its own client
of Placement, its own reading of files.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest import mock

import nova.conf
import pytest
from nova import objects
from nova.objects.aggregate import AggregateList

from os_prefilter_tools.fleet.model import provider_uuid
from tests.support.nova_objects import nova_spec
from tests.support.nova_start import (
    Start,
    ask,
    entries,
    our_entry,
    user_context,
)
from tests.support.placements import Observed
from tests.support.rule_texts import rule, write_rules

_WHEN = "{image_property: os_distro, is: windows}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "rules"
    path.mkdir()
    write_rules(
        path / "a.yaml",
        rule("licensed", _WHEN, ["CUSTOM_LICENSED"]),
        rule(
            "dropped",
            "{image_property: licence, present: true}",
            ["CUSTOM_DROPPED"],
        ),
        rule("gold", "{extra_spec: 'tier:class', is: gold}", ["CUSTOM_GOLD"]),
    )
    return path


def _start(
    start: Start,
    observed: Observed,
    folder: Path,
    *lines: str,
    enabled: str = "rules",
) -> None:
    # These requests are decided on, not scheduled: no host has what they
    # require.
    start(enabled, f"rules_dirs = {folder}", "no_host_reason = off", *lines)
    ask(observed)


def _schedule(**image: str) -> set[str]:
    spec = nova_spec(image, {"tier:class": "gold"})
    our_entry()(user_context(), spec)
    return set(spec.root_required)


def test_rules_apply_to_properties_nova_keeps_and_their_traits_are_created_once(
    start: Start,
    observed: Observed,
    folder: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """By the first request and not at the start, when Nova has not forked its
    workers yet.
    """
    _start(start, observed, folder)
    assert observed.sent == []
    assert "'licence' before a filter sees it" in caplog.text
    for _ in range(3):
        assert _schedule(os_distro="windows", licence="x") == {
            "CUSTOM_LICENSED",
            "CUSTOM_GOLD",
        }
    assert observed.methods.count("PUT") == 3
    assert observed.client.traits() >= {
        "CUSTOM_LICENSED",
        "CUSTOM_GOLD",
        "CUSTOM_DROPPED",
    }


def test_rules_of_the_package_apply_to_the_system_that_nova_keeps(
    start: Start, observed: Observed
) -> None:
    start(
        "rules", "rules_dirs = builtin:guest-systems", "no_host_reason = off"
    )
    ask(observed)
    assert _schedule(os_distro="win2k25", os_version="x") == {
        "HW_CPU_X86_SSE42"
    }
    assert _schedule(os_distro="win2k22") == set()


def test_rules_are_reloaded_when_nova_reloads_its_configuration(
    start: Start,
    observed: Observed,
    folder: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """``mutate_config_files``: oslo.service calls it on SIGHUP, since Nova
    says so (``nova/service.py``).
    """
    _start(start, observed, folder, "facts_interval = 1800")
    assert _schedule(os_distro="windows") == {"CUSTOM_LICENSED", "CUSTOM_GOLD"}
    write_rules(
        folder / "a.yaml", rule("licensed", _WHEN, ["CUSTOM_OTHER"]), age=0
    )
    nova.conf.CONF.mutate_config_files()
    assert _schedule(os_distro="windows") == {"CUSTOM_OTHER"}
    assert "CUSTOM_OTHER" in observed.client.traits()
    write_rules(folder / "a.yaml", rule("licensed", _WHEN, ["other"]), age=0)
    nova.conf.CONF.mutate_config_files()
    assert _schedule(os_distro="windows") == {"CUSTOM_OTHER"}
    assert caplog.text.count("Failed to reload the request rules") == 1


_NIC, _LICENSED = "COMPUTE_NET_VIF_MODEL_E1000E", "trait:CUSTOM_LICENSED"
_AGGREGATES = {
    "CUSTOM_LICENSED": provider_uuid("licensed"),
    _NIC: provider_uuid("old nics"),
}


def _not_named(
    _context: Any, keys: Iterable[str], _prefix: str, value: str
) -> list[objects.Aggregate]:
    """Return what Nova's database would: the aggregates with a trait that none
    of the keys names.
    """
    assert value == "required"
    left = _AGGREGATES.keys() - {key.removeprefix("trait:") for key in keys}
    return [objects.Aggregate(uuid=_AGGREGATES[trait]) for trait in left]


@pytest.mark.parametrize(
    ("asked", "isolated"),
    [
        (({},), {"CUSTOM_LICENSED", _NIC}),
        (({"os_distro": "windows", "hw_vif_model": "e1000e"},), set()),
        (({_LICENSED: "required"},), {_NIC}),
        # Nova ignores values that it does not know; one that is forbidden of
        # the group is required of the root.
        (({"os_distro": "windows"}, {_LICENSED: "preferred"}), {_NIC}),
        (({"os_distro": "windows"}, {_LICENSED: "forbidden"}), {_NIC}),
    ],
)
def test_isolated_aggregate_is_open_to_requests_for_which_a_filter_requires_its_trait(
    start: Start,
    observed: Observed,
    folder: Path,
    asked: Any,
    isolated: set[str],
) -> None:
    """Nova's own function decides; only the list of aggregates does not come
    from a database.
    """
    novas = entries()
    isolating = (
        "trait_scope = root",
        "[scheduler]",
        "enable_isolated_aggregate_filtering = true",
    )
    _start(start, observed, folder, *isolating, enabled="image_metadata,rules")
    # It would run before ours.
    assert "isolate_aggregates" not in entries()
    for before in (
        None,
        objects.Destination(aggregates=[provider_uuid("zone")]),
    ):
        spec = nova_spec(*asked, requested_destination=before)
        flavor = spec.flavor.obj_to_primitive()
        with mock.patch.object(
            AggregateList, "get_non_matching_by_metadata_keys", _not_named
        ):
            our_entry()(user_context(), spec)
        destination = spec.requested_destination
        assert set(
            (destination and destination.forbidden_aggregates) or ()
        ) == {_AGGREGATES[each] for each in isolated}
        assert not before or destination.aggregates == [provider_uuid("zone")]
        assert spec.flavor.obj_to_primitive() == flavor
    # Without a filter of ours it is Nova's again, in its place.
    start("", *isolating)
    assert entries() == [*novas, "ours"]
