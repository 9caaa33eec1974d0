"""The arguments of ``os-prefilter audit``, and what they stand for."""

import argparse
from collections.abc import Iterable, Iterator, Sequence

from os_prefilter.cli.arguments import pipeline_from
from os_prefilter.cli.cloud import connection_of, has_cloud, note
from os_prefilter.cli.configuration import read_configuration
from os_prefilter.cli.named import flavor_in
from os_prefilter.cli.output import add_force_argument
from os_prefilter.conf import GROUP
from os_prefilter.errors import DocumentError
from os_prefilter.fleet.model import Fleet
from os_prefilter.operators.audit.image_groups import Change
from os_prefilter.operators.audit.image_list import Broken, read_images
from os_prefilter.operators.examples import example_requests
from os_prefilter.pipeline.pipeline import Pipeline
from os_prefilter.request.spec import Flavor, Image


def add_audit_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what an audit has beside the filters and hosts of other commands."""
    group = parser.add_argument_group("the audit")
    group.add_argument(
        "--images",
        metavar="FILE",
        help="a JSON array of what 'openstack image show -f json' prints, an answer of GET /v2/images, JSON lines; "
        "default: the images of the cloud, else the bundled examples",
    )
    group.add_argument(
        "--flavor",
        metavar="FILE",
        action="append",
        default=[],
        help="output of 'openstack flavor show -f json', or with a cloud the name or ID of one there (repeatable): "
        "each image with each flavor; default: each image alone, on hosts of any size",
    )
    group.add_argument(
        "--before",
        metavar="NAME",
        action="append",
        default=[],
        help="a filter that is enabled already (comma-separated or repeated); default: those of --config-file, or none",
    )
    group.add_argument(
        "--enable",
        "--filter",
        metavar="NAME",
        action="append",
        default=[],
        help="a filter to enable beside them (comma-separated or repeated); default: all that come with the library",
    )
    group.add_argument(
        "--only", choices=("changed", "unschedulable"), help="list only images that lose hosts, or lose all their hosts"
    )
    group.add_argument(
        "--html", metavar="FILE", help="write the audit as a web page that needs no network; an older page is replaced"
    )
    add_force_argument(group, "with --html, replace a file that is no such page as well")


def images_from(arguments: argparse.Namespace, broken: Broken) -> Iterable[Image]:
    """Return the images that the arguments name.

    :raises DocumentError: if a file is no list of images.
    :raises PrefilterError: if the cloud does not answer.
    """
    if arguments.images:
        return read_images(arguments.images, broken)
    if has_cloud(arguments):
        from os_prefilter.adapters.cloud.connection import images  # noqa: PLC0415

        return images(connection_of(arguments), broken)
    note(arguments, "Images: the bundled examples. Give --os-cloud NAME or --images FILE for others.")
    return _example_images()


def _example_images() -> Iterator[Image]:
    for example in example_requests().values():
        image = example.request_spec().image
        if image:
            image.name = example.name
            yield image


def flavors_from(arguments: argparse.Namespace) -> list[Flavor]:
    """Return the flavors that the arguments name.

    :raises DocumentError: if there is none in a file, or two have one name.
    :raises PrefilterError: if the cloud does not answer.
    """
    flavors: list[Flavor] = []
    for path in arguments.flavor:
        flavor = flavor_in(arguments, path)
        flavor.name = flavor.name or path
        if any(each.name == flavor.name for each in flavors):
            raise DocumentError(path, "another --flavor has the same name. Give each a name of its own.")
        flavors.append(flavor)
    return flavors


def change_from(arguments: argparse.Namespace, fleet: Fleet) -> Change:
    """Return the filters before and after those to be enabled are.

    :raises ConfigurationError: if the configuration cannot be served.
    """

    def pipeline(names: list[str], config_file: str | None = arguments.config_file) -> Pipeline:
        return pipeline_from(
            argparse.Namespace(**{**vars(arguments), "filter": names, "config_file": config_file}), fleet
        )

    before = _names(arguments.before) or read_configuration(arguments.config_file)[GROUP].enabled_filters
    # Without names and a file: all that come with the library.
    enable = _names(arguments.enable) or [each.name for each in pipeline([], None).filters]
    after = [*before, *(name for name in enable if name not in before)]
    return Change(pipeline(before) if before else Pipeline(()), pipeline(after))


def _names(given: Sequence[str]) -> list[str]:
    return [name for names in given for name in names.split(",")]
