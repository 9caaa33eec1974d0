#    Licensed under the Apache License, Version 2.0 (the "License"); you may
#    not use this file except in compliance with the License. You may obtain
#    a copy of the License at
#
#         http://www.apache.org/licenses/LICENSE-2.0
#
#    Unless required by applicable law or agreed to in writing, software
#    distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
#    WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
#    License for the specific language governing permissions and limitations
#    under the License.

"""The law of waiting in each state that some events lead to: two schedulers, two agents, four traits, a fake clock.

The code under test is the real one, on a Placement in memory that is copied for each event; random walks of the same
events run on the real one. Faults are put back one by one, and are found. OS_PREFILTER_EXAMPLES multiplies the states.
"""

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import astuple, dataclass, field, replace
from functools import cache, partial
from itertools import product
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from os_prefilter.adapters.placement import coverage, trait_sync
from os_prefilter.adapters.placement.client import ResourceProvider
from os_prefilter.adapters.placement.trait_sync import UNWANTED_AFTER, ProviderTraits
from os_prefilter.common.errors import GenerationConflict, UnknownTraits
from os_prefilter.common.trait_names import Trait
from os_prefilter.hosts import desired_traits, reports
from os_prefilter.hosts.capabilities import capability_traits, reporter_of
from os_prefilter.hosts.desired_traits import Goal, Mode, goal_of, with_traits
from os_prefilter.hosts.drivers.fake import FakeFacts
from os_prefilter.hosts.reports import REPORTED, WANTED, Part, key_of, keys_in, names_with
from os_prefilter.request.requirements import Requirement
from os_prefilter.service import deferral, wanted
from os_prefilter.vocabulary.model import RESERVED
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from os_prefilter_tools.fleet.model import provider_uuid
from tests.conftest import conf_with, times
from tests.support.every_trait import EVERY_PART
from tests.support.hosts import KVM
from tests.support.reporting_fleets import by_nova_alone, fleet_of

HPET, HVM, XEN = "CUSTOM_COMPUTE_TIME_HPET", "CUSTOM_VM_MODE_HVM", "CUSTOM_VM_MODE_XEN"
TRAITS = frozenset((HPET, HVM, XEN, "COMPUTE_NET_VIF_MODEL_E1000"))
MODES = frozenset((Trait(HVM), Trait(XEN)))
PARTS = tuple(part for part in EVERY_PART if part.traits & TRAITS)
"""Of all parts, each state would take longer."""
HOSTS = A, B = "host-0", "host-1"
UUIDS = {name: provider_uuid(name) for name in HOSTS}
# Nova's driver of the second one writes no traits of devices.
FACTS = {A: KVM, B: FakeFacts(can={"vif_model": frozenset(("e1000",)), "vm_mode": frozenset(("hvm", "xen"))})}
CAN = {name: {trait for trait in TRAITS if capability_traits(facts)[trait]} for name, facts in FACTS.items()}
_NAMES = {trait for part in PARTS for trait in part.traits}
BY_NOVA = {name: frozenset({"COMPUTE_NODE", *(by_nova_alone(facts) & _NAMES)}) for name, facts in FACTS.items()}
SECTIONS: dict[str, dict[str, list[str]]] = {
    "off": {"enabled_filters": []},
    "hpet": {"enabled_filters": ["hpet"]},
    "image": {"enabled_filters": ["image_metadata"], "reported_traits": [XEN]},
    "both": {"enabled_filters": ["hpet", "image_metadata"], "reported_traits": [XEN, HVM]},
}
OLD, UNSURE, NEW = "older library", "newest, but the host does not tell", "newest library"
FACTS_INTERVAL = 1800.0


@cache
def section_of(name: str) -> tuple[tuple[Part, ...], frozenset[str], frozenset[str]]:
    """Return what a section wants, the names it creates, and those of the four traits that it may require."""
    filters, options = wanted.configured_filters(conf_with(**SECTIONS[name]))
    parts = wanted.wanted_parts(filters, options) if filters else ()
    names = {each for each in wanted.traits_to_create(filters, options) if each.startswith(WANTED)}
    return parts, frozenset(names), frozenset(trait for part in parts for trait in part.traits & TRAITS)


