# SPDX-License-Identifier: Apache-2.0

"""Late check of a host: what it cannot do of a request, and guest settings.

The scheduler requests only hosts that can, but a host may have changed since,
or a filter may be off. So the driver checks again, by the same table as the
traits of the host, and fails the spawn rather than start a guest without what
was requested.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

from os_prefilter.common.errors import UnsupportedByHost
from os_prefilter.common.quoting import escape_line, quote
from os_prefilter.common.trait_names import Trait
from os_prefilter.hosts.capabilities import refusal_of, reporter_of
from os_prefilter.hosts.reporter import GuestSettings, HostFacts, Setting
from os_prefilter.request import values as asked
from os_prefilter.request.guest_platform import I686_SOURCE, guest_of
from os_prefilter.request.named_traits import (
    MAY_LACK_FEATURE,
    forbid_several_models,
    named_traits,
    written_requirements,
)
from os_prefilter.request.remarks import IGNORED, without_basis
from os_prefilter.request.view import Request
from os_prefilter.vocabulary import (
    BY_NAME,
    DEVICES,
    I686,
    LACKING,
    table,
)
from os_prefilter.vocabulary.filter_rows import SEVERAL_CPU_MODELS
from os_prefilter.vocabulary.machine_types import (
    I686_FAMILIES,
    guest_architecture,
)
from os_prefilter.vocabulary.model import Row
from os_prefilter.vocabulary.options import Options, rows_with

_OF_NOVA = Options(nova_builds_guests=True)
_MACHINE = BY_NAME["machine_type"]
_DEFAULT_MACHINE = BY_NAME["default_machine"]
_SECURE_BOOT = BY_NAME["secure_boot"]
_ADDRESS_SPACE = BY_NAME["maxphysaddr_mode"]
# QEMU's default; libvirt before 9.2 requires a number.
_DEFAULT_ADDRESS_BITS = 40
# Nova 32 and later report each model on a provider of its own below the root.
# A forbidden one excludes no host that has another one as well, or whose guest
# need not be encrypted.
_ENCRYPTION = BY_NAME["mem_encryption_model"]


class Unsupported(NamedTuple):
    """One part of a request that a host cannot do."""

    property: str
    """Its place: ``image property hw_disk_bus``."""
    value: str
    reason: str

    def __str__(self) -> str:
        return escape_line(f"{self.property}={self.value}: {self.reason}")


def unsupported(request_spec: Any, facts: HostFacts) -> list[Unsupported]:
    """Return what the host cannot do of a request; empty to accept it.

    A host can do no value that is not in the vocabulary.

    :raises FlavorImageConflict: if flavor and image contradict each other.
    :raises ImpossibleCombination: if two values make no sense together.
    :raises UnusableReporter: if no reporter is installed for these facts.
    """
    return _Check(request_spec, facts).unsupported()


def guest_settings(request_spec: Any, facts: HostFacts) -> GuestSettings:
    """Return the settings of the guest: HPET, then in the vocabulary's order.

    A switched device may be required by its property, or by its trait in the
    image, in the flavor or in a group of the flavor that describes the host
    (:meth:`os_prefilter.Request.is_of_host`). Optional secure boot is
    ``required`` for a guest with UEFI where the host has it, else
    ``disabled``.

    :raises UnsupportedByHost: if the host cannot do all of it.
    :raises FlavorImageConflict: if something is required and forbidden at
        once.
    :raises ImpossibleCombination: if two values make no sense together.
    :raises UnusableReporter: if no reporter is installed for these facts.
    """
    check = _Check(request_spec, facts)
    refused = check.unsupported()
    if refused:
        raise UnsupportedByHost(facts.host, refused)
    return check.settings()


@cache
def _vocabulary_traits() -> frozenset[Trait]:
    return frozenset(
        trait for row in table() for trait in row.traits
    ) | frozenset(I686.values())


class _Check:
    """One guest on one host."""

    def __init__(self, request_spec: Any, facts: HostFacts) -> None:
        self._request = Request(request_spec)
        self._facts = facts
        self._reporter = reporter_of(facts)
        self._guest = guest_of(self._request)
        self._rows = tuple(
            row for row in rows_with(facts.templates) if row.required_by
        )

    def unsupported(self) -> list[Unsupported]:
        request = self._request
        found = [
            Unsupported(
                f"flavor extra spec {quote(key)}",
                quote(request.extra_spec(key)),
                "no configuration template",
            )
            for key in asked.unknown_configurations(request, self._rows)
        ]
        for row in self._rows:
            for each in asked.resolve(request, row).unknown[:1]:
                item = Unsupported(
                    each.place, quote(each.raw), "unknown value"
                )
                # Rows that depend on this one find it as well.
                if item not in found:
                    found.append(item)
            found += self._unsupported_of(row)
        if self._facts.built_by_nova:
            found += [
                Unsupported(
                    place, value, f"as Nova builds the guest, {reason}"
                )
                for place, value, reason in asked.never_start_in_nova(request)
            ]
            found += self._lacking_features()
        # One reason is enough for a property with its value.
        places = {(item.property, item.value) for item in found}
        found += [
            item
            for item in self._named_traits()
            if (item.property, item.value) not in places
        ]
        return found

    def _lacking_features(self) -> Iterator[Unsupported]:
        """Yield the CPU features that a guest of Nova may lack here."""
        if refusal_of(SEVERAL_CPU_MODELS, self._facts, self._reporter) != "":
            return
        named = written_requirements(self._request)
        several = forbid_several_models(self._request, named, _OF_NOVA)
        for item in several.requirements:
            place, _, value = item.source.partition("=")
            yield Unsupported(place, value, MAY_LACK_FEATURE)

    def _unsupported_of(self, row: Row) -> Iterator[Unsupported]:
        """Yield what the host cannot do of a row's value in the request."""
        request = self._request
        by_nova = self._facts.built_by_nova
        if by_nova and row.device and request.names_traits:
            yield from self._named_without_property(row, row.device)
        for source, _, advice in (
            without_basis(request, row) if by_nova else ()
        ):
            reason = f"in Nova {IGNORED[row.name]}; set {advice} as well"
            yield Unsupported(source.place, source.value, reason)
        # Image or flavor, whichever has a known value.
        choice = asked.value_of(request, row)
        if not choice:
            return
        reason = self._refusal(row, choice.value, choice)
        if reason and not self._relations(row, choice).is_implied:
            place, value, default, *_ = choice.source
            if row is _MACHINE:
                value = self._exact_machine()
            if default:
                reason = f"with the default {default}: {reason}"
            yield Unsupported(place, value, reason)
        for pair, other in self._relations_in_nova(row, choice).incompatible:
            if not pair.on or self._lacks(pair.on, required=False):
                reason = (
                    f"as Nova builds the guest, none has it with {other};"
                    f" set {asked.advice_of(pair)} as well"
                )
                yield Unsupported(*choice.source[:2], reason)
        if row is _ADDRESS_SPACE and choice.value == "emulate":
            yield from self._invalid_address_bits(choice)

    def _relations(self, row: Row, choice: asked.RowValue) -> asked.Relations:
        return asked.relations_of(
            self._request,
            self._guest,
            row,
            choice,
            by_nova=self._facts.built_by_nova,
        )

    def _relations_in_nova(
        self, row: Row, choice: asked.RowValue
    ) -> asked.Relations:
        constraints = row.constraints.get(choice.value)
        # A row that may include the value is not read for this: its own
        # contradiction is reported when it is its turn.
        if not constraints or not constraints.incompatible_in_nova:
            return asked.Relations()
        return self._relations(row, choice)

    def settings(self) -> GuestSettings:
        known = (
            (row.name, asked.value_of(self._request, row))
            for row in self._rows
        )
        values = {name: choice for name, choice in known if choice}
        secure_boot = values.get(_SECURE_BOOT.name)
        if secure_boot and secure_boot.value == "optional":
            has_uefi = (
                "firmware_type" in values
                and values["firmware_type"].value == "uefi"
            )
            used = has_uefi and not self._refusal(_SECURE_BOOT, "required")
            values[_SECURE_BOOT.name] = secure_boot._replace(
                value="required" if used else "disabled"
            )
        settings = [
            Setting(name, choice.value, str(choice.source))
            for name, choice in values.items()
        ]
        settings.sort(key=lambda setting: setting.name != "time_hpet")
        guest = self._guest
        return GuestSettings(
            tuple(settings),
            self._architecture(),
            self._exact_machine() if _MACHINE.name in values else "",
            guest.family or self._default_family(),
            self._address_bits(values.get(_ADDRESS_SPACE.name)),
        )

    def _architecture(self) -> str:
        """Return the architecture of the guest."""
        if self._guest.is_i686:
            return "i686"
        return self._guest.emulated or guest_architecture(
            self._facts.architecture
        )

    def _address_bits(self, mode: asked.RowValue | None) -> int | None:
        """Return the address width of an emulated address space."""
        if not mode or mode.value != "emulate":
            return None
        # The host may have fewer than QEMU's default.
        most = self._facts.physical_address_bits or _DEFAULT_ADDRESS_BITS
        requested = asked.address_bits_of(self._request).number
        return requested or min(_DEFAULT_ADDRESS_BITS, most)

    def _exact_machine(self) -> str:
        """Return the requested machine type with its version.

        Traits have none.
        """
        name = self._request.image_property(str(_MACHINE.image_property))
        # No machine type is longer; reasons show it.
        return str(name)[:80]

    def _refusal(
        self, row: Row, value: str, choice: asked.RowValue | None = None
    ) -> str:
        """Return why the host cannot do a value of a row; empty if it can.

        The value is the choice of the request.
        """
        term, reason = row.values[value], ""
        # A driver may be unable to apply a configuration that requires no
        # trait.
        if term.trait is None and not row.namespace:
            return ""
        # The facts say nothing of emulated guests; libvirt refuses what its
        # QEMU does not have.
        if self._guest.emulated and row.name in DEVICES:
            return self._never(row, value, choice)
        if row.namespace:
            is_owned = bool(self._reporter.configured)
        else:
            is_owned = row.name in self._reporter.owns
        if is_owned:
            is_apart = self._guest.is_i686 and term.trait in I686
            architecture = "i686" if is_apart else ""
            exact = self._exact_machine() if row is _MACHINE else value
            reason = self._reporter.refusal(
                self._facts, row.name, exact, architecture
            )
        if row.namespace or not is_owned:
            lacks = (
                self._lacks(trait, required=term.required)
                for trait in term.traits
            )
            reason = reason or next(filter(None, lacks), "")
        return reason or self._never(row, value, choice)

    def _named_without_property(
        self, row: Row, device: Trait
    ) -> Iterator[Unsupported]:
        """Yield the sources that name a device by its trait alone.

        A guest of Nova starts without it.
        """
        values = asked.raw_values(self._request, row)
        if "true" in map(row.canonical, values):
            return
        reason = (
            "by a trait Nova gives the guest no device; set"
            f" {row.image_property}=true"
        )
        for source in asked.sources_naming(self._request, device)[0]:
            if self._request.asks_anew(source.place):
                yield Unsupported(source.place, source.value, reason)

    def _lacks(self, trait: Trait, *, required: bool) -> str:
        """Return why the host lacks a required trait, or has a forbidden."""
        reason = refusal_of(trait, self._facts, self._reporter)
        has = (
            trait in self._facts.other_traits if reason is None else not reason
        )
        if not has and not required and trait in LACKING:
            lacking = refusal_of(LACKING[trait], self._facts, self._reporter)
            if lacking == "":
                return f"Nova's driver reports {trait}, which the host lacks"
        if has == required:
            return ""
        if has and trait in self._reporter.unknown(self._facts):
            return ""
        if has:
            return f"the host has {trait}"
        return reason or f"{trait} is not set on the host"

    def _named_traits(self) -> Iterator[Unsupported]:
        """Yield the named traits with which the host does not comply.

        The request requires or forbids them of the host.

        Placement checks the traits of groups that other providers serve, such
        as GPUs and ports.
        """
        for item in named_traits(self._request):
            if not self._request.is_of_host(item.scope) or (
                item.trait in _ENCRYPTION.traits and not item.required
            ):
                continue
            is_decided = (
                item.trait in _vocabulary_traits()
                or refusal_of(item.trait, self._facts, self._reporter)
                is not None
            )
            if not is_decided:
                continue
            reason = self._lacks(item.trait, required=item.required)
            if reason:
                value = item.source.value or item.trait
                yield Unsupported(item.source.place, value, reason)

    def _never(
        self, row: Row, value: str, choice: asked.RowValue | None
    ) -> str:
        """Return why the guest's machine type can never have a row's value.

        The machine type is the guest's own, or the host's default.
        """
        guest = self._guest
        if choice and self._relations_in_nova(row, choice).lives_without:
            return ""
        without = guest.families_without(row.name, value)
        ruled_out = guest.what_rules_out(row.name, value)
        if ruled_out and self._request.asks_anew(
            str(choice.source) if choice else "", ruled_out
        ):
            kind = f"machine type {guest.family}"
            if ruled_out == I686_SOURCE:
                kind = "i686"
            return f"a guest of {kind} never has it"
        family = "" if guest.family else self._default_family(without)
        if not family:
            return ""
        return (
            f"the default machine type here is of the family {family}, which"
            " never has it"
        )

    def _default_family(
        self, among: Iterable[str] = _DEFAULT_MACHINE.values
    ) -> str:
        """Return the family of the host's default machine type.

        Empty if it is not ``among`` these.
        """
        if _DEFAULT_MACHINE.name not in self._reporter.owns:
            return ""
        # The host's default is about guests of its own architecture.
        if self._guest.emulated:
            return ""
        architecture = ""
        if self._guest.is_i686:
            architecture = "i686"
            among = I686_FAMILIES.intersection(among)
        for family in sorted(among):
            if not self._reporter.refusal(
                self._facts, _DEFAULT_MACHINE.name, family, architecture
            ):
                return family
        return ""

    def _invalid_address_bits(
        self, mode: asked.RowValue
    ) -> Iterator[Unsupported]:
        """Yield why the guest cannot have the requested address bits.

        No trait has the number of a host.
        """
        place, value, bits = asked.address_bits_of(self._request)
        if not value and self._facts.needs_address_bits:
            yield Unsupported(
                *mode.source[:2],
                "libvirt before 9.2 needs a number of bits; set"
                " hw_maxphysaddr_bits",
            )
        has = self._facts.physical_address_bits
        if value is not None and bits not in asked.ADDRESS_BITS:
            yield Unsupported(place, quote(value), asked.TAKEN_ADDRESS_BITS)
        elif has and bits > has:
            yield Unsupported(
                place, str(bits), f"the host's processors have {has}"
            )
