"""Arguments that several commands share, and what they name: a request, filters, hosts."""

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from oslo_config import cfg
from oslo_log import log as logging

from os_prefilter.adapters.from_json import flavor_from, image_from, read_json, request_spec_from
from os_prefilter.common.errors import ConfigurationError, DocumentError
from os_prefilter.common.quoting import join_names
from os_prefilter.documents.files import is_file, not_utf8, open_file
from os_prefilter.filters.host_aggregates import FACT as AGGREGATES
from os_prefilter.filters.routed_networks import FACT as NETWORKS
from os_prefilter.pipeline.decision import Decision
from os_prefilter.request.filter_contract import NEEDS
from os_prefilter.request.remarks import notes_on_named_traits
from os_prefilter.request.spec import Flavor, Image, RequestSpec
from os_prefilter.service import Service
from os_prefilter.service.conf import (
    GROUP,
    check_values,
    misspelt_names,
    options_from,
    register_opts,
    warn_of_misspelt_names,
)
from os_prefilter.service.facts_from_conf import RULES, derived_facts, facts_from
from os_prefilter.service.loading import installed_filters, load_filters
from os_prefilter.service.report_scope import ReportScope, report_scope
from os_prefilter.vocabulary import TRAITS_OF_EMULATION, opt_in_traits
from os_prefilter.vocabulary.options import Options
from os_prefilter_tools.cli.cloud import (
    add_cloud_argument,
    cloud_adapter,
    connection_of,
    has_cloud,
    note,
    option_name,
    placement_from,
)
from os_prefilter_tools.fleet.model import Fleet
from os_prefilter_tools.fleet.reader import example_fleet, load_fleet
from os_prefilter_tools.operators.candidates import CandidatesFound, ask_live_placement, ask_placement
from os_prefilter_tools.operators.examples import example_requests
from os_prefilter_tools.operators.names import notes_on_names
from os_prefilter_tools.operators.readiness import coverage_of

if TYPE_CHECKING:
    from os_prefilter.adapters.placement.coverage import LiveReported

# The adapters are imported late: the SDK and Placement take seconds to import, and many commands need neither.

MOST_CANDIDATES = 1000
"""Maximum number of allocation candidates that a command's embedded Placement returns: Nova's own limit."""


def add_repeatable(parser: Any, names: Sequence[str], metavar: str, text: str) -> None:
    """Add an option that may be given several times to a parser or a group.

    :param text: the help
    """
    parser.add_argument(*names, metavar=metavar, action="append", default=[], help=text)


def add_request_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name a request."""
    group = parser.add_argument_group("the request")
    for kind, one in (("image", "an image"), ("flavor", "a flavor")):
        text = f"output of 'openstack {kind} show -f json'; with a cloud, also the name or ID of {one} there"
        group.add_argument(f"--{kind}", metavar="FILE", help=text)
    group.add_argument("--server", metavar="ID", help="with a cloud: the request of this server")
    group.add_argument("--request-spec", metavar="FILE", help="a request spec as Nova stores it in JSON")
    group.add_argument("--example", metavar="NAME", help="a bundled request; 'os-prefilter demo' lists them")
    add_repeatable(group, ["--property"], "KEY=VALUE", "additional image property (repeatable)")
    add_repeatable(group, ["--extra-spec"], "KEY=VALUE", "additional flavor extra spec (repeatable)")
    add_repeatable(group, ["--hint"], "KEY=VALUE", "additional scheduler hint (repeatable)")
    group.add_argument("--project", metavar="ID", help="the ID of the project that makes the request")
    group.add_argument("--availability-zone", metavar="ZONE", help="the availability zone that the request names")


def add_pipeline_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name the filters and the hosts."""
    group = parser.add_argument_group("filters and hosts")
    text = (
        "a request filter to run (comma-separated or repeated, in this order); default: the filters that --config-file "
        "enables, else all filters of the library"
    )
    add_repeatable(group, ["--filter"], "NAME", text)
    group.add_argument(
        "--config-file", metavar="FILE", help="a configuration file with the group [prefilter], e.g. nova.conf"
    )
    group.add_argument(
        "--hosts", metavar="FILE", help="a fleet file in YAML; default: the cloud's hosts, else the bundled example"
    )
    add_cloud_argument(group, "the cloud in clouds.yaml that has the hosts, images, flavors and servers")


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
        properties = {**image.properties, **_pairs(arguments.property, "--property")}
        spec = replace(spec, image=replace(image, properties=properties))
    if arguments.extra_spec:
        extra_specs = {**spec.flavor.extra_specs, **_pairs(arguments.extra_spec, "--extra-spec")}
        spec = replace(spec, flavor=replace(spec.flavor, extra_specs=extra_specs))
    return replace(
        spec,
        scheduler_hints={**spec.scheduler_hints, **_hints(arguments.hint)},
        project_id=arguments.project or spec.project_id,
        availability_zone=arguments.availability_zone or spec.availability_zone,
    )


