"""All that schedulers could want, and the markers of a host that has reported it."""

from os_prefilter.hosts.reports import REPORTED, WANTED, names_with, parts_by_trait, parts_of
from os_prefilter.vocabulary import opt_in_traits
from os_prefilter.vocabulary.config_templates import BUNDLED
from os_prefilter.vocabulary.machine_types import ARCHITECTURES

EVERY_ARCHITECTURE = frozenset(ARCHITECTURES.split())
EVERY_PART = parts_of(BUNDLED, EVERY_ARCHITECTURE)
EVERY_KEY = frozenset(key for part in EVERY_PART for key in part.keys)
ALL_REPORTED = frozenset(names_with(REPORTED, EVERY_KEY))
ALL_WANTED = frozenset(names_with(WANTED, EVERY_KEY))
CUSTOM_TRAITS = frozenset(trait for trait in opt_in_traits() if trait.startswith("CUSTOM_"))
_PARTS = parts_by_trait(BUNDLED, EVERY_ARCHITECTURE)


def marker_of(*traits: str) -> str:
    """Return the report marker of a host that has reported the parts of these traits."""
    (name,) = names_with(REPORTED, {min(_PARTS[trait].keys) for trait in traits})
    return name