@cache
def goal_for(name: str, library: str, keys: frozenset[str]) -> Goal:
    parts: tuple[Part, ...] = vars(desired_traits)["parts_of"]()
    if library == OLD:
        older = (part._replace(traits=part.traits - {XEN}, shown_by=part.shown_by - {XEN}) for part in parts)
        parts = tuple(part for part in older if part.traits)
    unknown = frozenset((HPET,) if library == UNSURE else ())
    reporter = replace(reporter_of(FACTS[name]), unknown=lambda _facts: unknown)
    with patch.multiple(desired_traits, parts_of=lambda *_: parts, reporter_of=lambda _facts: reporter):
        goal = goal_of(FACTS[name], keys, Mode.BESIDE)
    return replace(goal, traits={trait: goal.traits[trait] for traits in goal.parts.values() for trait in traits})


class Memory:
    """Placement, as far as the code under test and the events ask it."""

    def __init__(self) -> None:
        self.names = frozenset(_NAMES | {"COMPUTE_NODE"})
        self.hosts = {UUIDS[name]: (0, BY_NOVA[name]) for name in HOSTS}

    def traits(self) -> frozenset[str]:
        return self.names

    custom_traits = traits

    def traits_in_use(self) -> frozenset[str]:
        return frozenset().union(*(traits for _, traits in self.hosts.values()))

    def wanted(self) -> frozenset[str]:
        return keys_in(WANTED, self.names)

    def create_trait(self, name: str) -> None:
        self.names |= {name}

    def delete_trait(self, name: str) -> None:
        self.names -= {name} - self.traits_in_use()

    def provider_named(self, name: str) -> ResourceProvider:
        return ResourceProvider(UUIDS[name], name, self.hosts[UUIDS[name]][0])

    def providers(self, query: str) -> tuple[ResourceProvider, ...]:
        kind, _, value = query.replace("%21", "!").replace("%2C", ",").partition("=")
        found = map(self.provider_named, HOSTS)
        if kind == "in_tree":
            return tuple(each for each in found if each.uuid == value)
        compute, *forbidden = value.replace("!", "").split(",")
        self._check({compute, *forbidden})
        return tuple(each for each in found if self.hosts[each.uuid][1].isdisjoint(forbidden))

    each_provider = providers

    def provider_traits(self, uuid: str) -> tuple[int, frozenset[str]]:
        return self.hosts[uuid]

    def set_provider_traits(self, uuid: str, generation: int, traits: frozenset[str]) -> int:
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
    """Passes requests on, and does something else once before one of a name."""

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


