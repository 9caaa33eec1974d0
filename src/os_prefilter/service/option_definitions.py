# SPDX-License-Identifier: Apache-2.0

"""Options in the group ``[prefilter]``: meaning, values and defaults."""

import textwrap

import os_traits
from oslo_config import cfg, types

from os_prefilter.vocabulary.options import Options

# oslo-config-generator writes lines of 70 characters, each with "# " before
# it.
_WIDTH = 68
_TRAIT_NAME = r"^[A-Z0-9_]{1,255}\Z"


OPTIONS = [
    cfg.ListOpt(
        "enabled_filters",
        default=[],
        help="""
The request filters to run, in this order. With none, the library changes
nothing.

Values: names of installed filters (``os-prefilter filter list``), separated by
commas.
""",
    ),
    cfg.ListOpt(
        "shadow_filters",
        default=[],
        help="""
Request filters to try: each runs after the enabled ones, as if it were the
last of them, and changes nothing. ``decision_history`` and ``metrics`` record
how many of Placement's candidates lack what it requires; hosts report for it
as for an enabled filter. To enable it, move its name to ``enabled_filters``.

Values: names of installed filters, separated by commas, none of which is in
``enabled_filters``.
""",
    ),
    cfg.StrOpt(
        "trait_scope",
        default="auto",
        choices=[
            (
                "auto",
                (
                    "root_and_unsuffixed while no provider in Placement is"
                    " nested or shared, root otherwise"
                ),
            ),
            (
                "root",
                "on the root provider only (root_required), as Nova does it",
            ),
            (
                "root_and_unsuffixed",
                (
                    "also on the unsuffixed request group where it requests"
                    " VCPU, PCPU or MEMORY_MB"
                ),
            ),
        ],
        help="""
Where the query requires traits; forbidden traits are always on the root
provider. All values give the same candidates, and differ in speed:
``root_and_unsuffixed`` is several times faster where Placement has no nested
or shared providers, and slower where it has any. ``auto`` chooses by the fact
``nested_providers``, which the entry point for Nova provides; until that is
known, it is ``root``.
""",
    ),
    cfg.StrOpt(
        "no_host_reason",
        default="properties",
        choices=[
            (
                "off",
                (
                    "the message of the service stays as it is; metrics and"
                    " the history of decisions have the reason"
                ),
            ),
            (
                "properties",
                "the smallest set of properties that no host serves together",
            ),
            (
                "counts",
                (
                    "also how many hosts there are, and how many serve each"
                    " property by itself"
                ),
            ),
        ],
        help="""
What the fault of a server says if there is no host for it, in place of "No
valid host was found.": the properties that no host has together, as Placement
confirms; or the trait that no host has, or the resource that no host has
enough of. With ``count_hosts`` it may also be the host filter that left no
host. Placement is asked only after it had no candidate.
""",
    ),
    cfg.BoolOpt(
        "count_hosts",
        default=True,
        help="""
Count the hosts before and after each host filter of nova-scheduler, for
metrics, the history of decisions and ``no_host_reason``. It changes no choice
of a host. The line ``available_filters = os_prefilter.nova.activate``
must be the last one of its option.
""",
    ),
    cfg.StrOpt(
        "unknown_values",
        default="skip",
        choices=[
            (
                "skip",
                (
                    "log one warning and keep everything else that the request"
                    " requires"
                ),
            ),
            (
                "reject",
                (
                    "reject the request with an error that lists the values"
                    " that exist"
                ),
            ),
        ],
        help="""
What to do with a property whose value is not in the vocabulary. Where Nova's
own filter refuses such a value (the sound model, the format of ephemeral
encryption, the security of a TPM's secret), the request is rejected in any
case.
""",
    ),
    cfg.ListOpt(
        "reported_traits",
        default=[],
        help="""
Traits that no virt driver of Nova reports by itself, but agents are to report
and filters may require. ``os-prefilter vocabulary list`` marks them "if
reported". Each makes Placement's responses longer by its name. The filter
``hpet`` needs no entry. Set this option on the schedulers alone: agents read
from Placement which traits are wanted.

Values: names of traits or patterns such as ``CUSTOM_HYPERVISOR_TYPE_*``,
separated by commas; ``*`` for all.
""",
    ),
    cfg.StrOpt(
        "config_templates",
        default="",
        help="""
A file of configuration templates: the traits that a bare-metal node must have
for ``deploy-config:TYPE=VALUE``, and how Ironic applies it. Its templates
replace the bundled ones of the same type and value, and add others.
nova-scheduler, nova-api and Ironic's conductors must have the same file;
nova-api reads it if ``enabled_filters`` in its own configuration names
``deploy_config``.

Values: the path of a YAML file.
""",
    ),
    cfg.ListOpt(
        "rules_dirs",
        default=[],
        help="""
Directories whose ``*.yaml`` and ``*.yml`` files have the operator's rules for
the filter ``rules``. Changed files are read again after ``facts_interval``
seconds at most, and on SIGHUP. If one has a mistake, the earlier rules stay in
use, and the log says so. ``os-prefilter rules check`` finds mistakes before
that. ``builtin:guest-systems`` names the rules that come with the package, on
the CPU that the system of an image needs.

Values: paths of directories or ``builtin:guest-systems``, separated by commas.
""",
    ),
    cfg.FloatOpt(
        "facts_interval",
        default=60.0,
        min=0.0,
        # Agents report a trait for an hour after it is no longer wanted: a
        # scheduler must renew its marker within that time.
        max=1800.0,
        help="""
Seconds between two queries for a fact about the deployment, such as the
minimum version of all compute services; after a slow query, twenty times as
long as the query took. A request waits at most 5 seconds for all facts and for
Placement together.
""",
    ),
    cfg.BoolOpt(
        "nova_builds_guests",
        default=True,
        help="""
Whether Nova's own drivers build the guests: they read properties and extra
specs, but no traits. With true, nova-scheduler rejects a request that names
the device of an enabled filter by its trait without the property
(``trait:CUSTOM_COMPUTE_TIME_HPET``), a request with two values that no guest
of Nova has together (Secure Boot on x86_64 without UEFI), and one with a value
that Nova ignores or refuses without another (the model of a TPM without a
version). The error says what to set; existing servers are not rejected for
this. With false, for a driver that uses ``guest_settings``, the first and the
last are warnings, and the driver decides on the second; hosts with several
``[libvirt] cpu_models`` are not forbidden for a CPU feature that the flavor
does not require, as they are with true.
""",
    ),
    cfg.BoolOpt(
        "require_implied_devices",
        default=False,
        help="""
Also require the network card and the disk bus that libosinfo names for the
``os_distro`` of an image, as if the image named them. Nova's libvirt driver
gives them to the guest where nova-compute has libosinfo. nova-scheduler needs
libosinfo with its Python binding, best with the same database; nothing is
required for an ``os_distro`` that it does not know.
""",
    ),
    cfg.BoolOpt(
        "wait_for_reports",
        default=True,
        help="""
Defer a requirement until every compute node has reported whether it can meet
it, so that enabling a filter excludes no capable host. ``os-prefilter
readiness`` shows which compute nodes have not reported. The filter ``owner``
waits until every compute node has its trait. With false, or without the facts
``reports`` and ``owner_is_reported``, which Placement knows,
requirements are enforced at once.
""",
    ),
    cfg.ListOpt(
        "preferred_properties",
        default=[],
        help="""
Properties whose traits are preferred instead of required. The weigher
``os_prefilter.nova.PreferredTraits`` prefers hosts that have the trait; no
host is excluded. The request keeps the property, and a host without the trait
may fail to start the guest: name only properties that such a host ignores or
can do without.

Values: names of image properties, flavor extra specs or rows of the
vocabulary, separated by commas, such as ``hw_time_hpet``; not those whose
traits Nova itself requires.
""",
    ),
    cfg.FloatOpt(
        "preferred_weight_multiplier",
        default=1.0,
        help="""
The weight that ``os_prefilter.nova.PreferredTraits`` gives to a host with all
traits that a request prefers; with 0.0, preferences have no effect. The
metadata ``preferred_weight_multiplier`` of a host aggregate overrides it for
its hosts.
""",
    ),
    cfg.FloatOpt(
        "live_migration_cpu_weight_multiplier",
        default=1000.0,
        min=0.0,
        help="""
The weight that ``os_prefilter.nova.PreferredTraits`` gives, at a live
migration, to each host with the CPU traits of the server's present host, and
half of it to each host with more: Nova refuses a destination that lacks a
feature of the guest's CPU. The default is more than Nova's other weighers give
together by their defaults, except to a host whose last builds failed. No host
is excluded. With 0.0, CPUs have no effect, and nothing is read for them.
""",
    ),
    cfg.BoolOpt(
        "tenant_aggregate_required",
        default=False,
        help="""
Reject the requests of a tenant for which no host aggregate has the metadata
``filter_tenant_id``, in the filter ``tenant_isolation``; otherwise such a
tenant may use every host. Not for Nova, which has ``[scheduler]
placement_aggregate_required_for_tenants``.
""",
    ),
    cfg.BoolOpt(
        "metrics",
        default=False,
        help="""
Count what each filter does, and how long it takes, in the default registry of
prometheus_client (extra ``metrics``), which the embedding service serves.
""",
    ),
    cfg.BoolOpt(
        "decision_history",
        default=False,
        help="""
Log each decision as one line of JSON at level INFO to the logger
``os_prefilter.decisions``, for ``os-prefilter decisions``. The service's
logging determines where the lines go; 1,000 decisions take about 1 MB.
""",
    ),
    cfg.StrOpt(
        "owner_trait",
        default=os_traits.OWNER_NOVA,
        regex=_TRAIT_NAME,
        help="""
The trait of the resource providers that the scheduling service owns; the
filter ``owner`` requires it. It is not checked that they have it: if none has,
the filter excludes all hosts.

Values: the name of a trait.
""",
    ),
    cfg.ListOpt(
        "foreign_owner_traits",
        default=[os_traits.OWNER_CYBORG],
        item_type=types.String(regex=_TRAIT_NAME),
        help="""
The traits of other owners, which the filter ``owner`` forbids in the
unsuffixed group where it cannot request a resource class in a group of its
own. With none, there is no other owner.

Values: names of traits, separated by commas.
""",
    ),
    cfg.ListOpt(
        "owned_resource_classes",
        default=list(Options().owned_resource_classes),
        help="""
Resource classes whose providers the owner creates: the filter ``owner``
requires its trait on each request group of a flavor that requests one of them,
and on the root if VCPU, PCPU or MEMORY_MB are among them. A value replaces the
default: repeat it, and add the classes of ``[mdev_*] mdev_class``. PCI devices
that a flavor requests by alias need no entry.

Values: names of resource classes or patterns with ``*``, separated by commas.
""",
    ),
]

for _option in OPTIONS:
    # Only at spaces: a command or an option must stay in one piece.
    _option.help = "\n\n".join(
        textwrap.fill(
            " ".join(each.split()),
            _WIDTH,
            break_long_words=False,
            break_on_hyphens=False,
        )
        for each in str(_option.help).split("\n\n")
    )
