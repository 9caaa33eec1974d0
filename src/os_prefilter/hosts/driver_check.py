"""The virt driver's half: can this host really do it, and what must be switched on.

The scheduler asked only for hosts that can; but a host may have changed since, or a filter may be off. So the driver
checks again, with the same knowledge that its traits come from, and fails the spawn rather than start a guest without
what was asked for (decision on traits as configuration).
"""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

from os_prefilter.common.quoting import escape_line, quote
from os_prefilter.conf.options import effective_templates
from os_prefilter.errors import UnknownValue, UnsupportedByHost
from os_prefilter.hosts.capabilities import owns, refusal_of, reporter_of
from os_prefilter.hosts.reporter import GuestSettings, HostFacts, Reporter, Setting
from os_prefilter.request.guest_platform import Guest, guest_of
from os_prefilter.request.named_traits import named_traits
from os_prefilter.request.row_values import Chosen, chosen, is_implied
from os_prefilter.request.view import Request
from os_prefilter.vocabulary import BY_NAME, QUALIFIED, table
from os_prefilter.vocabulary.config_templates import PREFIX, Template, Templates
from os_prefilter.vocabulary.machine_types import NONE, guest_architecture
from os_prefilter.vocabulary.model import Row, Trait, UnknownValues

_MACHINE = BY_NAME["machine_type"]
_DEFAULT_MACHINE = BY_NAME["default_machine"]
_SECURE_BOOT = BY_NAME["secure_boot"]
_ADDRESS_SPACE = BY_NAME["maxphysaddr_mode"]
# Those that QEMU takes, and what it gives a guest that does not say; libvirt before 9.2 wants a number.
_ADDRESS_BITS = range(32, 53)
_DEFAULT_ADDRESS_BITS = 40
# Nova 32 and later report each model on a provider of its own below the root. One that is forbidden excludes no host
# that has another one as well, or that need not encrypt at all.
_ENCRYPTION = BY_NAME["mem_encryption_model"]


class Unsupported(NamedTuple):
    """One thing that a request asks for and a host cannot do."""

    property: str
    """Where it is asked for: ``image property hw_disk_bus``."""
    value: str
    reason: str

    def __str__(self) -> str:
        return escape_line(f"{self.property}={self.value}: {self.reason}")


@cache
def _asked() -> tuple[Row, ...]:
    return tuple(row for row in table() if row.asked_by)


@cache
def _traits() -> frozenset[Trait]:
    return frozenset(trait for row in table() for trait in row.traits) | frozenset(QUALIFIED.values())


def unsupported(request_spec: Any, facts: HostFacts) -> list[Unsupported]:
    """Return what the host cannot do of what a request asks for; empty means that the late check accepts it.

    A value that is not in the vocabulary is something that the host cannot do.

    :raises FlavorImageConflict: if flavor and image contradict each other.
    :raises ImpossibleCombination: if two values make no sense together.
    :raises UnusableReporter: if no reporter is installed for these facts.
    """
    request = Request(request_spec)
    check = _Check(facts, reporter_of(facts), guest_of(request))
    templates = effective_templates(facts.templates)
    found = [
        Unsupported(
            f"flavor extra spec {quote(key)}", quote(request.extra_spec(key)), "nobody knows this configuration"
        )
        for key in templates.unknown(request.extra_specs)
    ]
    for row, choice in _choices(request, found, templates):
        value = _exact(request, row, choice)
        reason = check.refusal(row, choice.value, value)
        if reason and not is_implied(request, row, choice.value):
            found.append(_unsupported(row, choice, value, reason))
        if row is _ADDRESS_SPACE and choice.value == "emulate":
            found += _wrong_address_bits(request, facts)
    told = {(item.property, item.value) for item in found}
    return [*found, *(item for item in _explicit(request, check) if (item.property, item.value) not in told)]


