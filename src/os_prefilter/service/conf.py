# SPDX-License-Identifier: Apache-2.0

"""Read and check the options in the group ``[prefilter]`` of oslo.config.

The core gets them as plain values.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from typing import Any

from oslo_config import cfg
from oslo_config.iniparser import ParseError

from os_prefilter.common.errors import (
    ConfigurationError,
    DocumentError,
    InvalidOption,
)
from os_prefilter.common.logs import get_logger
from os_prefilter.common.placement_values import is_resource_class
from os_prefilter.common.quoting import escape_line, join_names, quote
from os_prefilter.service.option_definitions import OPTIONS
from os_prefilter.vocabulary import opt_in_traits
from os_prefilter.vocabulary.config_templates import BUNDLED, Templates
from os_prefilter.vocabulary.model import UnknownValues
from os_prefilter.vocabulary.options import (
    Options,
    TraitScope,
    matches_any,
    names_of,
)

LOG = get_logger(__name__)

GROUP = "prefilter"

# How oslo.config says where a value comes from.
_LOCATION = re.compile(r"from LocationInfo\(location=.*?, detail='(.*?)'\)")


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return the options for oslo-config-generator.

    It is an entry point of the group ``oslo.config.opts``.
    """
    return [(GROUP, list(OPTIONS))]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options; doing so twice is harmless."""
    conf.register_opts(OPTIONS, group=GROUP)


def warn_of_misspelt_names(conf: cfg.ConfigOpts) -> None:
    """Log each misspelt option or section, with a suggestion."""
    for misspelt in misspelt_names(conf):
        LOG.warning("%s", misspelt)


def misspelt_names(conf: cfg.ConfigOpts) -> Iterator[str]:
    """Yield a sentence for each misspelt option or section.

    These are unknown names in the section ``[prefilter]``, and sections with
    almost that name.

    oslo.config takes such a line without a word, and the option keeps its
    default.
    """
    try:
        files = [Path(each) for each in conf.config_file or ()]
        for folder in conf.config_dir or ():
            files += sorted(Path(folder).glob("*.conf"))
    except cfg.NoSuchOptError:
        # It was not read from files.
        return
    known = {option.dest for option in OPTIONS}
    for path in files:
        sections: dict[str, dict[str, Any]] = {}
        with suppress(OSError, UnicodeError, ParseError):
            # oslo.config has read the file, and reports what is wrong with it.
            cfg.ConfigParser(str(path), sections).parse()
        where = escape_line(str(path))
        for section, values in sections.items():
            if section.lower() == GROUP:
                for name in sorted(values.keys() - known):
                    yield (
                        f"{where}: [{GROUP}] has no option {quote(name)}; the"
                        f" line is ignored.{_ask(name, known)}"
                    )
            elif question := _ask(section, (GROUP,)):
                yield (
                    f"{where}: the section [{escape_line(section)}] is not one"
                    f" of os-prefilter.{question}"
                )


def _ask(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name.lower(), sorted(known), n=1, cutoff=0.7)
    return f" Did you mean {close[0]}?" if close else ""


def options_from(conf: cfg.ConfigOpts, *, in_nova: bool = False) -> Options:
    """Register the options, and return them as plain values.

    :param in_nova: True for requests of Nova, whose drivers may build the
        guests
    :raises ConfigurationError: for a wrong value.
    """
    register_opts(conf)
    check_values(conf)
    group: Any = conf[GROUP]
    # oslo.config's bounds let NaN pass; a weight of NaN orders no hosts.
    numbers = (
        "facts_interval",
        "live_migration_cpu_weight_multiplier",
        "preferred_weight_multiplier",
    )
    for name in numbers:
        if not isfinite(group[name]):
            raise InvalidOption(
                name, f"{group[name]} is not a finite number. Correct it."
            )
    options = Options(
        trait_scope=TraitScope(group.trait_scope),
        unknown_values=UnknownValues(group.unknown_values),
        reported_traits=tuple(group.reported_traits),
        templates=_templates(group.config_templates),
        owner_trait=group.owner_trait,
        foreign_owner_traits=tuple(group.foreign_owner_traits),
        owned_resource_classes=tuple(group.owned_resource_classes),
        nova_builds_guests=in_nova and group.nova_builds_guests,
        wait_for_reports=group.wait_for_reports,
        preferred_properties=tuple(group.preferred_properties),
        tenant_aggregate_required=group.tenant_aggregate_required,
    )
    _check_names(options)
    if options.owner_trait in options.foreign_owner_traits:
        raise InvalidOption(
            "foreign_owner_traits",
            f"it names {options.owner_trait}, the own owner_trait. Remove it"
            " there.",
        )
    return options


def check_values(conf: cfg.ConfigOpts) -> None:
    """Check what oslo.config can check by itself.

    :raises ConfigurationError: for a value that it refuses, or an empty one.
    """
    for option in OPTIONS:
        try:
            value = conf[GROUP][option.dest]
        except (
            cfg.NoSuchOptError,
            cfg.NoSuchGroupError,
            cfg.TemplateSubstitutionError,
        ) as error:
            # What follows a $; oslo.config does not say where that was read.
            raise InvalidOption(
                option.dest,
                f"{error}. Write $$ for a $, or correct the name after it.",
            ) from error
        except cfg.Error as error:
            # With the file's name, but without oslo.config's internals.
            where = _LOCATION.sub(r"in \1", str(error).strip()).rstrip(".")
            expected = "; expected true or false" if "boolean" in where else ""
            problem = (
                f"[{GROUP}] {where}{expected}. Correct it, or remove it for"
                " the default."
            )
            raise ConfigurationError(problem) from error
        if value is None:
            # oslo.config reads an empty number as None.
            raise InvalidOption(
                option.dest,
                "it is empty. Give a value, or remove the line for"
                f" {option.default}.",
            )


def _templates(path: str) -> Templates:
    if not path:
        return BUNDLED
    # Late: YAML and jsonschema are not needed without it.
    from os_prefilter.service.config_templates_file import (  # noqa: PLC0415
        load_templates,
    )

    try:
        return load_templates(path)
    except DocumentError as error:
        raise InvalidOption("config_templates", str(error)) from error


def _check_names(options: Options) -> None:
    """Check that the options name existing traits, properties and classes."""
    traits = opt_in_traits()
    for pattern in sorted(options.reported_traits):
        if not any(matches_any(trait, (pattern,)) for trait in traits):
            what = "a trait required only if hosts report it"
            raise _invalid_name("reported_traits", pattern, what, traits)
    # What Nova's query translates is required whatever we do.
    rows = [
        row
        for row in options.rows
        if set(row.required_by) - {"query"} and row.traits
    ]
    properties = frozenset().union(*map(names_of, rows))
    for name in sorted(options.preferred_properties):
        if name not in properties:
            what = "a property that a filter requires"
            raise _invalid_name("preferred_properties", name, what, properties)
    for name in options.owned_resource_classes:
        if not is_resource_class(name.replace("*", "_")):
            problem = (
                f"{quote(name)} is not a resource class, nor a pattern of one."
                " Correct it, or remove it."
            )
            raise InvalidOption("owned_resource_classes", problem)


def _invalid_name(
    option: str, name: str, what: str, names: Collection[str]
) -> InvalidOption:
    valid = join_names(get_close_matches(name, names, 3, cutoff=0.0))
    return InvalidOption(
        option,
        f"{quote(name)} is not {what}. Valid names include {valid}."
        " Correct it.",
    )
