# SPDX-License-Identifier: Apache-2.0

"""The host filter for rebuilds, as Nova's scheduler runs it: its own host
states and client, and a real Placement.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from nova import exception
from nova.scheduler.host_manager import HostState

from os_prefilter.service import Service
from os_prefilter.service.loading import as_filter
from os_prefilter.vocabulary import HPET
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.model import provider_uuid
from tests.support.every_trait import ALL_REPORTED, marker_of
from tests.support.nova_objects import nova_spec
from tests.support.nova_start import Start, ask
from tests.support.placements import Answer, Observed, put_traits
from tests.support.reporting_fleets import fleet_of
from tests.support.rule_texts import rule, rules_text

_HOST = "host-0"
_READ = f"GET /resource_providers/{provider_uuid(_HOST)}/traits"
_E1000E = "COMPUTE_NET_VIF_MODEL_E1000E"
_VIRTIO = "COMPUTE_NET_VIF_MODEL_VIRTIO"
_IDE = "COMPUTE_STORAGE_BUS_IDE"
_QCOW2 = "COMPUTE_IMAGE_TYPE_QCOW2"
_RAW = "COMPUTE_IMAGE_TYPE_RAW"
_DEFAULT_Q35 = "CUSTOM_COMPUTE_DEFAULT_MACHINE_Q35"
# With which nova-api marks a rebuild.
_HINTS = {"_nova_check_type": ["rebuild"]}
_WANTS_E1000E = {"hw_vif_model": "e1000e"}
_WINDOWS = {"os_distro": "windows"}

_REFUSED = "No valid host was found. This host does not offer {}."


@pytest.fixture
def start(start: Start) -> Start:
    """Return a function that starts Nova's scheduler with the filter."""

    def with_filter(enabled: str, *lines: str) -> Any:
        return start(
            enabled,
            *lines,
            "[filter_scheduler]",
            "enabled_filters = RebuildFilter",
        )

    return with_filter


@pytest.fixture(scope="module")
def placement() -> Iterator[EmbeddedPlacement]:
    with EmbeddedPlacement(fleet_of([set()])) as placement:
        placement.know(
            [
                HPET,
                *ALL_REPORTED,
                _DEFAULT_Q35,
                "CUSTOM_COMPUTE_MACHINE_PC",
                "CUSTOM_LICENSED",
            ]
        )
        yield placement


def _having(placement: EmbeddedPlacement, *traits: str) -> Observed:
    """Let the host have these traits alone, and Nova's client ask here."""
    put_traits(
        placement,
        lambda have: have.symmetric_difference_update(have ^ {*traits}),
        _HOST,
    )
    observed = Observed(placement)
    ask(observed)
    return observed


def _rebuild(
    scheduler: Any,
    properties: Mapping[str, Any],
    extra_specs: Mapping[str, str] | None = None,
    host: str = _HOST,
) -> str:
    """Return why a rebuild with a new image is refused; empty if it is not."""
    spec = nova_spec(
        dict(properties),
        dict(extra_specs or {}),
        scheduler_hints=_HINTS,
        force_hosts=[host],
    )
    return _filter(scheduler, spec, host)


def _filter(scheduler: Any, spec: Any, host: str = _HOST) -> str:
    spec.instance_uuid = provider_uuid("server")
    before = spec.obj_to_primitive()
    state = HostState(host, host, provider_uuid("cell"))
    state.uuid = provider_uuid(host)
    manager = scheduler.host_manager
    try:
        passing = manager.filter_handler.get_filtered_objects(
            manager.enabled_filters, [state], spec
        )
    except exception.NoValidHost as error:
        return str(error)
    finally:
        assert spec.obj_to_primitive() == before
    assert passing == [state]
    return ""


def _warnings(records: Iterable[logging.LogRecord]) -> list[str]:
    return [
        each.getMessage()
        for each in records
        if each.name == "os_prefilter.nova" and each.levelname != "INFO"
    ]


