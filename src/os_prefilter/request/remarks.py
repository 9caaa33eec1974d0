"""Notes on what a request writes to no effect: names that Nova does not know, and traits that only choose a host."""

import re
from collections.abc import Iterator
from contextlib import suppress
from difflib import get_close_matches
from functools import cache, lru_cache
from itertools import chain, islice

from os_prefilter.common.errors import RequestRejected
from os_prefilter.common.quoting import quote
from os_prefilter.common.trait_names import Trait
from os_prefilter.request.named_traits import named_traits
from os_prefilter.request.requirements import Note
from os_prefilter.request.view import Request
from os_prefilter.vocabulary import QUALIFIED, ROWS, enabling_values, row_named, table
from os_prefilter.vocabulary.config_templates import PREFIX
from os_prefilter.vocabulary.image_properties import KEPT_BY_NOVA, LEGACY_NAMES
from os_prefilter.vocabulary.model import Row
from os_prefilter.vocabulary.without_rows import WITHOUT_ROWS, reason_without_row

# Between the names that are free. os_* is not: Glance and users have properties of their own there.
_OF_NOVA = ("hw_", "img_")
_FREE_IN_IMAGE = re.compile(rf"(trait:|{PREFIX}|hw_numa_(cpus|mem)\.\d+$)")
_FREE_IN_FLAVOR = re.compile(rf"((resources|trait)[a-zA-Z0-9_-]{{0,64}}:|preferred_trait:|{PREFIX})")
_OTHERS = ("resources:", "trait:", "preferred_trait:", PREFIX, "capabilities:", "aggregate_instance_extra_specs:")
_CUTOFF = 0.8
# Rows whose traits say what a host is, so that a request which names one has all that it asks for.
_OF_HOSTS = frozenset(("architecture", "cpu_thread_policy", "hypervisor_type", "vm_mode"))
# Longer ones have no near name; and a request may have any number of them.
_LONGEST, _MOST = 80, 10


def notes_on_names(request: Request) -> Iterator[Note]:
    """Yield a note for each image property and extra spec that Nova does not know, and that looks like one of its own.

    Slow, for commands: a scheduler has better things to do for each request.
    """
    for names, place, problem in (
        (request.image_properties, "image property", _problem_of_property),
        (request.extra_specs, "flavor extra spec", _problem_of_extra_spec),
    ):
        found = ((name, problem(name)) for name in names if isinstance(name, str) and len(name) <= _LONGEST)
        yield from islice((Note(f"{place} {name}", text, warn=True) for name, text in found if text), _MOST)


@lru_cache(maxsize=4096)
def _problem_of_property(name: str) -> str:
    if name in _properties() or _FREE_IN_IMAGE.match(name):
        return ""
    close = nearest_property(name)
    if close or name.startswith(_OF_NOVA):
        return f"Nova does not know it, and drops it{close}"
    return ""


@lru_cache(maxsize=4096)
def _problem_of_extra_spec(name: str) -> str:
    if name in _extra_specs() or _FREE_IN_FLAVOR.match(name) or reason_without_row(name):
        return ""
    namespace, colon, rest = name.partition(":")
    of_nova = f"{namespace}:" in _namespaces()
    known = [each for each in _extra_specs() if of_nova == each.startswith(f"{namespace}:")]
    close = _nearest(name, known if of_nova or not colon else [])
    others = () if of_nova or not colon else sorted((*_namespaces(), *_OTHERS))
    for other in get_close_matches(f"{namespace}:", others, cutoff=_CUTOFF):
        if other != f"{namespace}:" and not _problem_of_extra_spec(f"{other}{rest}"):
            close = f". Did you mean {quote(other + rest)}?"
            break
    if not close and name.startswith(_OF_NOVA) and name in _properties():
        return "Nova reads it of an image alone"
    return f"Nova knows no such extra spec{close}" if of_nova or close else ""


def nearest_property(name: str) -> str:
    """Return a question after the image property of Nova that is nearest to an unknown name, or nothing."""
    return _nearest(name, _properties()) if len(name) <= _LONGEST else ""


def _nearest(name: str, known: "Iterator[str] | frozenset[str] | list[str]") -> str:
    close = get_close_matches(name.lower(), sorted(known), n=1, cutoff=_CUTOFF)
    return f". Did you mean {close[0]}?" if close else ""


@cache
def _properties() -> frozenset[str]:
    rows = (row.image_property for row in table() if row.image_property)
    others = chain.from_iterable(each.image_properties for each in WITHOUT_ROWS)
    return KEPT_BY_NOVA | LEGACY_NAMES.keys() | {"vmware_adaptertype", *rows, *others}


@cache
def _extra_specs() -> frozenset[str]:
    others = chain.from_iterable(each.extra_specs for each in WITHOUT_ROWS)
    return frozenset(name for name in (*(row.extra_spec for row in table()), *others) if name and "*" not in name)


@cache
def _namespaces() -> frozenset[str]:
    """Return the namespaces of which Nova knows all extra specs."""
    names = chain((row.extra_spec or "" for row in ROWS), *(each.extra_specs for each in WITHOUT_ROWS))
    return frozenset(f"{start}:" for start, colon, rest in (name.partition(":") for name in names) if rest.strip("*"))


def notes_on_named_traits(request: Request) -> Iterator[Note]:
    """Yield a note for each trait that a request names without the property by which Nova gives the guest the device.

    Nova's scheduler chooses a host by the trait; its drivers read properties alone, and the guest starts without it.
    """
    # A malformed name is for the filters to reject, and for the query.
    with suppress(RequestRejected):
        for each in named_traits(request) if request.names_traits else ():
            rows = _rows_by_trait().get(each.trait, ()) if each.required and request.is_of_host(each.scope) else ()
            if rows and not any(trait in _traits_by_property(request, row) for row, trait in rows):
                names = " or ".join(name for row, _ in rows for name in (row.image_property, row.extra_spec) if name)
                reason = f"Nova only chooses a host by it; it builds the guest by {names}, which does not ask for it"
                yield Note(str(each.source), reason, warn=True)


def _traits_by_property(request: Request, row: Row) -> frozenset[Trait]:
    """Return the traits that the properties of a row require by themselves."""
    values = _values_by_property(request, row)
    depends_on = row.depends_on
    if not values and depends_on and depends_on.default:
        beside = _values_by_property(request, row_named(depends_on.row)) & enabling_values(depends_on)
        values = {depends_on.default} if beside else values
    return frozenset(trait for value in values for trait in row.values[value].traits)


def _values_by_property(request: Request, row: Row) -> set[str]:
    in_image = request.image_property(row.image_property) if row.image_property else None
    in_flavor = (request.extra_spec(row.extra_spec) if row.extra_spec else None) or None
    return {value for raw in (in_image, in_flavor) if raw is not None and (value := row.canonical(raw)) is not None}


@cache
def _rows_by_trait() -> dict[Trait, tuple[tuple[Row, Trait], ...]]:
    """Return the rows that set up what a trait stands for, each with the trait under its own name."""
    names: dict[Trait, tuple[tuple[Row, Trait], ...]] = {}
    for row in ROWS:
        if row.name in _OF_HOSTS or not (row.image_property or row.extra_spec):
            continue
        of_row = [(trait, trait) for trait in row.traits]
        of_row += [
            (name, trait) for (trait, _), name in QUALIFIED.items() if row.per_architecture and trait in row.traits
        ]
        for name, trait in of_row:
            names[name] = (*names.get(name, ()), (row, trait))
    return names