@dataclass
class World:
    client: Any
    now: float = 0.0
    schedulers: tuple[Scheduler, ...] = ()
    agents: dict[str, ProviderTraits] = field(default_factory=dict)
    libraries: dict[str, str] = field(default_factory=dict)
    of_operators: frozenset[tuple[str, str]] = frozenset()
    """(host, trait) that an operator has set where no report covered it."""
    lost: frozenset[tuple[str, str]] = frozenset()
    """(host, trait) that an operator has removed."""
    has_forgotten: bool = False

    @classmethod
    def new(cls, placement: Any, sections: tuple[str, str] = ("off", "off")) -> "World":
        world = cls(Client(placement), schedulers=tuple(map(Scheduler, sections)))
        world.settle()
        return world

    def copy(self) -> "World":
        memory = copy(self.client.placement)
        memory.hosts = dict(memory.hosts)
        twin = replace(self, client=Client(memory), schedulers=tuple(map(copy, self.schedulers)), agents={})
        twin.libraries = dict(self.libraries)
        for name, agent in self.agents.items():
            known = {key: dict(value) if isinstance(value, dict) else value for key, value in vars(agent).items()}
            twin.agents[name] = copy(agent)
            vars(twin.agents[name]).update(known, _client=twin.client, _clock=lambda: twin.now)
        return twin

    def key(self) -> tuple[object, ...]:
        """Return what tells two states apart: times and generations count by their differences."""
        memory, found = self.client.placement, list[object]()
        for agent in map(vars, self.agents.values()):
            for uuid, each in agent["_verdicts"].items():
                found += each.provider.generation - memory.hosts[uuid][0], id(each.goal)
            found.append(frozenset((key, max(0.0, until - self.now)) for key, until in agent["_wanted_until"].items()))
            found += agent["_left"], agent["_known"], max(0.0, agent["_recheck_due"] - self.now)
        found += (astuple(replace(it, read_at=min(self.now - it.read_at, 9999.0))) for it in self.schedulers)
        found += (traits for _, traits in memory.hosts.values())
        return *found, memory.names, *self.libraries.values(), self.of_operators, self.lost, self.has_forgotten

    def traits(self, name: str) -> frozenset[str]:
        return frozenset(self.client.placement.provider_traits(UUIDS[name])[1])

    def restart(self, number: int, section: str) -> None:
        """Start a scheduler with a section; it knows nothing."""
        it = self.schedulers[number]
        it.section, it.is_known, it.enforced = section, False, it.enforced & section_of(section)[2]

    def read(self, number: int, meanwhile: str = "") -> None:
        it = self.schedulers[number]
        parts, names, may_require = section_of(it.section)
        if not parts:
            return
        if meanwhile:
            self.client.before["each_provider"] = partial(self.round, meanwhile)
        found = coverage.ReadReports(self.client, parts)()
        coverage.KnownTraits(self.client, names)()
        by_trait: dict[str, Part] = {trait: part for part in parts for trait in part.traits}
        items = {trait: Requirement(Trait(trait), required=True, scope="", source="") for trait in may_require}
        now = frozenset(trait for trait, item in items.items() if not deferral.deferral(item, found, by_trait))
        if it.calm and set(self.libraries.values()) == {NEW}:
            assert it.enforced <= now, f"deferred again: {it.enforced - now}"
        it.is_known, it.read_at, it.enforced, it.calm, it.joined = True, self.now, now, True, frozenset()

    def round(self, name: str, meanwhile: str = "") -> None:
        """Report; before the agent writes it crashes, or an operator sets or removes a trait."""
        before = self.traits(name)
        if meanwhile:
            self.client.before["set_provider_traits"] = partial(self.operator, name, meanwhile)
        try:
            self.agents[name].sync(goal_for(name, self.libraries[name], self.client.wanted()))
        except CrashError:
            self.library(name, self.libraries[name])
        self.client.before.clear()
        kept = {trait for trait in CAN[name] & before if not trait.startswith("CUSTOM_")}
        kept |= {trait for host, trait in self.of_operators if host == name}
        assert kept <= self.traits(name), f"removed: {kept - self.traits(name)}"

    def operator(self, name: str, trait: str) -> None:
        """Set or remove a trait by hand, as an operator does."""
        if trait == "crash":
            raise CrashError
        generation, traits = self.client.placement.provider_traits(UUIDS[name])
        self.client.placement.set_provider_traits(UUIDS[name], generation, traits ^ {trait})
        pair = frozenset(((name, trait),))
        if trait in traits:
            self.of_operators -= pair
            self.lost |= pair
            self._disturb()
        elif key_of((trait,)) not in keys_in(REPORTED, traits):
            self.of_operators |= pair

    def library(self, name: str, library: str) -> None:
        """Start an agent with a library; it knows nothing."""
        self.libraries[name] = library
        self.agents[name] = ProviderTraits(self.client, name, sleep=lambda _: None, clock=lambda: self.now)
        self._disturb()

    def recreate(self, name: str) -> None:
        """Delete a provider, and create it again as Nova does."""
        placement = self.client.placement
        placement.request("DELETE", f"/resource_providers/{UUIDS[name]}")
        placement.request("POST", "/resource_providers", {"name": name, "uuid": UUIDS[name]})
        placement.set_provider_traits(UUIDS[name], 0, BY_NOVA[name])
        self.of_operators = frozenset(pair for pair in self.of_operators if pair[0] != name)
        for it in self.schedulers:
            it.joined |= {name}
        self._disturb()

    def forget(self, section: str) -> None:
        """Remove what only other sections want, once, as ``readiness --forget-unwanted`` does.

        Who removes a wish again that a scheduler has just made again may exclude hosts for a while.
        """
        placement = self.client.placement
        ours = {name for name in placement.custom_traits() if name.startswith(RESERVED)}
        for name in ours - placement.traits_in_use() - section_of(section)[1] if not self.has_forgotten else ():
            placement.delete_trait(name)
        self.has_forgotten = True

    def tick(self) -> None:
        """Let time go by; no request uses older facts."""
        self.now += FACTS_INTERVAL
        for it in self.schedulers:
            if self.now - it.read_at > FACTS_INTERVAL:
                it.is_known, it.enforced = False, frozenset()

    def _disturb(self) -> None:
        for it in self.schedulers:
            it.calm = False

    def check(self) -> None:
        self.lost = frozenset((name, trait) for name, trait in self.lost if trait not in self.traits(name))
        for it, name in product(self.schedulers, HOSTS):
            if it.is_known and name not in it.joined:
                missing = {(name, trait) for trait in it.enforced & CAN[name] - self.traits(name)} - self.lost
                assert not missing, f"excluded: {missing}"

    def settle(self) -> None:
        """Upgrade all agents and let them report: then everything is enforced."""
        self.now += UNWANTED_AFTER
        for name in HOSTS:
            self.library(name, NEW)
        for event, on in (("read", (0, 1)), ("round", HOSTS * 2), ("read", (0, 1))):
            for each in on:
                getattr(self, event)(each)
        for it in self.schedulers:
            assert it.enforced == section_of(it.section)[2], (
                f"still deferred: {section_of(it.section)[2] - it.enforced}"
            )


