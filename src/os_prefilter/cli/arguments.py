"""The arguments that several commands share, and what they stand for."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from os_prefilter.cli.cloud import add_cloud_argument, connection_of, has_cloud, note
from os_prefilter.cli.configuration import read_configuration
from os_prefilter.cli.named import flavor_in, image_in, server_in
from os_prefilter.common.quoting import join_names
from os_prefilter.conf import GROUP
from os_prefilter.errors import ConfigurationError, DocumentError
from os_prefilter.filters.loading import installed_filters
from os_prefilter.fleet.model import Fleet
from os_prefilter.fleet.reader import example_fleet, load_fleet
from os_prefilter.operators.examples import example_requests
from os_prefilter.operators.readiness import coverage_of
from os_prefilter.pipeline.pipeline import Pipeline
from os_prefilter.pipeline.report_gates import Coverage
from os_prefilter.request.from_json import read_json, request_spec_from
from os_prefilter.request.spec import Flavor, Image, RequestSpec
from os_prefilter.vocabulary import opt_in_traits

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from os_prefilter.adapters.embedded import EmbeddedPlacement

MOST_CANDIDATES = 1000
"""How many allocation candidates the embedded Placement of a command returns: Nova's own limit."""

# noop asks for nothing, image_metadata asks for the sound model too, and rules are in a configuration file or nowhere.
_LEFT_OUT = frozenset(("noop", "rules", "sound_model"))


class Reported(Protocol):
    """What a pipeline must know of hosts."""

    @property
    def traits(self) -> frozenset[str]:
        """Each trait that any provider has."""

    def every_compute_has(self, trait: str) -> bool:
        """Whether every compute node has ``trait``, and there is one."""

    def coverage(self) -> Coverage:
        """Return which compute nodes have said whether they can."""


def add_request_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name a request."""
    group = parser.add_argument_group("the request")
    group.add_argument(
        "--image",
        metavar="FILE",
        help="output of 'openstack image show -f json'; with a cloud, also the name or ID of an image there",
    )
    group.add_argument(
        "--flavor",
        metavar="FILE",
        help="output of 'openstack flavor show -f json'; with a cloud, also the name or ID of a flavor there",
    )
    group.add_argument("--server", metavar="ID", help="with a cloud: what this server asks for")
    group.add_argument("--request-spec", metavar="FILE", help="a request spec as Nova stores it in JSON")
    group.add_argument("--example", metavar="NAME", help="a bundled request; 'os-prefilter demo' lists them")
    group.add_argument(
        "--property", metavar="KEY=VALUE", action="append", default=[], help="an image property more (repeatable)"
    )
    group.add_argument(
        "--extra-spec", metavar="KEY=VALUE", action="append", default=[], help="a flavor extra spec more (repeatable)"
    )


def add_pipeline_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say which filters run, and on which hosts."""
    group = parser.add_argument_group("filters and hosts")
    group.add_argument(
        "--filter",
        metavar="NAME",
        action="append",
        default=[],
        help="a request filter to run (comma-separated or repeated, in this order); default: those that --config-file "
        "enables, else all that come with the library",
    )
    group.add_argument(
        "--config-file", metavar="FILE", help="a configuration file with the group [prefilter], e.g. nova.conf"
    )
    group.add_argument(
        "--hosts", metavar="FILE", help="a fleet file in YAML; default: the cloud's, or else the bundled example fleet"
    )
    add_cloud_argument(group, "the cloud in clouds.yaml whose hosts, images, flavors and servers are meant")


def request_from(arguments: argparse.Namespace) -> RequestSpec:
    """Return the request that the arguments name.

    :raises DocumentError: if a file or a KEY=VALUE is wrong, or no request is named.
    """
    spec = _base_request(arguments)
    if arguments.image:
        spec = replace(spec, image=image_in(arguments, arguments.image))
    if arguments.flavor:
        spec = replace(spec, flavor=flavor_in(arguments, arguments.flavor))
    if arguments.property:
        image = spec.image or Image()
        spec = replace(
            spec, image=replace(image, properties={**image.properties, **_pairs(arguments.property, "--property")})
        )
    if arguments.extra_spec:
        extra_specs = {**spec.flavor.extra_specs, **_pairs(arguments.extra_spec, "--extra-spec")}
        spec = replace(spec, flavor=replace(spec.flavor, extra_specs=extra_specs))
    return spec


def _base_request(arguments: argparse.Namespace) -> RequestSpec:
    given = [name for name in ("request_spec", "example", "server") if getattr(arguments, name)]
    if given[1:]:
        first, second = (f"--{name.replace('_', '-')}" for name in given[:2])
        raise DocumentError(second, f"it cannot go with {first}. Give one of the two.")
    if arguments.server:
        return server_in(arguments, arguments.server)
    if arguments.request_spec:
        return request_spec_from(read_json(arguments.request_spec), arguments.request_spec)
    if arguments.example:
        examples = example_requests()
        if arguments.example not in examples:
            raise DocumentError("--example", f"there is no {arguments.example!r}. Names: {join_names(examples)}.")
        return examples[arguments.example].request_spec()
    if not (arguments.image or arguments.flavor or arguments.property or arguments.extra_spec):
        raise DocumentError(
            "no request", "give --image, --flavor, --server, --request-spec, --example, --property or --extra-spec."
        )
    # Placement wants to be asked for something; a flavor file replaces it.
    return RequestSpec(flavor=Flavor(vcpus=1, memory_mb=512, name="1 VCPU, 512 MiB"))