_FITS = [
    pytest.param([_VIRTIO, _E1000E], _WANTS_E1000E, {}, id="has-the-model"),
    pytest.param(
        [_VIRTIO], {}, {"hw:viommu_model": "intel"}, id="flavor-alone"
    ),
    pytest.param(
        [_VIRTIO],
        {"hw_viommu_model": "intel"},
        {"hw:viommu_model": "intel"},
        id="flavor-and-image",
    ),
    pytest.param([_IDE], {"hw_disk_bus": "ide"}, {}, id="default-pc"),
]


@pytest.mark.parametrize(("traits", "properties", "extra_specs"), _FITS)
def test_rebuild_passes_where_the_host_has_what_the_image_requires(
    start: Start,
    placement: EmbeddedPlacement,
    traits: list[str],
    properties: dict[str, Any],
    extra_specs: dict[str, str],
) -> None:
    scheduler = start("image_metadata,hpet", "reported_traits = *")
    _having(placement, *ALL_REPORTED, *traits)
    assert _rebuild(scheduler, properties, extra_specs) == ""


_LACKS = [
    pytest.param(
        [_VIRTIO], _WANTS_E1000E, "hw_vif_model=e1000e", id="one-property"
    ),
    pytest.param(
        [_VIRTIO],
        {**_WANTS_E1000E, "hw_time_hpet": True},
        "hw_vif_model=e1000e, hw_time_hpet=true",
        id="two-properties",
    ),
    pytest.param(
        [_IDE, _DEFAULT_Q35],
        {"hw_disk_bus": "ide"},
        "hw_disk_bus=ide",
        id="default-q35",
    ),
    pytest.param(
        [_IDE, _DEFAULT_Q35],
        {"hw_disk_bus": "ide", "hw_machine_type": "pc"},
        "hw_machine_type=pc",
        id="machine-type",
    ),
]


@pytest.mark.parametrize(("traits", "properties", "missing"), _LACKS)
def test_rebuild_is_refused_where_the_host_lacks_what_a_property_requires(
    start: Start,
    placement: EmbeddedPlacement,
    traits: list[str],
    properties: dict[str, Any],
    missing: str,
) -> None:
    scheduler = start("image_metadata,hpet", "reported_traits = *")
    observed = _having(placement, *ALL_REPORTED, *traits)
    assert _rebuild(scheduler, properties) == _REFUSED.format(missing)
    assert _READ in observed.sent


def test_format_of_the_image_refuses_a_rebuild(
    start: Start, placement: EmbeddedPlacement
) -> None:
    scheduler = start("image_type")
    _having(placement, _RAW)
    assert "does not offer disk_format=qcow2" in _rebuild(scheduler, {})
    _having(placement, _RAW, _QCOW2)
    assert _rebuild(scheduler, {}) == ""


def test_what_every_request_requires_refuses_no_rebuild(
    start: Start, placement: EmbeddedPlacement
) -> None:
    """The service is disabled, and the host is not of this cloud's owner: the
    server runs there nevertheless.

    Also where it is the only one that can run the image, and a request for
    another host is rejected at once.
    """
    scheduler = start("compute_status,owner,noop", "wait_for_reports = false")
    observed = _having(placement, "COMPUTE_STATUS_DISABLED")
    assert _rebuild(scheduler, {"hw_vif_model": "virtio"}) == ""
    assert _READ not in observed.sent
    scheduler = start("image_metadata,compute_status")
    _having(
        placement,
        *ALL_REPORTED,
        "COMPUTE_NODE",
        "COMPUTE_STATUS_DISABLED",
        _E1000E,
    )
    assert _rebuild(scheduler, _WANTS_E1000E) == ""


@pytest.fixture
def start_with_rules(start: Start, tmp_path: Path) -> Start:
    """Return a function that starts the scheduler with texts of rules."""

    def with_rules(*texts: str) -> Any:
        (tmp_path / "a.yaml").write_text(rules_text(*texts))
        return start(
            "rules,image_metadata",
            f"rules_dirs = {tmp_path}",
            "reported_traits = *",
        )

    return with_rules


