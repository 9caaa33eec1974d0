"""The vocabulary and the installed filters as tables, for the commands and the documentation."""

from collections.abc import Iterator

from os_prefilter.conf.options import effective_templates
from os_prefilter.errors import ConfigurationError
from os_prefilter.filters.loading import installed_filters, load_filters
from os_prefilter.vocabulary import table
from os_prefilter.vocabulary.model import Term

VOCABULARY_COLUMNS = (
    "Image property",
    "Flavor extra spec",
    "Value",
    "Also spelt",
    "Rule",
    "Trait",
    "Kind",
    "When",
    "Asked by",
    "Why none",
)
FILTER_COLUMNS = ("Name", "What it does", "From")


def vocabulary() -> list[tuple[str, ...]]:
    """Return one line for each value of each row of the vocabulary."""
    lines: list[tuple[str, ...]] = []
    for row in table():
        place = ", ".join(filter(None, (row.image_property or row.image_attribute, *row.legacy_names)))
        for value, term in row.values.items():
            also = ", ".join(old for old, new in row.legacy_values.items() if new == value)
            rule = "" if term.trait is None else "required" if term.required else "forbidden"
            when = "" if term.trait is None else "if reported" if term.opt_in else "always"
            asked_by = ", ".join(row.asked_by)
            lines.append(
                (
                    place,
                    row.extra_spec or "",
                    value,
                    also,
                    rule,
                    term.trait or "",
                    term.kind,
                    when,
                    asked_by,
                    term.reason,
                )
            )
    return [*lines, *_configurations()]


def _configurations() -> Iterator[tuple[str, ...]]:
    """Yield one line for each trait that a bundled configuration template needs."""
    for template in effective_templates(None):
        name = template.extra_spec
        for trait in template.traits:
            kind = Term(trait).kind
            yield name, name, template.value, "", "required", trait, kind, "always", "deploy_config", ""


def filters() -> list[tuple[str, str, str]]:
    """Return the installed filters: name, what it does, and where it comes from.

    One that does not load is listed with the reason; only enabling it is an error.
    """
    return [(name, _summary(name), target) for name, target in installed_filters().items()]


def _summary(name: str) -> str:
    try:
        return load_filters([name], provided=None)[0].summary
    except ConfigurationError as error:
        return f"does not load: {error}"
