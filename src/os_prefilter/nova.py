# SPDX-License-Identifier: Apache-2.0

"""Entry point for an unmodified Nova, enabled by one line in nova.conf.

``[filter_scheduler] available_filters`` may name a function that returns
classes of host filters; nova-scheduler calls it once when it starts.
:func:`activate` appends the service to Nova's list of request filters, and
returns :class:`RebuildFilter`, which runs only where ``[filter_scheduler]
enabled_filters`` names it. No other module changes anything in Nova's code;
the others only read Nova's objects.

:class:`PreferredTraits` is a weigher, which ``[filter_scheduler]
weight_classes`` may name beside Nova's.
"""

import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, partial
from types import MappingProxyType
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from keystoneauth1 import loading
from oslo_cache import core as oslo_cache
from sqlalchemy.engine import make_url

from os_prefilter.adapters.nova_conf import incompatible_nova, unsupported_nova
from os_prefilter.adapters.nova_hosts_left import SchedulingWatch, counting
from os_prefilter.adapters.osinfo import has_libosinfo, implied_by
from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.adapters.placement.coverage import placement_facts
from os_prefilter.adapters.placement.host_traits import HostTraitsReader
from os_prefilter.adapters.shared_cache import SharedCache
from os_prefilter.common import errors
from os_prefilter.common.logs import get_logger
from os_prefilter.common.quoting import (
    describe_error,
    escape_line,
    join_names,
    shorten,
)
from os_prefilter.common.threads import start_thread
from os_prefilter.hosts.reports import REPORTED, groups_by_trait, keys_in
from os_prefilter.request.extra_specs import trait_key
from os_prefilter.request.fields import clone_of, field_of
from os_prefilter.request.requirements import ROOT, Requirement
from os_prefilter.request.view import UNKNOWN_MACHINE_TYPE, Request
from os_prefilter.service import Service
from os_prefilter.service.conf import GROUP, register_opts
from os_prefilter.service.deployment_facts import (
    ask_in_time,
    latest_end,
    seconds_to,
)
from os_prefilter.service.facts_from_conf import RULES
from os_prefilter.service.shared import MakeStore, Siblings
from os_prefilter.service.wanted import traits_to_create
from os_prefilter.vocabulary import ROWS

try:
    import nova.conf
    import nova.utils
    from nova import context as nova_context
    from nova import exception
    from nova.compute.task_states import RESIZE_PREP
    from nova.objects import service as nova_service
    from nova.objects.compute_node import ComputeNodeList
    from nova.objects.image_meta import ImageMetaProps
    from nova.objects.instance import Instance
    from nova.objects.instance_mapping import InstanceMapping
    from nova.scheduler import request_filter, utils, weights
    from nova.scheduler.client import report
    from nova.scheduler.filters import BaseHostFilter
    from nova.scheduler.utils import request_is_rebuild
    from nova.utils import SM_IMAGE_PROP_PREFIX
except ImportError as problem:
    raise ImportError(incompatible_nova(problem)) from problem

LOG = get_logger(__name__)

# Nova keeps the first 255 bytes of a server's fault.
_LONGEST_FAULT = 255

# Seconds until traits are created, in the process that activates.
# nova-scheduler forks its workers before that: a thread that was at work would
# leave them its locks. With eventlet it is a green thread, of the parent
# alone.
_AFTER_START = 10.0

# Facts are read at the same time, each in a thread; a worker takes one
# connection for them to each cell.
_CELLS, _PROCESS = "cells", "process"
_owner_of_connections = [os.getpid()]

_NovaFilter = Callable[[Any, Any], object]

_WEIGHER = "os_prefilter.nova.PreferredTraits"

SAME_PURPOSE: Mapping[str, str] = MappingProxyType(
    {
        "accelerators": "accelerators_filter",
        "compute_status": "compute_status_filter",
        "ephemeral_encryption": "ephemeral_encryption_filter",
        "image_metadata": "transform_image_metadata",
        "image_type": "require_image_type_support",
        "owner": "owner_nova_filter",
        "packed_virtqueue": "packed_virtqueue_filter",
        "sound_model": "virtio_sound_filter",
        "tpm_secret_security": "tpm_secret_security_filter",
    }
)
"""Name of a filter -> Nova's function of the same purpose, in
``nova.scheduler.request_filter``.
"""

