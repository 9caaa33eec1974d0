# SPDX-License-Identifier: Apache-2.0

"""Start of the service inside an unmodified nova-scheduler."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import nova.conf
import nova.utils
from keystoneauth1 import loading
from nova.objects.image_meta import ImageMetaProps
from nova.scheduler import request_filter
from oslo_cache import core as oslo_cache
from sqlalchemy.engine import make_url

from os_prefilter.adapters.nova_conf import unsupported_nova
from os_prefilter.adapters.osinfo import has_libosinfo, implied_by
from os_prefilter.adapters.placement.client import PlacementClient
from os_prefilter.adapters.placement.facts import CloudPlacement
from os_prefilter.adapters.shared_cache import CacheStore
from os_prefilter.common import errors
from os_prefilter.common.logs import get_logger
from os_prefilter.nova.connections import ADAPTER
from os_prefilter.nova.entry import LastFilter, NovaFilter, RequestFilters
from os_prefilter.nova.facts import (
    look_up_server,
    look_up_server_options,
    minimum_compute_version,
    some_compute_nodes,
)
from os_prefilter.nova.host_filters import counting
from os_prefilter.nova.rebuild_filter import RebuildFilter
from os_prefilter.nova.scheduling import WEIGHER, SchedulingWatch
from os_prefilter.service import Service
from os_prefilter.service.conf import GROUP, register_opts
from os_prefilter.service.shared import InheritedStore, MakeStore
from os_prefilter.vocabulary import ROWS

LOG = get_logger("os_prefilter.nova")

# Seconds until traits are created, in the process that activates.
# nova-scheduler forks its workers before that: a thread that was at work would
# leave them its locks. With eventlet it is a green thread, of the parent
# alone.
_AFTER_START = 10.0

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
"""Filter -> Nova's of the same purpose, in ``nova.scheduler.request_filter``.

Where the filter is enabled, Nova's is not run.
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
"""Filter for other schedulers -> Nova's, and its option in ``[scheduler]``.

The option is empty where Nova's is always enabled.

They read what Nova has in its database and Neutron, and Nova reads it itself,
up to date, for each request.
"""


def activate() -> list[type]:
    """Make nova-scheduler run the filters in ``[prefilter] enabled_filters``.

    They run after Nova's own. An enabled filter replaces Nova's filter of the
    same purpose, so that no request pays twice, and what Nova requires wrongly
    does not exclude the hosts that ours finds. Calling it again applies the
    configuration as it is then.

    :return: the host filters that ``[filter_scheduler] enabled_filters`` may
        name: :class:`RebuildFilter`; and with ``count_hosts`` a subclass of
        each enabled one, which counts hosts
        (:mod:`os_prefilter.nova.host_filters`)
    :raises ConfigurationError: if nova-scheduler must not start with this
        configuration.
    """
    client = PlacementClient(ADAPTER, microversion="1.36")
    placement = CloudPlacement(
        client, some_compute_nodes, create=_create_traits, delay=_AFTER_START
    )
    service = _service(placement)
    replaced = _replaced_by(service)
    entries = _entries_of_others()
    skipped = list(replaced.values())
    isolate = None
    watch = None
    if service.filters or service.shadow:
        watch = SchedulingWatch(service)
    if service.filters:
        conf = nova.conf.CONF
        if (
            conf.scheduler.enable_isolated_aggregate_filtering
            and request_filter.isolate_aggregates in entries
        ):
            # Our entry calls it: it must see the traits that ours require.
            isolate = request_filter.isolate_aggregates
            skipped.append(isolate)
    ours = RequestFilters(service, isolate, watch)
    for position, each in enumerate(entries):
        if each in skipped:
            entries[position] = _Replaced(_skip, each)
    # In place: other modules may have imported the list.
    request_filter.ALL_REQUEST_FILTERS[:] = [*entries, ours]
    for warning in filter(None, _warnings(service)):
        LOG.warning("%s", warning)
    if replaced:
        LOG.info(
            "Request filters of Nova that are not run, because ours take their"
            " place: %s.",
            ", ".join(f"{SAME_PURPOSE[name]} ({name})" for name in replaced),
        )
    # Nova makes one object of the class, without arguments
    # (nova/scheduler/host_manager.py, 27 to 34).
    fields = {"service": service, "client": client}
    rebuild = type(RebuildFilter.__name__, (RebuildFilter,), fields)
    if watch and service.filters and nova.conf.CONF[GROUP].count_hosts:
        return [rebuild, *counting(watch, rebuild)]
    return [rebuild]


