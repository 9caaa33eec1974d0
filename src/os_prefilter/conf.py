"""The options in the group ``[prefilter]`` of oslo.config, and their plain form for the core."""

import re
from difflib import get_close_matches
from math import isfinite
from typing import Any

import os_traits
from oslo_config import cfg

from os_prefilter.errors import ConfigurationError, DocumentError, InvalidOption
from os_prefilter.extra_specs import is_resource_class
from os_prefilter.options import Options, matches_any
from os_prefilter.templates import Templates
from os_prefilter.terms import is_trait_name
from os_prefilter.texts import listed, shown
from os_prefilter.vocabulary import opt_in_traits

GROUP = "prefilter"

# How oslo.config says where a value comes from.
_LOCATION = re.compile(r"from LocationInfo\(location=.*?, detail='(.*?)'\)")

# nova/objects/service.py: the first nova-compute that reports OWNER_NOVA is of this service version.
_OWNER_SERVICE_VERSION = 73

OPTIONS = [
    cfg.ListOpt(
        "enabled_filters",
        default=[],
        help="""
The request filters to run, in this order. ``os-prefilter filter list`` shows those that are installed.
Empty, the default, changes nothing. A name that is not installed, does not load or is offered twice stops the service.
Since 0.1.0.
""",
    ),
    cfg.StrOpt(
        "trait_scope",
        default="root",
        choices=[
            ("root", "on the root provider only (root_required), as Nova does it"),
            (
                "root_and_unsuffixed",
                "on the unsuffixed request group as well, where that asks for VCPU, PCPU or MEMORY_MB",
            ),
        ],
        help="""
Where required traits of a host are asked for. Both give the same candidates as long as the root provider of a host has
its VCPU, PCPU and MEMORY_MB, which holds for every virt driver of Nova; ``root_and_unsuffixed`` is several times
faster in a Placement where no host has nested providers, and slower in one where any has. Forbidden traits stay on the
root. Since 0.1.0.
""",
    ),
    cfg.StrOpt(
        "unknown_values",
        default="skip",
        choices=[
            ("skip", "log one warning and keep everything else that the request asks for"),
            ("reject", "reject the request with an error that lists the values that exist"),
        ],
        help="""
What to do with a property whose value is not in the vocabulary. Where Nova's own filter refuses such a value (the sound
model, the format of ephemeral encryption, the security of a TPM's secret), the request is rejected in any case.
Since 0.1.0.
""",
    ),
    cfg.ListOpt(
        "reported_traits",
        default=[],
        help="""
Traits that hosts report although no virt driver of Nova does so by itself: the CUSTOM_ traits of the vocabulary, and
those standard ones that ``os-prefilter vocabulary list`` marks "if reported"; among them those of machine types
(``CUSTOM_COMPUTE_*MACHINE_*``) and of guests of one architecture (``CUSTOM_AARCH64_*``). By name or with ``*``
(``CUSTOM_HYPERVISOR_TYPE_*``; ``*`` for all). Only these are asked for, because a trait that no host reports excludes
every host. A pattern that matches none of them stops the service. The filter ``hpet`` needs no entry: enabling it is
the statement. Since 0.1.0.
""",
    ),
    cfg.StrOpt(
        "config_templates",
        default="",
        help="""
A YAML file of configuration templates: which traits a bare-metal node must have for ``deploy-config:TYPE=VALUE``, and
how Ironic applies it. Its templates replace the bundled ones of the same type and value, and add others. A file that
cannot be read, or is no such document, stops the service. Empty, the default: the bundled templates. Since 0.1.0.
""",
    ),
    cfg.ListOpt(
        "rules_dirs",
        default=[],
        help="""
Directories whose ``*.yaml`` and ``*.yml`` files hold rules for the filter ``rules``: which traits a host must have, or
must not have, for image properties and extra specs of the operator's own. A file with a mistake stops the service at
its start. Files that change are read again after ``facts_interval`` seconds at most, and on SIGHUP; if there is a
mistake then, the rules of before stay in use and the log says so. ``os-prefilter rules check`` finds mistakes before.
Empty, the default: no rules. Since 0.1.0.
""",
    ),
    cfg.FloatOpt(
        "facts_interval",
        default=60.0,
        min=0.0,
        help="""
Seconds for which a fact about the deployment, such as the minimum version of all compute services, is used before it is
asked for again. Since 0.1.0.
""",
    ),
    cfg.ListOpt(
        "wait_for_answers",
        default=[],
        help="""
Filters, by name or ``*`` for all that can wait, which ask for a trait only once every compute node says in Placement
whether it has it, so that enabling one excludes no host that can. ``os-prefilter readiness`` shows what is waited for.
Placement is asked again each ``facts_interval`` seconds. Needs the fact ``answers``, which the service that embeds the
pipeline provides; in Nova it is there. Empty, the default: enforce at once. Since 0.1.0.
""",
    ),
    cfg.BoolOpt(
        "metrics",
        default=False,
        help="""
Count what each filter does, and how long it takes, in the default registry of prometheus_client (extra ``metrics``).
The service that embeds the pipeline serves them. Since 0.1.0.
""",
    ),
    cfg.StrOpt(
        "owner_trait",
        default=os_traits.OWNER_NOVA,
        help="The trait by which the filter ``owner`` knows the providers of its own service. Since 0.1.0.",
    ),
    cfg.ListOpt(
        "foreign_owner_traits",
        default=[os_traits.OWNER_CYBORG],
        help="""
The traits of other owners, which the filter ``owner`` forbids in the unsuffixed group where it cannot ask for a
resource class in a group of its own. Since 0.1.0.
""",
    ),
    cfg.ListOpt(
        "owned_resource_classes",
        default=list(Options().owned_resource_classes),
        help="""
Resource classes whose providers the owner creates, by name or with ``*``: the filter ``owner`` requires its trait on a
flavor's request group that asks for one of them, and on the root of the tree if VCPU, PCPU or MEMORY_MB are among them.
A value replaces the default: repeat it, and add the classes of ``[mdev_*] mdev_class``. Since 0.1.0.
""",
    ),
    cfg.StrOpt(
        "owner_gate",
        default="compute_version",
        choices=[
            (
                "compute_version",
                "wait until the minimum compute service version says that every compute reports the trait",
            ),
            (
                "coverage",
                "wait until each provider with COMPUTE_NODE has the trait in Placement, whatever reports it",
            ),
            ("always", "enforce at once: every provider has the trait, or the embedding service is not Nova"),
        ],
        help="""
When the filter ``owner`` begins to enforce; no restart is needed. ``compute_version`` needs the fact
``minimum_compute_version``, ``coverage`` the fact ``owner_coverage``, which the service that embeds the pipeline
provides; in Nova both are there. Since 0.1.0.
""",
    ),
    cfg.IntOpt(
        "owner_compute_version",
        default=_OWNER_SERVICE_VERSION,
        min=1,
        help="The compute service version from which on every provider has the owner trait. Since 0.1.0.",
    ),
]


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return the options for oslo-config-generator (entry point group ``oslo.config.opts``)."""
    return [(GROUP, list(OPTIONS))]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options; doing so twice is harmless."""
    conf.register_opts(OPTIONS, group=GROUP)