Event = tuple[Any, ...]
_READ: list[Event] = [("read", 0), ("read", 1), ("round", A), ("round", B)]
_WISHES: list[Event] = [*product(("restart",), (0, 1), SECTIONS), ("tick",), ("forget", "hpet"), ("read", 0, A)]
_BY_HAND: list[Event] = [("operator", A, HPET), ("operator", A, XEN), ("operator", B, XEN)]
_MEANWHILE: list[Event] = [*product(("read",), (0, 1), HOSTS), *product(("round",), HOSTS, ("crash", HPET, XEN))]
_AGENTS: list[Event] = [*product(("library",), HOSTS, (OLD, UNSURE, NEW)), *product(("recreate",), HOSTS)]
EVENTS: dict[str, list[Event]] = {
    "wishes": [*_READ, *_WISHES],
    "agents": [*_READ, *_AGENTS, ("tick",), ("restart", 0, "both")],
    "by hand": [*_READ, *_BY_HAND, ("tick",), ("restart", 0, "both"), ("restart", 1, "off"), ("forget", "hpet")],
    "all": [*_READ, *_WISHES, *_BY_HAND, *_MEANWHILE, *_AGENTS],
}
# What the two schedulers have at first.
STARTS = [("off", "off"), ("hpet", "off"), ("hpet", "both")]


def use_parts(monkeypatch: pytest.MonkeyPatch, changed: Callable[[Part], Part] = lambda part: part) -> None:
    parts = tuple(dict.fromkeys(map(changed, PARTS)))
    for module in (reports, desired_traits, wanted):
        monkeypatch.setattr(module, "parts_of", lambda *_: parts)


@pytest.fixture(autouse=True)
def _few_parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    use_parts(monkeypatch)
    monkeypatch.setattr(trait_sync.LOG, "warning", lambda *_: None)
    yield
    section_of.cache_clear()
    goal_for.cache_clear()