def guest_settings(request_spec: Any, facts: HostFacts) -> GuestSettings:
    """Return what the driver must give the guest: HPET first, then as the vocabulary has it.

    A device that is there or not may be asked for by its property, or by its trait in the image, in the flavor or in
    one of the flavor's groups that describes the host (:meth:`os_prefilter.Request.is_of_host`). Optional secure boot
    is ``required`` of a guest with UEFI where the host has it, else ``disabled``.

    :raises UnsupportedByHost: if the host cannot do all of it.
    :raises FlavorImageConflict: if something is asked for and against at once.
    :raises ImpossibleCombination: if two values make no sense together.
    :raises UnusableReporter: if no reporter is installed for these facts.
    """
    refused = unsupported(request_spec, facts)
    if refused:
        raise UnsupportedByHost(facts.host, refused)
    return settings_of(request_spec, facts)


def settings_of(request_spec: Any, facts: HostFacts) -> GuestSettings:
    """Return the same without asking whether the host can do it: for tests that find that out with real guests.

    :raises FlavorImageConflict, ImpossibleCombination, UnusableReporter: as :func:`guest_settings`
    """
    request = Request(request_spec)
    check = _Check(facts, reporter_of(facts), guest_of(request))
    asked = {row.name: choice for row, choice in _choices(request, [], effective_templates(facts.templates))}
    if _SECURE_BOOT.name in asked and asked[_SECURE_BOOT.name].value == "optional":
        has_uefi = "firmware_type" in asked and asked["firmware_type"].value == "uefi"
        used = has_uefi and not check.refusal(_SECURE_BOOT, "required", "required")
        asked[_SECURE_BOOT.name] = asked[_SECURE_BOOT.name]._replace(value="required" if used else "disabled")
    settings = [Setting(name, choice.value, str(choice.source)) for name, choice in asked.items()]
    settings.sort(key=lambda setting: setting.name != "time_hpet")
    emulates = _ADDRESS_SPACE.name in asked and asked[_ADDRESS_SPACE.name].value == "emulate"
    return GuestSettings(
        tuple(settings),
        check.guest.architecture or guest_architecture(facts.architecture),
        str(request.image_property(str(_MACHINE.image_property))) if _MACHINE.name in asked else "",
        check.guest.family or check.default_family(),
        _address_bits(request, facts) if emulates else None,
    )


def _said_address_bits(request: Request) -> tuple[str, object] | None:
    """Return where the request says how many address bits the guest has, and its words; the flavor's count first."""
    in_flavor = request.extra_spec("hw:maxphysaddr_bits")
    if in_flavor:
        return "flavor extra spec hw:maxphysaddr_bits", in_flavor
    in_image = request.image_property("hw_maxphysaddr_bits")
    return None if in_image is None else ("image property hw_maxphysaddr_bits", in_image)


def _wrong_address_bits(request: Request, facts: HostFacts) -> Iterator[Unsupported]:
    """Yield why a guest cannot have the address bits that a request says; no trait says how many a host has."""
    said = _said_address_bits(request)
    if not said:
        return
    place, raw = said
    bits, has = _whole_number(raw), facts.physical_address_bits
    if bits not in _ADDRESS_BITS:
        takes = f"QEMU takes a whole number from {_ADDRESS_BITS[0]} to {_ADDRESS_BITS[-1]}"
        yield Unsupported(place, quote(raw), takes)
    elif has and bits > has:
        yield Unsupported(place, str(bits), f"the host's processors have {has}")


def _address_bits(request: Request, facts: HostFacts) -> int:
    said = _said_address_bits(request)
    # The host may have fewer than QEMU's default.
    default = min(_DEFAULT_ADDRESS_BITS, facts.physical_address_bits or _DEFAULT_ADDRESS_BITS)
    return (said and _whole_number(said[1])) or default


def _whole_number(raw: object) -> int:
    """Return the number that an image or a flavor says; 0 for what is none. Nova's own images have numbers."""
    text = str(raw) if isinstance(raw, (int, str)) else ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 4 else 0  # noqa: PLR2004 - far above any


def _unsupported(row: Row, choice: Chosen, value: str, reason: str) -> Unsupported:
    place, written, default, _ = choice.source
    if default:
        return Unsupported(place, written, f"with the default {default}: {reason}")
    # A device may be asked for by its trait: "trait1:X=required".
    return Unsupported(place, written if row.boolean else value, reason)


