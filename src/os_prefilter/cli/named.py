"""Images, flavors and servers that arguments name: in a file, or in the cloud."""

import argparse

from os_prefilter.cli.cloud import connection_of, has_cloud
from os_prefilter.documents.files import is_file
from os_prefilter.errors import DocumentError
from os_prefilter.request.from_json import flavor_from, image_from, read_json
from os_prefilter.request.spec import Flavor, Image, RequestSpec

# The adapters are imported late: the SDK takes a second, and many commands need none.


def image_in(arguments: argparse.Namespace, name: str) -> Image:
    """Return the image in a file or, where there is no such file, of this name or ID in the cloud.

    :raises DocumentError: if there is none, or several.
    :raises PrefilterError: if the cloud does not answer.
    """
    if has_cloud(arguments) and not is_file(name):
        from os_prefilter.adapters.cloud.connection import image_named  # noqa: PLC0415

        return image_named(connection_of(arguments), name)
    return image_from(_of_kind(read_json(name), name, "image", ("disk_format", "properties"), ("ram", "vcpus")), name)


def flavor_in(arguments: argparse.Namespace, name: str) -> Flavor:
    """Return the flavor in a file or, where there is no such file, of this name or ID in the cloud.

    :raises DocumentError: if there is none, or several.
    :raises PrefilterError: if the cloud does not answer.
    """
    if has_cloud(arguments) and not is_file(name):
        from os_prefilter.adapters.cloud.connection import flavor_named  # noqa: PLC0415

        return flavor_named(connection_of(arguments), name)
    return read_flavor(name)


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


def server_in(arguments: argparse.Namespace, server: str) -> RequestSpec:
    """Return what the server that the arguments name asks for.

    :raises DocumentError: if there is none.
    :raises PrefilterError: if there is no cloud to ask, or it does not answer.
    """
    connection = connection_of(arguments)
    if connection is None:
        raise DocumentError("--server", "it needs a cloud to ask. Give --os-cloud NAME.")
    from os_prefilter.adapters.cloud.connection import request_of_server  # noqa: PLC0415

    return request_of_server(connection, server)