def explore(start: tuple[str, str], events: list[Event], most: int) -> int:
    """Check the states that the events lead to, the nearest first; return how many there were."""
    states: list[tuple[World, tuple[Event, ...]]] = [(World.new(Memory(), start), ())]
    seen = {states[0][0].key()}
    for (world, path), event in ((state, event) for state in states for event in events):
        if len(states) >= most:
            break
        twin, walked = world.copy(), (*path, event)
        try:
            getattr(twin, event[0])(*event[1:])
            twin.check()
            if (key := twin.key()) not in seen:
                seen.add(key)
                states.append((twin, walked))
                twin.copy().settle()
        except AssertionError as error:
            raise AssertionError(f"{error}, from {start} by {walked}") from error
    return len(states)


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("events", EVENTS)
def test_no_state_excludes_a_capable_host_or_waits_for_ever(events: str, start: tuple[str, str]) -> None:
    assert explore(start, EVENTS[events], times(200)) > 100


@pytest.mark.parametrize("seed", range(times(0.2)))
def test_no_walk_on_the_real_placement_excludes_a_capable_host(seed: int) -> None:
    random = Random(seed)  # noqa: S311 - a choice of events
    with EmbeddedPlacement(fleet_of([BY_NOVA[name] for name in HOSTS])) as placement:
        placement.know(TRAITS)
        world = World.new(placement.client)
        for event, *arguments in random.choices([*EVENTS["all"], *_READ * 4], k=60):
            getattr(world, event)(*arguments)
            world.check()
        world.settle()


def _by_row(part: Part) -> Part:
    return (
        part._replace(traits=MODES, keys=frozenset(("MODES",)), shown_by=frozenset()) if part.traits & MODES else part
    )


def _shown_by_row(part: Part) -> Part:
    return part._replace(shown_by=MODES) if part.traits & MODES else part


def _answering(present: frozenset[str], goal: Goal, still: Any) -> frozenset[str]:
    parts = {**dict.fromkeys(goal.wanted or (), frozenset[str]()), **goal.parts}
    return with_traits(present, replace(goal, parts=parts), still)


def _covering(present: frozenset[str], goal: Goal, still: Any) -> frozenset[str]:
    return with_traits(present.union(names_with(REPORTED, goal.parts)), goal, still)


def _sure(*arguments: Any, real: Any = goal_of) -> Goal:
    goal: Goal = real(*arguments)
    parts = {key: part.traits & goal.traits.keys() for part in vars(desired_traits)["parts_of"]() for key in part.keys}
    return replace(goal, parts=parts)


Fault = Callable[[pytest.MonkeyPatch], None]
FAULTS: dict[str, tuple[str, Fault]] = {
    "any marker counts for all": (
        "excluded",
        lambda to: to.setattr(deferral, "keys_in", lambda *_: {k for part in PARTS for k in part.keys}),
    ),
    "a key for all traits of a row": ("excluded", lambda to: use_parts(to, _by_row)),
    "a trait shows the whole row": ("excluded", lambda to: use_parts(to, _shown_by_row)),
    "agents answer for unknown keys": ("excluded", lambda to: to.setattr(desired_traits, "with_traits", _answering)),
    "what is not covered is removed": ("removed", lambda to: to.setattr(desired_traits, "with_traits", _covering)),
    "standard traits are removed": ("removed", lambda to: to.setattr(desired_traits, "_is_custom", bool)),
    "nothing is kept for an hour": ("excluded", lambda to: to.setattr(trait_sync, "UNWANTED_AFTER", 0.0)),
    "markers are read once": ("deferred again", lambda to: to.setattr(coverage, "_markers", lambda _: set())),
    "the unknown is reported": ("excluded", lambda to: to.setitem(globals(), "goal_of", _sure)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_is_put_back_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found, put_back = FAULTS[fault]
    put_back(monkeypatch)
    with pytest.raises(AssertionError, match=found):
        for events, start in product(EVENTS.values(), STARTS):
            explore(start, events, 4000)
