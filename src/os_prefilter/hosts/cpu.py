"""The CPUs of hosts and guests as libvirt describes them, and whether a guest's CPU fits a host.

libvirt decides that itself when a guest starts or arrives; this is the same decision for x86, on documents. Where it
cannot be made, the result is "not known", never "fits". Rules: libvirt's ``src/cpu/cpu_x86.c`` (``x86Compute``), and
its page formatdomain.html, "CPU model and topology".
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from os_prefilter.common.quoting import quote

X86 = ("i686", "x86_64")
NOT_MIGRATED = "invtsc"
"""The feature that host-model guests never get, as QEMU does not migrate it (its ``target/i386/cpu.c``)."""

_MOST_NAMES = 8


@dataclass(frozen=True)
class Cpu:
    """A CPU: a model, and features that differ from the model's."""

    architecture: str
    """By libvirt's name; empty if not stated."""
    model: str
    """Empty if there is none: the features are all."""
    vendor: str = ""
    """Empty if not stated: any."""
    features: tuple[tuple[str, str], ...] = ()
    """(name, policy), sorted: ``require``, ``disable``, and in guests ``force``, ``optional`` and ``forbid``."""
    strict: bool = False
    """Whether a host may have no other feature (``match='strict'``)."""

    def named(self, *policies: str) -> tuple[str, ...]:
        """Return the features that have one of the policies."""
        return tuple(name for name, policy in self.features if policy in policies)

    @property
    def required(self) -> tuple[str, ...]:
        """Return the features beside the model's."""
        return self.named("require", "force")

    @property
    def disabled(self) -> tuple[str, ...]:
        """Return the features that the model has and this CPU has not."""
        return self.named("disable", "forbid")

    def migratable(self) -> "Cpu":
        """Return the CPU of a host-model guest: without the feature that is not migrated."""
        features = tuple(each for each in self.features if each != (NOT_MIGRATED, "require"))
        return Cpu(self.architecture, self.model, self.vendor, features, self.strict)

    def __str__(self) -> str:
        names = [f"+{name}" for name in self.required] + [f"-{name}" for name in self.disabled]
        return " ".join(filter(None, (self.vendor, self.model or "no model", *names)))


@dataclass(frozen=True, kw_only=True)
class HostCpu:
    """The CPU that the hypervisor of a host gives to host-model guests, from its domain capabilities."""

    host: str
    where: str
    """The source, for messages."""
    architecture: str
    domain_type: str
    """``kvm``, or ``qemu`` for emulated guests."""
    cpu: Cpu | None
    """None if libvirt lists none: it has no host-model."""
    models: Mapping[str, bool | None]
    """The models that its QEMU has -> whether the host can run them; None if libvirt does not know."""
    ask: "Callable[[Cpu], Fit] | None" = field(default=None, compare=False)
    """Ask its libvirt whether a guest's CPU fits; None without a connection."""


@dataclass(frozen=True)
class Fit:
    """Whether a guest's CPU fits a host."""

    fits: bool | None
    """None if not known."""
    reason: str = ""
    """Why not, or why it is not known."""

    @property
    def answer(self) -> str:
        """Return the word for it."""
        return "not known" if self.fits is None else "yes" if self.fits else "no"


FITS = Fit(True)


class UnknownCpu(Exception):
    """A CPU has a model or a feature that the definitions lack; its text is the reason."""


@dataclass(frozen=True)
class Model:
    """The definition of a CPU model."""

    name: str
    vendor: str
    bits: int
    for_guests: bool = True
    """Whether libvirt itself would choose it for a guest."""


class CpuDefinitions:
    """The definitions of the models and features of x86, such as libvirt's CPU map.

    A feature is one or more bits of the CPU's registers, a model the bits of its features. A feature that is not
    defined gets a bit of its own: no defined model has it, so a CPU has it only where it is named.

    :param where: the source, for messages; empty if there are no definitions
    :param models: in the order of the source, from old to new
    """

    def __init__(self, where: str, features: Mapping[str, int], models: Mapping[str, Model]) -> None:
        self.features = features
        self.models = models
        self._source = where or "any CPU map (--cpu-map)"
        self._next = max((bits.bit_length() for bits in features.values()), default=0)
        self._undefined: dict[str, int] = {}
        # The lowest bit of a feature -> the features, with their places in the definitions.
        self._at: dict[int, list[tuple[int, str]]] = {}
        for place, (name, bits) in enumerate(features.items()):
            self._at.setdefault(bits & -bits, []).append((place, name))
        self._bits: dict[tuple[Cpu, tuple[str, ...]], int] = {}

    def bits(self, cpu: Cpu, *policies: str) -> int:
        """Return the bits of the features with the policies; with ``require``, also those of the model.

        :raises UnknownCpu: if the model is not defined
        """
        known = self._bits.get((cpu, policies))
        if known is not None:
            return known
        found = self.model(cpu.model).bits if "require" in policies and cpu.model else 0
        for name in cpu.named(*policies):
            found |= self._feature(name)
        self._bits[cpu, policies] = found
        return found

    def all_bits(self, cpu: Cpu) -> int:
        """Return the bits that a CPU has: of the model and the required features, without the disabled ones.

        :raises UnknownCpu: if the model is not defined
        """
        return self.bits(cpu, "require", "force") & ~self.bits(cpu, "disable", "forbid")

    def undefined(self, names: Iterable[str]) -> set[str]:
        """Return those of the features that are not defined."""
        return set(names) - self.features.keys()

    def model(self, name: str) -> Model:
        """Return the definition of a model.

        :raises UnknownCpu: if there is none
        """
        try:
            return self.models[name]
        except KeyError:
            raise UnknownCpu(f"the CPU model {quote(name)} is not in {self._source}") from None

    def check_features(self, names: Iterable[str], what: str) -> None:
        """Check that features are defined, where a bit of their own would not do.

        :raises UnknownCpu: if one is not
        """
        for name in sorted(self.undefined(names)):
            raise UnknownCpu(f"{what} {quote(name)}, a CPU feature that is not in {self._source}")

    def names(self, bits: int) -> tuple[str, ...]:
        """Return the features in bits, in the order of the definitions; bits that are no whole feature have no name."""
        places: list[tuple[int, str]] = []
        rest = bits
        while rest:
            bit = rest & -rest
            rest ^= bit
            places += self._at.get(bit, ())
        found = []
        for _, name in sorted(places):
            mask = self._feature(name)
            if bits & mask == mask:
                found.append(name)
                bits &= ~mask
        return tuple(found)

    def _feature(self, name: str) -> int:
        if name in self.features:
            return self.features[name]
        if name not in self._undefined:
            bit = self._undefined[name] = 1 << (self._next + len(self._undefined))
            self._at[bit] = [(len(self.features) + len(self._undefined), name)]
        return self._undefined[name]