def options_from(conf: cfg.ConfigOpts) -> Options:
    """Return the registered options as plain values.

    :raises InvalidOption: for a value that oslo.config cannot check by itself.
    """
    group: Any = conf[GROUP]
    if not isfinite(group.facts_interval):
        raise InvalidOption("facts_interval", f"{group.facts_interval} is not a number of seconds.")
    options = Options(
        mirror_to_unsuffixed=group.trait_scope == "root_and_unsuffixed",
        reject_unknown_values=group.unknown_values == "reject",
        reported_traits=tuple(group.reported_traits),
        templates=_templates(group.config_templates),
        owner_trait=group.owner_trait,
        foreign_owner_traits=tuple(group.foreign_owner_traits),
        owned_resource_classes=tuple(group.owned_resource_classes),
        wait_for_answers=tuple(group.wait_for_answers),
    )
    _check(options)
    if group.owner_gate == "coverage" and not options.owns_hosts:
        raise InvalidOption(
            "owner_gate", "coverage looks at compute nodes, and owned_resource_classes has none of theirs. Use always."
        )
    return options


def _templates(path: str) -> Templates | None:
    if not path:
        return None
    # Late: YAML is not needed without it.
    from os_prefilter.template_document import load_templates  # noqa: PLC0415

    try:
        return load_templates(path)
    except DocumentError as error:
        raise InvalidOption("config_templates", str(error)) from error


def refused(error: cfg.Error) -> ConfigurationError:
    """Return what oslo.config refused as an error of ours, with the file's name but without oslo.config's internals."""
    where = _LOCATION.sub(r"in \1", str(error).strip())
    return ConfigurationError(f"[{GROUP}] {where}")


def _check(options: Options) -> None:
    known = opt_in_traits()
    for pattern in options.reported_traits:
        if not any(matches_any(trait, (pattern,)) for trait in known):
            close = get_close_matches(pattern, known, cutoff=0.5)
            raise InvalidOption(
                "reported_traits",
                f"{shown(pattern)} matches no trait that is asked for only if hosts report it. Close to it: "
                f"{listed(close)}; 'os-prefilter vocabulary list' has all.",
            )
    for option, traits in (
        ("owner_trait", (options.owner_trait,)),
        ("foreign_owner_traits", options.foreign_owner_traits),
    ):
        for trait in traits:
            if not is_trait_name(trait):
                raise InvalidOption(option, f"{trait!r} is not a trait name: A-Z, 0-9 and _ only.")
    if options.owner_trait in options.foreign_owner_traits:
        raise InvalidOption(
            "foreign_owner_traits", f"it names {options.owner_trait}, the own owner_trait. Remove it there."
        )
    for pattern in options.owned_resource_classes:
        if not is_resource_class(pattern.replace("*", "_")):
            raise InvalidOption("owned_resource_classes", f"{pattern!r} is not a resource class, nor a pattern of one.")
