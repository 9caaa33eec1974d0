# SPDX-License-Identifier: Apache-2.0

"""The real Placement service inside this process.

Its WSGI application runs on an SQLite database in memory.

No socket, no file, no configuration of the machine is touched. The schema is
created from Placement's models, not by its migrations: the outcome is the same
tables, in 0.04 s instead of 0.25 s, and the result is never migrated.
"""

from __future__ import annotations

import io
import logging
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from itertools import islice
from typing import Any
from uuid import UUID, uuid5

from os_prefilter.common import errors
from os_prefilter.common.logs import get_logger

try:
    import requests
    from keystoneauth1.adapter import Adapter
    from keystoneauth1.session import Session
    from keystoneauth1.token_endpoint import Token
    from os_resource_classes import STANDARDS
    from oslo_config import cfg
    from oslo_db.exception import DBDuplicateEntry
    from oslo_db.sqlalchemy import enginefacade
    from placement import conf as placement_conf
    from placement import db_api, deploy, policy
    from placement.db.sqlalchemy import migration, models
    from placement.objects import resource_class, trait
    from sqlalchemy import func, select
    from urllib3.response import HTTPResponse
    from webob import Request

    from os_prefilter.adapters.placement.client import PlacementClient
    from os_prefilter.common.quoting import escape_line, quote
    from os_prefilter.common.trait_names import (
        CUSTOM_PREFIX,
        is_trait_name,
        standard_traits,
    )
    from os_prefilter_tools.fleet.model import Fleet, Inventory, Provider
except ModuleNotFoundError as error:
    raise errors.ConfigurationError(
        f"The embedded Placement needs {error.name}, which is not installed:"
        f" {errors.install_extra('embedded')}."
    ) from error

_DATABASE = "sqlite://"
_URL = "http://embedded.invalid"
# Beneath a file, so that no such file can exist: Placement's policy is that of
# its code.
_NO_FILE = f"{os.devnull}/none"
_AMOUNTS = tuple(
    each.name for each in fields(Inventory) if each.name != "used"
)
_SERVER_ERROR = 500
_DETAIL_LENGTH = 500
_AT_ONCE = 1_000
"""Providers written at a time: a large fleet at once takes gigabytes."""
# The project and the user of all usage.
_CONSUMER_OWNER = "os-prefilter"
# Placement keeps its database and policy in module globals; only the holder of
# this lock may exchange them.
_GLOBALS = threading.RLock()
# They log the traceback of each error of an application, and of each error of
# its database.
_LOGGERS = (
    logging.getLogger("placement.fault_wrap"),
    logging.getLogger("oslo_db.sqlalchemy.exc_filters"),
)

LOG = get_logger(__name__)


class EmbeddedPlacementFailed(errors.PlacementUnavailable):
    """The Placement inside this process failed, or was misused."""

    def __init__(self, what: str, fault: BaseException) -> None:
        reason = escape_line(" ".join(str(fault).split()).rstrip("."))
        kind = type(fault).__name__
        reason = f"{kind}: {reason[:_DETAIL_LENGTH]}" if reason else kind
        errors.PlacementError.__init__(
            self,
            f"The Placement inside this process failed at {what}: {reason}."
            " Ask that of a cloud with --os-cloud, or install another release"
            " of openstack-placement; the option -vv prints where it failed,"
            " for a report.",
        )