STAYS_WITH_NOVA: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "availability_zone": ("map_az_to_placement_aggregate", ""),
        "isolated_aggregates": (
            "isolate_aggregates",
            "enable_isolated_aggregate_filtering",
        ),
        "remote_managed_ports": ("remote_managed_ports_filter", ""),
        "routed_networks": (
            "routed_networks_filter",
            "query_placement_for_routed_network_aggregates",
        ),
        "tenant_isolation": (
            "require_tenant_aggregate",
            "limit_tenants_to_placement_aggregate",
        ),
    }
)
"""Name of a filter that is for other schedulers -> Nova's function of the same
purpose, and the option in ``[scheduler]`` that enables it, if one does.

They read what Nova has in its database and Neutron, and Nova reads it itself,
up to date, for each request.
"""


def activate() -> list[type]:
    """Make nova-scheduler run the filters in ``[prefilter] enabled_filters``
    after its own.

    An enabled filter replaces Nova's filter of the same purpose, so that no
    request pays twice, and what Nova requires wrongly does not exclude the
    hosts that ours finds. Calling it again applies the configuration as it is
    then.

    :return: the host filters that ``[filter_scheduler] enabled_filters`` may
        name: :class:`RebuildFilter`; and with ``count_hosts`` a subclass of
        each enabled one, which counts
        (:mod:`os_prefilter.adapters.nova_hosts_left`)
    :raises ConfigurationError: if nova-scheduler must not start with this
        configuration.
    """
    client = PlacementClient(_ADAPTER, microversion="1.22")
    service = _service(client)
    replaced = {
        each.name: getattr(request_filter, SAME_PURPOSE[each.name])
        for each in service.filters
        if hasattr(request_filter, SAME_PURPOSE.get(each.name, ""))
    }
    # It must see the traits that ours require.
    isolates = (
        service.filters
        and nova.conf.CONF.scheduler.enable_isolated_aggregate_filtering
    )
    isolate = request_filter.isolate_aggregates if isolates else None
    # The list as it was before an earlier activation, with the changes of
    # others since.
    entries = [
        each.args[0] if isinstance(each, _Replaced) else each
        for each in request_filter.ALL_REQUEST_FILTERS
        if not isinstance(each, RequestFilters | _LastFilter)
    ]
    skipped = [*replaced.values(), isolate]
    for each in request_filter.ALL_REQUEST_FILTERS:
        if isinstance(each, RequestFilters):
            each.replaced.set()
    watch = (
        SchedulingWatch(service, _ADAPTER)
        if service.filters and nova.conf.CONF[GROUP].count_hosts
        else None
    )
    # In place: other modules may have imported the list.
    ours = RequestFilters(
        service, isolate if isolate in entries else None, watch
    )
    request_filter.ALL_REQUEST_FILTERS[:] = [
        *(
            _Replaced(_skip, each) if each in skipped else each
            for each in entries
        ),
        ours,
    ]
    wanted = traits_to_create(service.filters, service.options)
    if wanted:
        with suppress(
            RuntimeError
        ):  # No thread can be started: the first request creates them.
            start_thread(
                partial(_create_traits, wanted, ours.replaced), "wanted traits"
            )
    for warning in filter(None, _warnings(service)):
        LOG.warning("%s", warning)
    if replaced:
        LOG.info(
            "Request filters of Nova that are not run, because ours take their"
            " place: %s.",
            ", ".join(f"{SAME_PURPOSE[name]} ({name})" for name in replaced),
        )
    # Nova makes one object of the class, without arguments.
    rebuild = type(
        RebuildFilter.__name__,
        (RebuildFilter,),
        {"service": service, "client": client},
    )
    return [rebuild, *(counting(watch, rebuild) if watch else ())]


