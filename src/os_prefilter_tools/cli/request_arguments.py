# SPDX-License-Identifier: Apache-2.0

"""Arguments that name a request, and the request that they name."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace

from os_prefilter.adapters.from_json import (
    VOLUME,
    flavor_from,
    image_from,
    kind_of,
    not_of_kind,
    read_json,
    request_spec_from,
    without_key,
)
from os_prefilter.common.errors import DocumentError
from os_prefilter.common.quoting import quote
from os_prefilter.documents.files import is_file
from os_prefilter.request.spec import Flavor, Image, RequestSpec
from os_prefilter_agent.cli.context import Context, add_repeatable
from os_prefilter_agent.cli.listing import Listing
from os_prefilter_tools.cli.filters_and_hosts import add_pipeline_arguments
from os_prefilter_tools.operators.examples import example_requests


def add_request_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name a request."""
    group = parser.add_argument_group("the request")
    text = (
        "request an image: output of 'openstack image show -f json', or with a"
        " cloud its name or ID; or boot from a volume: output of 'openstack"
        " volume show -f json'"
    )
    group.add_argument("--image", metavar="FILE", help=text)
    text = (
        "request a flavor: output of 'openstack flavor show -f json', or with"
        " a cloud its name or ID"
    )
    group.add_argument("--flavor", metavar="FILE", help=text)
    one_of = group.add_mutually_exclusive_group()
    one_of.add_argument(
        "--server",
        metavar="ID",
        help="repeat the request of this server in the cloud",
    )
    text = "read a request spec from this file, as Nova stores it in JSON"
    one_of.add_argument("--request-spec", metavar="FILE", help=text)
    text = "take this bundled request; 'os-prefilter demo' shows them"
    one_of.add_argument(
        "--example", metavar="NAME", choices=example_requests(), help=text
    )
    add_repeatable(
        group, "--property", "KEY=VALUE", "add an image property (repeatable)"
    )
    add_repeatable(
        group,
        "--extra-spec",
        "KEY=VALUE",
        "add a flavor extra spec (repeatable)",
    )
    add_repeatable(
        group, "--hint", "KEY=VALUE", "add a scheduler hint (repeatable)"
    )
    group.add_argument(
        "--project", metavar="ID", help="make the request as this project"
    )
    group.add_argument(
        "--availability-zone",
        metavar="ZONE",
        help="request this availability zone",
    )


@dataclass(frozen=True)
class RequestArguments:
    """Parsed arguments that name a request; fields are named as options."""

    image: str | None
    flavor: str | None
    server: str | None
    request_spec: str | None
    example: str | None
    property: Sequence[str]
    extra_spec: Sequence[str]
    hint: Sequence[str]
    project: str | None
    availability_zone: str | None

    def read(self, context: Context) -> RequestSpec:
        """Return the request.

        :raises DocumentError: if a file or a KEY=VALUE is wrong, or no request
            is named.
        """
        spec = self._base(context)
        if self.image:
            image, is_volume = image_named(self.image, context)
            is_bfv = spec.is_bfv or is_volume
            spec = replace(spec, image=image, is_bfv=is_bfv)
        if self.flavor:
            spec = replace(spec, flavor=flavor_named(self.flavor, context))
        if self.property:
            image = spec.image or Image()
            properties = {
                **image.properties,
                **_unique_pairs(self.property, "--property"),
            }
            spec = replace(spec, image=replace(image, properties=properties))
        if self.extra_spec:
            extra_specs = {
                **spec.flavor.extra_specs,
                **_unique_pairs(self.extra_spec, "--extra-spec"),
            }
            spec = replace(
                spec, flavor=replace(spec.flavor, extra_specs=extra_specs)
            )
        # As the client sends them: a key with several values has a list of
        # them.
        hints: dict[str, list[str]] = {}
        for key, value in _pairs(self.hint, "--hint"):
            hints.setdefault(key, []).append(value)
        return replace(
            spec,
            scheduler_hints={**spec.scheduler_hints, **hints},
            project_id=self.project or spec.project_id,
            availability_zone=self.availability_zone or spec.availability_zone,
        )

    def _base(self, context: Context) -> RequestSpec:
        """Return the request to which the other arguments add."""
        if self.server:
            if not context.has_cloud:
                raise DocumentError(
                    "--server",
                    "it needs a cloud to ask. Give --os-cloud NAME.",
                )
            from os_prefilter_tools.adapters.cloud.servers import (  # noqa: PLC0415
                request_of_server,
            )

            return request_of_server(context.connection, self.server)
        if self.request_spec:
            return request_spec_from(
                read_json(self.request_spec), self.request_spec
            )
        if self.example:
            return example_requests()[self.example].request_spec()
        if not any(vars(self).values()):
            raise DocumentError(
                "no request",
                "give --image, --flavor, --server, --request-spec, --example,"
                " --property, --extra-spec, --hint, --project or"
                " --availability-zone.",
            )
        # Placement refuses a query without resources; a flavor file replaces
        # these.
        return RequestSpec(
            flavor=Flavor(vcpus=1, memory_mb=512, name="1 VCPU, 512 MiB")
        )


def _pairs(texts: Sequence[str], option: str) -> list[tuple[str, str]]:
    pairs = []
    for text in texts:
        # Keys contain colons and values anything: the first = divides.
        key, sign, value = text.partition("=")
        if not key or not sign:
            raise DocumentError(option, f"{text!r} is not KEY=VALUE.")
        pairs.append((key, value))
    return pairs


def _unique_pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """Return values by key; an image or a flavor has one value of each."""
    found: dict[str, str] = {}
    for key, value in _pairs(texts, option):
        if key in found:
            raise DocumentError(
                option,
                f"{quote(key)} is given twice. Give it once, with the value"
                " that counts.",
            )
        found[key] = value
    return found


def image_named(name: str, context: Context) -> tuple[Image, bool]:
    """Return the image in a file, else of this name or ID in the cloud.

    Also return whether it is in the metadata of a volume.

    :raises DocumentError: if there is none, or several.
    :raises PrefilterError: if the cloud does not respond.
    """
    if context.has_cloud and not is_file(name):
        from os_prefilter_tools.adapters.cloud import (  # noqa: PLC0415
            resources,
        )

        return resources.image_named(context.connection, name), False
    document = read_json(name)
    return image_from(document, name), kind_of(document) == VOLUME


def flavor_named(name: str, context: Context) -> Flavor:
    """Return the flavor as :func:`image_named` does the image."""
    if context.has_cloud and not is_file(name):
        from os_prefilter_tools.adapters.cloud import (  # noqa: PLC0415
            resources,
        )

        return resources.flavor_named(context.connection, name)
    document = without_key("flavor", read_json(name))
    if kind_of(document) != "a flavor":
        raise not_of_kind("flavor", document, name)
    return flavor_from(document, name)


class RequestListing(Listing):
    """A listing about one request."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_request_arguments(parser)
        add_pipeline_arguments(self, parser)
