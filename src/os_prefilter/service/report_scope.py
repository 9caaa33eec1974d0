"""Traits that hosts report: all that the enabled filters may require or forbid, and the marker that says so.

Placement sends every trait of a host with each candidate, so a trait that no request can require is not reported. The
schedulers and the agents read the same options, and the marker of a report names what it covers: a gate does not take a
host for reported that was configured otherwise.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256

from oslo_config import cfg

from os_prefilter.common.trait_names import CUSTOM_PREFIX, Trait
from os_prefilter.request.filter_contract import LoadedFilter
from os_prefilter.service.conf import GROUP, options_from, register_opts
from os_prefilter.service.loading import load_filters
from os_prefilter.vocabulary import BY_NAME, REPORTED, REPORTED_CUSTOM, opt_in_traits, rows_required_by
from os_prefilter.vocabulary.machine_types import ARCHITECTURES
from os_prefilter.vocabulary.model import is_custom_marker, is_reported_marker
from os_prefilter.vocabulary.options import Options

_DIGITS = 8


@dataclass(frozen=True)
class ReportScope:
    """The traits that hosts report where they have them."""

    traits: frozenset[str] | None = None
    """None for every trait that a reporter can own."""
    emulated: frozenset[str] = frozenset(ARCHITECTURES.split())
    """The architectures that hosts may emulate: the option ``emulated_architectures``."""

    def restrict(self, traits: Mapping[str, bool]) -> dict[str, bool]:
        """Return the same answers, with a no for each trait that is not to be reported."""
        return {trait: has and (self.traits is None or trait in self.traits) for trait, has in traits.items()}

    @property
    def known(self) -> frozenset[str]:
        """The ``CUSTOM_`` traits that Placement must know, because a query may name them."""
        traits = opt_in_traits() if self.traits is None else self.traits
        return frozenset(trait for trait in traits if trait.startswith(CUSTOM_PREFIX))

    @property
    def marker(self) -> Trait:
        """The marker of a host that has reported all of these traits that it has."""
        return self._with_digest(REPORTED)

    @property
    def custom_marker(self) -> Trait:
        """The same for the ``CUSTOM_`` ones among them: a provider configuration file of Nova's takes no others."""
        return self._with_digest(REPORTED_CUSTOM)

    def markers(self, reported_by: frozenset[Trait]) -> frozenset[Trait]:
        """Return the traits of which a host has one if it has reported, for those of a host that reports everything."""
        return reported_by | {
            self._with_digest(marker) for marker in (REPORTED, REPORTED_CUSTOM) if marker in reported_by
        }

    def is_of_another(self, trait: str) -> bool:
        """Return whether a trait is the marker of a report that does not say that all of this scope was reported."""
        if not (is_reported_marker(trait) or is_custom_marker(trait)):
            return False
        return trait not in self.markers(frozenset((REPORTED, REPORTED_CUSTOM)))

    def _with_digest(self, marker: Trait) -> Trait:
        if self.traits is None:
            return marker
        names = (*sorted(self.traits), *sorted(self.emulated))
        digest = sha256(" ".join(names).encode()).hexdigest()[:_DIGITS].upper()
        return Trait(f"{marker}_{digest}")


EVERY_TRAIT = ReportScope()
"""Scope of a host that reports all that its reporter finds out."""


def report_scope(filters: Collection[LoadedFilter], options: Options) -> ReportScope:
    """Return the traits that these filters, and Nova's own query, may require or forbid of a host.

    With all that ``reported_traits`` names in full: flavors, rules and filters of other packages may require them.
    """
    query = {trait for row in rows_required_by("query") for trait in row.traits}
    named = opt_in_traits().intersection(options.reported_traits)
    of_filters = (_of_rows(each, options) for each in filters)
    # What has a gate of its own, such as the owner's trait, is not of the host's abilities.
    declared = (each.declaration.traits(options) for each in filters if not each.declaration.gate)
    traits = frozenset().union(query, filter(options.reports, named), *of_filters, *declared)
    return ReportScope(traits, options.emulated_architectures)


def configured_scope(conf: cfg.ConfigOpts) -> ReportScope:
    """Return the scope of the filters that ``[prefilter] enabled_filters`` names.

    :raises ConfigurationError: if an option is wrong, or a filter does not load
    """
    return report_scope(*_configured(conf))


def configured_traits(conf: cfg.ConfigOpts) -> frozenset[str]:
    """Return the traits that the filters which ``[prefilter] enabled_filters`` names may require or forbid.

    :raises ConfigurationError: if an option is wrong, or a filter does not load
    """
    filters, options = _configured(conf)
    return frozenset().union(*(traits_named_by(each, options) for each in filters))


def _configured(conf: cfg.ConfigOpts) -> tuple[tuple[LoadedFilter, ...], Options]:
    register_opts(conf)
    options = options_from(conf)
    return tuple(load_filters(conf[GROUP].enabled_filters, provided=None)), options


def traits_named_by(each: LoadedFilter, options: Options) -> frozenset[str]:
    """Return the traits that a filter may require or forbid: Placement refuses a query with one that it lacks.

    Without the traits of operators' rules, and without those of a filter that neither the vocabulary nor the filter's
    own declaration names.
    """
    declared = each.declaration
    return frozenset((*_of_rows(each, options), *declared.traits(options), *declared.other_traits(options)))


def _of_rows(each: LoadedFilter, options: Options) -> Iterable[str]:
    rows = rows_required_by(each.name)
    # Of a device, hosts with some default machine types are excluded.
    opt_in = opt_in_traits((*rows, BY_NAME["default_machine"])) if rows else frozenset()
    by_drivers = {trait for row in rows for trait in row.traits} - opt_in
    return (*by_drivers, *filter(options.reports, opt_in))