def _create_traits(names: Collection[str], replaced: threading.Event) -> None:
    """Create the traits that requests may name, and those that tell hosts what
    to report, without any request.

    It begins after the start, as :data:`_AFTER_START` says, and goes on until
    Placement has them.

    :param replaced: set by a later activation, which has traits of its own
    """
    pause, is_told = _AFTER_START, False
    while not replaced.wait(pause):
        try:
            # Not Nova's own client: a worker that is forked meanwhile would
            # inherit its locks as they are.
            adapter = nova.utils.get_ksa_adapter("placement")
            created = PlacementClient(
                adapter, microversion="1.22"
            ).ensure_traits(names)
        except Exception as error:  # noqa: BLE001 - of any plugin that authenticates; requests go on without
            if not is_told:
                LOG.warning(
                    "Traits that hosts are to report cannot be created"
                    " yet: %s",
                    describe_error(error),
                )
            pause, is_told = (
                max(pause, nova.conf.CONF[GROUP].facts_interval),
                True,
            )
        else:
            if created:
                LOG.info(
                    "Created in Placement, as request filters may require"
                    " them: %s.",
                    ", ".join(created),
                )
            return


class _Replaced(partial[bool]):
    """The place of a filter of Nova that is not run. It equals that filter:
    others, as Nova's own tests, look it up.
    """

    def __eq__(self, other: object) -> bool:
        return bool(
            self.args[0]
            == (other.args[0] if isinstance(other, _Replaced) else other)
        )

    __hash__ = partial.__hash__


def _skip(
    _original: _NovaFilter, _context: object, _request_spec: object
) -> bool:
    """Stand in the place of a filter of Nova that is not run, so that a later
    activation can restore it.
    """
    return False


def _warnings(service: Service) -> Iterator[str]:
    """Yield warnings of a configuration that has not the effect that it seems
    to have; some are empty.
    """
    options, enabled = service.options, {each.name for each in service.filters}
    yield unsupported_nova()
    if service.implied_by and not has_libosinfo():
        yield (
            "[prefilter] require_implied_devices has no effect: install"
            " libosinfo for the Python of nova-scheduler."
        )
    prefers = options.preferred_properties or "preferences" in enabled
    if (
        prefers
        and _WEIGHER not in nova.conf.CONF.filter_scheduler.weight_classes
    ):
        yield (
            f"Preferred traits have no effect: add {_WEIGHER} to"
            " [filter_scheduler] weight_classes."
        )
    for row in options.rows:
        # A bundled row may be of another release of Nova.
        is_of_package = row not in ROWS and enabled.intersection(
            row.required_by
        )
        if is_of_package and row.image_property not in (
            None,
            *ImageMetaProps.fields,
        ):
            yield (
                f"The row {row.name} of another package reads the image"
                f" property {row.image_property}, which this Nova drops before"
                " a filter sees it. Let it read an extra spec in a namespace"
                " of its own."
            )
    for row in filter(options.prefers, options.rows):
        for name in row.required_by:
            if name not in enabled and hasattr(
                request_filter, SAME_PURPOSE.get(name, "")
            ):
                yield (
                    f"[prefilter] preferred_properties names {row.name}, but"
                    f" Nova's own {SAME_PURPOSE[name]} may still require its"
                    f" trait: add {name} to enabled_filters."
                )