class EmbeddedPlacement:
    """An embedded Placement, empty or with a fleet.

    A context manager; while it is open, :attr:`client` sends to it.

    Several may be open at a time: each has its own data, and their requests
    are served one after the other.

    :param database: the URL, as SQLAlchemy writes it, of an empty SQLite
        database to use; by default one in memory
    :param most_candidates: the most allocation candidates that it returns, at
        least one a host of ``fleet``; of more, those of each host in turn.
        Several request groups have one for each permutation of like devices.
        Placement before 13.0.0 (2025.1) returns all
    """

    client: PlacementClient

    def __init__(
        self,
        fleet: Fleet | None = None,
        *,
        database: str = _DATABASE,
        most_candidates: int | None = None,
    ) -> None:
        self._fleet = fleet
        self._url = database
        self._most_candidates = most_candidates

    def __enter__(self) -> EmbeddedPlacement:
        with ExitStack() as cleanup:
            with _fail_at("its start"):
                database = enginefacade.transaction_context()
                database.configure(
                    connection=self._url, sqlite_synchronous=False
                )
                cleanup.callback(database.dispose_pool)
                conf = _configuration()
                # Not [workarounds] optimize_for_wide_provider_trees: with it,
                # Placement 16 does not count what is used, where several
                # groups request the same resource of one provider. Placement
                # before 13.0.0 (2025.1) has no limit: it returns all, which
                # hides no host either.
                if (
                    self._most_candidates is not None
                    and "max_allocation_candidates" in conf.placement
                ):
                    most = max(
                        self._most_candidates,
                        len(self._fleet.hosts) if self._fleet else 0,
                    )
                    conf.set_override(
                        "max_allocation_candidates", most, "placement"
                    )
                    conf.set_override(
                        "allocation_candidates_generation_strategy",
                        "breadth-first",
                        "placement",
                    )
                http = cleanup.enter_context(requests.Session())
                # Else requests reads proxies and passwords from the
                # environment and ~/.netrc.
                http.trust_env = False
                http.mount(_URL, _Transport(database, conf))
                self._engine = database.writer.get_engine()
            # noauth2 makes the user "admin" an administrator.
            session = Session(auth=Token(_URL, "admin"), session=http)
            self.client = PlacementClient(
                Adapter(session, service_type="placement")
            )
            if self._fleet is not None:
                self.load(self._fleet)
            self._cleanup = cleanup.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        # Another thread may have a request under way: SQLite must not lose its
        # connection meanwhile.
        with _GLOBALS:
            self._cleanup.close()

    def load(self, fleet: Fleet) -> None:
        """Create the providers of a fleet and all that they need.

        :raises PlacementError: the fleet has a standard trait or resource
            class that this Placement lacks, a provider that it has already, or
            no inventories
        """
        if not fleet.has_inventories:
            raise errors.PlacementRefused(
                "the fleet",
                400,
                "it was read without inventories, so no host has anything to"
                " give",
            )
        self.know(fleet.traits, fleet.resource_classes)
        try:
            with _fail_at("the hosts"), self._engine.begin() as connection:
                _insert(connection, fleet)
        except DBDuplicateEntry as error:
            raise errors.PlacementRefused(
                "the fleet", 409, "one of its providers exists already"
            ) from error

    def know(
        self, traits: Iterable[str], resource_classes: Iterable[str] = ()
    ) -> None:
        """Create the traits and resource classes that it lacks.

        :raises PlacementError: if a standard one is among them, or an invalid
            trait name
        """
        names, custom_classes = (
            frozenset(traits),
            sorted(set(resource_classes).difference(STANDARDS)),
        )
        standard = [
            name
            for name in custom_classes
            if not name.startswith(CUSTOM_PREFIX)
        ]
        if standard:
            detail = (
                f"no such resource class: {', '.join(standard)}; only a newer"
                " os-resource-classes has it"
            )
            raise errors.PlacementRefused("the fleet", 400, detail)
        wrong = sorted(name for name in names if not is_trait_name(name))
        if wrong:
            raise errors.PlacementRefused(
                "the fleet",
                400,
                f"no name of a trait: {', '.join(map(quote, wrong))}",
            )
        unknown = {
            name for name in names if not name.startswith(CUSTOM_PREFIX)
        } - standard_traits()
        if unknown:
            raise errors.UnknownTraits(unknown)
        for name in custom_classes:
            self.client.request("PUT", f"/resource_classes/{name}")
        # At once into the table: the API would take one request of 4 ms for
        # each of some hundreds.
        with _fail_at("the traits"), self._engine.begin() as connection:
            _ids_of(connection, models.Trait.name, sorted(names))


