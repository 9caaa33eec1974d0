"""The options in the group ``[prefilter]``: what each is for, its values, its default, and what a wrong value does."""

import textwrap

import os_traits
from oslo_config import cfg

from os_prefilter.vocabulary.options import Options

GROUP = "prefilter"

OWNER_SERVICE_VERSION = 73
"""The service version of the first nova-compute that reports OWNER_NOVA, of Nova 34 (``nova/objects/service.py``)."""

# oslo-config-generator writes lines of 70 characters, each with "# " before it.
_WIDTH = 68


def _help(meaning: str, *, default: str, values: str = "", wrong: str = "", since: str = "0.1.0") -> str:
    """Return the help of an option: a paragraph, and a list that reads well in a sample file and in Sphinx.

    :param values: the valid values; empty where ``choices`` list them
    :param since: the release that had the option first
    :param wrong: which values stop the service, where these are more than the invalid ones
    """
    facts = (
        f"Values: {values}" if values else "",
        f"Default: {default}",
        f"A wrong value stops the service at its start{': ' if wrong else '.'}{wrong}",
        f"Since {since}.",
    )
    lines = [textwrap.fill(_one_line(meaning), _WIDTH, break_long_words=False, break_on_hyphens=False), ""]
    for fact in filter(None, facts):
        text = _one_line(fact)
        lines.append(textwrap.fill(f"- {text}", _WIDTH, subsequent_indent="  ", break_on_hyphens=False))
    return "\n".join(lines)


def _one_line(text: str) -> str:
    return " ".join(text.split())