class RequestFilters:
    """The service as one entry of Nova's list of request filters.

    :param isolate: a filter of Nova that runs after the service, with the
        traits that it required
    """

    preferred_share: ClassVar[
        WeakKeyDictionary[Any, Callable[[str], float]]
    ] = WeakKeyDictionary()
    """Request spec, which Nova hands on to its weighers and then drops -> UUID
    of a compute node -> the share of the preferred traits that it has.
    """

    def __init__(
        self,
        service: Service,
        isolate: _NovaFilter | None = None,
        watch: SchedulingWatch | None = None,
    ) -> None:
        self.service = service
        self.replaced = threading.Event()
        """Set once a later activation has replaced the entry."""
        self._isolate = isolate
        self._watch = watch

    def __call__(self, context: Any, request_spec: Any) -> bool:
        """Run the filters on Nova's request spec.

        :raises nova.exception.RequestFilterFailed: if the request cannot be
            scheduled as it is; Nova shows the user why
        """
        until = latest_end()
        _forget_inherited_connections()
        try:
            decision = self.service.apply(request_spec, context)
        except errors.RequestRejected as error:
            raise exception.RequestFilterFailed(reason=str(error)) from error
        except errors.PrefilterError as error:
            # An operator error: do not expose details to the end user.
            LOG.exception(
                "A request was not scheduled because a request filter failed."
            )
            raise exception.RequestFilterFailed(
                reason=(
                    "a request filter of this cloud failed; its operator finds"
                    " the cause in the scheduler's log"
                )
            ) from error
        host_traits = self.service.host_traits
        if decision.preferences and host_traits:
            traits = frozenset(item.trait for item in decision.preferences)
            known = host_traits.preferred(traits, context, until)
            self.preferred_share[request_spec] = lambda host: (
                decision.preferred_share(
                    lambda trait: (
                        known[trait].has(host) if trait in known else None
                    )
                )
            )
        if self._isolate:
            _run_with_all_traits(self._isolate, context, request_spec)
        if self._watch:
            self._watch.begin(
                request_spec, context, _http_session(), seconds_to(until)
            )
            _expect_query_after(self, self._watch)
        return True


class _LastFilter:
    """The end of Nova's list of request filters, where filters of others
    follow ours: they may ask Placement too.
    """

    def __init__(self, watch: SchedulingWatch) -> None:
        self._watch = watch

    def __call__(self, _context: Any, _request_spec: Any) -> bool:
        _expect_query_after(self, self._watch)
        return False


def _expect_query_after(entry: object, watch: SchedulingWatch) -> None:
    last = next(reversed(request_filter.ALL_REQUEST_FILTERS), entry)
    if last is entry:
        watch.expect_query()
    elif not isinstance(last, _LastFilter):
        # Nova's loop over the list comes to it for this request already.
        request_filter.ALL_REQUEST_FILTERS.append(_LastFilter(watch))


def _run_with_all_traits(
    function: _NovaFilter, context: Any, request_spec: Any
) -> None:
    """Run a filter of Nova that reads the traits of request groups alone, so
    that it counts those of the root as well.

    It gets a copy whose flavor names them; of what it writes, the destination
    is taken over.
    """
    seen = clone_of(request_spec)
    written = seen.flavor.extra_specs if "extra_specs" in seen.flavor else {}
    # Over the flavor's own value: Nova ignores a misspelt one, and the root is
    # to have the trait all the same.
    of_root = {
        trait_key(trait, ""): "required"
        for trait in Request(request_spec).root_required
    }
    seen.flavor.extra_specs = {**written, **of_root}
    function(context, seen)
    destination = field_of(seen, "requested_destination")
    if destination is not None:
        request_spec.requested_destination = destination


class PreferredTraits(weights.BaseHostWeigher):  # type: ignore[misc]
    """A weigher of Nova: hosts with the traits that a request prefers weigh
    more.

    The weight is the share of the preferred traits that the host has, from 0.0
    to 1.0. It is 0.0 for all hosts where the request prefers none, where it is
    not known which hosts have them, and where :func:`activate` was not called.
    """

    # The weight is normalized already: that all hosts lack one of two traits
    # does not make the other count twice.
    minval, maxval = 0.0, 1.0

    def __init__(self) -> None:
        register_opts(nova.conf.CONF)

    def weight_multiplier(self, host_state: Any) -> float:
        """Return the option, or the metadata of the same name of the host's
        aggregates, the lowest of several.
        """
        name = "preferred_weight_multiplier"
        return float(
            utils.get_weight_multiplier(
                host_state, name, nova.conf.CONF[GROUP][name]
            )
        )

    def _weigh_object(self, obj: Any, weight_properties: Any) -> float:
        share = RequestFilters.preferred_share.get(weight_properties)
        return share(obj.uuid) if share else 0.0