def _choices(request: Request, unknown: list[Unsupported], templates: Templates) -> Iterator[tuple[Row, Chosen]]:
    """Yield what the request asks for; values that nobody knows are added to ``unknown``."""
    for row in (*_asked(), *templates.rows):
        try:
            choice = chosen(request, row, UnknownValues.REJECT, [])
        except UnknownValue as error:
            item = Unsupported(error.source, quote(error.value), "nobody knows this value")
            # Rows that mean nothing without this one have met it as well.
            unknown += [item] * (item not in unknown)
            # Of the other place, image or flavor, if that says something.
            choice = chosen(request, row, UnknownValues.SKIP_ALL, [])
        if choice:
            yield row, choice


def _exact(request: Request, row: Row, choice: Chosen) -> str:
    """Return the value; of a machine type its exact version, which no trait says."""
    return str(request.image_property(str(row.image_property))) if row is _MACHINE else choice.value


class _Check(NamedTuple):
    """One guest on one host."""

    facts: HostFacts
    reporter: Reporter
    guest: Guest

    def refusal(self, row: Row, value: str, exact: str) -> str:
        """Return why the host cannot do it, empty if it can."""
        if row.name.startswith(PREFIX):
            return self._configured(effective_templates(self.facts.templates).of(row.name, value))
        trait = row.values[value].trait
        if trait is None:
            return ""
        architecture = self.guest.architecture if row.per_architecture and self.guest.has_own_traits else ""
        if row.name in self.reporter.owns:
            reason = self.reporter.refusal(self.facts, row.name, exact, architecture)
        else:
            reason = self.of_others(trait, required=row.values[value].required)
        return reason or self._never(row, value)

    def _configured(self, template: Template) -> str:
        """Return why the host cannot be configured so: by its reporter, and by the traits that the template needs."""
        reporter = self.reporter
        reason = reporter.refusal(self.facts, template.extra_spec, template.value, "") if reporter.configured else ""
        return reason or next(filter(None, (self.of_trait(trait, required=True) for trait in template.traits)), "")

    def of_trait(self, trait: Trait, *, required: bool) -> str:
        """Return why the host does not have a trait, or has one that it must not have."""
        reason = refusal_of(trait, self.facts, self.reporter)
        if reason is None:
            return self.of_others(trait, required=required)
        return reason if required else "" if reason else f"the host has {trait}"

    def of_others(self, trait: str, *, required: bool) -> str:
        """Return the same for a trait that somebody else answers for."""
        if (trait in self.facts.other_traits) == required:
            return ""
        return f"nobody has set {trait} on the host" if required else f"the host has {trait}"

    def _never(self, row: Row, value: str) -> str:
        """Return why the guest's machine type, its own or the host's default, can never have it."""
        without = self.guest.families_without(row.name, value)
        if not without:
            return ""
        if self.guest.what_rules_out(row.name, value):
            family, architecture = self.guest.family, self.guest.architecture
            return f"a guest of {f'machine type {family}' if family else architecture} never has it"
        if self.guest.family:
            return ""
        family = self.default_family(without)
        if not family:
            return ""
        if family == NONE:
            return f"it gets the default machine type of the host's architecture; name one in {_MACHINE.image_property}"
        return f"the default machine type here is of the family {family}, which never has it"

    def default_family(self, among: Iterable[str] = _DEFAULT_MACHINE.values) -> str:
        """Return the family of the machine type that the host gives to a guest that names none, if it is ``among``."""
        if _DEFAULT_MACHINE.name not in self.reporter.owns:
            return ""
        architecture = self.guest.default_architecture
        for family in sorted(among):
            known = not architecture or (_DEFAULT_MACHINE.values[family].trait, architecture) in QUALIFIED
            if known and not self.reporter.refusal(self.facts, _DEFAULT_MACHINE.name, family, architecture):
                return family
        return ""


def _explicit(request: Request, check: _Check) -> Iterator[Unsupported]:
    """Yield the traits that a request requires of the host, or forbids it, by name, where the host is otherwise.

    Whether another provider, such as a GPU or a port, has the traits of the group that it serves, Placement knows.
    """
    for item in named_traits(request):
        if item.trait not in _traits() and not owns(check.reporter, item.trait, check.facts):
            continue
        if not request.is_of_host(item.scope) or (item.trait in _ENCRYPTION.traits and not item.required):
            continue
        reason = check.of_trait(item.trait, required=item.required)
        if reason:
            yield Unsupported(item.source.place, item.source.value or item.trait, reason)
