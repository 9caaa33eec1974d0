"""Groups of hosts by what the live migration of their servers needs of a CPU, and the CPU that hosts have in common.

A group is one CPU, as guests with ``cpu_mode=host-model`` get it: within a group servers migrate in both directions.
Only CPUs count here; a live migration needs more than that (machine type, storage, networks).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from operator import or_

from os_prefilter.common.errors import DocumentError
from os_prefilter.common.quoting import escape_line, join_first_names, pluralize, quote
from os_prefilter.hosts.cpu import FITS, X86, Cpu, CpuDefinitions, Fit, HostCpu, UnknownCpu, baseline, compare

_MOST_NAMES = 3


@dataclass(frozen=True, kw_only=True)
class Group:
    """Hosts with one CPU."""

    number: int
    """From 1."""
    architecture: str
    domain_type: str
    cpu: Cpu | None
    """As one of the hosts describes it; None if libvirt describes none."""
    hosts: tuple[HostCpu, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the hosts, sorted."""
        return tuple(host.host for host in self.hosts)

    @cached_property
    def model_lists(self) -> tuple[Mapping[str, bool | None], ...]:
        """Return the different lists of models of the hosts: far fewer than hosts."""
        return tuple({tuple(host.models.items()): host.models for host in self.hosts}.values())

    @cached_property
    def connected(self) -> tuple[Callable[[Cpu], Fit], ...]:
        """Return the functions that ask the hosts' libvirts."""
        return tuple(host.ask for host in self.hosts if host.ask)


@dataclass(frozen=True)
class Migration:
    """Where the servers of a group can be migrated to, by group number. Within the group they can, if it has a CPU."""

    group: Group
    targets: tuple[int, ...] = ()
    sources: tuple[int, ...] = ()
    unknown: tuple[int, ...] = ()
    """Groups to which it is not known whether they can; itself, if libvirt describes no CPU."""


@dataclass(frozen=True)
class Common:
    """What hosts of one architecture, domain type and vendor have in common."""

    architecture: str
    domain_type: str
    vendor: str
    hosts: tuple[str, ...]
    cpu: Cpu | None
    reason: str = ""
    """Why there is no such CPU."""
    usable: tuple[str, ...] = field(default=())
    """The models that each host can run without a feature disabled, as their libvirts say."""
    left_out: tuple[str, ...] = field(default=())
    """The features that host-model servers of some host have, and servers with this CPU have not."""


def group_hosts(hosts: Iterable[HostCpu], definitions: CpuDefinitions) -> list[Group]:
    """Return the groups, sorted by architecture, domain type, vendor, and the largest first.

    :raises DocumentError: if two hosts have one name
    """
    seen: dict[str, HostCpu] = {}
    members: dict[tuple[object, ...], list[HostCpu]] = defaultdict(list)
    keys: dict[tuple[str, str, Cpu | None], tuple[object, ...]] = {}
    for host in hosts:
        if host.host in seen:
            raise DocumentError(
                host.where,
                f"the host {quote(host.host)} is also in {escape_line(seen[host.host].where)}. Leave one of them out, "
                "or rename a file after its host.",
            )
        seen[host.host] = host
        described = host.architecture, host.domain_type, host.cpu
        if described not in keys:
            keys[described] = _key(*described, definitions)
        members[keys[described]].append(host)
    found = [tuple(sorted(each, key=lambda host: host.host)) for each in members.values()]
    found.sort(key=_order)
    return [
        Group(
            number=number,
            architecture=each[0].architecture,
            domain_type=each[0].domain_type,
            cpu=each[0].cpu,
            hosts=each,
        )
        for number, each in enumerate(found, 1)
    ]


def _key(architecture: str, domain_type: str, cpu: Cpu | None, definitions: CpuDefinitions) -> tuple[object, ...]:
    """Return what hosts of one group have in common; the CPU's text where it is not defined."""
    if cpu is None:
        return architecture, domain_type, None
    text = cpu.migratable()
    try:
        if architecture in X86:
            # By name as well: QEMU's model may have features that the definition of the model has not.
            return architecture, domain_type, cpu.vendor, cpu.model, definitions.all_bits(text), text.disabled
    except UnknownCpu:
        pass
    return architecture, domain_type, cpu.vendor, cpu.model, text


def _order(hosts: Sequence[HostCpu]) -> tuple[object, ...]:
    first = hosts[0]
    vendor = first.cpu.vendor if first.cpu else ""
    return first.architecture, first.domain_type, vendor, -len(hosts), first.host


def fit(group: Group, guest: Cpu, definitions: CpuDefinitions, domain_type: str = "") -> Fit:
    """Return whether a guest's CPU fits each host of a group. Where that is not excluded, a connected libvirt decides.

    :param domain_type: the guest's; empty: any
    """
    if domain_type and domain_type != group.domain_type:
        return Fit(False, f"the domain type is {group.domain_type}, not {domain_type}")
    # An x86_64 host also runs i686.
    if guest.architecture not in ("", group.architecture, *(("i686",) if group.architecture == "x86_64" else ())):
        return Fit(False, f"the architecture is {group.architecture}, not {guest.architecture}")
    found = _compute(group, guest, definitions)
    if found.fits is False:
        return found
    answers = [ask(guest) for ask in group.connected]
    for each in answers:
        if each.fits is False:
            return each
    # Hosts of which libvirt describes no CPU may differ: each must say so itself.
    needed = 1 if group.cpu else len(group.hosts)
    return FITS if sum(each.fits is True for each in answers) >= needed else found


