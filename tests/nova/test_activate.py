# SPDX-License-Identifier: Apache-2.0

"""Activation: one entry in Nova's list of request filters, put there by Nova's
own code when the scheduler starts.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from keystoneauth1 import loading
from nova.conf import CONF
from nova.scheduler import request_filter

from os_prefilter.common.errors import (
    ConfigurationError,
    FilterLoadError,
    InvalidOption,
)
from os_prefilter.nova import activation
from os_prefilter.nova.activation import SAME_PURPOSE, STAYS_WITH_NOVA
from os_prefilter.service.loading import installed_filters
from os_prefilter.service.traits_to_report import traits_to_create
from os_prefilter.vocabulary import ROWS
from os_prefilter.vocabulary import options as vocabulary_options
from os_prefilter.vocabulary.model import Row, switch
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from tests.against_nova.nova import NOVA
from tests.against_nova.releases import releases
from tests.support.every_trait import EVERY_GROUP
from tests.support.nova_start import Start, entries, our_entry
from tests.support.pages import DOCS
from tests.support.placements import Answer, Observed, lone_host
from tests.support.rule_texts import rule, write_rules


def test_activation_appends_one_request_filter_and_activating_again_replaces_it(
    start: Start,
) -> None:
    """All host filters stay."""
    novas = entries()
    for enabled in ("hpet", "hpet", "deploy_config,hpet"):
        scheduler = start(enabled)
        assert entries() == [*novas, "ours"]
        assert [
            each.name for each in our_entry().service.filters
        ] == enabled.split(",")
    assert "ComputeFilter" in scheduler.host_manager.filter_cls_map
    assert len(scheduler.host_manager.enabled_filters) == len(
        CONF.filter_scheduler.enabled_filters
    )


@pytest.mark.parametrize("name", sorted(SAME_PURPOSE))
def test_enabled_filter_replaces_novas_counterpart_until_it_is_disabled(
    name: str, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    novas = entries()
    start(name)
    assert entries() == [
        each for each in novas if each != SAME_PURPOSE[name]
    ] + ["ours"]
    line = f"because ours take their place: {SAME_PURPOSE[name]} ({name})."
    assert (line in caplog.text) is (SAME_PURPOSE[name] in novas)
    start("hpet")
    assert entries() == [*novas, "ours"]


_ALL = (
    "rules_dirs = FOLDER",
    "metrics = true",
    "reported_traits = *",
    "config_templates = FOLDER/../templates.yaml",
)
# What the pages have the operator enable and leave, and the lines of nova.conf
# that they change with it.
_REMOVALS = [
    pytest.param("hpet,image_type", "image_type", (), id="hpet"),
    pytest.param("image_metadata,hpet", "", (), id="all"),
    pytest.param("hpet,rules,owner", "", _ALL, id="all-with-options-left"),
    pytest.param(
        "hpet,rules", "hpet", ("rules_dirs =",), id="rules-with-their-option"
    ),
    pytest.param("deploy_config", "", _ALL, id="deploy_config"),
]


@pytest.fixture
def rules_folder(tmp_path: Path) -> str:
    """Return a folder with a rule; beside it is a file of templates."""
    folder = tmp_path / "rules"
    folder.mkdir()
    windows = "{image_property: os_distro, is: windows}"
    write_rules(
        folder / "a.yaml", rule("licensed", windows, ["CUSTOM_LICENSED"])
    )
    (tmp_path / "templates.yaml").write_text(
        "templates: [{config-type: a, config-value: b, traits: [CUSTOM_A]}]"
    )
    return str(folder)


@pytest.fixture
def no_errors(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail a test that logs an error."""
    yield
    records = caplog.get_records("call")
    assert [each for each in records if each.levelname == "ERROR"] == []


@pytest.mark.usefixtures("no_errors")
@pytest.mark.parametrize(("enabled", "left", "lines"), _REMOVALS)
def test_documented_removal_of_filters_starts_the_scheduler_with_the_remaining_ones(
    start: Start,
    rules_folder: str,
    enabled: str,
    left: str,
    lines: tuple[str, ...],
) -> None:
    """Nova's own filters of the same purpose run again, and no option that the
    page does not name must be changed.
    """
    novas = entries()
    for names, options in ((enabled, _ALL), (left, lines)):
        start(
            names, *(each.replace("FOLDER", rules_folder) for each in options)
        )
        expected = [name for name in names.split(",") if name]
        found = [each.name for each in our_entry().service.filters]
        assert found == expected
        replaced = [SAME_PURPOSE.get(name) for name in expected]
        kept = [each for each in novas if each not in replaced]
        assert entries() == [*kept, "ours"]


