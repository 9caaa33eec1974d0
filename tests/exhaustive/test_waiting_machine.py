# SPDX-License-Identifier: Apache-2.0

"""The law of waiting as a state machine: two schedulers, two agents, an
operator, four traits, a fake clock.

The code under test is the real one, on a Placement in memory; some walks run
on the real one. Faults are put back one by one, and are found.
OS_PREFILTER_EXAMPLES multiplies the walks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from hypothesis.strategies import sampled_from

from os_prefilter.adapters.placement import facts as placement_facts
from os_prefilter.adapters.placement import trait_sync
from os_prefilter.adapters.placement.client import ResourceProvider
from os_prefilter.adapters.placement.trait_sync import (
    UNWANTED_AFTER,
    ProviderTraits,
)
from os_prefilter.common.errors import GenerationConflict, UnknownTraits
from os_prefilter.common.trait_names import Trait
from os_prefilter.hosts import desired_traits, marker_traits
from os_prefilter.hosts.capabilities import capability_traits, reporter_of
from os_prefilter.hosts.desired_traits import Goal, Mode, goal_of, with_traits
from os_prefilter.hosts.drivers.fake import FakeFacts
from os_prefilter.hosts.marker_traits import (
    REPORTED,
    WANTED,
    TraitGroup,
    keys_in,
    marker_key,
    names_with,
    noted_among,
)
from os_prefilter.request.requirements import Requirement
from os_prefilter.service import deferral, traits_to_report
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.model import provider_uuid
from os_prefilter_tools.operators.readiness import (
    configured_filters,
    find_unwanted,
)
from tests.conftest import conf_with
from tests.support.every_trait import EVERY_GROUP
from tests.support.hosts import KVM
from tests.support.reporting_fleets import by_nova_alone, fleet_of
from tests.support.state_machines import FAULTY, assert_correct

HPET, HVM, XEN = (
    "CUSTOM_COMPUTE_TIME_HPET",
    "CUSTOM_VM_MODE_HVM",
    "CUSTOM_VM_MODE_XEN",
)
TRAITS = frozenset((HPET, HVM, XEN, "COMPUTE_NET_VIF_MODEL_E1000"))
MODES = frozenset((Trait(HVM), Trait(XEN)))
GROUPS = tuple(group for group in EVERY_GROUP if group.traits & TRAITS)
"""Of all groups, each state would take longer."""
HOSTS = A, B = "host-0", "host-1"
UUIDS = {name: provider_uuid(name) for name in HOSTS}
# Nova's driver of the second one writes no traits of devices.
FACTS = {
    A: KVM,
    B: FakeFacts(
        can={
            "vif_model": frozenset(("e1000",)),
            "vm_mode": frozenset(("hvm", "xen")),
        }
    ),
}
CAN = {
    name: {trait for trait in TRAITS if capability_traits(facts)[trait]}
    for name, facts in FACTS.items()
}
_NAMES = {trait for group in GROUPS for trait in group.traits}
BY_NOVA = {
    name: frozenset({"COMPUTE_NODE", *(by_nova_alone(facts) & _NAMES)})
    for name, facts in FACTS.items()
}
SECTIONS: dict[str, dict[str, list[str]]] = {
    "off": {"enabled_filters": []},
    "hpet": {"enabled_filters": ["hpet"]},
    "image": {"enabled_filters": ["image_metadata"], "reported_traits": [XEN]},
    "both": {
        "enabled_filters": ["hpet", "image_metadata"],
        "reported_traits": [XEN, HVM],
    },
}
OLD, UNSURE, NEW = (
    "older library",
    "newest, but the host does not tell",
    "newest library",
)
FACTS_INTERVAL = 1800.0
_SCHEDULERS, _HOSTS = sampled_from([0, 1]), sampled_from(HOSTS)


@cache
def section_of(
    name: str,
) -> tuple[tuple[TraitGroup, ...], frozenset[str], frozenset[str]]:
    """Return what a section wants, the names it creates, and those of the four
    traits that it may require.
    """
    filters, options = configured_filters(conf_with(**SECTIONS[name]))
    groups = (
        traits_to_report.wanted_groups(filters, options) if filters else ()
    )
    names = {
        each
        for each in traits_to_report.traits_to_create(filters, options)
        if each.startswith(WANTED)
    }
    return (
        groups,
        frozenset(names),
        frozenset(
            trait for group in groups for trait in group.traits & TRAITS
        ),
    )


@cache
def goal_for(name: str, library: str, keys: frozenset[str]) -> Goal:
    groups: tuple[TraitGroup, ...] = vars(desired_traits)["trait_groups"]()
    if library == OLD:
        older = (
            group._replace(
                traits=group.traits - {XEN},
                implied_by=group.implied_by - {XEN},
            )
            for group in groups
        )
        groups = tuple(group for group in older if group.traits)
    names = (Trait(HPET),) if library == UNSURE else ()
    unknown = frozenset(names)
    reporter = replace(
        reporter_of(FACTS[name]),
        unknown=lambda _facts: dict.fromkeys(unknown, ""),
    )
    with patch.multiple(
        desired_traits,
        trait_groups=lambda *_: groups,
        reporter_of=lambda _facts: reporter,
    ):
        goal = goal_of(FACTS[name], keys, Mode.BESIDE)
    return replace(
        goal,
        traits={
            trait: goal.traits[trait]
            for traits in goal.groups.values()
            for trait in traits
        },
    )


class Memory:
    """Placement, as far as the code under test and the events ask it."""

    def __init__(self) -> None:
        self.names = frozenset(_NAMES | {"COMPUTE_NODE"})
        self.hosts = {UUIDS[name]: (0, BY_NOVA[name]) for name in HOSTS}

    def traits(self) -> frozenset[str]:
        return self.names

    custom_traits = traits

    def traits_in_use(self) -> frozenset[str]:
        return frozenset().union(
            *(traits for _, traits in self.hosts.values())
        )

    def wanted(self) -> frozenset[str]:
        return keys_in(WANTED, self.names)

    def create_trait(self, name: str) -> None:
        self.names |= {name}

    def delete_trait(self, name: str) -> None:
        self.names -= {name} - self.traits_in_use()

    def provider_named(self, name: str) -> ResourceProvider:
        return ResourceProvider(UUIDS[name], name, self.hosts[UUIDS[name]][0])

    def providers(self, query: str) -> tuple[ResourceProvider, ...]:
        kind, _, value = (
            query.replace("%21", "!").replace("%2C", ",").partition("=")
        )
        found = map(self.provider_named, HOSTS)
        if kind == "in_tree":
            return tuple(each for each in found if each.uuid == value)
        compute, *forbidden = value.replace("!", "").split(",")
        self._check({compute, *forbidden})
        return tuple(
            each
            for each in found
            if self.hosts[each.uuid][1].isdisjoint(forbidden)
        )

    each_provider = providers

    def provider_traits(self, uuid: str) -> tuple[int, frozenset[str]]:
        return self.hosts[uuid]

    def set_provider_traits(
        self, uuid: str, generation: int, traits: frozenset[str]
    ) -> int:
        if generation != self.hosts[uuid][0]:
            raise GenerationConflict(uuid)
        self._check(traits)
        self.hosts[uuid] = generation + 1, traits
        return generation + 1

    def _check(self, names: set[str] | frozenset[str]) -> None:
        if unknown := names - self.names:
            raise UnknownTraits(unknown)

    def request(self, method: str, _url: str, body: Any = None) -> None:
        if method == "POST":
            self.hosts[body["uuid"]] = 0, frozenset()


class Client:
    """Passes requests on, and does something else once before one of a
    name.
    """

    def __init__(self, placement: Any) -> None:
        self.placement = placement
        self.before: dict[str, Callable[[], None]] = {}

    def __getattr__(self, name: str) -> Any:
        self.before.pop(name, lambda: None)()
        return getattr(self.placement, name)


class CrashError(Exception):
    """The agent's process ends."""