def _hints(texts: Sequence[str]) -> dict[str, list[str]]:
    """Return hints as the client sends them: a key with several values has a list of them."""
    hints: dict[str, list[str]] = {}
    for text in texts:
        for key, value in _pairs([text], "--hint").items():
            hints.setdefault(key, []).append(value)
    return hints


def _base_request(arguments: argparse.Namespace) -> RequestSpec:
    given = [name for name in ("request_spec", "example", "server") if getattr(arguments, name)]
    if given[1:]:
        first, second = map(option_name, given[:2])
        raise DocumentError(second, f"it cannot go with {first}. Give one of the two.")
    if arguments.server:
        if not has_cloud(arguments):
            raise DocumentError("--server", "it needs a cloud to ask. Give --os-cloud NAME.")
        request: RequestSpec = cloud_adapter().request_of_server(connection_of(arguments), arguments.server)
        return request
    if arguments.request_spec:
        return request_spec_from(read_json(arguments.request_spec), arguments.request_spec)
    if arguments.example:
        examples = example_requests()
        if arguments.example not in examples:
            raise DocumentError("--example", f"there is no {arguments.example!r}. Names: {join_names(examples)}.")
        return examples[arguments.example].request_spec()
    named = ("image", "flavor", "property", "extra_spec", "hint", "project", "availability_zone")
    if not any(getattr(arguments, name) for name in named):
        raise DocumentError(
            "no request",
            "give --image, --flavor, --server, --request-spec, --example, --property, --extra-spec, --hint, --project "
            "or --availability-zone.",
        )
    # Placement refuses a query without resources; a flavor file replaces these.
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


def image_in(arguments: argparse.Namespace, name: str) -> Image:
    """Return the image in a file or, if there is no such file, of this name or ID in the cloud.

    :raises DocumentError: if there is none, or several.
    :raises PrefilterError: if the cloud does not answer.
    """
    if has_cloud(arguments) and not is_file(name):
        image: Image = cloud_adapter().image_named(connection_of(arguments), name)
        return image
    return image_from(_of_kind(name, "image", {"disk_format", "properties"}, {"ram", "vcpus"}), name)


def flavor_in(arguments: argparse.Namespace, name: str) -> Flavor:
    """Return the flavor as :func:`image_in` does the image."""
    if has_cloud(arguments) and not is_file(name):
        flavor: Flavor = cloud_adapter().flavor_named(connection_of(arguments), name)
        return flavor
    return flavor_from(_of_kind(name, "flavor", {"ram", "memory_mb", "vcpus"}, set()), name)


def _of_kind(path: str, kind: str, expected: set[str], unexpected: set[str]) -> dict[str, object]:
    """Return the document in a file; refuse one of something else, which would require nothing."""
    document = read_json(path)
    if expected.isdisjoint(document) or not unexpected.isdisjoint(document):
        raise DocumentError(path, f"this is no {kind}. Expected the output of 'openstack {kind} show -f json'.")
    return document


def asks_live_placement(arguments: argparse.Namespace) -> bool:
    """Whether the hosts are those of the cloud, so that its own Placement can be asked."""
    return has_cloud(arguments) and not arguments.hosts