class RebuildFilter(BaseHostFilter):  # type: ignore[misc]
    """Host filter that refuses to rebuild a server with an image that its host
    cannot run.

    Nova runs no request filter for a rebuild on the same host. This one runs
    the service for the new image and without one, and compares what only the
    image requires with the traits that the host has in Placement now. Any
    other request passes, and so does a rebuild where something is not known.
    :func:`activate` sets the fields.

    What the old image required is not known here: before nova-api asks, it has
    replaced it in the request spec, in the server's metadata and in its
    ``image_ref``. So what both images require counts as required by the new
    one.
    """

    RUN_ON_REBUILD = True

    service: Service
    client: PlacementClient

    def host_passes(self, host_state: Any, spec_obj: Any) -> bool:
        """Return True, unless the host cannot serve a rebuild.

        :raises nova.exception.NoValidHost: in place of False, for which Nova
            gives the user no reason
        """
        # A user may give a new server the hint by which Nova tells a rebuild;
        # it then filters every host of the cloud. nova-api forces a rebuild to
        # the server's host.
        if not field_of(spec_obj, "force_hosts") or not request_is_rebuild(
            spec_obj
        ):
            return True
        until = latest_end()
        # Nova hands no context to host filters.
        context = nova_context.get_admin_context()
        without_image = clone_of(spec_obj)
        without_image.image = None
        is_of_image = False
        try:
            # What flavor, hints and project require was no reason to refuse
            # the server before, and is none now.
            anyway, _ = _decide(
                self.service.without_nova_style(), without_image, context
            )
            is_of_image = True
            required, contradiction = _decide(self.service, spec_obj, context)
        except errors.RequestRejected as error:
            # A filter written for Nova, which does not run it for a rebuild,
            # refuses none.
            if is_of_image and not isinstance(error, errors.RejectedByFilter):
                raise exception.NoValidHost(reason=str(error)) from error
            return _pass_unchecked(host_state, spec_obj, describe_error(error))
        except Exception:  # noqa: BLE001 - what is not known refuses no rebuild
            return _pass_unchecked(
                host_state, spec_obj, "a request filter failed", LOG.exception
            )
        # The server runs with its flavor's devices. A rule makes none: what
        # the image requires counts beside it.
        in_force = {
            (
                item.trait,
                item.required,
                item.source if item.filter == RULES else "",
            )
            for item in anyway
            if item.scope == ROOT
        }
        # What comes from no property, such as a disabled compute service,
        # keeps no server from a rebuild.
        required = tuple(
            item
            for item in required
            if item.scope == ROOT
            and item.properties
            and in_force.isdisjoint(
                (item.trait, item.required, source)
                for source in ("", item.source)
            )
        )
        if contradiction and {
            item.required
            for item in required
            if item.trait == contradiction.trait
        } == {True, False}:
            raise exception.NoValidHost(reason=str(contradiction))
        unmet = (
            self._unmet(required, host_state, spec_obj, until)
            if required
            else ()
        )
        if unmet:
            LOG.info(
                "Refused to rebuild server %s on host %s: %s.",
                spec_obj.instance_uuid,
                host_state.host,
                "; ".join(map(str, unmet)),
            )
            raise exception.NoValidHost(reason=_refusal(unmet))
        return True

    def _unmet(
        self,
        required: Iterable[Requirement],
        host_state: Any,
        spec_obj: Any,
        until: float,
    ) -> tuple[Requirement, ...]:
        """Return the requirements that the host certainly does not meet."""
        read, problem = ask_in_time(
            partial(self.client.provider_traits, host_state.uuid),
            "traits of a host",
            until,
        )
        if problem:
            _pass_unchecked(host_state, spec_obj, problem)
            return ()
        _, traits = read.result()
        options = self.service.options
        groups, keys = (
            groups_by_trait(options.templates, options.emulated_architectures),
            keys_in(REPORTED, traits),
        )
        unmet = [
            item
            for item in required
            if (item.trait in traits) != item.required
        ]
        unreported = {
            item.trait
            for item in unmet
            if item.required
            and item.trait in groups
            and groups[item.trait].keys.isdisjoint(keys)
            and groups[item.trait].implied_by.isdisjoint(traits)
        }
        if unreported:
            _pass_unchecked(
                host_state,
                spec_obj,
                f"it has not reported whether it has {join_names(unreported)}",
            )
        return tuple(item for item in unmet if item.trait not in unreported)


