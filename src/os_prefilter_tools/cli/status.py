# SPDX-License-Identifier: Apache-2.0

"""``os-prefilter-status upgrade check``: what to correct before a restart.

It is run before nova-scheduler starts with new code or options. It reads
nova.conf as nova-scheduler does, only reads Placement, and prints what
``nova-status upgrade check`` prints: a table, or with ``--json`` a document.
Its exit codes are those of oslo.upgradecheck.
"""

from __future__ import annotations

import argparse
import logging
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stdout
from importlib.metadata import PackageNotFoundError, version
from io import StringIO
from logging.handlers import BufferingHandler

from keystoneauth1.exceptions import Unauthorized
from oslo_config import cfg
from oslo_upgradecheck import upgradecheck
from oslo_upgradecheck.upgradecheck import Code, Result

from os_prefilter.adapters.nova_conf import (
    SWITCHES,
    available_filters,
    files_read,
    novas_filters_on,
    read_conf,
    unsupported_nova,
)
from os_prefilter.adapters.placement.client import (
    MICROVERSION,
    PlacementClient,
)
from os_prefilter.adapters.placement.from_conf import client_from
from os_prefilter.common.errors import (
    DocumentError,
    PlacementError,
    PrefilterError,
)
from os_prefilter.common.quoting import escape_line, shorten
from os_prefilter.common.trait_names import CUSTOM_PREFIX
from os_prefilter.hosts.drivers.nova_releases import NOVA_RELEASES
from os_prefilter.request.filter_contract import LoadedFilter
from os_prefilter.rules.reader import read_rules
from os_prefilter.service import Service
from os_prefilter.service.conf import GROUP
from os_prefilter.service.deferral import Unreported
from os_prefilter.service.facts_from_conf import RULES
from os_prefilter.service.traits_to_report import traits_named_by
from os_prefilter.vocabulary import opt_in_traits
from os_prefilter.vocabulary.options import Options
from os_prefilter_agent.cli.configuration import add_configuration_arguments
from os_prefilter_agent.cli.program import flush, prepare_output
from os_prefilter_tools.adapters.fleet_reader import read_fleet
from os_prefilter_tools.operators.readiness import compute_nodes, readiness

_OURS, _NOVAS = (
    "os_prefilter.nova.activate",
    "nova.scheduler.filters.all_filters",
)
_BOTH_LINES = (
    f"Write both lines: 'available_filters = {_NOVAS}' and 'available_filters"
    f" = {_OURS}'."
)
_PATH_NEEDED = "Give a path, or leave the option out."
# The facts that the entry point for Nova provides. Nothing queries them here.
_FACTS = (
    "minimum_compute_version",
    "owner_coverage",
    "reports",
    "known_traits",
    "nested_providers",
)
_MOST_TRAITS = 5
_UNAUTHORIZED = 401
# oslo.upgradecheck's exit code for an error that is not the result of a check.
_UNEXPECTED = 255


_DESCRIPTION = (
    "'os-prefilter-status upgrade check' says what to correct before"
    " nova-scheduler is restarted. It reads the configuration of"
    " nova-scheduler and Placement, and changes nothing. Exit code: 0 success,"
    " 1 warning, 2 failure, 255 an unexpected error."
)
_NOT_CHECKED = Result(
    Code.WARNING, "Not checked: correct the failures above first."
)


def _failing(check: Callable[[Checks], Result]) -> Callable[..., Result]:
    """Make an error of ours the failure of a check."""

    def run(checks: Checks) -> Result:
        try:
            return check(checks)
        except PrefilterError as error:
            return Result(Code.FAILURE, str(error))

    return run