def fleet_from(
    arguments: argparse.Namespace, *, traits_only: bool = False, progress: Callable[[int, int], None] | None = None
) -> Fleet:
    """Return the fleet that the arguments name: of a file, of the cloud, or the example, with a note.

    :param traits_only: read a cloud without inventories: one request for each trait, not for each host
    :param progress: called with the number of these requests that are done, and of all
    :raises DocumentError: if its file is wrong.
    :raises PrefilterError: if the cloud does not answer.
    """
    if arguments.hosts:
        return load_fleet(arguments.hosts)
    if not has_cloud(arguments):
        note(arguments, "Hosts: the bundled example. Give --os-cloud NAME or --hosts FILE for others.")
        return example_fleet()
    from os_prefilter_tools.adapters.fleet_reader import read_fleet  # noqa: PLC0415

    placement = placement_from(arguments)
    if traits_only:
        return read_fleet(placement, inventories=False, progress=progress)
    return read_fleet(placement, cloud_adapter().host_aggregates(connection_of(arguments)))


def reported_from(arguments: argparse.Namespace) -> "Fleet | LiveReported":
    """Return what a service must know of the hosts; of a cloud, that takes two or three requests.

    :raises DocumentError, PrefilterError: as :func:`fleet_from`
    """
    if not asks_live_placement(arguments):
        return fleet_from(arguments)
    from os_prefilter.adapters.placement.coverage import LiveReported  # noqa: PLC0415

    return LiveReported(placement_from(arguments))


class Backend(NamedTuple):
    """The filters and the Placement that the arguments name."""

    service: Service
    ask: Callable[[RequestSpec, Decision], CandidatesFound]
    """Asks Placement for the candidates of a request to which the service was applied."""
    fleet: Fleet | None
    """None for the Placement of a cloud."""


@contextmanager
def backend_from(arguments: argparse.Namespace) -> Iterator[Backend]:
    """Yield the service and the Placement that the arguments name: the cloud's, read-only, or one with their fleet.

    :raises PrefilterError: as :func:`reported_from` and :func:`service_from`
    """
    if asks_live_placement(arguments):
        service = service_from(arguments, reported_from(arguments))
        yield Backend(service, partial(ask_live_placement, placement=placement_from(arguments)), None)
        return
    fleet = fleet_from(arguments)
    service = service_from(arguments, fleet)
    from os_prefilter_tools.adapters.embedded import EmbeddedPlacement  # noqa: PLC0415

    with EmbeddedPlacement(fleet, most_candidates=MOST_CANDIDATES) as embedded:
        yield Backend(service, partial(ask_placement, placement=embedded.client), fleet)


def read_configuration(path: str | None, *, with_logging: bool = False) -> cfg.ConfigOpts:
    """Return the configuration in a file with our options registered; their defaults without a file.

    :param with_logging: register oslo.log's options as well
    :raises DocumentError: if there is no such file, or it cannot be read
    :raises ConfigurationError: if it is no configuration file, or an option of ours has a wrong value
    """
    conf = cfg.ConfigOpts()
    register_opts(conf)
    if with_logging:
        logging.register_options(conf)
    with open_file(path) if path else nullcontext():
        try:
            conf([], project="os-prefilter", default_config_files=[path] if path else [], default_config_dirs=[])
        except SystemExit as error:
            # oslo.log's options are also command-line options: argparse prints what is wrong, without the file's name.
            raise ConfigurationError(f"{path}: an option of oslo.log has a wrong value. Correct it.") from error
        except UnicodeDecodeError as error:
            raise not_utf8(path, error) from error
        except cfg.Error as error:
            from os_prefilter.adapters.nova_conf import reason_of  # noqa: PLC0415

            # Without its cause, which has the line, in which a password may be.
            raise ConfigurationError(f"{path}: {reason_of(error)} Correct it.") from None
    check_values(conf)
    return conf


def scope_from(arguments: argparse.Namespace, enabled: Iterable[str], options: Options) -> ReportScope:
    """Return what hosts report: for the filters of the configuration file, and for those that are used here.

    :param enabled: the names of those
    """
    of_file = read_configuration(arguments.config_file)[GROUP].enabled_filters
    return report_scope(load_filters(list(dict.fromkeys((*of_file, *enabled))), provided=None), options)