def _replaced_by(service: Service) -> dict[str, NovaFilter]:
    """Return Nova's filters that are not run, by the name of ours."""
    found: dict[str, NovaFilter] = {}
    for each in service.filters:
        # An older Nova has no filter of some purposes.
        novas = getattr(request_filter, SAME_PURPOSE.get(each.name, ""), None)
        if novas:
            found[each.name] = novas
    return found


def _entries_of_others() -> list[Any]:
    """Return Nova's list as it would be without an earlier activation.

    It has the changes that others made since, and the earlier activation
    creates no more traits.
    """
    entries = []
    for each in request_filter.ALL_REQUEST_FILTERS:
        if isinstance(each, RequestFilters):
            placement = each.service.placement
            if placement:
                placement.stop()
        elif isinstance(each, _Replaced):
            entries.append(each.args[0])
        elif not isinstance(each, LastFilter):
            entries.append(each)
    return entries


def _create_traits(names: Collection[str]) -> tuple[str, ...]:
    """Create the traits that requests may name, without any request.

    Among them are those by which hosts learn what to report.
    """
    # Not Nova's own client: a worker that is forked meanwhile would inherit
    # its locks as they are.
    adapter = nova.utils.get_ksa_adapter("placement")
    client = PlacementClient(adapter, microversion="1.22")
    return client.ensure_traits(names)


class _Replaced(partial[bool]):
    """The place of a filter of Nova that is not run.

    It equals that filter: others, as Nova's own tests, look it up.
    """

    def __eq__(self, other: object) -> bool:
        if isinstance(other, _Replaced):
            other = other.args[0]
        return bool(self.args[0] == other)

    __hash__ = partial.__hash__


def _skip(
    _original: NovaFilter, _context: object, _request_spec: object
) -> bool:
    """Stand in for a filter of Nova, which a later activation can restore."""
    return False


def _warnings(service: Service) -> Iterator[str]:
    """Yield warnings of options without the effect that they seem to have.

    Some are empty.
    """
    options = service.options
    enabled = {each.name for each in service.filters}
    yield unsupported_nova()
    if service.implied_by and not has_libosinfo():
        yield (
            "[prefilter] require_implied_devices has no effect: install"
            " libosinfo for the Python of nova-scheduler."
        )
    prefers = options.preferred_properties or "preferences" in enabled
    weighers = nova.conf.CONF.filter_scheduler.weight_classes
    if prefers and WEIGHER not in weighers:
        yield (
            f"Preferred traits have no effect: add {WEIGHER} to"
            " [filter_scheduler] weight_classes."
        )
    for row in options.rows:
        # A bundled row may be for another release of Nova.
        if row in ROWS or enabled.isdisjoint(row.required_by):
            continue
        name = row.image_property
        if name is not None and name not in ImageMetaProps.fields:
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


def _service(placement: CloudPlacement) -> Service:
    conf = nova.conf.CONF
    register_opts(conf)
    try:
        for names in ("enabled_filters", "shadow_filters"):
            for name in STAYS_WITH_NOVA.keys() & conf[GROUP][names]:
                function, option = STAYS_WITH_NOVA[name]
                problem = (
                    f"{name!r} is for other schedulers: in nova-scheduler,"
                    f" Nova's own {function} takes its place. Remove it here."
                )
                advice = "It needs no option."
                if option:
                    advice = f"Set [scheduler] {option} = true."
                raise errors.InvalidOption(names, f"{problem} {advice}")
        stores = (InheritedStore, *_caches())
        return Service.from_conf(
            conf,
            {"minimum_compute_version": minimum_compute_version},
            placement=placement,
            look_up_server=look_up_server,
            look_up_server_options=look_up_server_options,
            stores=stores,
            in_nova=True,
            implied_by=implied_by,
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
    """Return what makes stores in the cache of ``[cache]``, if it is enabled.

    There the schedulers of all hosts share what they read.
    """
    conf = nova.conf.CONF
    if not conf.cache.enabled:
        return []
    try:
        region = oslo_cache.create_region()
        oslo_cache.configure_cache_region(conf, region)
        placement = conf.placement
        auth: Sequence[Any] = ()
        if placement.auth_type:
            auth = loading.get_auth_plugin_conf_options(placement.auth_type)
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
    # Schedulers of several clouds may use one cache.
    cloud: list[object] = [
        database.host,
        database.port,
        database.database,
        placement.region_name,
        placement.endpoint_override,
    ]
    cloud += [
        placement[each.dest]
        for each in auth
        if each.dest in ("auth_url", "endpoint")
    ]
    return [partial(CacheStore, region, cloud)]