def test_disabling_the_filter_rules_is_enough_to_start_without_a_broken_rule_file(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.yaml").write_text("rules: [{name: broken}]")
    with pytest.raises(InvalidOption):
        start("rules", f"rules_dirs = {tmp_path}")
    start("hpet", f"rules_dirs = {tmp_path}")
    assert [each.name for each in our_entry().service.filters] == ["hpet"]
    assert "a.yaml:1: " in caplog.text
    assert "Ignored, because no enabled filter uses rules." in caplog.text


def test_third_party_request_filters_keep_their_position(start: Start) -> None:
    """Also where Nova's filter beside them is replaced, and where another
    package has removed Nova's.
    """

    def first(_context: Any, _spec: Any) -> None: ...
    def middle(_context: Any, _spec: Any) -> None: ...
    def last(_context: Any, _spec: Any) -> None: ...

    filters = request_filter.ALL_REQUEST_FILTERS
    filters.insert(0, first)
    filters.insert(
        filters.index(request_filter.compute_status_filter) + 1, middle
    )
    filters.append(last)
    filters.remove(request_filter.isolate_aggregates)
    others = entries()
    for enabled in (
        "hpet",
        "compute_status",
        "image_type,compute_status",
        "hpet",
    ):
        start(enabled)
        replaced = [SAME_PURPOSE.get(name) for name in enabled.split(",")]
        kept = [each for each in others if each not in replaced]
        assert entries() == [*kept, "ours"]


def test_every_nova_request_filter_has_a_counterpart_or_is_a_known_exception() -> (
    None
):
    """A page names them. Older Novas lack those that releases.yaml names."""
    assert {*SAME_PURPOSE, *STAYS_WITH_NOVA} <= set(installed_filters())
    text = (DOCS / "nova-behaviour.rst").read_text(encoding="utf-8")
    row = r"^:ref:`filter-(\w+)` +``(\w+)``"
    listed = dict(re.findall(row, text, re.MULTILINE))
    assert listed == dict(SAME_PURPOSE)
    missing = {
        name
        for name in SAME_PURPOSE.values()
        if not hasattr(request_filter, name)
    }
    assert missing == set(releases()[NOVA].request_filters)
    assert set(entries()) - set(SAME_PURPOSE.values()) == {
        name for name, _ in STAYS_WITH_NOVA.values()
    }


@pytest.mark.parametrize("name", STAYS_WITH_NOVA)
def test_filter_for_other_schedulers_stops_the_scheduler_with_novas_option(
    name: str, start: Start
) -> None:
    """Nova's own reads the database and Neutron; ours would have no facts, and
    a second one excludes no other host.
    """
    before = entries()
    function, option = STAYS_WITH_NOVA[name]
    problem = (
        f"[prefilter] enabled_filters: '{name}' is for other schedulers: in"
        f" nova-scheduler, Nova's own {function} "
    )
    with pytest.raises(InvalidOption, match=re.escape(problem)) as raised:
        start(f"hpet,{name}")
    advice = "It needs no option."
    if option:
        advice = f"Set [scheduler] {option} = true."
        # The option is one of Nova's.
        assert CONF.scheduler[option] is False
    assert str(raised.value).endswith(advice)
    assert entries() == before


_BROKEN = [
    (
        FilterLoadError,
        ["broken"],
        "'broken' cannot be used: no installed package offers it",
    ),
    (InvalidOption, ["hpet,hpet"], "'hpet' is named twice"),
    (ConfigurationError, ["hpet", "unknown_values = maybe"], "unknown_values"),
]


@pytest.mark.parametrize(("error", "lines", "message"), _BROKEN)
def test_a_misconfiguration_stops_the_scheduler_with_one_error_line(
    error: type[Exception],
    lines: list[str],
    message: str,
    start: Start,
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = entries()
    with pytest.raises(error) as raised:
        start(*lines)
    (record,) = [each for each in caplog.records if each.levelname == "ERROR"]
    assert (
        record.getMessage()
        == "nova-scheduler cannot start with the request filters as"
        f" configured: {raised.value}"
    )
    assert message in record.getMessage()
    assert record.exc_info is None
    assert "\n" not in record.getMessage()
    assert entries() == before


@pytest.fixture
def novas_placement(monkeypatch: pytest.MonkeyPatch) -> Iterator[Observed]:
    """Return a Placement that nova.conf describes; a scheduler writes to it at
    once after its start.
    """
    monkeypatch.setattr(activation, "_AFTER_START", 0.01)
    with EmbeddedPlacement(lone_host()) as placement:
        observed = Observed(placement)
        monkeypatch.setattr(
            "nova.utils.get_ksa_adapter", lambda _service: observed
        )
        yield observed


def _until(is_so: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_hosts_read_what_to_report_after_a_start_without_any_request(
    start: Start, novas_placement: Observed
) -> None:
    """And traits that filters may require."""
    start("hpet,image_metadata")
    service = our_entry().service
    created = traits_to_create(service.filters, service.options)
    _until(lambda: created <= novas_placement.placement.client.traits())
    (hpet,) = (
        group
        for group in EVERY_GROUP
        if "CUSTOM_COMPUTE_TIME_HPET" in group.traits
    )
    assert not novas_placement.placement.client.wanted().isdisjoint(hpet.keys)


def test_placement_that_is_down_neither_stops_nor_delays_a_start(
    start: Start,
    novas_placement: Observed,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(
        "os_prefilter.adapters.placement.facts._CREATE_AGAIN", 0.01
    )
    hangs = threading.Event()
    answers: list[Answer | None] = [(503, {}), (503, {})]

    def fail(_method: str, _url: str) -> Answer | None:
        hangs.wait(60)
        return answers.pop() if answers else None

    novas_placement.hook = fail
    start("hpet")
    assert not novas_placement.placement.client.wanted()
    hangs.set()
    _until(novas_placement.placement.client.wanted)
    (warning,) = [
        each
        for each in caplog.records
        if "cannot be created in Placement yet" in each.getMessage()
    ]
    assert "503" in warning.getMessage()


def _threads_that_create_traits() -> list[threading.Thread]:
    return [
        each for each in threading.enumerate() if each.name == "wanted traits"
    ]


def test_traits_of_a_configuration_that_was_replaced_are_not_written(
    start: Start, novas_placement: Observed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activation, "_AFTER_START", 3600.0)
    of_other_tests = _threads_that_create_traits()
    start("hpet")
    waiting = set(_threads_that_create_traits()).difference(of_other_tests)
    assert waiting
    start("")
    for each in waiting:
        each.join(60)
        assert not each.is_alive()
    assert set(_threads_that_create_traits()) <= set(of_other_tests)
    assert not novas_placement.sent


_ACME = switch("CUSTOM_ACME_GPU")
_ROWS = [
    pytest.param(
        Row("acme_gpu", _ACME, image_property="os_acme_gpu"),
        "image_metadata",
        1,
        id="dropped",
    ),
    pytest.param(
        Row("acme_gpu", _ACME, image_property="os_acme_gpu"),
        "hpet",
        0,
        id="dropped, not required",
    ),
    pytest.param(
        Row("acme_gpu", _ACME, extra_spec="acme:gpu"),
        "image_metadata",
        0,
        id="extra spec",
    ),
    pytest.param(
        Row("acme_gpu", _ACME, image_property="hw_boot_menu"),
        "image_metadata",
        0,
        id="known",
    ),
]


@pytest.mark.parametrize(("row", "enabled", "warnings"), _ROWS)
def test_row_of_another_package_that_never_sees_its_image_property_is_warned_of_at_start(
    start: Start,
    caplog: pytest.LogCaptureFixture,
    row: Row,
    enabled: str,
    warnings: int,
) -> None:
    """Nova's image object has fields of its own, and nothing else."""
    with mock.patch.object(
        vocabulary_options, "table", return_value=(*ROWS, row)
    ):
        start(enabled)
    warning = (
        "The row acme_gpu of another package reads the image property"
        " os_acme_gpu, which this Nova drops before"
    )
    assert caplog.text.count(warning) == warnings


_CACHE = "[cache]\nenabled = true\nbackend = oslo_cache.dict"
_DATABASE = (
    "[api_database]\nconnection = mysql+pymysql://nova:secret@db-2/nova_api"
)
_OTHER_CLOUDS = (
    "[placement]\nregion_name = north",
    _DATABASE,
    "[placement]\nauth_type = password\nauth_url = https://other/identity",
)


@pytest.fixture
def cache_key(start: Start) -> Iterator[Callable[..., str]]:
    """Return a function: lines of nova.conf -> key of a fact in the cache."""

    def key(*lines: str) -> str:
        start("image_metadata", _CACHE, *lines)
        (make,) = activation._caches()
        found: str = vars(make("placement"))["_key"]
        return found

    yield key
    CONF.reset()
    CONF.unregister_opts(
        loading.get_auth_plugin_conf_options("password"), group="placement"
    )


def test_schedulers_share_nothing_without_a_cache(start: Start) -> None:
    start("image_metadata")
    assert activation._caches() == []


def test_schedulers_of_different_clouds_do_not_share_in_a_cache(
    cache_key: Callable[..., str],
) -> None:
    keys = {cache_key(), *map(cache_key, _OTHER_CLOUDS)}
    assert len(keys) == 1 + len(_OTHER_CLOUDS)


def test_schedulers_share_in_a_cache_after_a_change_of_the_password(
    cache_key: Callable[..., str],
) -> None:
    changed = _DATABASE.replace("secret", "changed")
    assert cache_key(changed) == cache_key(_DATABASE)