def _decide(
    service: Service, spec_obj: Any, context: Any
) -> tuple[tuple[Requirement, ...], errors.ContradictingRequirements | None]:
    """Return all that is required, also where it contradicts itself: the new
    image may have no part in that.
    """
    try:
        return service.decide(spec_obj, context).requirements, None
    except errors.ContradictingRequirements as error:
        return error.requirements, error


def _pass_unchecked(
    host_state: Any,
    spec_obj: Any,
    problem: str,
    log: Callable[..., None] = LOG.warning,
) -> bool:
    log(
        "The server %s is rebuilt without a check whether its host %s can run"
        " the new image: %s",
        spec_obj.instance_uuid,
        host_state.host,
        problem,
    )
    return True


def _refusal(unmet: Iterable[Requirement]) -> str:
    """Return why a host is refused, in the words of the image and the flavor,
    as long as Nova's fault can be.
    """
    offers = list(
        dict.fromkeys(
            escape_line(" together with ".join(item.properties))
            for item in unmet
        )
    )
    for number in range(len(offers), 0, -1):
        reason = (
            f"This host does not offer {', '.join(shorten(offers, number))}."
        )
        if (
            len(str(exception.NoValidHost(reason=reason)).encode())
            <= _LONGEST_FAULT
        ):
            return reason
    return "This host does not offer what image and flavor require."


def _service(client: PlacementClient) -> Service:
    conf = nova.conf.CONF
    try:
        facts = placement_facts(conf, client, _some_compute_nodes)
        facts["minimum_compute_version"] = _minimum_compute_version
        for name in STAYS_WITH_NOVA.keys() & conf[GROUP].enabled_filters:
            function, option = STAYS_WITH_NOVA[name]
            advice = (
                f"Set [scheduler] {option} = true."
                if option
                else "It needs no option."
            )
            problem = (
                f"{name!r} is for other schedulers: in nova-scheduler, Nova's"
                f" own {function} takes its place"
            )
            raise errors.InvalidOption(
                "enabled_filters", f"{problem}. Remove it here. {advice}"
            )
        return Service.from_conf(
            conf,
            facts,
            ensure_traits=client.ensure_traits,
            kept_machine_type=_kept_machine_type,
            host_traits=HostTraitsReader(client, _some_compute_nodes),
            stores=(Siblings, *_caches()),
            in_nova=True,
            implied_by=implied_by,
            has_new_flavor=_has_new_flavor,
        )
    except errors.ConfigurationError as error:
        # Nova logs errors at its start as tracebacks; this is the line to
        # read.
        LOG.error(  # noqa: TRY400
            "nova-scheduler cannot start with the request filters as"
            " configured: %s",
            error,
        )
        raise


def _caches() -> list[MakeStore]:
    """Return the cache of the section ``[cache]``, if it is enabled, for what
    the schedulers of all hosts share.
    """
    conf = nova.conf.CONF
    if not conf.cache.enabled:
        return []
    try:
        region = oslo_cache.create_region()
        oslo_cache.configure_cache_region(conf, region)
        placement = conf.placement
        auth = (
            loading.get_auth_plugin_conf_options(placement.auth_type)
            if placement.auth_type
            else ()
        )
        conf.register_opts(auth, group="placement")
        # Where the database is, and nothing of its password.
        database = make_url(conf.api_database.connection or "sqlite://")
    except Exception as error:  # noqa: BLE001 - of any backend; nova-scheduler starts without it, as it does without us
        LOG.warning(
            "[cache] cannot be used, so each host reads from Placement"
            " itself: %s",
            type(error).__name__,
        )
        return []
    names = [
        each.dest for each in auth if each.dest in ("auth_url", "endpoint")
    ]
    cloud = (
        database.host,
        database.port,
        database.database,
        placement.region_name,
        placement.endpoint_override,
    )
    return [
        SharedCache(region, *cloud, *(placement[name] for name in names)).store
    ]


class ReportClientAdapter:
    """Nova's own client of Placement, in place of a
    ``keystoneauth1.adapter.Adapter``.
    """

    def request(
        self, url: str, method: str, *, microversion: str, **_options: object
    ) -> Any:
        """Get a URL, or create a trait; return any response, with errors,
        after at most Nova's own timeout.
        """
        _forget_inherited_connections()
        client = report.report_client_singleton()
        if method == "PUT":
            return client.put(url, None, version=microversion)
        return client.get(url, version=microversion)


