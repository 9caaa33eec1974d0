"""``os-prefilter audit``: the effect of enabling filters on all images."""

import argparse
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from os_prefilter.common.errors import DocumentError, PrefilterError
from os_prefilter.common.quoting import escape_line, pluralize, shorten
from os_prefilter.request.spec import Flavor, Image
from os_prefilter.service import Service
from os_prefilter.service.conf import GROUP
from os_prefilter_tools.cli.arguments import (
    add_pipeline_arguments,
    add_repeatable,
    flavor_in,
    fleet_from,
    read_configuration,
    service_from,
)
from os_prefilter_tools.cli.audit_page import format_loss, page, server_page
from os_prefilter_tools.cli.audit_servers import (
    add_server_arguments,
    check_arguments,
    server_document,
    server_rows,
    server_summary,
    servers_from,
)
from os_prefilter_tools.cli.cloud import UntilStopped, cloud_adapter, connection_of, has_cloud, note, option_name
from os_prefilter_tools.cli.listing import NO_HOST, Cell, Listing, cut, first_of
from os_prefilter_tools.cli.output import add_force_argument, check_output, progress_on, write_output
from os_prefilter_tools.cli.snapshot import summary
from os_prefilter_tools.fleet.model import Fleet
from os_prefilter_tools.operators.audit.destinations import Destinations
from os_prefilter_tools.operators.audit.entry_list import Broken, LeftOut
from os_prefilter_tools.operators.audit.image_audit import (
    BECOMES_UNSCHEDULABLE,
    CHANGED,
    MOST_UNKNOWN,
    Audit,
    FilterChange,
    ImageLine,
    ImageVerdict,
    audit_images,
)
from os_prefilter_tools.operators.audit.image_list import read_images
from os_prefilter_tools.operators.audit.server_audit import STRANDED, ServerVerdict, audit_servers
from os_prefilter_tools.operators.examples import example_requests

_MOST_NAMES = 3
PAGE_MARK = '<!doctype html>\n<html lang="en">\n<head>\n<meta name="generator" content="os-prefilter audit">\n'
"""The beginning of each page; a file that has it is replaced."""
_ONLY = {"changed": CHANGED, "unschedulable": BECOMES_UNSCHEDULABLE}


