# SPDX-License-Identifier: Apache-2.0

"""What filters require for a server that exists and keeps its machine type,
whatever the default of its next host.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from nova import objects

import os_prefilter
from os_prefilter import ServerOptions
from os_prefilter.hosts.capabilities import capability_traits, unknown_traits
from os_prefilter.request.filter_contract import LoadedFilter
from os_prefilter.service import Service
from os_prefilter.service.existing_server import ExistingServer
from os_prefilter.vocabulary import rows_required_by
from os_prefilter.vocabulary.machine_types import MACHINES, families_without
from os_prefilter.vocabulary.model import UnknownValues
from os_prefilter.vocabulary.options import Options
from tests.support.hosts import few_libvirt_hosts
from tests.support.nova_objects import nova_spec

_ALL = Options(reported_traits=("*",), unknown_values=UnknownValues.REJECT)
_DEFAULT_Q35 = "CUSTOM_COMPUTE_DEFAULT_MACHINE_Q35"
_DATABASE_ERROR = RuntimeError("mysql://nova:hunter2@db is down\nERROR forged")
_PC, _Q35 = "CUSTOM_COMPUTE_MACHINE_PC", "CUSTOM_COMPUTE_MACHINE_Q35"
_IDE = {"hw_disk_bus": "ide"}
_SHARED = {"hw:cpu_policy": "shared"}
# What nova-api adds for a rebuild.
_REBUILD: dict[str, Any] = {
    "scheduler_hints": {"_nova_check_type": ["rebuild"]},
    "force_hosts": ["here"],
}
_FILTERS = Service.from_names("image_metadata", "hpet").filters
_SERVER = "11111111-1111-4111-8111-111111111111"
_MOVES = (
    objects.Destination(
        cell=objects.CellMapping(uuid=objects.CellMapping.CELL0_UUID)
    ),
    objects.Destination(allow_cross_cell_move=True),
)


def _pipeline(kept: Any = None, options: Options = _ALL) -> Service:
    """Return the filters of a service whose servers keep this machine type, or
    of which an error says nothing.
    """

    def ask(_context: object, _request_spec: object) -> Any:
        if isinstance(kept, BaseException):
            raise kept
        return ExistingServer(kept)

    return Service(_FILTERS, options, look_up_server=ask)


def _moving(
    properties: dict[str, Any],
    destination: Any = _MOVES[0],
    extra_specs: dict[str, str] | None = None,
    **fields: Any,
) -> Any:
    return nova_spec(
        properties,
        extra_specs,
        requested_destination=destination,
        instance_uuid=_SERVER,
        **fields,
    )


def _machines(pipeline: Service, spec: Any) -> set[str]:
    """Return what is required and forbidden (``!``) of machine types."""
    asked = pipeline.apply(spec).requirements
    return {
        f"{'' if each.required else '!'}{each.trait}"
        for each in asked
        if "_MACHINE_" in each.trait
    }


@pytest.mark.parametrize("destination", _MOVES)
@pytest.mark.parametrize(
    ("kept", "machine"),
    [("pc", _PC), ("pc-i440fx-7.2", _PC), ("pc-q35-9.1", _Q35)],
)
def test_kept_machine_type_is_required_and_no_default_forbidden(
    destination: Any, kept: str, machine: str
) -> None:
    assert _machines(
        _pipeline(kept), _moving({"hw_vif_model": "e1000e"}, destination)
    ) == {machine}


@pytest.mark.parametrize(
    "unknown",
    ["", "raspi3b", "made-up", _DATABASE_ERROR, BaseException("Timeout")],
)
def test_no_host_is_excluded_by_its_default_where_the_kept_type_is_not_known(
    unknown: object, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert _machines(_pipeline(unknown), _moving(_IDE)) == set()
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == isinstance(unknown, BaseException)
    assert not any("\n" in line or "hunter2" in line for line in lines)
    # Nor where the service cannot tell; but where nothing is kept, the default
    # of the next host counts.
    assert _machines(Service(_FILTERS, _ALL), _moving(_IDE)) == set()
    assert f"!{_DEFAULT_Q35}" in _machines(_pipeline(None), _moving(_IDE))


@pytest.mark.parametrize(
    ("spec", "options"),
    [
        (nova_spec(_IDE), _ALL),
        (
            nova_spec(
                _IDE, requested_destination=objects.Destination(host="here")
            ),
            _ALL,
        ),
        (_moving({**_IDE, "hw_machine_type": "pc"}), _ALL),
        (_moving(_IDE), Options()),
        (
            _moving(_IDE),
            Options(reported_traits=("CUSTOM_COMPUTE_TIME_HPET",)),
        ),
        (_moving(_IDE, extra_specs=_SHARED, **_REBUILD), Options()),
    ],
    ids=[
        "new",
        "new-on-a-host",
        "machine-type-of-image",
        "not-reported",
        "other-traits",
        "rebuild",
    ],
)
def test_server_is_looked_up_only_where_an_answer_depends_on_it(
    spec: Any, options: Options
) -> None:
    looked_up: list[object] = []

    def ask(_context: object, request_spec: object) -> ExistingServer:
        looked_up.append(request_spec)
        return ExistingServer()

    Service(_FILTERS, options, look_up_server=ask).apply(spec)
    assert looked_up == []


def test_one_look_up_says_all_of_a_server() -> None:
    looked_up: list[object] = []

    def ask(context: object, _request_spec: object) -> ExistingServer:
        looked_up.append(context)
        return ExistingServer("pc", has_new_flavor=True)

    service = Service(_FILTERS, _ALL, look_up_server=ask)
    spec = _moving(_IDE, extra_specs=_SHARED)
    requirements = service.apply(spec, "context").requirements
    assert _PC in {each.trait for each in requirements}
    assert looked_up == ["context"]


def test_kept_machine_type_does_not_count_where_the_image_names_one() -> None:
    spec = _moving({**_IDE, "hw_machine_type": "pc"}, extra_specs=_SHARED)
    assert _machines(_pipeline("q35"), spec) == {_PC}


@pytest.mark.parametrize("found", [None, ("q35", True), {"q35": 1}], ids=str)
def test_nothing_is_known_of_a_server_whose_look_up_returns_something_else(
    found: Any, caplog: pytest.LogCaptureFixture
) -> None:
    service = Service(
        _FILTERS, _ALL, look_up_server=lambda _context, _spec: found
    )
    assert _machines(service, _moving(_IDE)) == set()
    assert (
        f"Failed to look up the server '{_SERVER}' (TypeError: it returned a"
        f" {type(found).__name__}, not ExistingServer)" in caplog.text
    )


_WITH_OPTIONS = Service.from_names("server_options", "hpet").filters
_CERTS = {"COMPUTE_TRUSTED_CERTS"}


def _requires(service: Service, spec: Any) -> set[str]:
    return {str(item.trait) for item in service.apply(spec).requirements}


@pytest.mark.parametrize(
    "spec", [nova_spec(), _moving({})], ids=["new", "moving"]
)
def test_options_of_a_server_are_looked_up_once(spec: Any) -> None:
    looked_up: list[object] = []

    def ask(context: object, request_spec: object) -> ServerOptions:
        looked_up.append((context, request_spec))
        return ServerOptions(trusted_certs=True)

    service = Service(_WITH_OPTIONS, look_up_server_options=ask)
    decision = service.apply(spec, "context")
    assert {item.trait for item in decision.requirements} == _CERTS
    assert looked_up == [("context", spec)]


def test_options_that_no_filter_reads_are_not_looked_up() -> None:
    looked_up: list[object] = []

    def ask(_context: object, request_spec: object) -> ServerOptions:
        looked_up.append(request_spec)
        return ServerOptions()

    Service(_FILTERS, look_up_server_options=ask).apply(nova_spec())
    assert looked_up == []


def test_rebuild_requires_certificates_and_nothing_that_the_server_has() -> (
    None
):
    service = Service(
        _WITH_OPTIONS,
        look_up_server_options=lambda _c, _s: ServerOptions(
            True, True, True, True, True
        ),
    )
    assert _requires(service, _moving({}, **_REBUILD)) == _CERTS


def test_requests_that_differ_in_their_options_have_decisions_of_their_own() -> (
    None
):
    found = [
        ServerOptions(trusted_certs=True),
        ServerOptions(),
        ServerOptions(trusted_certs=True),
    ]
    remaining = iter(found)
    service = Service(
        _WITH_OPTIONS,
        look_up_server_options=lambda _context, _spec: next(remaining),
    )
    requirements = [_requires(service, nova_spec()) for _ in found]
    assert requirements == [_CERTS, set(), _CERTS]


@pytest.mark.parametrize(
    "problem",
    [_DATABASE_ERROR, BaseException("Timeout"), None],
    ids=["error", "timeout of eventlet", "another type"],
)
def test_options_that_cannot_be_looked_up_require_nothing(
    problem: BaseException | None, caplog: pytest.LogCaptureFixture
) -> None:
    def ask(_context: object, _request_spec: object) -> Any:
        if problem:
            raise problem

    service = Service(_WITH_OPTIONS, look_up_server_options=ask)
    with caplog.at_level(logging.WARNING):
        decision = service.apply(_moving({}))
    assert decision.requirements == ()
    assert "not required" in str(decision.notes[0])
    (line,) = [record.getMessage() for record in caplog.records]
    assert f"shares of the server '{_SERVER}'" in line
    assert "\n" not in line
    assert "hunter2" not in line


def test_options_are_those_of_filters_after_one_in_novas_style() -> None:
    theirs = LoadedFilter("theirs", lambda _c, _s: True, nova_style=True)
    service = Service(
        (theirs, *_WITH_OPTIONS),
        look_up_server_options=lambda _c, _s: ServerOptions(
            trusted_certs=True
        ),
    )
    assert _requires(service, nova_spec()) == _CERTS


def test_move_does_not_answer_for_a_new_server_of_the_same_image() -> None:
    pipeline = _pipeline("pc")
    new = _machines(pipeline, nova_spec(_IDE))
    assert f"!{_DEFAULT_Q35}" in new
    assert (
        _machines(pipeline, _moving(_IDE)),
        _machines(pipeline, nova_spec(_IDE)),
    ) == ({_PC}, new)


def test_kept_machine_type_rejects_no_request() -> None:
    """After a rescue, Nova keeps a type that is not that of the guest."""
    sources = {
        str(each.trait): each.source
        for each in _pipeline("q35").apply(_moving(_IDE)).requirements
    }
    assert (
        sources[_Q35]
        == "the server's system metadata image_hw_machine_type=q35"
    )
    assert not any("DEFAULT_MACHINE" in trait for trait in sources)


@pytest.mark.parametrize("named", ["ubuntu", "raspi3b", ""])
def test_no_host_is_excluded_by_its_default_where_the_image_names_an_unknown_machine_type(
    named: str,
) -> None:
    """Nova gives it to the guest, whatever the default is."""
    pipeline = _pipeline(options=Options(reported_traits=("*",)))
    assert (
        _machines(pipeline, nova_spec({**_IDE, "hw_machine_type": named}))
        == set()
    )


def _moves() -> Iterator[tuple[str, dict[str, str]]]:
    for row in (
        *rows_required_by("image_metadata"),
        *rows_required_by("hpet"),
    ):
        for value in row.values:
            without = families_without(row.name, value)
            if without:
                possible = sorted(MACHINES.keys() - without)
                yield from [
                    (machine, {str(row.image_property): value})
                    for machine in possible
                ]


def test_law_holds_for_a_server_that_keeps_its_machine_type() -> None:
    """The driver sees the machine type in the server's own image metadata."""
    hosts = [
        (facts, capability_traits(facts))
        for facts in few_libvirt_hosts()
        if not unknown_traits(facts)
    ]
    compared = 0
    for machine, properties in _moves():
        decided = None
        with suppress(os_prefilter.common.errors.RequestRejected):
            decided = (
                _pipeline(machine, _ALL)
                .apply(_moving(properties))
                .requirements
            )
        for facts, traits in hosts:
            seen_by_driver = nova_spec(
                {**properties, "hw_machine_type": machine}
            )
            try:
                accepts = not os_prefilter.unsupported(seen_by_driver, facts)
            except os_prefilter.common.errors.RequestRejected:
                accepts = False
            selected = decided is not None and all(
                traits.get(each.trait, False) is each.required
                for each in decided
            )
            assert selected is accepts, (machine, properties, facts)
            compared += 1
    assert compared > 1000


@pytest.mark.parametrize(
    "found", [{"shares": True}, "yes", [True]], ids=["mapping", "text", "list"]
)
def test_options_of_another_type_require_nothing(
    found: object, caplog: pytest.LogCaptureFixture
) -> None:
    """Read by position, the key of a mapping was the tag of a NIC."""
    service = Service(
        _WITH_OPTIONS,
        look_up_server_options=lambda _c, _s: found,  # type: ignore[arg-type, return-value]
    )
    assert _requires(service, nova_spec()) == set()
    assert f"a {type(found).__name__}, not ServerOptions" in caplog.text