_ADAPTER: Any = ReportClientAdapter()


def _forget_inherited_connections() -> None:
    """Close the connections to Placement that this process has inherited,
    before its first request, ours or Nova's.

    nova-scheduler asks Placement for its versions before it forks its workers.
    If the connection is still open then, all of them write to it, and one
    reads the response to another one's request (seen with Nova 34).
    """
    if _owner_of_connections[0] == os.getpid():
        return
    with _lock_of(_PROCESS):
        if _owner_of_connections[0] != os.getpid():
            http = _http_session()
            if http is not None:
                http.close()
            _owner_of_connections[0] = os.getpid()


def _http_session() -> Any:
    """Return the ``requests.Session`` of Nova's client of Placement; None
    while it has none.
    """
    session = getattr(
        getattr(report.report_client_singleton(), "_client", None),
        "session",
        None,
    )
    return getattr(session, "session", None)


def _kept_machine_type(context: Any, request_spec: Any) -> str | None:
    """Return the machine type that Nova's libvirt driver keeps for a server
    that moves, from its system metadata.

    None for a resize or a cold migration: nova-compute then starts the guest
    from the request's image, so that the destination's default counts. None
    for a rebuild, at which nova-api removes what is kept. None also if none is
    kept, with another driver for instance.
    """
    if request_is_rebuild(request_spec):
        return None
    server = _server_of(context, request_spec)
    if server.task_state == RESIZE_PREP:
        # To another cell the server moves by a snapshot, which has what is
        # kept.
        leaves_cell = request_spec.requested_destination.allow_cross_cell_move
        return UNKNOWN_MACHINE_TYPE if leaves_cell else None
    kept: str | None = server.system_metadata.get(
        f"{SM_IMAGE_PROP_PREFIX}hw_machine_type"
    )
    return kept


def _has_new_flavor(context: Any, request_spec: Any) -> bool:
    """Return whether a server is resized, by what nova-conductor itself tells
    it from a cold migration by.
    """
    server = _server_of(context, request_spec)
    is_resized: bool = (
        server.task_state == RESIZE_PREP
        and server.instance_type_id != request_spec.flavor.id
    )
    return is_resized


def _server_of(context: Any, request_spec: Any) -> Any:
    """Return the server of a request, with its system metadata, from the
    database of its cell.
    """
    admin = (context or nova_context.get_admin_context()).elevated()
    mapping = InstanceMapping.get_by_instance_uuid(
        admin, request_spec.instance_uuid
    )
    with nova_context.target_cell(admin, mapping.cell_mapping) as in_cell:
        return Instance.get_by_uuid(
            in_cell,
            request_spec.instance_uuid,
            expected_attrs=["system_metadata"],
        )


@cache
def _lock_of(_name: str) -> threading.Lock:
    """Return the lock of a connection; made when it is first needed, after
    eventlet has replaced the class.

    A lock that is made at the import of this module hangs a thread of Nova 27.
    """
    return threading.Lock()


def _some_compute_nodes(context: Any) -> list[str]:
    """Return the UUIDs of compute nodes, which are those of their root
    providers: one of each cell that answers.
    """
    admin = (context or nova_context.get_admin_context()).elevated()
    with _lock_of(_CELLS):
        by_cell = nova_context.scatter_gather_skip_cell0(
            admin, ComputeNodeList.get_by_pagination, limit=1
        )
    answers = (
        found
        for found in by_cell.values()
        if not nova_context.is_cell_failure_sentinel(found)
    )
    return [node.uuid for found in answers for node in found]


def _minimum_compute_version(context: Any) -> int:
    """Return the lowest service version of all nova-computes.

    :raises nova.exception.CellTimeout: if a cell does not answer: its computes
        may be old.
    """
    with _lock_of(_CELLS):
        admin = context or nova_context.get_admin_context()
        return int(
            nova_service.get_minimum_version_all_cells(
                admin, ["nova-compute"], require_all=True
            )
        )