def _insert(connection: Any, fleet: Fleet) -> None:
    """Write a fleet into Placement's tables at once.

    The API would take four requests of 30 ms a provider: 13 s for 100 hosts,
    and this takes 0.1 s. The tests read the result back through the API.
    """
    first = 1 + (
        connection.scalar(select(func.max(models.ResourceProvider.id))) or 0
    )
    ids = {
        provider.uuid: number
        for number, provider in enumerate(fleet.walk(), first)
    }
    _write(
        connection,
        models.ResourceProvider,
        list(_provider_rows(fleet.hosts, ids)),
    )
    classes = _ids_of(connection, models.ResourceClass.name)
    traits = _ids_of(connection, models.Trait.name)
    in_use = sorted(
        {uuid for provider in fleet.walk() for uuid in provider.aggregates}
    )
    aggregates = _ids_of(connection, models.PlacementAggregate.uuid, in_use)
    owner = {}
    for column, model in (
        ("project_id", models.Project),
        ("user_id", models.User),
    ):
        ids_of_owners = _ids_of(
            connection, model.external_id, [_CONSUMER_OWNER]
        )
        owner[column] = ids_of_owners[_CONSUMER_OWNER]
    providers = fleet.walk()
    while some := list(islice(providers, _AT_ONCE)):
        inventories, provider_traits, members, consumers, allocations = (
            [],
            [],
            [],
            [],
            [],
        )
        for provider in some:
            row = {"resource_provider_id": ids[provider.uuid]}
            consumer = str(uuid5(UUID(provider.uuid), "consumer"))
            for name, inventory in sorted(provider.resources.items()):
                of_class = {**row, "resource_class_id": classes[name]}
                inventories.append(
                    {
                        **of_class,
                        **{key: getattr(inventory, key) for key in _AMOUNTS},
                    }
                )
                if inventory.used:
                    allocations.append(
                        {
                            **of_class,
                            "consumer_id": consumer,
                            "used": inventory.used,
                        }
                    )
            if any(
                inventory.used for inventory in provider.resources.values()
            ):
                consumers.append({"uuid": consumer, **owner})
            provider_traits += [
                {**row, "trait_id": traits[name]}
                for name in sorted(provider.traits)
            ]
            members += [
                {**row, "aggregate_id": aggregates[uuid]}
                for uuid in sorted(provider.aggregates)
            ]
        _write(connection, models.Inventory, inventories)
        _write(connection, models.ResourceProviderTrait, provider_traits)
        _write(connection, models.ResourceProviderAggregate, members)
        _write(connection, models.Consumer, consumers)
        _write(connection, models.Allocation, allocations)


