# SPDX-License-Identifier: Apache-2.0

"""Options in the group ``[prefilter]``: meaning, values and defaults."""

import textwrap

import os_traits
from oslo_config import cfg, types

from os_prefilter.vocabulary import BY_NAME
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
Where required traits go; forbidden ones stay on the root. All values give the
same candidates. ``root_and_unsuffixed`` is several times faster in a Placement
without nested and shared providers, and slower in one that has any. ``auto``
needs the fact ``nested_providers``, which the entry point for Nova provides;
while that is not known, it is ``root``.
""",
    ),
    cfg.StrOpt(
        "no_host_reason",
        default="properties",
        choices=[
            (
                "off",
                (
                    "no request is rejected before Placement is queried; the"
                    " service's own words remain"
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
The reason in the fault of a server for which there is no host, in place of "No
valid host was found.": the properties that no host has, by Placement's word;
with ``count_hosts``, also the resource that is short, or in plain words the
host filter that left no host. Needs a reader of Placement from the embedding
service, which the entry point for Nova provides.
""",
    ),
    cfg.BoolOpt(
        "count_hosts",
        default=True,
        help="""
Count the hosts before and after each host filter of nova-scheduler, and ask
Placement what is short if it has no candidate, for metrics, the history of
decisions and ``no_host_reason``. It changes no choice of a host. The line
``available_filters = os_prefilter.nova.activate`` must be the last one of its
option.
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
Optional traits that hosts report and filters may require: those that no virt
driver of Nova reports by itself, in ``os-prefilter vocabulary list`` marked
"if reported". Each makes Placement's responses longer by its name. The filter
``hpet`` needs no entry. Agents read from Placement what the schedulers want:
compute hosts need no such option.

Values: names of traits or patterns such as ``CUSTOM_HYPERVISOR_TYPE_*``,
separated by commas; ``*`` for all.
""",
    ),
    cfg.ListOpt(
        "emulated_architectures",
        default=[],
        item_type=types.String(
            choices=sorted(BY_NAME["emulation_architecture"].values)
        ),
        help="""
Architectures whose guests hosts of other architectures may run, for images
with ``hw_emulation_architecture``. Only for these are the qualified traits
(``CUSTOM_AARCH64_*``) and ``CUSTOM_COMPUTE_ARCH_*`` reported, and required if
``reported_traits`` matches them: some fifteen to twenty for each, on each host
that has the QEMU.

Values: names of architectures as Nova spells them, separated by commas, such
as ``aarch64``.
""",
    ),
    cfg.StrOpt(
        "config_templates",
        default="",
        help="""
A file of configuration templates: the traits that a bare-metal node must have
for ``deploy-config:TYPE=VALUE``, and how Ironic applies it. Its templates
replace the bundled ones of the same type and value, and add others.
nova-scheduler, nova-api and Ironic's conductors must have the same; nova-api
reads it if ``enabled_filters`` in its own configuration names
``deploy_config``.

Values: the path of a YAML file.
""",
    ),
    cfg.ListOpt(
        "rules_dirs",
        default=[],
        help="""
Directories whose ``*.yaml`` and ``*.yml`` files hold the operator's rules for
the filter ``rules``. Files that change are read again after ``facts_interval``
seconds at most, and on SIGHUP; the log says if the rules of before stay in use
because of a mistake. ``os-prefilter rules check`` finds mistakes before.

Values: paths of directories, separated by commas.
""",
    ),
    cfg.FloatOpt(
        "facts_interval",
        default=60.0,
        min=0.0,
        # Agents go on reporting for an hour what is no longer wanted: by then
        # a scheduler has told again that it is.
        max=1800.0,
        help="""
Seconds for which a fact about the deployment, such as the minimum version of
all compute services, is used before it is queried again; or twenty times as
long as the query took, if that is longer. A request waits 5 seconds at most
for facts and for Placement, all together.
""",
    ),
    cfg.BoolOpt(
        "nova_builds_guests",
        default=True,
        help="""
Nova's own drivers build the guests: they read properties and extra specs
alone. nova-scheduler then rejects a request that names the device of an
enabled filter by its trait without the property
(``trait:CUSTOM_COMPUTE_TIME_HPET``), and one with two values that no guest of
Nova has together, such as Secure Boot on x86_64 without UEFI, and says what to
set. A server that exists is rejected for neither. With false, for a driver
that takes ``guest_settings``, the first is a warning, and the second is left
to the driver.
""",
    ),
    cfg.BoolOpt(
        "require_implied_devices",
        default=False,
        help="""
Require also the network card and the disk bus that libosinfo names for the
``os_distro`` of an image, as if the image named them: Nova's libvirt driver
gives them to the guest where nova-compute has libosinfo. nova-scheduler needs
libosinfo with its Python binding, best with the same database; what that does
not know is not required.
""",
    ),
    cfg.BoolOpt(
        "wait_for_reports",
        default=True,
        help="""
Enforce a requirement only once every compute node has reported whether it can
meet it, so that enabling a filter excludes no capable host; ``os-prefilter
readiness`` shows which compute nodes are missing. The filter ``owner`` waits
until every compute node has its trait. Needs the facts ``reports`` and
``owner_coverage`` from the embedding service, which the entry point for Nova
provides; without them, and with false, requirements are enforced at once.
""",
    ),
    cfg.ListOpt(
        "preferred_properties",
        default=[],
        help="""
Properties whose traits are preferred instead of required: the weigher
``os_prefilter.nova.PreferredTraits`` prefers hosts that have the trait, and no
host is excluded. A host without it gets the request with the property in it,
and may fail to start the guest: name only properties that such a host ignores
or can do without.

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
The trait of the providers that the service of the filter ``owner`` created.
Whether they have it is not checked: where none has, the filter excludes all
hosts.

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
