"""``os-prefilter fleet cpu``: which hosts can exchange servers by live migration, as far as their CPUs matter."""

import argparse
import os
from collections.abc import Iterable, Sequence
from typing import Any

from os_prefilter.cli.listing import NO_HOST, Cell, Listing
from os_prefilter.common.errors import DocumentError
from os_prefilter.common.quoting import escape_line, join_first_names, pluralize, quote
from os_prefilter.documents.files import read_bytes
from os_prefilter.hosts.cpu import NO_DEFINITIONS, Cpu, CpuDefinitions, HostCpu
from os_prefilter.operators.cpu_groups import Common, Group, common_cpus, fit, group_hosts, guest_on, migrations

GROUP_COLUMNS = ("Group", "Architecture", "Type", "CPU", "Hosts", "Names", "To", "From", "Not known")
FIT_COLUMNS = ("Group", "CPU", "Hosts", "Names", "Fits", "Reason")
BASELINE_COLUMNS = (
    "Architecture",
    "Type",
    "Vendor",
    "Hosts",
    "cpu_models",
    "cpu_model_extra_flags",
    "Left out",
    "Usable models",
    "Reason",
)

_MOST_NAMES = 3


class FleetCpu(Listing):
    """Show groups of hosts by what live migration needs of their CPUs, and the CPU model that they have in common."""

    extras = "cli,libvirt"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "paths",
            metavar="PATH",
            nargs="*",
            help="outputs of 'virsh domcapabilities', each in a file HOST.xml; or directories of such files",
        )
        parser.add_argument(
            "--connect",
            metavar="URI",
            action="append",
            default=[],
            help="also the host of this libvirt, which then compares CPUs with its own itself (repeatable)",
        )
        parser.add_argument(
            "--cpu-map",
            metavar="DIR",
            help="libvirt's definitions of CPU models; default: those of this machine's libvirt, if it is installed",
        )
        parser.add_argument(
            "--host", metavar="HOST", action="append", default=[], help="only this host of the files (repeatable)"
        )
        ways = parser.add_mutually_exclusive_group()
        ways.add_argument(
            "--baseline", action="store_true", help="show the CPU model for nova.conf that fits all the hosts"
        )
        ways.add_argument("--from-host", metavar="HOST", help="show which hosts the host-model servers of a host fit")
        ways.add_argument(
            "--guest",
            metavar="FILE",
            help="show which hosts a server fits: output of 'virsh dumpxml', or of 'virsh capabilities' of its host "
            "for the CPU that Nova compares before it migrates a server with host-model",
        )
        ways.add_argument(
            "--model",
            metavar="MODEL[,FLAG...]",
            help="show which hosts a CPU model fits, with flags as in cpu_model_extra_flags: EPYC-Rome,-xsaves,stibp",
        )

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], list[Any]]:
        """Return the columns and rows; exit with 2 if no host fits."""
        definitions = self._definitions(parsed_args.cpu_map)
        hosts = _hosts(parsed_args.paths, parsed_args.connect)
        # All of them: two files of one host are an error also where only one counts.
        groups = group_hosts(hosts, definitions)
        guest = _guest(parsed_args, groups, definitions)
        if parsed_args.host:
            hosts = _select(hosts, parsed_args.host)
            groups = group_hosts(hosts, definitions)
        self.tell(f"{pluralize(len(hosts), 'host')}, {pluralize(len(groups), 'group')}.")
        if parsed_args.baseline:
            return BASELINE_COLUMNS, [_baseline_row(each) for each in common_cpus(hosts, definitions)]
        if guest is None:
            return GROUP_COLUMNS, _group_rows(groups, definitions)
        cpu, domain_type = guest
        self.tell(f"CPU: {escape_line(str(cpu))}")
        found = [(group, fit(group, cpu, definitions, domain_type)) for group in groups]
        self.exit_code = 0 if any(each.fits for _, each in found) else NO_HOST
        return FIT_COLUMNS, [
            (group.number, _cpu(group.cpu), len(group.hosts), _names(group.names), each.answer, each.reason)
            for group, each in found
        ]

    def _definitions(self, directory: str | None) -> CpuDefinitions:
        from os_prefilter.adapters.libvirt.cpu_documents import CPU_MAP, definitions_from  # noqa: PLC0415

        if directory is None and not os.path.isdir(CPU_MAP):  # noqa: PTH112 - as elsewhere
            self.tell(
                f"No CPU map: {CPU_MAP} does not exist, so CPU models cannot be compared with one another. Install "
                "libvirt's library here, or copy that directory from a host and give --cpu-map.",
                warning=True,
            )
            return NO_DEFINITIONS
        return definitions_from(CPU_MAP if directory is None else directory)