@dataclass
class Scheduler:
    section: str = "off"
    is_known: bool = False
    read_at: float = 0.0
    enforced: frozenset[str] = frozenset()
    """By the last reading; of a new process, by the last one before."""
    calm: bool = True
    """Whether nothing has happened since then for which it may defer again."""
    joined: frozenset[str] = frozenset()
    """Hosts whose provider was created since then."""


class Waiting(RuleBasedStateMachine):
    """What schedulers, agents and operators do, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.client: Any = Client(self.placement())
        self.now = 0.0
        self.schedulers: tuple[Scheduler, ...] = ()
        self.agents: dict[str, ProviderTraits] = {}
        self.libraries: dict[str, str] = {}
        # (host, trait) that an operator has set where no report covered it;
        # and that one has removed.
        self.of_operators: frozenset[tuple[str, str]] = frozenset()
        self.lost: frozenset[tuple[str, str]] = frozenset()
        self.has_forgotten = False

    def placement(self) -> Any:
        return Memory()

    # What the two schedulers have at first.
    @initialize(
        sections=sampled_from(
            [("off", "off"), ("hpet", "off"), ("hpet", "both")]
        )
    )
    def begin(self, sections: tuple[str, str]) -> None:
        self.schedulers = tuple(map(Scheduler, sections))
        self.settle()

    def create(self, names: Iterable[str]) -> None:
        for name in names:
            self.client.create_trait(name)

    def traits(self, name: str) -> frozenset[str]:
        return frozenset(self.client.placement.provider_traits(UUIDS[name])[1])

    @rule(number=_SCHEDULERS, section=sampled_from(list(SECTIONS)))
    def restart(self, number: int, section: str) -> None:
        """Start a scheduler with a section; it knows nothing."""
        it = self.schedulers[number]
        it.section, it.is_known, it.enforced = (
            section,
            False,
            it.enforced & section_of(section)[2],
        )

    @rule(number=_SCHEDULERS, meanwhile=sampled_from(["", *HOSTS]))
    def read(self, number: int, meanwhile: str = "") -> None:
        it = self.schedulers[number]
        groups, names, may_require = section_of(it.section)
        if not groups:
            return
        if meanwhile:
            self.client.before["each_provider"] = partial(
                self.round, meanwhile
            )
        reader = placement_facts.PlacementFacts(
            self.client, groups=groups, needed=names, create=self.create
        )
        found = reader.reports()
        reader.known_traits()
        by_trait: dict[str, TraitGroup] = {
            trait: group for group in groups for trait in group.traits
        }
        items = {
            trait: Requirement(
                Trait(trait), required=True, scope="", source=""
            )
            for trait in may_require
        }
        now = frozenset(
            trait
            for trait, item in items.items()
            if not deferral.deferral(item, found, by_trait)
        )
        if it.calm and set(self.libraries.values()) == {NEW}:
            assert it.enforced <= now, f"deferred again: {it.enforced - now}"
        it.is_known, it.read_at, it.enforced, it.calm, it.joined = (
            True,
            self.now,
            now,
            True,
            frozenset(),
        )

    @rule(name=_HOSTS, meanwhile=sampled_from(["", "crash", HPET, XEN]))
    def round(self, name: str, meanwhile: str = "") -> None:
        """Report; before the agent writes it crashes, or an operator sets or
        removes a trait.
        """
        before = self.traits(name)
        if meanwhile:
            self.client.before["set_provider_traits"] = partial(
                self.operator, name, meanwhile
            )
        try:
            self.agents[name].sync(
                goal_for(name, self.libraries[name], self.client.wanted())
            )
        except CrashError:
            self.library(name, self.libraries[name])
        self.client.before.clear()
        kept = {
            trait
            for trait in CAN[name] & before
            if not trait.startswith("CUSTOM_")
        }
        kept |= {trait for host, trait in self.of_operators if host == name}
        assert kept <= self.traits(name), (
            f"removed: {kept - self.traits(name)}"
        )

    @rule(name=_HOSTS, trait=sampled_from([HPET, XEN]))
    def operator(self, name: str, trait: str) -> None:
        """Set or remove a trait by hand, as an operator does."""
        if trait == "crash":
            raise CrashError
        generation, traits = self.client.placement.provider_traits(UUIDS[name])
        self.client.placement.set_provider_traits(
            UUIDS[name], generation, traits ^ {trait}
        )
        pair = frozenset(((name, trait),))
        if trait in traits:
            self.of_operators -= pair
            self.lost |= pair
            self._disturb()
        elif marker_key((trait,)) not in keys_in(
            REPORTED, traits
        ) and trait not in noted_among(traits | {trait}):
            # What a marker covers or the note names is the agent's: it does
            # not know that another one has set it again.
            self.of_operators |= pair

    @rule(name=_HOSTS, library=sampled_from([OLD, UNSURE, NEW]))
    def library(self, name: str, library: str) -> None:
        """Start an agent with a library; it knows nothing."""
        self.libraries[name] = library
        self.agents[name] = ProviderTraits(
            self.client, name, sleep=lambda _: None, clock=lambda: self.now
        )
        self._disturb()

    @rule(name=_HOSTS)
    def recreate(self, name: str) -> None:
        """Delete a provider, and create it again as Nova does."""
        placement = self.client.placement
        placement.request("DELETE", f"/resource_providers/{UUIDS[name]}")
        placement.request(
            "POST", "/resource_providers", {"name": name, "uuid": UUIDS[name]}
        )
        placement.set_provider_traits(UUIDS[name], 0, BY_NOVA[name])
        self.of_operators = frozenset(
            pair for pair in self.of_operators if pair[0] != name
        )
        for it in self.schedulers:
            it.joined |= {name}
        self._disturb()

    @rule(section=sampled_from(list(SECTIONS)))
    def forget(self, section: str) -> None:
        """Remove what only other sections want, once, as
        ``readiness --forget-unwanted`` does.

        Who removes a wish again that a scheduler has just made again may
        exclude hosts for a while.
        """
        placement = self.client.placement
        filters, options = configured_filters(conf_with(**SECTIONS[section]))
        names, _ = find_unwanted(
            placement.custom_traits() - placement.traits_in_use(),
            filters,
            options,
        )
        for name in names if not self.has_forgotten else ():
            placement.delete_trait(name)
        self.has_forgotten = True

    @rule()
    def tick(self) -> None:
        """Let time go by; no request uses older facts."""
        self.now += FACTS_INTERVAL
        for it in self.schedulers:
            if self.now - it.read_at > FACTS_INTERVAL:
                it.is_known, it.enforced = False, frozenset()

    def _disturb(self) -> None:
        for it in self.schedulers:
            it.calm = False

    @invariant()
    def check(self) -> None:
        self.lost = frozenset(
            (name, trait)
            for name, trait in self.lost
            if trait not in self.traits(name)
        )
        for it, name in product(self.schedulers, HOSTS):
            if it.is_known and name not in it.joined:
                missing = {
                    (name, trait)
                    for trait in it.enforced & CAN[name] - self.traits(name)
                } - self.lost
                assert not missing, f"excluded: {missing}"

    def settle(self) -> None:
        """Upgrade all agents and let them report: then everything is
        enforced.
        """
        self.now += UNWANTED_AFTER
        for name in HOSTS:
            self.library(name, NEW)
        for event, on in (
            ("read", (0, 1)),
            ("round", HOSTS * 2),
            ("read", (0, 1)),
        ):
            for each in on:
                getattr(self, event)(each)
        for it in self.schedulers:
            assert it.enforced == section_of(it.section)[2], (
                f"still deferred: {section_of(it.section)[2] - it.enforced}"
            )

    def teardown(self) -> None:
        self.settle()


class WaitingOnPlacement(Waiting):
    """The same on the real Placement."""

    def placement(self) -> Any:
        self._embedded = EmbeddedPlacement(
            fleet_of([BY_NOVA[name] for name in HOSTS])
        )
        real = self._embedded.__enter__()
        real.know(TRAITS)
        return real.client

    def teardown(self) -> None:
        with self._embedded:
            super().teardown()


def use_groups(
    monkeypatch: pytest.MonkeyPatch,
    changed: Callable[[TraitGroup], TraitGroup] = lambda group: group,
) -> None:
    groups = tuple(dict.fromkeys(map(changed, GROUPS)))
    for module in (marker_traits, desired_traits, traits_to_report):
        monkeypatch.setattr(module, "trait_groups", lambda *_: groups)


@pytest.fixture(autouse=True)
def _few_groups(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    use_groups(monkeypatch)
    monkeypatch.setattr(trait_sync.LOG, "warning", lambda *_: None)
    yield
    section_of.cache_clear()
    goal_for.cache_clear()


def test_no_state_excludes_a_capable_host_or_waits_for_ever() -> None:
    assert_correct(Waiting, 500)


def test_no_state_of_the_real_placement_excludes_a_capable_host() -> None:
    assert_correct(WaitingOnPlacement, 5)


def _by_row(group: TraitGroup) -> TraitGroup:
    return (
        group._replace(
            traits=MODES, keys=frozenset(("MODES",)), implied_by=frozenset()
        )
        if group.traits & MODES
        else group
    )


def _implied_by_row(group: TraitGroup) -> TraitGroup:
    return group._replace(implied_by=MODES) if group.traits & MODES else group


def _answering(
    present: frozenset[str], goal: Goal, still: Any
) -> frozenset[str]:
    groups = {
        **dict.fromkeys(goal.wanted or (), frozenset[str]()),
        **goal.groups,
    }
    return with_traits(present, replace(goal, groups=groups), still)


def _covering(
    present: frozenset[str], goal: Goal, still: Any
) -> frozenset[str]:
    return with_traits(
        present.union(names_with(REPORTED, goal.groups)), goal, still
    )


def _sure(*arguments: Any, real: Any = goal_of) -> Goal:
    goal: Goal = real(*arguments)
    groups = {
        key: group.traits & goal.traits.keys()
        for group in vars(desired_traits)["trait_groups"]()
        for key in group.keys
    }
    return replace(goal, groups=groups)


Fault = Callable[[pytest.MonkeyPatch], None]
FAULTS: dict[str, Fault] = {
    "any marker counts for all": lambda to: to.setattr(
        deferral,
        "keys_in",
        lambda *_: {k for group in GROUPS for k in group.keys},
    ),
    "a key for all traits of a row": lambda to: use_groups(to, _by_row),
    "a trait shows the whole row": lambda to: use_groups(to, _implied_by_row),
    "agents answer for unknown keys": lambda to: to.setattr(
        desired_traits, "with_traits", _answering
    ),
    "what is not covered is removed": lambda to: to.setattr(
        desired_traits, "with_traits", _covering
    ),
    "standard traits are removed": lambda to: to.setattr(
        desired_traits, "_is_custom", bool
    ),
    "nothing is kept for an hour": lambda to: to.setattr(
        trait_sync, "UNWANTED_AFTER", 0.0
    ),
    "markers are read once": lambda to: to.setattr(
        placement_facts, "_markers", lambda _: set()
    ),
    "the unknown is reported": lambda to: to.setitem(
        globals(), "goal_of", _sure
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_is_put_back_is_found(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    FAULTS[fault](monkeypatch)
    with pytest.raises(AssertionError, match="excluded|removed|deferred"):
        run_state_machine_as_test(
            Waiting, settings=settings(FAULTY, max_examples=20_000)
        )