@pytest.fixture
def no_warnings(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail a test that logs a warning."""
    yield
    assert _warnings(caplog.get_records("call")) == []


def _rebuild_of_gold(scheduler: Any, properties: dict[str, str]) -> str:
    """As :func:`_rebuild`, of a server with a licence.

    It has one by its flavor and by a hint.
    """
    fields: dict[str, Any] = {
        "project_id": "p1",
        "availability_zone": "north",
        "force_hosts": [_HOST],
    }
    hints = {**_HINTS, "licence": ["gold"], "tier": ["low"]}
    spec = nova_spec(
        properties, {"licence": "gold"}, scheduler_hints=hints, **fields
    )
    return _filter(scheduler, spec)


_FLAVOR = "{extra_spec: licence, is: gold}"
_HINT = "{hint: licence, is: gold}"
_OTHER_HINT = "{hint: tier, is: low}"
_IMAGE = "{image_property: os_distro, is: windows}"
_SAME_IMAGE = "{image_property: hw_vif_model, is: virtio}"
_LICENSED = "CUSTOM_LICENSED"


_VIRTIO_MODEL = {"hw_vif_model": "virtio"}
# Conditions of rules with the trait that they require, the new image's
# properties.
_KEEP = [
    pytest.param({_FLAVOR: _LICENSED}, {}, id="flavor"),
    pytest.param({_HINT: _LICENSED}, {}, id="hint"),
    pytest.param({"{project: p1}": _LICENSED}, {}, id="project"),
    pytest.param({"{availability_zone: north}": _LICENSED}, {}, id="zone"),
    pytest.param({"{flavor: small}": _LICENSED}, {}, id="flavor-name"),
    pytest.param({_IMAGE: _LICENSED}, {}, id="another-image"),
    pytest.param(
        {f"{{any: [{_FLAVOR}, {_IMAGE}]}}": _LICENSED},
        _WINDOWS,
        id="any-of-flavor-and-image",
    ),
    pytest.param(
        {f"[{_IMAGE}, {_HINT}]": _LICENSED}, {}, id="another-image-and-hint"
    ),
    pytest.param(
        {_FLAVOR: _LICENSED, _IMAGE: _LICENSED},
        _VIRTIO_MODEL,
        id="flavor-with-another-image",
    ),
    pytest.param(
        {_HINT: _LICENSED, _IMAGE: _LICENSED},
        _VIRTIO_MODEL,
        id="hint-with-another-image",
    ),
]


def _requiring(rules: dict[str, str]) -> list[str]:
    """Return the texts of rules, given as condition -> trait."""
    return [
        rule(f"r{number}", condition, [trait])
        for number, (condition, trait) in enumerate(rules.items())
    ]


@pytest.mark.parametrize(("rules", "properties"), _KEEP)
def test_what_the_server_had_before_refuses_no_rebuild(
    start_with_rules: Start,
    placement: EmbeddedPlacement,
    rules: dict[str, str],
    properties: dict[str, str],
) -> None:
    """The server ran with it, and Nova leaves a server whose rebuild is
    refused in ERROR.

    It may be older than the rule, and its host without the trait.
    """
    scheduler = start_with_rules(*_requiring(rules))
    _having(placement, _VIRTIO, *ALL_REPORTED)
    assert _rebuild_of_gold(scheduler, properties) == ""


# The same, and what the host lacks.
_ADD = [
    pytest.param(
        {_IMAGE: _LICENSED}, _WINDOWS, "os_distro=windows", id="image"
    ),
    pytest.param(
        {f"{{any: [{_IMAGE}, {_FLAVOR}]}}": _LICENSED},
        _WINDOWS,
        "os_distro=windows",
        id="any-of-image-and-flavor",
    ),
    pytest.param(
        {f"[{_IMAGE}, {_FLAVOR}]": _LICENSED},
        _WINDOWS,
        "os_distro=windows together with licence=gold",
        id="image-and-flavor",
    ),
    # A rule about the flavor or a hint takes back no requirement of the image.
    pytest.param(
        {_FLAVOR: _E1000E, _IMAGE: _LICENSED},
        _WANTS_E1000E,
        "hw_vif_model=e1000e",
        id="model-of-flavor-and-image",
    ),
    pytest.param(
        {_HINT: _E1000E, _IMAGE: _LICENSED},
        _WANTS_E1000E,
        "hw_vif_model=e1000e",
        id="model-of-hint-and-image",
    ),
    pytest.param(
        {_FLAVOR: _LICENSED, _IMAGE: _LICENSED},
        _WINDOWS,
        "os_distro=windows",
        id="rules-of-flavor-and-image",
    ),
    pytest.param(
        {_HINT: _LICENSED, _IMAGE: _LICENSED},
        _WINDOWS,
        "os_distro=windows",
        id="rules-of-hint-and-image",
    ),
]


@pytest.mark.parametrize(("rules", "properties", "missing"), _ADD)
def test_what_the_new_image_adds_refuses_a_rebuild(
    start_with_rules: Start,
    placement: EmbeddedPlacement,
    rules: dict[str, str],
    properties: dict[str, str],
    missing: str,
) -> None:
    scheduler = start_with_rules(*_requiring(rules))
    _having(placement, _VIRTIO, *ALL_REPORTED)
    reason = _rebuild_of_gold(scheduler, properties)
    assert reason == _REFUSED.format(missing)


def _contradicting(requiring: str, forbidding: str) -> list[str]:
    """Return the texts of two rules about one trait, by their conditions."""
    return [
        rule("one", requiring, [_LICENSED]),
        rule("two", forbidding, forbid=[_LICENSED]),
    ]


# The condition that requires the trait, and the one that forbids it.
_HALF_IS_MET = [
    pytest.param((_FLAVOR, _IMAGE), [], id="image-forbids"),
    pytest.param((_HINT, _IMAGE), [], id="image-forbids-what-a-hint-requires"),
    pytest.param((_IMAGE, _FLAVOR), [_LICENSED], id="image-requires"),
    pytest.param((_FLAVOR, _OTHER_HINT), [], id="neither-is-of-the-image"),
]


@pytest.mark.usefixtures("no_warnings")
@pytest.mark.parametrize(("sides", "traits"), _HALF_IS_MET)
def test_contradiction_refuses_no_rebuild_if_the_host_meets_the_images_half(
    start_with_rules: Start,
    placement: EmbeddedPlacement,
    sides: tuple[str, str],
    traits: list[str],
) -> None:
    """A request like that of the server is refused by today's rules; the
    server runs nevertheless.
    """
    scheduler = start_with_rules(*_contradicting(*sides))
    _having(placement, _VIRTIO, *ALL_REPORTED, *traits)
    image = {**_WINDOWS, **_VIRTIO_MODEL}
    assert _rebuild_of_gold(scheduler, image) == ""
    # What else the image requires is checked in any case.
    assert _rebuild_of_gold(scheduler, {**_WINDOWS, **_WANTS_E1000E})


_IMAGE_IS_NOT_MET = [
    pytest.param(
        (_FLAVOR, _IMAGE),
        [_LICENSED],
        "does not offer os_distro=windows.",
        id="image-forbids-what-the-host-has",
    ),
    pytest.param(
        (_IMAGE, _HINT),
        [],
        "does not offer os_distro=windows.",
        id="image-requires-what-the-host-lacks",
    ),
    pytest.param(
        (_IMAGE, _SAME_IMAGE),
        [],
        "The trait CUSTOM_LICENSED is both required",
        id="both-are-of-the-image",
    ),
]


@pytest.mark.usefixtures("no_warnings")
@pytest.mark.parametrize(("sides", "traits", "reason"), _IMAGE_IS_NOT_MET)
def test_contradiction_refuses_a_rebuild_if_the_host_does_not_meet_the_image(
    start_with_rules: Start,
    placement: EmbeddedPlacement,
    sides: tuple[str, str],
    traits: list[str],
    reason: str,
) -> None:
    scheduler = start_with_rules(*_contradicting(*sides))
    _having(placement, _VIRTIO, *ALL_REPORTED, *traits)
    image = {**_WINDOWS, **_VIRTIO_MODEL}
    assert reason in _rebuild_of_gold(scheduler, image)
    assert _rebuild_of_gold(scheduler, {**_WINDOWS, **_WANTS_E1000E})


def test_impossible_image_is_refused_with_its_reason(
    start: Start, placement: EmbeddedPlacement
) -> None:
    scheduler = start("image_metadata")
    _having(placement, _IDE)
    reason = _rebuild(
        scheduler, {"hw_machine_type": "q35", "hw_disk_bus": "ide"}
    )
    assert reason.startswith(
        "No valid host was found. image property hw_disk_bus=ide is impossible"
        " with image property"
    )


_NO_REBUILDS = [
    pytest.param({}, id="no-hints"),
    pytest.param({"scheduler_hints": {}}, id="empty-hints"),
    pytest.param({"scheduler_hints": {"group": ["one"]}}, id="another-hint"),
    pytest.param({"scheduler_hints": _HINTS}, id="hint-of-a-user"),
    pytest.param(
        {"scheduler_hints": _HINTS, "force_hosts": None}, id="no-forced-host"
    ),
    pytest.param(
        {"scheduler_hints": _HINTS, "force_hosts": []}, id="forced-to-none"
    ),
]


@pytest.mark.parametrize("fields", _NO_REBUILDS)
def test_any_other_request_passes_without_a_query(
    start: Start, placement: EmbeddedPlacement, fields: dict[str, Any]
) -> None:
    """Any user may give the hint of a rebuild; nova-api forces a real one to
    the host of the server.
    """
    scheduler = start("image_metadata")
    observed = _having(placement)
    assert _filter(scheduler, nova_spec(_WANTS_E1000E, **fields)) == ""
    assert observed.sent == []


def test_host_that_has_not_reported_is_not_refused(
    start: Start,
    placement: EmbeddedPlacement,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its driver says nothing of VIF models, and no agent has run there; a
    trait without a gate is no such case.
    """
    scheduler = start("image_metadata,hpet")
    _having(placement, "HW_CPU_X86_AVX")
    assert _rebuild(scheduler, {**_WANTS_E1000E, "hw_time_hpet": True}) == ""
    (warning,) = _warnings(caplog.records)
    assert warning.endswith(
        "without a check whether its host host-0 can run the new image: it has"
        " not reported whether it has COMPUTE_NET_VIF_MODEL_E1000E,"
        " CUSTOM_COMPUTE_TIME_HPET"
    )


def test_host_that_has_reported_that_it_lacks_a_trait_is_refused(
    start: Start,
    placement: EmbeddedPlacement,
    caplog: pytest.LogCaptureFixture,
) -> None:
    scheduler = start("image_metadata,hpet")
    placement.know([marker_of(HPET)])
    _having(placement, marker_of(HPET))
    assert "hw_time_hpet=true" in _rebuild(scheduler, {"hw_time_hpet": True})
    assert _warnings(caplog.records) == []


def test_report_of_another_trait_refuses_no_rebuild(
    start: Start,
    placement: EmbeddedPlacement,
    caplog: pytest.LogCaptureFixture,
) -> None:
    scheduler = start("image_metadata,hpet")
    placement.know([marker_of(_E1000E)])
    _having(placement, marker_of(_E1000E))
    assert _rebuild(scheduler, {"hw_time_hpet": True}) == ""
    assert "CUSTOM_COMPUTE_TIME_HPET" in _warnings(caplog.records)[0]


_UNREAD = {
    "status": "PlacementUnavailable: ",
    "name": "UnknownProvider: ",
    # Eventlet's Timeout is no Exception.
    "timeout": "BaseException: 1 second",
    "hangs": "Placement did not respond in 0.05 seconds",
    "thread": "RuntimeError: can't start new thread",
}


@pytest.mark.parametrize("at", _UNREAD)
def test_rebuild_goes_on_with_a_warning_where_the_traits_cannot_be_read(
    start: Start,
    placement: EmbeddedPlacement,
    caplog: Any,
    monkeypatch: pytest.MonkeyPatch,
    at: str,
) -> None:
    """It does not wait for a Placement that hangs; a process may be unable to
    start another thread.
    """
    host = "host-9" if at == "name" else _HOST
    done = threading.Event()

    def fail(_method: str, url: str) -> Answer | None:
        if not _READ.endswith(url):
            return None
        if at == "timeout":
            raise BaseException("1 second")  # noqa: TRY002
        if at == "hangs":
            done.wait()
        return (503, {}) if at == "status" else None

    def no_thread(*_anything: object) -> object:
        raise RuntimeError("can't start new thread")

    if at == "hangs":
        monkeypatch.setattr(
            "os_prefilter.service.deployment_facts.PATIENCE", 0.05
        )
    scheduler = start("image_metadata")
    _having(placement, _VIRTIO).hook = fail
    if at == "thread":
        monkeypatch.setattr(
            "os_prefilter.service.deployment_facts.start_thread", no_thread
        )
    try:
        assert _rebuild(scheduler, _WANTS_E1000E, host=host) == ""
    finally:
        done.set()
    (warning,) = _warnings(caplog.records)
    assert (
        f"without a check whether its host {host} can run the new image:"
        f" {_UNREAD[at]}" in warning
    )


@pytest.mark.parametrize("part", ["_decided", "_decide_once"])
def test_failing_filter_is_logged_and_refuses_no_rebuild(
    start: Start,
    placement: EmbeddedPlacement,
    caplog: Any,
    monkeypatch: pytest.MonkeyPatch,
    part: str,
) -> None:
    """Nor does an error of the pipeline's own."""
    scheduler = start("image_metadata")
    _having(placement, _VIRTIO)

    def broken(*_anything: object) -> object:
        raise OSError("broken")

    (host_filter,) = scheduler.host_manager.enabled_filters
    monkeypatch.setattr(host_filter.service, part, broken)
    assert _rebuild(scheduler, _WANTS_E1000E) == ""
    assert _warnings(caplog.records)[-1].endswith(
        "can run the new image: a request filter failed"
    )
    assert "OSError: broken" in caplog.text


def test_filter_written_for_nova_neither_refuses_nor_changes_a_rebuild(
    start: Start,
    placement: EmbeddedPlacement,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def closed(context: Any, request_spec: Any) -> bool:
        assert context.elevated().is_admin
        request_spec.root_required.add("CUSTOM_LICENSED")
        raise exception.RequestFilterFailed(reason="closed today")

    scheduler = start("image_metadata")
    (host_filter,) = scheduler.host_manager.enabled_filters
    host_filter.service = Service((as_filter("closed", closed),))
    _having(placement, _VIRTIO)
    assert _rebuild(scheduler, _WANTS_E1000E) == ""
    assert "closed today" in _warnings(caplog.records)[-1]


def test_long_reason_names_whole_properties_and_fits_into_the_fault(
    start_with_rules: Start, placement: EmbeddedPlacement
) -> None:
    values = {f"prop_{number}": "ü" * 40 for number in range(9)}
    rules = {
        f'[{_IMAGE}, {{extra_spec: "{name}", is: "{value}"}}]': _LICENSED
        for name, value in values.items()
    }
    scheduler = start_with_rules(*_requiring(rules))
    _having(placement)
    reason = _rebuild(scheduler, _WINDOWS, values)
    assert reason.endswith(
        f" os_distro=windows together with prop_0={'ü' * 40}, and 8 more."
    )
    assert len(reason.encode()) <= 255
