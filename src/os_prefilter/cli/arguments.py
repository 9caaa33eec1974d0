"""The arguments that several commands share, and what they stand for."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from oslo_config import cfg

from os_prefilter.conf import GROUP, register_opts
from os_prefilter.documents import flavor_from, image_from, read_json, request_spec_from
from os_prefilter.errors import ConfigurationError, DocumentError
from os_prefilter.operators.examples import example_requests
from os_prefilter.operators.fleet import Fleet, example_fleet, load_fleet
from os_prefilter.pipeline import Pipeline
from os_prefilter.plugins import installed_filters
from os_prefilter.request_spec import Flavor, Image, RequestSpec
from os_prefilter.texts import listed
from os_prefilter.vocabulary import opt_in_traits

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from os_prefilter.adapters.embedded import EmbeddedPlacement

# noop asks for nothing, and image_metadata asks for the sound model too.
_LEFT_OUT = frozenset(("noop", "sound_model"))


def add_request_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name a request."""
    group = parser.add_argument_group("the request")
    group.add_argument("--image", metavar="FILE", help="output of 'openstack image show -f json'")
    group.add_argument("--flavor", metavar="FILE", help="output of 'openstack flavor show -f json'")
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
    group.add_argument("--hosts", metavar="FILE", help="a fleet file in YAML; default: the bundled example fleet")


def request_from(arguments: argparse.Namespace) -> RequestSpec:
    """Return the request that the arguments name.

    :raises DocumentError: if a file or a KEY=VALUE is wrong, or no request is named.
    """
    spec = _base_request(arguments)
    if arguments.image:
        document = _of_kind(
            read_json(arguments.image), arguments.image, "image", ("disk_format", "properties"), ("ram", "vcpus")
        )
        spec = replace(spec, image=image_from(document, arguments.image))
    if arguments.flavor:
        spec = replace(spec, flavor=read_flavor(arguments.flavor))
    if arguments.property:
        image = spec.image or Image()
        spec = replace(
            spec, image=replace(image, properties={**image.properties, **_pairs(arguments.property, "--property")})
        )
    if arguments.extra_spec:
        extra_specs = {**spec.flavor.extra_specs, **_pairs(arguments.extra_spec, "--extra-spec")}
        spec = replace(spec, flavor=replace(spec.flavor, extra_specs=extra_specs))
    return spec


def read_flavor(path: str) -> Flavor:
    """Return the flavor in a file.

    :raises DocumentError: if there is none in it.
    """
    return flavor_from(_of_kind(read_json(path), path, "flavor", ("ram", "memory_mb", "vcpus"), ()), path)


def _of_kind(
    document: dict[str, object], path: str, kind: str, expected: tuple[str, ...], unexpected: tuple[str, ...]
) -> dict[str, object]:
    """Return the document; refuse one that is something else, which would ask for nothing."""
    if not any(name in document for name in expected) or any(name in document for name in unexpected):
        raise DocumentError(path, f"this is no {kind}. Expected the output of 'openstack {kind} show -f json'.")
    return document


def _base_request(arguments: argparse.Namespace) -> RequestSpec:
    if arguments.request_spec and arguments.example:
        raise DocumentError("--example", "it cannot go with --request-spec. Give one of the two.")
    if arguments.request_spec:
        return request_spec_from(read_json(arguments.request_spec), arguments.request_spec)
    if arguments.example:
        examples = example_requests()
        if arguments.example not in examples:
            raise DocumentError("--example", f"there is no {arguments.example!r}. Names: {listed(examples)}.")
        return examples[arguments.example].request_spec()
    if not (arguments.image or arguments.flavor or arguments.property or arguments.extra_spec):
        raise DocumentError(
            "no request", "give --image, --flavor, --request-spec, --example, --property or --extra-spec."
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
    """Return the fleet that the arguments name.

    :raises DocumentError: if its file is wrong.
    """
    return load_fleet(arguments.hosts) if arguments.hosts else example_fleet()


def embedded_placement(fleet: Fleet) -> "AbstractContextManager[EmbeddedPlacement]":
    """Return a real Placement in this process that holds ``fleet``."""
    # cliff imports every command at its start, and Placement takes seconds to import.
    from os_prefilter.adapters.embedded import EmbeddedPlacement  # noqa: PLC0415

    return EmbeddedPlacement(fleet)


def pipeline_from(arguments: argparse.Namespace, fleet: Fleet) -> Pipeline:
    """Return the pipeline that the arguments name.

    What a deployment would say of itself is read off ``fleet``: whether every compute reports the owner trait, and,
    unless the configuration file says it, which traits hosts report that Nova does not.

    :raises ConfigurationError: if the configuration cannot be served.
    """
    conf = cfg.ConfigOpts()
    register_opts(conf)
    files = [arguments.config_file] if arguments.config_file else []
    try:
        conf([], project="os-prefilter", default_config_files=files, default_config_dirs=[])
        enabled = [name for names in arguments.filter for name in names.split(",")] or conf[GROUP].enabled_filters
        configured = conf[GROUP].reported_traits
    except (cfg.Error, OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{arguments.config_file}: {error}") from error
    if not enabled and not arguments.config_file:
        # Not those of other packages: one that does not load would break every command.
        ours = (name for name, target in installed_filters().items() if target.startswith("os_prefilter."))
        enabled = [name for name in ours if name not in _LEFT_OUT]
    if not enabled:
        raise ConfigurationError(
            f"{arguments.config_file}: [prefilter] enabled_filters names no filter. Add one there, or give --filter."
        )
    conf.set_override("enabled_filters", enabled, GROUP)
    if not configured:
        conf.set_override("reported_traits", sorted(fleet.traits & opt_in_traits()), GROUP)
    reported = fleet.every_compute_has(conf[GROUP].owner_trait)
    version = conf[GROUP].owner_compute_version if reported else 0
    facts = {"minimum_compute_version": lambda _context: version, "owner_coverage": lambda _context: reported}
    return Pipeline.from_conf(conf, facts)