OPTIONS = [
    cfg.ListOpt(
        "enabled_filters",
        default=[],
        help=_help(
            "The request filters to run, in this order.",
            values="names of installed filters, separated by commas; ``os-prefilter filter list`` shows them.",
            default="empty; no filter runs, and the library changes nothing.",
            wrong="a name that is not installed, does not load, or is offered or written twice.",
        ),
    ),
    cfg.StrOpt(
        "trait_scope",
        default="auto",
        choices=[
            (
                "auto",
                "as root_and_unsuffixed while no provider in Placement is nested or shared, and as root otherwise",
            ),
            ("root", "on the root provider only (root_required), as Nova does it"),
            (
                "root_and_unsuffixed",
                "on the unsuffixed request group as well, where that requests VCPU, PCPU or MEMORY_MB",
            ),
        ],
        help=_help(
            """
Where the traits that a host must have are required. All give the same candidates as long as the root provider of a
host has its VCPU, PCPU and MEMORY_MB, which holds for every virt driver of Nova; ``root_and_unsuffixed`` is several
times faster in a Placement without nested and shared providers, and slower in one that has any. ``auto`` queries
Placement for them every ``facts_interval`` seconds, by the fact ``nested_providers`` of the embedding service, which
the entry point for Nova provides; while that is not known, it is as ``root``. Forbidden traits stay on the root.
""",
            default="``auto``.",
        ),
    ),
    cfg.StrOpt(
        "no_host_reason",
        default="properties",
        choices=[
            (
                "off",
                "no request is rejected for want of a host before Placement is queried; the service's own words remain",
            ),
            ("properties", "the smallest set of properties that no host serves together"),
            ("counts", "the same, with how many hosts there are, and how many of them serve each property by itself"),
        ],
        help=_help(
            """
What a user is told of a request that no host can serve, in the fault of the server, in place of "No valid host was
found.". The hosts that have a trait are read from Placement the first time that a request requires it, and again after
``facts_interval`` seconds at least; Placement confirms each rejection. Capacity, aggregates and availability zones are
not considered. Needs a reader of Placement from the embedding service, which the entry point for Nova provides.
""",
            default="``properties``.",
        ),
    ),
    cfg.StrOpt(
        "unknown_values",
        default="skip",
        choices=[
            ("skip", "log one warning and keep everything else that the request requires"),
            ("reject", "reject the request with an error that lists the values that exist"),
        ],
        help=_help(
            """
What to do with a property whose value is not in the vocabulary. Where Nova's own filter refuses such a value (the sound
model, the format of ephemeral encryption, the security of a TPM's secret), the request is rejected in any case.
""",
            default="``skip``.",
        ),
    ),
    cfg.ListOpt(
        "reported_traits",
        default=[],
        help=_help(
            """
Traits that hosts report although no virt driver of Nova does so by itself: the ``CUSTOM_`` traits of the vocabulary,
and those standard ones that ``os-prefilter vocabulary list`` marks "if reported"; among them those of machine types
(``CUSTOM_COMPUTE_*MACHINE_*``) and of guests of one architecture (``CUSTOM_AARCH64_*``). Only these are required,
because a trait that no host reports excludes every host. The filter ``hpet`` needs no entry: enabling it is the
statement.
""",
            values="""
names of traits, separated by commas, or patterns with ``*`` (``CUSTOM_HYPERVISOR_TYPE_*``; ``*`` for all).
""",
            default="empty; none of them is required.",
            wrong="""
a name or pattern that matches none of them. That hosts do report them is not checked.
""",
        ),
    ),
    cfg.ListOpt(
        "emulated_architectures",
        default=[],
        help=_help(
            """
Architectures whose guests hosts of other architectures may run, by emulation, for images with
``hw_emulation_architecture``. Only for these are the qualified traits (``CUSTOM_AARCH64_*``) and
``CUSTOM_COMPUTE_ARCH_*`` reported, and required if ``reported_traits`` matches them: some fifteen to twenty on each
host that has the QEMU, for each architecture. Set it alike for the schedulers and for ``os-prefilter capabilities
report``.
""",
            values="names of architectures as Nova spells them, separated by commas, such as ``aarch64``.",
            default="""
empty; an image that names an architecture requires Nova's own ``COMPUTE_ARCH_*``, if there is one, and what hosts
report of guests of their own architecture.
""",
            wrong="one that is not the name of an architecture.",
        ),
    ),
    cfg.StrOpt(
        "config_templates",
        default="",
        help=_help(
            """
A YAML file of configuration templates: which traits a bare-metal node must have for ``deploy-config:TYPE=VALUE``, and
how Ironic applies it. Its templates replace the bundled ones of the same type and value, and add others.
""",
            values="the path of a file.",
            default="empty; the bundled templates alone.",
            wrong="a file that cannot be read, or is no such document.",
        ),
    ),
    cfg.ListOpt(
        "rules_dirs",
        default=[],
        help=_help(
            """
Directories whose ``*.yaml`` and ``*.yml`` files hold rules for the filter ``rules``: which traits a host must have, or
must not have, for image properties and extra specs of the operator's own. Files that change are read again after
``facts_interval`` seconds at most, and on SIGHUP. ``os-prefilter rules check`` finds mistakes before.
""",
            values="paths of directories, separated by commas.",
            default="empty; no rules.",
            wrong="""
with the filter ``rules`` enabled, a directory that cannot be read or a file with a mistake. Later, the rules of before
stay in use and the log says so. Directories without the filter ``rules`` in ``enabled_filters``, or the filter without
directories, log a warning.
""",
        ),
    ),
    cfg.FloatOpt(
        "facts_interval",
        default=60.0,
        min=0.0,
        help=_help(
            """
Seconds for which a fact about the deployment, such as the minimum version of all compute services, is used before it is
queried again. A request waits 5 seconds at most for facts and for Placement, all together.
""",
            values="a number of at least 0; with 0, each request queries it.",
            default="60.0.",
        ),
    ),
    cfg.ListOpt(
        "wait_for_answers",
        default=[],
        help=_help(
            """
Filters whose requirements are enforced only once every compute node has reported to Placement whether it can meet
them, so that enabling one excludes no capable host. ``os-prefilter readiness`` shows which compute nodes are missing.
Placement is queried again every ``facts_interval`` seconds. Needs the fact ``answers`` from the embedding service; the
entry point for Nova provides it.
""",
            values="""
names of filters, separated by commas, or ``*`` for all enabled filters without a gate of their own. A filter that is
not enabled is ignored with a warning.
""",
            default="empty; each filter enforces at once.",
            wrong="""
a filter that is not installed, has a gate of its own or is written the Nova way, or a service that does not provide
the fact.
""",
        ),
    ),
    cfg.ListOpt(
        "preferred_properties",
        default=[],
        help=_help(
            """
Properties whose traits are preferred instead of required: hosts that have the trait are weighed up by the weigher
``os_prefilter.nova.PreferredTraits``, and no host is excluded. A host without the trait that is chosen all the same
gets the request with the property in it, and may fail to start the guest: name only properties that such a host
ignores or can do without.
""",
            values="""
names of rows of the vocabulary, image properties or flavor extra specs, separated by commas, such as ``time_hpet`` or
``hw_time_hpet``; those that a request filter reads.
""",
            default="empty; all are required.",
            wrong="a name that no filter reads, or a property that Nova itself requires while it builds the query.",
        ),
    ),
    cfg.FloatOpt(
        "preferred_weight_multiplier",
        default=1.0,
        help=_help(
            """
The weight that the weigher ``os_prefilter.nova.PreferredTraits`` gives to a host with all traits that a request
prefers; one with half of them gets half of it. Nova's weighers of free memory, CPUs and disk give at most 1.0 each by
default. The metadata ``preferred_weight_multiplier`` of a host aggregate overrides it for the aggregate's hosts.
""",
            values="a number; 0.0 ignores preferences.",
            default="1.0.",
        ),
    ),
    cfg.BoolOpt(
        "tenant_aggregate_required",
        default=False,
        help=_help(
            """
Reject the requests of a tenant for which no host aggregate has the metadata ``filter_tenant_id``, in the filter
``tenant_isolation``; otherwise such a tenant may use every host. Nova has ``[scheduler]
placement_aggregate_required_for_tenants`` for its own filter.
""",
            values="``true`` or ``false``.",
            default="``false``.",
        ),
    ),
    cfg.BoolOpt(
        "metrics",
        default=False,
        help=_help(
            """
Count what each filter does, and how long it takes, in the default registry of prometheus_client (extra ``metrics``).
The service that embeds the pipeline serves them.
""",
            values="``true`` or ``false``.",
            default="``false``.",
            wrong="one that is neither, or ``true`` where prometheus_client is not installed.",
        ),
    ),
    cfg.BoolOpt(
        "decision_history",
        default=False,
        help=_help(
            """
Log each decision, the requirements for a request or why it was rejected, as one line of JSON at level INFO to the
logger ``os_prefilter.decisions``. ``os-prefilter decisions`` reads such a log. The service's logging determines where
the lines go and how long they are kept.
""",
            values="``true`` or ``false``; 1,000 decisions take about 1 MB.",
            default="``false``.",
        ),
    ),
    cfg.StrOpt(
        "owner_trait",
        default=os_traits.OWNER_NOVA,
        help=_help(
            "The trait of the providers that the service of the filter ``owner`` created.",
            values="the name of a trait.",
            default=f"``{os_traits.OWNER_NOVA}``.",
            wrong="""
one that is no name of a trait. That providers have it is not checked: where none has, the filter excludes all hosts,
or with ``owner_gate = coverage`` never begins.
""",
        ),
    ),
    cfg.ListOpt(
        "foreign_owner_traits",
        default=[os_traits.OWNER_CYBORG],
        help=_help(
            """
The traits of other owners, which the filter ``owner`` forbids in the unsuffixed group where it cannot request a
resource class in a group of its own.
""",
            values="names of traits, separated by commas; empty for no other owner.",
            default=f"``{os_traits.OWNER_CYBORG}``.",
            wrong="one that is no name of a trait, or is ``owner_trait``.",
        ),
    ),
    cfg.ListOpt(
        "owned_resource_classes",
        default=list(Options().owned_resource_classes),
        help=_help(
            """
Resource classes whose providers the owner creates: the filter ``owner`` requires its trait on a flavor's request group
that requests one of them, and on the root of the tree if VCPU, PCPU or MEMORY_MB are among them. A value replaces the
default: repeat it, and add the classes of ``[mdev_*] mdev_class``.
""",
            values="names of resource classes, separated by commas, or patterns with ``*``.",
            default=f"``{','.join(Options().owned_resource_classes)}``.",
            wrong="one that is no name of a resource class, nor a pattern of one.",
        ),
    ),
    cfg.StrOpt(
        "owner_gate",
        default="compute_version",
        choices=[
            (
                "compute_version",
                "wait until the minimum compute service version says that every compute reports the trait",
            ),
            ("coverage", "wait until each provider with COMPUTE_NODE has the trait in Placement, whatever reports it"),
            ("always", "enforce at once: every provider has the trait, or the embedding service is not Nova"),
        ],
        help=_help(
            """
When the filter ``owner`` begins to enforce; no restart is needed. ``compute_version`` needs the fact
``minimum_compute_version``, ``coverage`` the fact ``owner_coverage``, from the embedding service; the entry point for
Nova provides both.
""",
            default="``compute_version``.",
            wrong="""
none of these, ``coverage`` without VCPU, PCPU or MEMORY_MB in ``owned_resource_classes``, or the filter ``owner`` where
the service does not provide the fact.
""",
        ),
    ),
    cfg.IntOpt(
        "owner_compute_version",
        default=OWNER_SERVICE_VERSION,
        min=1,
        help=_help(
            "The compute service version from which on every provider has the owner trait.",
            values="a whole number of at least 1; ``owner_gate = compute_version`` compares it.",
            default=f"{OWNER_SERVICE_VERSION}, of the first nova-compute that reports the trait.",
            wrong="""
one that is no such number. One that is too low excludes hosts whose nova-compute does not report the trait.
""",
        ),
    ),
]