def _provider_rows(
    providers: Iterable[Provider],
    ids: Mapping[str, int],
    parent: int | None = None,
    root: int | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the rows of providers and of all below them, parents first."""
    for provider in providers:
        own = ids[provider.uuid]
        row = {
            "id": own,
            "uuid": provider.uuid,
            "name": provider.name,
            "generation": 0,
        }
        yield {
            **row,
            "parent_provider_id": parent,
            "root_provider_id": root or own,
        }
        yield from _provider_rows(provider.providers, ids, own, root or own)


def _ids_of(
    connection: Any, key: Any, new: Sequence[str] = ()
) -> dict[str, int]:
    """Add the rows that a table lacks; return key -> ID of all rows.

    :param key: a column of unique texts
    """
    if new:
        insert = key.class_.__table__.insert()
        # Each database has its own word; MariaDB is that of the benchmarks.
        insert = insert.prefix_with("OR IGNORE", dialect="sqlite").prefix_with(
            "IGNORE", dialect="mysql"
        )
        connection.execute(insert, [{key.key: each} for each in new])
    return {
        row[0]: row[1]
        for row in connection.execute(select(key, key.class_.id))
    }


def _write(
    connection: Any, model: Any, rows: Sequence[Mapping[str, Any]]
) -> None:
    if rows:
        connection.execute(model.__table__.insert(), rows)


@contextmanager
def _globals_of(database: Any, enforcer: Any) -> Iterator[None]:
    """Set Placement's module globals for one service, then restore them."""
    values = (
        (trait, "_TRAITS_SYNCED", False),
        (resource_class, "_RESOURCE_CLASSES_SYNCED", False),
        (policy, "_ENFORCER", enforcer),
    )
    with _GLOBALS, ExitStack() as cleanup:
        cleanup.callback(
            db_api.placement_context_manager.patch_factory(database)
        )
        for module, name, value in values:
            cleanup.callback(setattr, module, name, getattr(module, name))
            setattr(module, name, value)
        yield


@contextmanager
def _fail_at(what: str) -> Iterator[list[BaseException]]:
    """Raise one error for a failure of Placement, without its tracebacks.

    Yields a list of the errors that it logs; its loggers are those of the
    whole process.

    :raises EmbeddedPlacementFailed: if anything but an error of this library
        is raised
    """
    faults: list[BaseException] = []

    def keep(record: logging.LogRecord) -> bool:
        if record.exc_info and record.exc_info[1]:
            faults.append(record.exc_info[1])
        return False

    with _GLOBALS, ExitStack() as cleanup:
        for logger in _LOGGERS:
            logger.addFilter(keep)
            cleanup.callback(logger.removeFilter, keep)
        try:
            yield faults
        except (errors.PrefilterError, DBDuplicateEntry):
            raise
        except Exception as error:
            LOG.debug("Placement failed at %s.", what, exc_info=True)
            raise EmbeddedPlacementFailed(what, error) from error


def _configuration() -> Any:
    """Return a configuration without files and environment variables."""
    conf = cfg.ConfigOpts()
    root = logging.getLogger()
    handlers = list(root.handlers)
    for name in ("api", "placement", "placement_database", "workarounds"):
        # The options of Placement's own group objects, and so their values,
        # would be those of the whole process.
        conf.register_group(cfg.OptGroup(name))
    placement_conf.register_opts(conf)
    # oslo.log has put a handler on the root logger of a process that had none.
    root.handlers[:] = handlers
    conf.set_override("connection", _DATABASE, group="placement_database")
    conf.set_override("auth_strategy", "noauth2", group="api")
    conf.set_override("policy_file", _NO_FILE, group="oslo_policy")
    conf.set_override("policy_dirs", [], group="oslo_policy")
    conf(
        [],
        project="placement",
        default_config_files=[],
        default_config_dirs=[],
        use_env=False,
    )
    return conf


class _Transport(requests.adapters.HTTPAdapter):
    """A transport of requests that calls a Placement application."""

    def __init__(self, database: Any, conf: Any) -> None:
        super().__init__()
        self._database = database
        self._is_closed = False
        with _globals_of(database, None):
            migration.create_schema()
            self._application = deploy.loadapp(conf)
            self._enforcer = policy._ENFORCER  # noqa: SLF001 - it has no other name

    def send(
        self,
        request: requests.PreparedRequest,
        *_args: object,
        **_options: object,
    ) -> requests.Response:
        body = (
            request.body.encode()
            if isinstance(request.body, str)
            else request.body or b""
        )
        incoming = Request.blank(
            str(request.url),
            method=str(request.method),
            headers=dict(request.headers),
            body=body,
        )
        with _globals_of(self._database, self._enforcer):
            if self._is_closed:
                raise requests.exceptions.ConnectionError(
                    "the embedded Placement is closed"
                )
            with _fail_at(f"{request.method} {incoming.path}") as faults:
                found = incoming.get_response(self._application)
                if faults and found.status_code >= _SERVER_ERROR:
                    # The first: its response has another text than the log.
                    raise faults[0]
            content = io.BytesIO(found.body)
        return self.build_response(
            request,
            HTTPResponse(
                content,
                dict(found.headers),
                found.status_code,
                preload_content=False,
            ),
        )

    def close(self) -> None:
        self._is_closed = True