def _pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    pairs = {}
    for text in texts:
        # Keys contain colons and values anything: the first = divides.
        key, sign, value = text.partition("=")
        if not key or not sign:
            raise DocumentError(option, f"{text!r} is not KEY=VALUE.")
        pairs[key] = value
    return pairs


def fleet_from(arguments: argparse.Namespace) -> Fleet:
    """Return the fleet that the arguments name: of a file, or else of the cloud, read as a whole.

    Where they name none, it is the example, and a note says so.

    :raises DocumentError: if its file is wrong.
    :raises PrefilterError: if the cloud does not answer.
    """
    if arguments.hosts:
        return load_fleet(arguments.hosts)
    connection = connection_of(arguments)
    if connection is None:
        note(arguments, "Hosts: the bundled example. Give --os-cloud NAME or --hosts FILE for others.")
        return example_fleet()
    from os_prefilter.adapters.cloud.connection import host_aggregates, placement_of  # noqa: PLC0415
    from os_prefilter.adapters.placement.fleet_reader import read_fleet  # noqa: PLC0415

    return read_fleet(placement_of(connection), host_aggregates(connection))


def asks_live_placement(arguments: argparse.Namespace) -> bool:
    """Whether the hosts are those of the cloud, and it can be asked about them itself."""
    return has_cloud(arguments) and not arguments.hosts


def traits_from(arguments: argparse.Namespace, progress: "Callable[[int, int], None] | None" = None) -> Fleet:
    """Return the fleet that the arguments name; of a cloud, without inventories: one request for each trait.

    :param progress: called with the requests that are done, and all that there are
    :raises DocumentError: if its file is wrong.
    :raises PrefilterError: if the cloud does not answer.
    """
    if not asks_live_placement(arguments):
        return fleet_from(arguments)
    from os_prefilter.adapters.cloud.connection import placement_of  # noqa: PLC0415
    from os_prefilter.adapters.placement.fleet_reader import read_fleet  # noqa: PLC0415

    return read_fleet(placement_of(connection_of(arguments)), inventories=False, progress=progress)


def reported_from(arguments: argparse.Namespace) -> Fleet | Reported:
    """Return what the hosts that the arguments name report, which is all that a pipeline must know of them.

    Of a cloud, that is two or three requests; :func:`fleet_from` takes some for each trait and each host.

    :raises DocumentError: if its file is wrong.
    :raises PrefilterError: if the cloud does not answer.
    """
    if not asks_live_placement(arguments):
        return fleet_from(arguments)
    from os_prefilter.adapters.cloud.connection import placement_of  # noqa: PLC0415
    from os_prefilter.adapters.placement.reported import LiveReported  # noqa: PLC0415

    return LiveReported(placement_of(connection_of(arguments)))


def embedded_placement(fleet: Fleet) -> "AbstractContextManager[EmbeddedPlacement]":
    """Return a real Placement in this process that holds ``fleet``, and lists :data:`MOST_CANDIDATES`."""
    # cliff imports every command at its start, and Placement takes seconds to import.
    from os_prefilter.adapters.embedded import EmbeddedPlacement  # noqa: PLC0415

    return EmbeddedPlacement(fleet, most_candidates=MOST_CANDIDATES)


def pipeline_from(arguments: argparse.Namespace, fleet: Fleet | Reported) -> Pipeline:
    """Return the pipeline that the arguments name.

    What a deployment would say of itself is read off ``fleet``: whether every compute reports the owner trait, and,
    unless the configuration file says it, which traits hosts report that Nova does not.

    :raises ConfigurationError: if the configuration cannot be served.
    """
    conf = read_configuration(arguments.config_file)
    enabled = [name for names in arguments.filter for name in names.split(",")] or conf[GROUP].enabled_filters
    if not enabled and not arguments.config_file:
        # Not those of other packages: one that does not load would break every command.
        ours = (name for name, target in installed_filters().items() if target.startswith("os_prefilter."))
        enabled = [name for name in ours if name not in _LEFT_OUT]
    if not enabled:
        raise ConfigurationError(
            f"{arguments.config_file}: [prefilter] enabled_filters names no filter. Add one there, or give --filter."
        )
    if "rules" in enabled and not conf[GROUP].rules_dirs:
        raise ConfigurationError("The filter rules has no rules: give --config-file with [prefilter] rules_dirs.")
    conf.set_override("enabled_filters", enabled, GROUP)
    if not conf[GROUP].reported_traits:
        conf.set_override("reported_traits", sorted(fleet.traits & opt_in_traits()), GROUP)
    reported = fleet.every_compute_has(conf[GROUP].owner_trait)
    version = conf[GROUP].owner_compute_version if reported else 0
    facts = {
        "minimum_compute_version": lambda _context: version,
        "owner_coverage": lambda _context: reported,
        "answers": lambda _context: coverage_of(fleet) if isinstance(fleet, Fleet) else fleet.coverage(),
    }
    if arguments.filter:
        # The option is about the filters that the file enables. A name that no filter has is a mistake in any case.
        others = installed_filters().keys() - set(enabled)
        waiting = [name for name in conf[GROUP].wait_for_answers if name not in others]
        conf.set_override("wait_for_answers", waiting, GROUP)
    # Nobody serves a command's.
    conf.set_override("metrics", False, GROUP)
    return Pipeline.from_conf(conf, facts)