class AuditImages(Listing):
    """Show the hosts of each image before and after enabling filters, and which requirements remove the others."""

    # Here --filter names the filters to enable.
    conflict_handler = "resolve"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_pipeline_arguments(parser)
        _add_arguments(parser)
        add_server_arguments(parser)

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], list[Any]]:
        check_arguments(parsed_args)
        check_output(parsed_args.html, force=parsed_args.force, mark=PAGE_MARK)
        if parsed_args.servers is not None:
            return self._audit_servers(parsed_args)
        left_out = LeftOut()
        with progress_on(self.app.stderr, is_wanted=not self.is_quiet) as progress, _each_warning_once():
            fleet = fleet_from(parsed_args, traits_only=True, progress=partial(progress, "hosts by trait"))
            change = _change(parsed_args, fleet)
            images = images_from(parsed_args, left_out)
            found = audit_images(images, fleet, change, flavors=_flavors(parsed_args), progress=progress)
        if not found.images:
            advice = "What 'openstack image list' prints has no properties."
            raise _nothing_to_audit("image", parsed_args.images, left_out, f"an image: %s {advice}")
        self.exit_code = NO_HOST if found.count(*BECOMES_UNSCHEDULABLE) else 0
        filters = {"before": _filters_of(change.before), "after": _filters_of(change.after)}
        self.about = {"filters": filters, "summary": _document(found, left_out)}
        self.tell(f"{_judged_with(change, parsed_args)} Before: {', '.join(filters['before']) or 'none'}.")
        if parsed_args.html:
            text = page(found, change, left_out, fleet.taken_at)
            write_output(text, parsed_args.html, self.app.stdout, force=parsed_args.force, mark=PAGE_MARK, private=True)
        judged = "Traits alone were read: whether a host has a resource class is not judged."
        self._tell_summary(fleet, judged, _summary(found), left_out)
        verdicts = _ONLY.get(parsed_args.only, frozenset(ImageVerdict))
        lines = (line for line in found.lines if line.verdict in verdicts)
        waiting = ("Waiting",) * found.is_waiting
        columns = ("Images", "Count", "Flavor", "Before", *waiting, "After", "Verdict", "Lost to")
        is_csv = parsed_args.formatter == "csv"
        return columns, [_row(line, is_csv=is_csv, is_waiting=found.is_waiting) for line in lines]

    def _audit_servers(self, arguments: argparse.Namespace) -> tuple[tuple[str, ...], list[Any]]:
        left_out = LeftOut()
        with progress_on(self.app.stderr, is_wanted=not self.is_quiet) as progress, _each_warning_once():
            fleet = fleet_from(arguments)
            change = _change(arguments, fleet)
            without = _names(arguments.without)
            with UntilStopped() as reading:
                servers = reading.items(servers_from(arguments, left_out))
                found = audit_servers(servers, Destinations(fleet, change.after), without, progress, left_out)
        not_read = escape_line(reading.reason)
        if not_read and not found.servers:
            raise PrefilterError(
                f"no server was read: {not_read.rstrip('.')}. Give it more time, or a file of servers."
            )
        if not found.servers:
            raise _nothing_to_audit("server", arguments.servers, left_out, "a server that can be judged: %s")
        # Only 0 is an all-clear.
        is_clear = not (not_read or left_out.count or found.count(ServerVerdict.UNKNOWN))
        self.exit_code = NO_HOST if found.count(*STRANDED) else int(not is_clear)
        self.about = {"filters": _filters_of(change.after), "summary": server_document(found, left_out, not_read)}
        self.tell(_judged_with(change, arguments))
        if arguments.html:
            text = server_page(found, change.after, left_out, fleet, not_read)
            write_output(text, arguments.html, self.app.stdout, force=arguments.force, mark=PAGE_MARK, private=True)
        if not_read:
            self.tell(f"Not all servers were read, only the first {found.servers}: {not_read}", warning=True)
        judged = "The fleet has no inventories: each host counts as large enough and empty; only traits are judged."
        self._tell_summary(fleet, judged, server_summary(found), left_out)
        escape = cell if arguments.formatter == "csv" else str
        return server_rows(found, only_stranded=arguments.only == "unschedulable", escape=escape)

    def _tell_summary(self, fleet: Fleet, without_inventories: str, lines: Iterable[str], left_out: LeftOut) -> None:
        if fleet.taken_at:
            self.tell(summary(fleet), warning=bool(fleet.changed_while_read))
        if not fleet.has_inventories:
            self.tell(without_inventories, warning=bool(fleet.changed_while_read))
        for text in lines:
            self.tell(text)
        for text in first_of("Left out", left_out.first, left_out.count):
            self.tell(text, warning=True)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the audit")
    group.add_argument(
        "--images",
        metavar="FILE",
        help="a JSON array of outputs of 'openstack image show -f json', a response of GET /v2/images, or JSON lines; "
        "default: the images of the cloud, else the bundled examples",
    )
    flavor = (
        "output of 'openstack flavor show -f json', or with a cloud the name or ID of a flavor (repeatable): audit "
        "each image with each flavor; default: each image alone, on hosts of any size"
    )
    add_repeatable(group, ["--flavor"], "FILE", flavor)
    before = (
        "a filter that is already enabled (comma-separated or repeated); default: with --enable those of "
        "--config-file, else none"
    )
    add_repeatable(group, ["--before"], "NAME", before)
    enable = (
        "a filter to enable in addition (comma-separated or repeated); default: the filters that --config-file "
        "enables, else all filters of the library"
    )
    add_repeatable(group, ["--enable", "--filter"], "NAME", enable)
    group.add_argument(
        "--only", choices=("changed", "unschedulable"), help="list only images that lose hosts, or lose all their hosts"
    )
    group.add_argument(
        "--html", metavar="FILE", help="write the audit as a self-contained web page; an older page is replaced"
    )
    add_force_argument(group, "with --html, replace any existing file")


def _nothing_to_audit(what: str, path: str | None, left_out: LeftOut, expected: str) -> DocumentError:
    """Return the error of an empty list, such as a command that failed has written: it would look like an all-clear.

    :param expected: what no entry is, with a place for the problem of the first one
    """
    where = path or "the cloud"
    if left_out.count:
        return DocumentError(where, f"no entry is {expected % left_out.first[0]}")
    advice = "Check the command that wrote it." if path else "Check the project and the roles of the login."
    return DocumentError(where, f"it has no {what}, so that there is nothing to audit. {advice}")


def images_from(arguments: argparse.Namespace, broken: Broken) -> Iterable[Image]:
    """Return the images that the arguments name: of a file, of the cloud, or the examples, with a note."""
    if arguments.images:
        return read_images(arguments.images, broken)
    if has_cloud(arguments):
        images: Iterable[Image] = cloud_adapter().images(connection_of(arguments), broken)
        return images
    note(arguments, "Images: the bundled examples. Give --os-cloud NAME or --images FILE for others.")
    return _example_images()


def _example_images() -> Iterator[Image]:
    for example in example_requests().values():
        image = example.request_spec().image
        if image:
            image.name = example.name
            yield image


def _flavors(arguments: argparse.Namespace) -> list[Flavor]:
    flavors: list[Flavor] = []
    for path in arguments.flavor:
        flavor = flavor_in(arguments, path)
        flavor.name = flavor.name or path
        if any(each.name == flavor.name for each in flavors):
            raise DocumentError(path, "another --flavor has the same name. Give each a name of its own.")
        flavors.append(flavor)
    return flavors


