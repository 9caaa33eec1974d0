# SPDX-License-Identifier: Apache-2.0

"""Configuration of Sphinx; build with
``sphinx-build -W -n -b html docs docs/_build/html``.
"""

import logging
import sys
from importlib.metadata import version as installed_version
from pathlib import Path

_HERE = Path(__file__).parent
# The page of the differences from Nova is made from the list that the tests
# use.
sys.path[:0] = [str(_HERE / "_ext"), str(_HERE.parent)]

project = "os-prefilter"
author = "the os-prefilter authors"
copyright = "the os-prefilter authors, Apache License 2.0"  # noqa: A001 - the name is Sphinx's
release = version = installed_version("os-prefilter")

extensions = [
    "openstackdocstheme",
    "sphinx.ext.autodoc",
    "oslo_config.sphinxext",
    "stevedore.sphinxext",
    "cliff.sphinxext",
    "from_code",
    "host_tables",
    "nova_tables",
]
_GIT = _HERE.parent / ".git"
if (_GIT / "HEAD").exists() and not (_GIT / "shallow").exists():
    # reno reads the whole history of the repository. Where that is not there,
    # from_code gives the directive.
    extensions.append("reno.sphinxext")

exclude_patterns = ["_build", "releasenotes"]
# Read from the distribution that is installed, as below, not from tags of git.
openstackdocs_auto_name = openstackdocs_auto_version = False
html_theme = "openstackdocs"
# It warns where it cannot name the commit: in a source distribution, or in a
# clone that another user owns.
logging.getLogger("sphinx.openstackdocstheme.ext").addFilter(
    lambda record: "gitsha" not in record.msg
)
# No analytics; the search is Sphinx's own.
html_theme_options = {
    "analytics_tracking_code": "",
    "display_badge": False,
    "sidebar_search": True,
}
# The licence of the pages is the project's.
templates_path = ["_templates"]
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_title = f"os-prefilter {release}"
highlight_language = "none"

# What every listing has: once on the page.
_OF_LISTINGS = (
    "--format --column --quote --noindent --max-width --fit-width"
    " --print-empty --sort-column --sort-ascending"
)
autoprogram_cliff_ignored = [
    *_OF_LISTINGS.split(),
    "--sort-descending",
    "--help",
]
autoprogram_cliff_application = "openstack"

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
# An annotation, which is not evaluated, says Note; that is os_prefilter.Note,
# and what it is another name of.
suppress_warnings = ["ref.python"]

# Types of other projects: the build needs no network, so their documentation
# is not there to refer to.
nitpick_ignore_regex = [
    (
        "py:.*",
        r"(abc|argparse|collections|contextlib|logging|pathlib|threading|time|typing|types|importlib)(\..*)?",
    ),
    ("py:.*", r"(cfg|oslo_config|keystoneauth1|os_traits|stevedore)(\..*)?"),
    # Read from files or made by options, and not to be made by others.
    ("py:class", r"os_prefilter\.(rules|service\.metrics)\..*"),
    # Annotations that are strings come in pieces.
    ("py:class", r"(dict|tuple|Mapping)\[.*"),
    # Names beside the one that is documented: fields without a docstring of
    # their own, and constants of the module.
    ("py:(attr|data)", r"(client|(.*\.)?values|other_traits|ROOT|UNSUFFIXED)"),
    (
        "py:.*",
        r"((.*\.)?Nodes|Any|Callable|Iterable|Iterator|Mapping|Path|Self|Sequence|EntryPoint|Adapter|optional)",
    ),
]