def _hosts(paths: Sequence[str], uris: Sequence[str]) -> list[HostCpu]:
    from os_prefilter.adapters.libvirt.cpu_documents import host_cpus_from  # noqa: PLC0415

    if not paths and not uris:
        raise DocumentError(
            "PATH", "give files or directories with the output of 'virsh domcapabilities', or --connect."
        )
    connected = []
    for uri in uris:
        from os_prefilter.adapters.libvirt.host import LibvirtHost  # noqa: PLC0415
        from os_prefilter.adapters.nova_conf import LibvirtSettings  # noqa: PLC0415

        connected.append(LibvirtHost(uri, LibvirtSettings()).cpu())
    return [*connected, *host_cpus_from(paths)]


def _select(hosts: Sequence[HostCpu], names: Sequence[str]) -> list[HostCpu]:
    unknown = sorted(set(names) - {host.host for host in hosts})
    if unknown:
        raise DocumentError(f"--host {quote(unknown[0])}", "there is no such host in the files. Correct the name.")
    return [host for host in hosts if host.host in names]


def _guest(
    arguments: argparse.Namespace, groups: Sequence[Group], definitions: CpuDefinitions
) -> tuple[Cpu, str] | None:
    """Return the CPU and the domain type of the server that the arguments name, if they name one."""
    if arguments.from_host is not None:
        return guest_on(arguments.from_host, groups)
    if arguments.guest is not None:
        from os_prefilter.adapters.libvirt.cpu_documents import guest_cpu_from  # noqa: PLC0415

        return guest_cpu_from(arguments.guest, read_bytes(arguments.guest))
    if arguments.model is not None:
        cpu = _model(arguments.model, {name for group in groups for models in group.model_lists for name in models})
        _check_flags(cpu, groups, definitions)
        return cpu, ""
    return None


def _model(text: str, known: Iterable[str]) -> Cpu:
    """Return the CPU of ``cpu_models`` and ``cpu_model_extra_flags``, which Nova reads in any case of letters."""
    model, *flags = (each.strip() for each in text.split(","))
    names = {flag.lstrip("+-").lower(): "disable" if flag.startswith("-") else "require" for flag in flags}
    if not model or "" in names or not text.isprintable():
        raise DocumentError(f"--model {quote(text)}", "give MODEL, or MODEL,FLAG,-FLAG without empty parts.")
    model = {name.lower(): name for name in known}.get(model.lower(), model)
    return Cpu("", model, features=tuple(sorted(names.items())))


def _check_flags(cpu: Cpu, groups: Sequence[Group], definitions: CpuDefinitions) -> None:
    """Refuse flags that neither the CPU map nor a host has: a mistyped one would be a feature that no host has.

    :raises DocumentError: if there is one
    """
    known = {name for group in groups if group.cpu for name, _ in group.cpu.features}
    unknown = sorted(definitions.undefined(name for name, _ in cpu.features) - known)
    if unknown and cpu.model in definitions.models:
        raise DocumentError(
            f"--model flag {quote(unknown[0])}",
            "neither the CPU map nor a host has this CPU feature. Correct it, or give the newest libvirt's --cpu-map.",
        )


def _group_rows(groups: Sequence[Group], definitions: CpuDefinitions) -> list[tuple[Any, ...]]:
    return [
        (
            each.group.number,
            each.group.architecture,
            each.group.domain_type,
            _cpu(each.group.cpu),
            len(each.group.hosts),
            _names(each.group.names),
            *(_numbers(numbers) for numbers in (each.targets, each.sources, each.unknown)),
        )
        for each in migrations(groups, definitions)
    ]


def _baseline_row(common: Common) -> tuple[Any, ...]:
    cpu = common.cpu
    flags = [*cpu.required, *(f"-{name}" for name in cpu.disabled)] if cpu else []
    return (
        common.architecture,
        common.domain_type,
        common.vendor,
        len(common.hosts),
        cpu.model if cpu else "",
        Cell(flags, ", ".join(flags), ",".join(flags)),
        Cell(list(common.left_out), join_first_names(common.left_out, _MOST_NAMES), " ".join(common.left_out)),
        Cell(list(common.usable), str(len(common.usable)), " ".join(common.usable)),
        common.reason,
    )


def _cpu(cpu: Cpu | None) -> Any:
    if cpu is None:
        return Cell(None, "not known", "not known")
    counts = [f"{sign}{len(names)}" for sign, names in (("+", cpu.required), ("-", cpu.disabled)) if names]
    text = " ".join(filter(None, (cpu.vendor, cpu.model, *counts)))
    value = {
        "vendor": cpu.vendor,
        "model": cpu.model,
        "require": list(cpu.required),
        "disable": list(cpu.disabled),
    }
    return Cell(value, text, text)


def _names(names: Sequence[str]) -> Cell:
    return Cell(list(names), join_first_names(names, _MOST_NAMES), " ".join(map(escape_line, names)))


def _numbers(numbers: Sequence[int]) -> Cell:
    text = " ".join(map(str, numbers))
    return Cell(list(numbers), text, text)