def _change(arguments: argparse.Namespace, fleet: Fleet) -> FilterChange:
    """Return the services before and after the filters are enabled."""

    def service(names: list[str]) -> Service:
        return service_from(argparse.Namespace(**{**vars(arguments), "filter": names}), fleet)

    before, enable = _names(arguments.before), _names(arguments.enable)
    if enable:
        before = before or read_configuration(arguments.config_file)[GROUP].enabled_filters
    else:
        enable = _filters_of(service([]))
    after = [*before, *(name for name in enable if name not in before)]
    return FilterChange(service(before) if before else Service(), service(after))


def _judged_with(change: FilterChange, arguments: argparse.Namespace) -> str:
    """Return the line that names the filters, and where they come from."""
    named = [escape_line(arguments.config_file)] if arguments.config_file else []
    named += [option_name(each) for each in ("before", "enable") if getattr(arguments, each)]
    of = " and ".join(named) or "all of the library; --config-file FILE names those that are enabled"
    return f"Filters: {', '.join(_filters_of(change.after))} ({of})."


def _filters_of(service: Service) -> list[str]:
    return [each.name for each in service.filters]


def _names(given: Sequence[str]) -> list[str]:
    return [name for names in given for name in names.split(",")]


def _row(line: ImageLine, *, is_csv: bool, is_waiting: bool) -> tuple[Any, ...]:
    names, flavor = "; ".join(line.names), line.flavor
    if is_csv:
        names, flavor = cell(names), cell(flavor)
    first = shorten([cut(name) for name in line.names[:_MOST_NAMES]], _MOST_NAMES, line.images)
    lost = [format_loss(loss) for loss in line.losses]
    lost += [f"only together: {line.combined}"] * bool(line.combined)
    losses = [
        {**loss.cause._asdict(), "hosts_lacking": loss.lacking, "hosts_lacking_only_this": loss.lacking_only}
        for loss in line.losses
    ]
    return (
        Cell(list(line.names), "\n".join(first), names),
        line.images,
        flavor,
        *(each.bit_count() for each in (line.before, *[line.waiting] * is_waiting, line.after)),
        f"{line.verdict}: {line.reason}" if line.reason else str(line.verdict),
        Cell(losses, "\n".join(lost), "; ".join(lost)),
    )


def cell(text: str) -> str:
    """Return text that a spreadsheet does not execute as a formula: tenants name images."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def _document(result: Audit, left_out: LeftOut) -> dict[str, Any]:
    """Return the summary for JSON and YAML."""
    return {
        "images": result.images,
        "flavors": result.flavors,
        "hosts": result.hosts,
        "verdicts": {str(verdict): result.count(verdict) for verdict in ImageVerdict},
        "not_met": [{**cause._asdict(), "images": images} for cause, images in result.unserved],
        "unused_hosts": list(result.unused),
        "newly_unused_hosts": list(result.newly_unused),
        "not_required_yet": dict(result.waits),
        "not_required": dict(result.unknown),
        "left_out": left_out.as_document(),
    }


def _summary(result: Audit) -> Iterator[str]:
    flavors = f" with {pluralize(result.flavors, 'flavor')} each" * bool(result.flavors)
    groups = pluralize(len(result.lines), "group")
    yield f"{pluralize(result.images, 'image')}{flavors}, in {groups}, on {pluralize(result.hosts, 'host')}."
    if result.lines:
        yield (
            f"Become unschedulable: {result.count(*BECOMES_UNSCHEDULABLE)}. "
            f"Lose hosts: {result.count(ImageVerdict.LOSES)}. "
            f"Were unschedulable before: {result.count(ImageVerdict.ALREADY, ImageVerdict.ALREADY_REJECTED)}."
        )
        yield from first_of(
            "No host meets",
            [
                f"{cause.rule} {cause.trait} ({cause.because}; {pluralize(images, 'image')})"
                for cause, images in result.unserved
            ],
        )
        yield from first_of("Hosts that serve no image", result.unused)
        yield from first_of("Hosts of these that served one before", result.newly_unused)
    yield from first_of("Not required yet", [f"{text} ({pluralize(number, 'image')})" for text, number in result.waits])
    if result.is_waiting:
        yield (
            "Waiting: the hosts until every compute node has reported. After: the hosts from then on, where one that "
            "has not reported counts as one that cannot."
        )
    counted = f", of which {MOST_UNKNOWN} are counted" * (len(result.unknown) >= MOST_UNKNOWN)
    unknown = [f"{text} ({pluralize(number, 'image')})" for text, number in result.unknown]
    yield from first_of(f"Not required{counted}", unknown)


@contextmanager
def _each_warning_once() -> Iterator[None]:
    """Log each warning about a flavor or the configuration once, not for each image or service."""
    loggers = [logging.getLogger(f"os_prefilter.{name}") for name in ("request.extra_specs", "service.conf.reader")]
    seen: set[str] = set()

    def is_new(record: logging.LogRecord) -> bool:
        text = record.getMessage()
        is_first = text not in seen
        seen.add(text)
        return is_first

    for logger in loggers:
        logger.addFilter(is_new)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_new)