def _compute(group: Group, guest: Cpu, definitions: CpuDefinitions) -> Fit:
    if group.cpu is None:
        return Fit(None, f"libvirt lists no host-model for {group.architecture} and {group.domain_type}")
    found = compare(group.cpu, guest, definitions)
    answers = {models.get(guest.model) for models in group.model_lists}
    if found.fits is None and not guest.features and not guest.strict and answers == {True}:
        # libvirt's own answer about the model as it is.
        return Fit(True)
    return _check_models(group, group.cpu, guest) or found if found.fits else found


def _check_models(group: Group, cpu: Cpu, guest: Cpu) -> Fit | None:
    """Return why the QEMUs of a group cannot run a model whose features the CPU has; None if they can."""
    if guest.model and any(models and guest.model not in models for models in group.model_lists):
        lacking = [host.host for host in group.hosts if host.models and guest.model not in host.models]
        text = f"the QEMU of {pluralize(len(lacking), 'host')} has no CPU model {quote(guest.model)}"
        return Fit(False, f"{text}: {join_first_names(lacking, _MOST_NAMES)}")
    # QEMU's model may have features that its definition has not.
    without = sorted(set(cpu.disabled) - dict(guest.features).keys()) if guest.model == cpu.model else []
    if without:
        return Fit(False, f"the host runs {guest.model} only without {join_first_names(without, _MOST_NAMES)}")
    if not guest.disabled and any(models.get(guest.model) is False for models in group.model_lists):
        unusable = [host.host for host in group.hosts if host.models.get(guest.model) is False]
        text = f"libvirt says that {pluralize(len(unusable), 'host')} cannot run {guest.model} with all its features"
        return Fit(False, f"{text}: {join_first_names(unusable, _MOST_NAMES)}")
    return None


def migrations(groups: Sequence[Group], definitions: CpuDefinitions) -> list[Migration]:
    """Return for each group where servers with a host-model CPU can be migrated to, and from where."""
    targets: dict[int, list[int]] = defaultdict(list)
    sources: dict[int, list[int]] = defaultdict(list)
    unknown: dict[int, list[int]] = defaultdict(list)
    for source in groups:
        guest = source.cpu.migratable() if source.cpu else None
        for target in groups:
            if source is target:
                if source.cpu is None:
                    unknown[source.number].append(source.number)
                continue
            found = _fit_between(source, guest, target, definitions)
            if found.fits:
                targets[source.number].append(target.number)
                sources[target.number].append(source.number)
            elif found.fits is None:
                unknown[source.number].append(target.number)
    return [
        Migration(
            group,
            tuple(targets[group.number]),
            tuple(sources[group.number]),
            tuple(unknown[group.number]),
        )
        for group in groups
    ]


def _fit_between(source: Group, guest: Cpu | None, target: Group, definitions: CpuDefinitions) -> Fit:
    if guest is None:
        guest = Cpu(source.architecture, "")
        # Nothing is known but that.
        comparable = fit(target, guest, definitions, source.domain_type).fits is not False
        return Fit(None if comparable else False, f"libvirt lists no host-model for {source.architecture}")
    return fit(target, guest, definitions, source.domain_type)


def guest_on(host: str, groups: Iterable[Group]) -> tuple[Cpu, str]:
    """Return the CPU and the domain type of host-model guests on a host.

    :raises DocumentError: if there is no such host, or its CPU is not known
    """
    for group in groups:
        if host in group.names:
            if group.cpu is None:
                raise DocumentError(
                    f"--from-host {quote(host)}", "libvirt lists no host-model for it. Give --guest or --model."
                )
            return group.cpu.migratable(), group.domain_type
    raise DocumentError(f"--from-host {quote(host)}", "there is no such host in the files. Correct the name.")


def common_cpus(hosts: Collection[HostCpu], definitions: CpuDefinitions) -> list[Common]:
    """Return what hosts have in common, for each architecture, domain type and vendor: no CPU model is of two."""
    sets: dict[tuple[str, str, str], list[HostCpu]] = defaultdict(list)
    for host in hosts:
        sets[host.architecture, host.domain_type, host.cpu.vendor if host.cpu else ""].append(host)
    return [_common(*key, members, definitions) for key, members in sorted(sets.items())]


def _common(
    architecture: str, domain_type: str, vendor: str, hosts: list[HostCpu], definitions: CpuDefinitions
) -> Common:
    names = tuple(sorted(host.host for host in hosts))
    usable = tuple(sorted(_models_of_all(hosts, usable=True)))
    cpu, reason = None, ""
    left_out: tuple[str, ...] = ()
    without = [host.host for host in hosts if host.cpu is None]
    if without:
        reason = f"libvirt lists no host-model for {join_first_names(sorted(without), _MOST_NAMES)}"
    elif architecture not in X86:
        reason = f"only the libvirts of the hosts can compare CPUs of {architecture}"
    else:
        try:
            cpus = list(set(_cpus(hosts)))
            cpu = baseline(cpus, frozenset(_models_of_all(hosts, usable=False)), definitions)
            found = reduce(or_, (definitions.all_bits(each.migratable()) for each in cpus))
            left_out = definitions.names(found & ~definitions.all_bits(cpu))
        except UnknownCpu as unknown:
            reason = str(unknown)
    return Common(architecture, domain_type, vendor, names, cpu, reason, usable, left_out)


def _cpus(hosts: Iterable[HostCpu]) -> Iterator[Cpu]:
    return (host.cpu for host in hosts if host.cpu)


def _models_of_all(hosts: Collection[HostCpu], *, usable: bool) -> Iterator[str]:
    """Yield the models that each host has, or can run."""
    # Most hosts share few lists.
    lists = Counter(tuple(host.models.items()) for host in hosts)
    counts = Counter(name for each in lists for name, answer in each if answer or not usable)
    return (name for name, number in counts.items() if number == len(lists))
