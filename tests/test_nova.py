"""The door to Nova: one entry in its list of request filters, put there by Nova's own code when the scheduler starts."""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import EntryPoint, version
from pathlib import Path
from typing import Any
from unittest import mock

import nova.conf
import pytest
from nova import context as nova_context
from nova import exception, objects
from nova.scheduler import manager, request_filter
from nova.scheduler.host_manager import HostManager
from stevedore.extension import ExtensionManager

from os_prefilter import Pipeline, Request, Requirements
from os_prefilter.errors import (
    ConfigurationError,
    DuplicateFilter,
    FilterLoadError,
    InvalidOption,
    MissingFact,
    UnknownFilter,
)
from os_prefilter.nova import SAME_PURPOSE, RequestFilters
from os_prefilter.plugins import NAMESPACE, as_filter, installed_filters
from tests.nova_objects import nova_spec

CONF = nova.conf.CONF
DOCS = Path(__file__).parent.parent / "docs"

# Each was added by the Nova of this major version; the others are older than any that works.
_SINCE = {"virtio_sound_filter": 32, "tpm_secret_security_filter": 33, "owner_nova_filter": 34}

# Those of Nova's filters that ask about the deployment, not about what a host can do.
_NOVAS_ALONE = {
    "require_tenant_aggregate",
    "map_az_to_placement_aggregate",
    "isolate_aggregates",
    "routed_networks_filter",
    "remote_managed_ports_filter",
}

_IMPOSSIBLE = {"hw_machine_type": "q35", "hw_disk_bus": "ide"}

Start = Callable[..., Any]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Return a function: start Nova's scheduler with these filters and lines of nova.conf, without a message bus."""
    before = list(request_filter.ALL_REQUEST_FILTERS)
    for name in ("refresh_cells_caches", "_init_aggregates", "_init_instance_info"):
        monkeypatch.setattr(HostManager, name, lambda _self: None)
    monkeypatch.setattr(manager.rpc, "get_notifier", mock.Mock())
    # One for the whole process, and nobody asks it here.
    monkeypatch.setattr(manager.report, "report_client_singleton", mock.Mock(return_value=mock.Mock()))

    def start(enabled: str, *lines: str) -> Any:
        path = tmp_path / "nova.conf"
        text = [
            "[filter_scheduler]",
            "available_filters = nova.scheduler.filters.all_filters",
            "available_filters = os_prefilter.nova.activate",
            "[prefilter]",
            f"enabled_filters = {enabled}",
            *lines,
        ]
        path.write_text("\n".join(text), encoding="utf-8")
        CONF([], project="nova", default_config_files=[str(path)])
        return manager.SchedulerManager()

    yield start
    CONF.reset()
    request_filter.ALL_REQUEST_FILTERS[:] = before


def _names() -> list[str]:
    """Return Nova's list by name; our entry is ``ours``."""
    return ["ours" if isinstance(each, RequestFilters) else each.__name__ for each in request_filter.ALL_REQUEST_FILTERS]


def _entry() -> Any:
    return request_filter.ALL_REQUEST_FILTERS[-1]


def _context() -> Any:
    return nova_context.RequestContext("user", "project")


def _install(monkeypatch: pytest.MonkeyPatch, *points: EntryPoint) -> None:
    monkeypatch.setitem(ExtensionManager.ENTRY_POINT_CACHE, NAMESPACE, list(points))


def test_the_entry_is_the_last_of_the_list_and_takes_no_host_filter_away(start: Start) -> None:
    novas = _names()
    scheduler = start("hpet,deploy_config")
    assert _names() == [*novas, "ours"]
    assert [each.name for each in _entry().pipeline.filters] == ["hpet", "deploy_config"]
    assert "ComputeFilter" in scheduler.host_manager.filter_cls_map
    assert len(scheduler.host_manager.enabled_filters) == len(CONF.filter_scheduler.enabled_filters)


def test_activated_again_there_is_one_entry_with_the_new_configuration(start: Start) -> None:
    novas = _names()
    for enabled in ("hpet", "hpet", "deploy_config"):
        start(enabled)
        assert _names() == [*novas, "ours"]
        assert [each.name for each in _entry().pipeline.filters] == [enabled]