NO_DEFINITIONS = CpuDefinitions("", {}, {})


def compare(host: Cpu, guest: Cpu, definitions: CpuDefinitions) -> Fit:
    """Return whether a guest's CPU fits the host-model CPU of a host, as ``virsh hypervisor-cpu-compare`` does."""
    both = {guest.architecture or host.architecture, host.architecture}
    if len(both) > 1 and not both <= set(X86):
        return Fit(False, f"the architecture is {host.architecture}, not {guest.architecture}")
    if guest.vendor and guest.vendor != host.vendor:
        return Fit(False, f"the vendor is {host.vendor or 'not stated'}, not {guest.vendor}")
    if host.architecture not in X86:
        return _compare_text(host, guest)
    try:
        return _compare_bits(host, guest, definitions)
    except UnknownCpu as unknown:
        return _compare_names(host, guest, str(unknown))


def _compare_bits(host: Cpu, guest: Cpu, definitions: CpuDefinitions) -> Fit:
    # A newer model of that name may have the feature, and the guest with it.
    definitions.check_features(set(host.disabled) - set(guest.disabled), "the host disables")
    definitions.check_features(guest.named("forbid"), "the guest forbids")
    # libvirt refuses to compare a CPU with a feature that it does not know, whatever the policy.
    named = {name for name, policy in guest.features if policy != "require"}
    definitions.check_features(named - dict(host.features).keys(), "the guest names")
    available = definitions.all_bits(host)
    forbidden = definitions.bits(guest, "forbid") & available
    if forbidden:
        return Fit(False, f"the host has forbidden features: {_join(definitions.names(forbidden))}")
    aside = definitions.bits(guest, "force", "optional", "disable")
    required = definitions.bits(guest, "require") & ~aside
    missing = required & ~available
    if missing:
        return Fit(False, f"the host lacks {_join(definitions.names(missing)) or 'a feature'}")
    if guest.strict and available & ~required & ~aside:
        names = _join(definitions.names(available & ~required & ~aside))
        return Fit(False, f"match='strict', and the host also has {names}")
    return FITS


def _compare_names(host: Cpu, guest: Cpu, unknown: str) -> Fit:
    """Compare CPUs whose definition is not known: of the same model, and by the features' names."""
    lost = set(host.disabled) - set(guest.disabled)
    plain = {policy for _, policy in guest.features} <= {"require", "disable"} and not guest.strict
    same_model = host.model and host.model == guest.model
    if plain and same_model and set(guest.required) <= set(host.required) and not lost:
        return FITS
    return Fit(None, unknown)


def _compare_text(host: Cpu, guest: Cpu) -> Fit:
    """Compare CPUs of other architectures, where libvirt asks the QEMU of the host, or compares nothing."""
    if host.model and (host.model, host.features) == (guest.model, guest.features):
        return FITS
    return Fit(None, f"only the libvirt of the host can compare CPUs of {host.architecture}")


def _join(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def baseline(cpus: list[Cpu], allowed: frozenset[str], definitions: CpuDefinitions) -> Cpu:
    """Return the CPU with what all CPUs of one vendor have, as ``virsh hypervisor-cpu-baseline`` does.

    Of the models, the one with the fewest differences; a disabled feature counts twice, because a guest that is defined
    without that line gets more than the hosts have. Of several, the newest.

    :param allowed: the models that the QEMU of each host has
    :raises UnknownCpu: if a CPU is not defined, or no model remains
    """
    vendor = cpus[0].vendor
    bits = ~0
    # QEMU's model may have features that its definition has not: libvirt disables them by name.
    disabled: dict[str, set[str]] = {}
    for cpu in cpus:
        bits &= definitions.all_bits(cpu.migratable())
        disabled.setdefault(cpu.model, set()).update(cpu.disabled)
    best: Cpu | None = None
    lowest = 0
    for model in reversed(list(definitions.models.values())):
        if model.name not in allowed or not model.for_guests or (model.vendor and model.vendor != vendor):
            continue
        more, fewer = definitions.names(bits & ~model.bits), set(definitions.names(model.bits & ~bits))
        fewer |= disabled.get(model.name, set())
        features = sorted([(name, "require") for name in more] + [(name, "disable") for name in fewer])
        candidate = Cpu(cpus[0].architecture, model.name, vendor, tuple(features))
        cost = len(more) + 2 * len(fewer)
        # A bit of the model that is no whole feature cannot be disabled.
        if (best is None or cost < lowest) and not definitions.all_bits(candidate) & ~bits:
            best, lowest = candidate, cost
    if best is None:
        raise UnknownCpu("the QEMUs of the hosts have no CPU model in common that the CPU map defines")
    return best