def service_from(arguments: argparse.Namespace, fleet: "Fleet | LiveReported") -> Service:
    """Return the service that the arguments name.

    The deployment facts come from ``fleet``: whether every compute node reports the owner trait, whether any provider
    is nested or shared and, unless the configuration file names them, which traits hosts report that Nova does not.

    :raises ConfigurationError: if the configuration cannot be served.
    """
    conf = read_configuration(arguments.config_file)
    warn_of_misspelt_names(conf)
    enabled = _enabled_filters(arguments, conf, fleet)
    options = options_from(conf)
    if not options.reported_traits:
        # Once: a fleet looks for them on each of its providers.
        in_use = fleet.traits
        emulated = frozenset(architecture for trait, architecture in TRAITS_OF_EMULATION.items() if trait in in_use)
        options = replace(
            options, reported_traits=tuple(sorted(in_use & opt_in_traits())), emulated_architectures=emulated
        )
    if arguments.filter:
        # The option is about the filters that the file enables. A name that no filter has is a mistake in any case.
        others = installed_filters().keys() - set(enabled)
        options = replace(options, wait_for_answers=tuple(set(options.wait_for_answers) - others))
    facts = _facts_of(fleet, conf, scope_from(arguments, enabled, options), arguments)
    filters = load_filters(enabled, NEEDS | facts.keys() | derived_facts(conf, facts))
    # Without metrics and history: a command's requests are not those of the service.
    return Service(
        filters,
        options,
        facts_from(conf, facts, filters),
        remark=lambda request: (*notes_on_names(request), *notes_on_named_traits(request)),
    )


def _enabled_filters(
    arguments: argparse.Namespace, conf: cfg.ConfigOpts, fleet: "Fleet | LiveReported"
) -> Sequence[str]:
    """Return the names of the filters that the arguments name, or their file, or else of all of the library.

    :raises ConfigurationError: if there is none, or one has no rules to apply
    """
    enabled: Sequence[str] = [name for names in arguments.filter for name in names.split(",")]
    enabled = enabled or conf[GROUP].enabled_filters
    if not enabled and not arguments.config_file:
        # Not those of other packages: one that does not load would break every command.
        ours = [name for name, target in installed_filters().items() if target.startswith("os_prefilter.")]
        # Rules exist only in a configuration.
        left_out = {RULES}
        if not isinstance(fleet, Fleet) and not getattr(arguments, "availability_zone", None):
            # Nova need not be asked for its aggregates.
            left_out.add(AGGREGATES)
        filters = load_filters(ours, provided=None)
        enabled = [each.name for each in filters if each.declaration.by_default and left_out.isdisjoint(each.facts)]
    if not enabled:
        text = f"{arguments.config_file}: [prefilter] enabled_filters names no filter. Add one there, or give --filter."
        raise ConfigurationError(" ".join((text, *misspelt_names(conf))))
    with_rules = [each.name for each in load_filters(enabled, provided=None) if RULES in each.facts]
    if with_rules and not conf[GROUP].rules_dirs:
        advice = "give --config-file with [prefilter] rules_dirs."
        raise ConfigurationError(f"The filter {with_rules[0]} has no rules: {advice}")
    return enabled


def _facts_of(
    fleet: "Fleet | LiveReported", conf: cfg.ConfigOpts, scope: ReportScope, arguments: argparse.Namespace
) -> dict[str, Callable[[Any], Any]]:
    """Return the deployment facts of a fleet."""
    reported = fleet.every_compute_has(conf[GROUP].owner_trait)
    version = conf[GROUP].owner_compute_version if reported else 0
    facts: dict[str, Callable[[Any], Any]] = {
        "minimum_compute_version": lambda _context: version,
        "owner_coverage": lambda _context: reported,
        "nested_providers": lambda _context: fleet.has_nested_providers,
        # Neither a fleet file nor Placement tells which networks have which segments.
        NETWORKS: lambda _context: {},
    }
    if isinstance(fleet, Fleet):
        return facts | {
            "answers": lambda _context: coverage_of(fleet, scope),
            AGGREGATES: lambda _context: fleet.aggregates.values(),
        }
    return facts | {
        "answers": lambda _context: fleet.coverage(scope),
        AGGREGATES: lambda _context: cloud_adapter().host_aggregates(connection_of(arguments)),
        "known_traits": lambda _context: fleet.known_traits(),
    }