@pytest.mark.parametrize("name", sorted(SAME_PURPOSE))
def test_an_enabled_filter_takes_the_place_of_novas_until_it_is_disabled(
    name: str, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    novas = _names()
    start(name)
    assert _names() == [each for each in novas if each != SAME_PURPOSE[name]] + ["ours"]
    said = f"because ours take their place: {SAME_PURPOSE[name]} ({name})." in caplog.text
    assert said == (SAME_PURPOSE[name] in novas)
    start("hpet")
    assert _names() == [*novas, "ours"]


def test_entries_of_others_stay_in_their_place(start: Start) -> None:
    """Also where Nova's filter beside them is replaced, and where Nova's was taken out by somebody else."""

    def first(_context: Any, _spec: Any) -> None: ...
    def middle(_context: Any, _spec: Any) -> None: ...
    def last(_context: Any, _spec: Any) -> None: ...

    entries = request_filter.ALL_REQUEST_FILTERS
    entries.insert(0, first)
    entries.insert(entries.index(request_filter.compute_status_filter) + 1, middle)
    entries.append(last)
    entries.remove(request_filter.isolate_aggregates)
    others = _names()
    for enabled in ("hpet", "compute_status", "image_type,compute_status", "hpet"):
        start(enabled)
        replaced = [SAME_PURPOSE.get(name) for name in enabled.split(",")]
        assert _names() == [each for each in others if each not in replaced] + ["ours"]


def test_each_filter_of_the_same_purpose_exists_on_both_sides() -> None:
    """In Nova from the version on that brought it; a filter of Nova's that nobody has thought of fails this."""
    assert set(SAME_PURPOSE) <= set(installed_filters())
    major = int(version("nova").partition(".")[0])
    missing = {name for name in SAME_PURPOSE.values() if not hasattr(request_filter, name)}
    assert missing == {name for name, since in _SINCE.items() if since > major}
    assert set(_names()) - set(SAME_PURPOSE.values()) == _NOVAS_ALONE


def test_the_documentation_lists_each_filter_that_is_replaced() -> None:
    text = (DOCS / "nova.rst").read_text(encoding="utf-8")
    rows = re.findall(r"^ +\* - :ref:`(\w+) <filter-\1>`\n +- ``(\w+)``", text, re.MULTILINE)
    assert dict(rows) == dict(SAME_PURPOSE)


_BROKEN = [
    (UnknownFilter, ["image_metdata"], "names 'image_metdata', which no installed package offers"),
    (InvalidOption, ["hpet,hpet"], "'hpet' is named twice"),
    (DuplicateFilter, ["twice"], "'twice' is offered more than once"),
    (FilterLoadError, ["broken"], "'broken' (no.such.module:f) does not load"),
    (MissingFact, ["needy"], "needs the deployment fact 'weather', which nobody provides"),
    (InvalidOption, ["hpet", "reported_traits = CUSTOM_NONE"], "'CUSTOM_NONE' matches no trait"),
    (ConfigurationError, ["hpet", "unknown_values = maybe"], "unknown_values"),
    (ConfigurationError, ["hpet", "facts_interval = soon"], "facts_interval"),
]


def needy(_request: Request, *, weather: str) -> Requirements:
    raise AssertionError(weather)


@pytest.mark.parametrize(("error", "lines", "message"), _BROKEN)
def test_a_misconfiguration_stops_the_scheduler_with_one_error_line(
    error: type[Exception],
    lines: list[str],
    message: str,
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = _names()
    _install(
        monkeypatch,
        EntryPoint("hpet", "os_prefilter.filters.hpet:hpet", NAMESPACE),
        EntryPoint("twice", "os_prefilter.filters.noop:noop", NAMESPACE),
        EntryPoint("twice", "somewhere.other:noop", NAMESPACE),
        EntryPoint("broken", "no.such.module:f", NAMESPACE),
        EntryPoint("needy", f"{__name__}:needy", NAMESPACE),
    )
    with pytest.raises(error) as raised:
        start(*lines)
    (record,) = [each for each in caplog.records if each.levelname == "ERROR"]
    assert record.getMessage() == (
        f"nova-scheduler cannot start with the request filters as configured: {raised.value}"
    )
    assert message in record.getMessage()
    assert "\n" not in record.getMessage()
    assert record.exc_info is None
    assert _names() == before


def test_without_enabled_filters_the_entry_changes_nothing(start: Start) -> None:
    start("")
    spec = nova_spec({"hw_vif_model": "e1000e", "hw_time_hpet": True}, {"resources:VGPU": "1"})
    before = spec.obj_to_primitive()
    assert _entry()(_context(), spec) is True
    assert spec.obj_to_primitive() == before


def test_a_rejected_request_fails_as_nova_fails_it_and_is_unchanged(start: Start) -> None:
    start("compute_status,image_metadata")
    spec = nova_spec(_IMPOSSIBLE)
    before = spec.obj_to_primitive()
    with pytest.raises(exception.RequestFilterFailed) as raised:
        _entry()(_context(), spec)
    assert str(raised.value) == (
        "Scheduling failed: image property hw_disk_bus=ide is impossible with image property hw_machine_type=q35: no "
        "host can do both. Change one of the two."
    )
    assert spec.obj_to_primitive() == before


def test_a_failing_filter_tells_the_user_nothing_of_its_insides(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_request: Request) -> Requirements:
        raise OSError("password=hunter2")

    spec = nova_spec()
    with pytest.raises(exception.RequestFilterFailed) as raised:
        RequestFilters(Pipeline([as_filter("broken", broken)]))(_context(), spec)
    for secret in ("hunter2", "OSError", "broken", "os_prefilter"):
        assert secret not in str(raised.value)
    (record,) = [each for each in caplog.records if each.levelname == "ERROR"]
    assert "Traceback" in caplog.text
    assert "hunter2" in caplog.text
    assert record.exc_info
    assert spec.root_required == set()


def _whole_spec(properties: dict[str, Any]) -> Any:
    """Return a request spec with the fields that Nova's own filters read."""
    fields = {
        "instance_uuid": "11111111-1111-4111-8111-111111111111",
        "project_id": "project",
        "availability_zone": None,
        "is_bfv": False,
        "num_instances": 1,
        "pci_requests": None,
        "requested_destination": None,
        "requested_networks": objects.NetworkRequestList(objects=[]),
        "requested_resources": [],
        "scheduler_hints": {},
    }
    return nova_spec(properties, **fields)


def _cells(monkeypatch: pytest.MonkeyPatch, answer: Callable[[Any], Any]) -> list[Any]:
    """Let one cell answer when Nova asks all; return the contexts that it was asked with."""
    contexts: list[Any] = []

    def ask(context: Any, *_arguments: Any) -> dict[str, Any]:
        contexts.append(context)
        return {"cell1": answer(len(contexts))}

    monkeypatch.setattr(nova_context, "scatter_gather_all_cells", ask)
    return contexts


def test_the_scheduler_turns_a_rejected_request_into_no_valid_host(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the reason, and before it asks Placement."""
    _cells(monkeypatch, lambda _times: {"nova-compute": 73})
    scheduler = start("image_metadata")
    with pytest.raises(exception.NoValidHost, match="hw_disk_bus=ide is impossible with .*hw_machine_type=q35") as raised:
        _select(scheduler, _whole_spec(_IMPOSSIBLE))
    assert raised.value.kwargs["reason"].startswith("Scheduling failed: image property")
    scheduler.placement_client.get_allocation_candidates.assert_not_called()


@pytest.mark.parametrize(
    ("enabled", "trait"), [("hpet", "HW_ARCH_I686"), ("image_metadata", "HW_ARCH_X86_64"), ("", "HW_ARCH_I686")]
)
def test_what_placement_is_asked_has_ours_beside_novas_or_in_their_place(
    enabled: str, trait: str, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``hw_architecture=i686`` is where the two filters of one purpose would contradict each other."""
    _cells(monkeypatch, lambda _times: {"nova-compute": 73})
    scheduler = start(enabled, "[scheduler]", "image_metadata_prefilter = true")
    scheduler.placement_client.get_allocation_candidates.return_value = None
    with pytest.raises(exception.NoValidHost):
        _select(scheduler, _whole_spec({"hw_architecture": "i686", "hw_time_hpet": True}))
    (asked,) = scheduler.placement_client.get_allocation_candidates.mock_calls
    traits = set(re.search("root_required=([^&]*)", asked.args[1].to_querystring())[1].split("%2C"))
    assert {each for each in traits if "HW_ARCH" in each} == {trait}
    assert ("CUSTOM_COMPUTE_TIME_HPET" in traits) == (enabled == "hpet")
    assert "%21COMPUTE_STATUS_DISABLED" in traits


def _select(scheduler: Any, spec: Any) -> Any:
    # Nova raises it through oslo.messaging, which wraps it for the caller at the other end.
    return scheduler.select_destinations.__wrapped__(scheduler, _context(), spec_obj=spec, instance_uuids=["i"])
