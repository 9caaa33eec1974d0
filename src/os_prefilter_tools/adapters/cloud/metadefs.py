# SPDX-License-Identifier: Apache-2.0

"""Plan and write changes of Glance's metadata definitions.

Each change is one request, so that values which are still served can be chosen
all the time. Withdrawn values are removed first: where Glance fails half-way,
it offers too little rather than too much.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote as quote_url

from os_prefilter.adapters.cloud_service import CloudError
from os_prefilter.common.quoting import escape_line, pluralize, quote
from os_prefilter_tools.adapters.cloud.service import CloudService, unexpected

_NAMESPACES = "/metadefs/namespaces"
# What is written of a namespace itself; Glance resets what a PUT leaves out.
_FIELDS = ("display_name", "description", "visibility")


class MetadefChange(NamedTuple):
    """One request to Glance, and what it changes."""

    what: str
    """What the change does.

    ``delete``, ``remove``, ``replace``, ``update``, ``dissociate``,
    ``associate``, ``add`` or ``create``.
    """
    namespace: str
    method: str
    path: str
    body: Mapping[str, Any] | None = None
    name: str = ""
    """The property; empty for a namespace."""
    before: Mapping[str, Any] | None = None
    """The definition of the property before."""


# Removals first; a namespace is created as a whole.
_ORDER = (
    "delete",
    "remove",
    "replace",
    "update",
    "dissociate",
    "associate",
    "add",
    "create",
)


def plan_metadefs(
    connection: Any, wanted: Iterable[Mapping[str, Any]], mark: str
) -> list[MetadefChange]:
    """Return the changes that give Glance these namespaces, in order.

    A namespace without properties is to be deleted. Other namespaces are not
    read.

    :param connection: an ``openstack.connection.Connection``
    :param wanted: namespaces, as Glance takes them
    :param mark: the tag of a namespace that may be changed
    :raises CloudError: Glance does not respond or refuses, or a namespace to
        be changed lacks the mark or is protected
    """
    glance = CloudService(connection, "image")
    changes: list[MetadefChange] = []
    for namespace in wanted:
        name = str(namespace["namespace"])
        where = f"Glance, the namespace {quote(name)}"
        found = glance.find(_path(name))
        try:
            needed, tags = (
                list(_changes(namespace, found)),
                list((found or {}).get("tags") or ()),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise unexpected(where, found) from error
        if found is not None and needed:
            if {"name": mark} not in tags:
                reason = (
                    "it was not made by this command: it lacks the tag"
                    f" {quote(mark)}. Nothing was written"
                )
                raise CloudError(
                    where,
                    reason,
                    "Rename or delete it, if its values are to come from"
                    " here.",
                )
            if found.get("protected"):
                advice = (
                    "Remove the protection: 'openstack image metadef"
                    f" namespace set --unprotected {name}'."
                )
                raise CloudError(
                    where, "it is protected. Nothing was written", advice
                )
        changes += needed
    return sorted(changes, key=lambda change: _ORDER.index(change.what))


def write_metadefs(connection: Any, changes: Iterable[MetadefChange]) -> None:
    """Write the changes, one after the other.

    :raises CloudError: Glance does not respond or refuses; the message says
        how many changes are written
    """
    glance = CloudService(connection, "image")
    changes = list(changes)
    for written, change in enumerate(changes):
        try:
            glance.send(change.method, change.path, change.body)
        except CloudError as error:
            target = " ".join(
                filter(None, (change.namespace, escape_line(change.name)))
            )
            all_changes = pluralize(len(changes), "change")
            what = (
                f"Metadata definitions: wrote {written} of {all_changes}, then"
                f" failed to {change.what} {target}"
            )
            advice = (
                "Run the command again when that is solved: it writes what is"
                " missing."
            )
            raise CloudError(
                what, str(error).rstrip("."), advice, error.status
            ) from error


def _changes(
    wanted: Mapping[str, Any], found: Mapping[str, Any] | None
) -> Iterator[MetadefChange]:
    """Yield the changes of one namespace.

    It fails at any response that is not one of Glance.
    """
    name = str(wanted["namespace"])
    path = _path(name)
    if found is None:
        if wanted["properties"]:
            yield MetadefChange("create", name, "POST", _NAMESPACES, wanted)
        return
    before = {
        key: dict(definition)
        for key, definition in (found.get("properties") or {}).items()
    }
    if not wanted["properties"]:
        yield MetadefChange("delete", name, "DELETE", path)
        return
    if any(found.get(field) != wanted[field] for field in _FIELDS):
        body = {
            "namespace": name,
            "protected": False,
            **{field: wanted[field] for field in _FIELDS},
        }
        # Else it becomes that of the user's project.
        owner = {"owner": found["owner"]} if found.get("owner") else {}
        yield MetadefChange("update", name, "PUT", path, {**body, **owner})
    for each in wanted["resource_type_associations"]:
        of_type = f"{path}/resource_types"
        same = [
            old
            for old in found.get("resource_type_associations") or ()
            if old.get("name") == each["name"]
        ]
        # With a prefix, Horizon shows wrong names of properties.
        is_wrong = any(
            old.get("prefix") or old.get("properties_target") for old in same
        )
        if is_wrong:
            yield MetadefChange(
                "dissociate",
                name,
                "DELETE",
                f"{of_type}/{quote_url(each['name'], safe='')}",
            )
        if is_wrong or not same:
            yield MetadefChange("associate", name, "POST", of_type, each)
    yield from _property_changes(name, before, wanted["properties"])


def _property_changes(
    namespace: str,
    before: Mapping[str, Mapping[str, Any]],
    wanted: Mapping[str, Mapping[str, Any]],
) -> Iterator[MetadefChange]:
    path = f"{_path(namespace)}/properties"
    for name in sorted({*before, *wanted}):
        old, new = before.get(name), wanted.get(name)
        own = f"{path}/{quote_url(name, safe='')}"
        if new is None:
            yield MetadefChange(
                "remove", namespace, "DELETE", own, None, name, old
            )
        elif old is None:
            yield MetadefChange(
                "add", namespace, "POST", path, {"name": name, **new}, name
            )
        elif _filled(old) != _filled(new):
            yield MetadefChange(
                "replace",
                namespace,
                "PUT",
                own,
                {"name": name, **new},
                name,
                old,
            )


def _filled(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return a definition without its name and what is empty."""
    return {
        field: value
        for field, value in definition.items()
        if value and field != "name"
    }


def _path(namespace: str) -> str:
    return f"{_NAMESPACES}/{quote_url(namespace, safe='')}"