class Checks(upgradecheck.UpgradeCommands):
    """The checks, in order: later ones need what the first ones read."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf
        self._service: Service | None = None
        self._placement: PlacementClient | None = None
        self._known: frozenset[str] = frozenset()

    def _get_details(self, upgrade_check_result: Result) -> str | None:
        """Wrap the text, but not within the name of a command or option.

        Everything else is as oslo.upgradecheck does it.
        """
        lines = textwrap.wrap(
            upgrade_check_result.details or "",
            60,
            subsequent_indent="  ",
            break_on_hyphens=False,
        )
        return "\n".join(lines) or None

    @_failing
    def _configuration(self) -> Result:
        logger = logging.getLogger("os_prefilter")
        handler = BufferingHandler(sys.maxsize)
        handler.setLevel(logging.WARNING)
        logger.addHandler(handler)
        try:
            self._service = Service.from_conf(
                self._conf, dict.fromkeys(_FACTS, lambda _context: None)
            )
        finally:
            logger.removeHandler(handler)
        warnings = [record.getMessage() for record in handler.buffer]
        names = [each.name for each in self._service.filters]
        shadow = [each.name for each in self._service.shadow]
        if not names and not shadow:
            warnings.append(
                "[prefilter] enabled_filters is empty: no filter runs."
            )
        enabled = f"Request filters enabled: {', '.join(names) or 'none'}."
        if shadow:
            enabled += f" In shadow: {', '.join(shadow)}."
        return (
            Result(Code.WARNING, " ".join(warnings))
            if warnings
            else Result(Code.SUCCESS, enabled)
        )

    @_failing
    def _entry_point(self) -> Result:
        found = available_filters(self._conf, files_read(self._conf))
        option = "[filter_scheduler] available_filters"
        if _OURS not in found:
            text = (
                f"{option} has no line with {_OURS}: nova-scheduler runs no"
                f" filter of os-prefilter. {_BOTH_LINES}"
            )
            unused = self._service is not None and not self._filters
            return Result(Code.WARNING if unused else Code.FAILURE, text)
        # Single filters of Nova may be listed instead.
        if not any(
            each.startswith("nova.scheduler.filters.") for each in found
        ):
            text = (
                f"{option} lacks Nova's own host filters, so that"
                f" nova-scheduler does not start. {_BOTH_LINES}"
            )
            return Result(Code.FAILURE, text)
        counts = self._service is not None and self._conf[GROUP].count_hosts
        if counts and found[-1] != _OURS:
            text = (
                f"{option} has lines after {_OURS}: of two classes with one"
                " name Nova takes the later, so that the host filters of"
                " these lines are not counted, and the reason of a failed"
                f" boot does not name them. Make the line with {_OURS} the"
                " last one."
            )
            return Result(Code.WARNING, text)
        enabled = self._service.filters if self._service else ()
        replaced = {each.name for each in enabled}
        said = []
        for name in sorted(
            novas_filters_on(self._conf, files_read(self._conf))
        ):
            what = (
                f"{name} runs in place of Nova's filter"
                if name in replaced
                else f"Nova's filter runs, as {name} is not enabled"
            )
            said.append(f"[scheduler] {SWITCHES[name]}: {what}.")
        return Result(Code.SUCCESS, " ".join(said) or None)

    @_failing
    def _placement_api(self) -> Result:
        client = client_from(self._conf, files_read(self._conf))
        try:
            newest = client.newest_microversion()
            if int(newest.partition(".")[2]) < int(
                MICROVERSION.partition(".")[2]
            ):
                text = (
                    f"Placement has microversions up to {newest}, and"
                    f" {MICROVERSION} is needed. Upgrade Placement."
                )
                return Result(Code.FAILURE, text)
            # Only here Placement looks at the token.
            self._known = client.traits()
        except PlacementError as error:
            if (
                isinstance(error.__cause__, Unauthorized)
                or getattr(error, "status", 0) == _UNAUTHORIZED
            ):
                advice = (
                    "The login was refused: correct the user and the password"
                    " in the section [placement]."
                )
                return Result(Code.FAILURE, f"{error} {advice}")
            raise
        self._placement = client
        return Result(Code.SUCCESS, f"Microversions up to {newest}.")

    @_failing
    def _traits(self) -> Result:
        if not self._service or not self._placement:
            return _NOT_CHECKED
        options = self._service.options
        missing = [
            (each, self._named_by(each, options) - self._known)
            for each in self._filters
        ]
        custom = {
            trait
            for _, traits in missing
            for trait in traits
            if trait.startswith(CUSTOM_PREFIX)
        }
        standard = {
            trait for _, traits in missing for trait in traits
        } - custom
        said = []
        if standard:
            said.append(
                f"Placement does not know {_of_filters(missing, standard)}."
                " The filters do not require them, so that a request may get"
                " a host that lacks the device. They come with a newer"
                " os-traits in Placement's environment; 'os-prefilter"
                " vocabulary list' has the releases."
            )
        if custom:
            said.append(
                f"Not created in Placement: {_of_filters(missing, custom)}."
                " nova-scheduler creates those of the vocabulary at its start,"
                " and requires them from then on. Create traits of your own"
                " rules by hand: openstack trait create NAME. Until then"
                " Placement refuses the requests that require them."
            )
        # A filter that waits requires none before the hosts have reported, and
        # that creates them.
        others = custom - opt_in_traits()
        fails = any(
            not self._waits(each, options) and traits & others
            for each, traits in missing
            if each in self._service.filters
        )
        return (
            Result(Code.FAILURE if fails else Code.WARNING, " ".join(said))
            if said
            else Result(Code.SUCCESS)
        )

    @_failing
    def _reports(self) -> Result:
        if not self._service or not self._placement:
            return _NOT_CHECKED
        filters, options = self._filters, self._service.options
        fleet = read_fleet(self._placement, inventories=False)
        if not compute_nodes(fleet):
            text = (
                "There is no compute node: no provider in Placement has the"
                " trait COMPUTE_NODE."
            )
            return Result(Code.WARNING, text)
        lines = readiness(fleet, filters, options)
        said = []
        for each in filters:
            silent = {
                name
                for line in lines
                if line.filter == each.name
                for name in line.unreported
            }
            if silent:
                how = (
                    "waits for"
                    if self._waits(each, options)
                    else "may exclude"
                )
                name = each.name
                if each in self._service.shadow:
                    name = f"{name} (in shadow)"
                said.append(
                    f"{name} {how} {Unreported.of(silent)} without a report."
                )
        if not said:
            return Result(
                Code.SUCCESS,
                "Every compute node has reported what the enabled filters"
                " require.",
            )
        advice = (
            "Run the agent on each; 'os-prefilter readiness' shows more. With"
            " [prefilter] wait_for_reports, filters wait for them."
        )
        return Result(Code.WARNING, " ".join((*said, advice)))

    @_failing
    def _versions(self) -> Result:
        try:
            nova = version("nova")
        except PackageNotFoundError:
            advice = (
                "Run the os-prefilter-status of nova-scheduler's environment."
            )
            return Result(
                Code.WARNING,
                f"Nova is not installed for {escape_line(sys.executable)}."
                f" {advice}",
            )
        if outside := unsupported_nova():
            return Result(Code.WARNING, outside)
        ours = (
            f"os-prefilter {version('os-prefilter')}, os-traits"
            f" {version('os-traits')}"
        )
        return Result(
            Code.SUCCESS,
            f"{ours}, Nova {nova} (supported:"
            f" {', '.join(map(str, NOVA_RELEASES))}).",
        )

    @property
    def _filters(self) -> tuple[LoadedFilter, ...]:
        service = self._service
        return service.filters + service.shadow if service else ()

    def _named_by(
        self, each: LoadedFilter, options: Options
    ) -> frozenset[str]:
        """Return the traits of a filter that must exist.

        nova-scheduler creates the ``CUSTOM_`` traits of rules.
        """
        of_rules = (
            read_rules(self._conf[GROUP].rules_dirs).rules.traits
            if RULES in each.facts
            else frozenset()
        )
        return traits_named_by(each, options).union(
            t for t in of_rules if not t.startswith(CUSTOM_PREFIX)
        )

    def _waits(self, each: LoadedFilter, options: Options) -> bool:
        """Return True if the filter requires nothing of unreported hosts."""
        return options.wait_for_reports and not each.nova_style

    _upgrade_checks = (
        ("Configuration", _configuration),
        ("Entry point", _entry_point),
        ("Placement API", _placement_api),
        ("Traits in Placement", _traits),
        ("Reports", _reports),
        ("Versions", _versions),
    )


def main(argv: Sequence[str]) -> int:
    """Run the command and return its exit code.

    0 success, 1 warning, 2 failure, 255 an unexpected error.
    """
    conf = cfg.ConfigOpts()
    upgradecheck.register_cli_options(conf, Checks(conf))
    prepare_output()
    try:
        options, others = _configuration_in(argv)
    except DocumentError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return int(Code.FAILURE)
    try:
        # oslo.config reads the options before the verb alone; people write
        # them behind it, as of any command.
        read_conf(
            options,
            "nova-scheduler",
            conf,
            args=others,
            description=_DESCRIPTION,
        )
        looked_at = files_read(conf)
        if not looked_at:
            raise DocumentError("/etc/nova", "there is no nova.conf.")
    except PrefilterError as error:
        print(  # noqa: T201
            f"The configuration cannot be read: {error} Correct it, or give"
            " --config-file.",
            file=sys.stderr,
        )
        return int(Code.FAILURE)
    # What client libraries log is in the failure of a check, without the
    # passwords.
    logging.getLogger().addHandler(logging.NullHandler())
    upgradecheck.CONF = conf
    if "--json" not in others:
        print(  # noqa: T201
            f"Configuration of nova-scheduler: {looked_at}.", file=sys.stderr
        )
    # oslo.upgradecheck would print a traceback where the reader of its output
    # has gone.
    with redirect_stdout(StringIO()) as text:
        code = int(upgradecheck.run(conf))
    return flush(code, _UNEXPECTED, text.getvalue())


def _configuration_in(
    argv: Sequence[str],
) -> tuple[Sequence[str], list[str]]:
    """Return the options that name paths, with their paths, and all others.

    :raises DocumentError: if such an option has no path
    """
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    add_configuration_arguments(parser, "")
    try:
        found, others = parser.parse_known_args(list(argv))
    except (argparse.ArgumentError, SystemExit) as error:
        without = getattr(error, "argument_name", None)
        if without:
            raise DocumentError(
                without, f"it needs a value. {_PATH_NEEDED}"
            ) from error
        # oslo.config says what is wrong.
        return [], list(argv)
    named: Sequence[str] = found.configuration
    if "" in named:
        option = named[named.index("") - 1]
        raise DocumentError(option, f"the value is empty. {_PATH_NEEDED}")
    return named, others


def _of_filters(
    missing: Iterable[tuple[LoadedFilter, frozenset[str]]], traits: set[str]
) -> str:
    """Return the first of these missing traits, and their filters."""
    filters = [each.name for each, of_one in missing if of_one & traits]
    return (
        f"{', '.join(shorten(sorted(traits), _MOST_TRAITS))}"
        f" ({', '.join(filters)})"
    )
