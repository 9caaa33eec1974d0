# SPDX-License-Identifier: Apache-2.0

"""What nova-scheduler reads from the files that a deployment tool writes."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from nova.conf import scheduler
from oslo_config import cfg

from os_prefilter.service.conf import register_opts
from tests.support.pages import DOCS, DROP_IN, files_of

FILES = files_of(DOCS / "deployment-tools.rst")
"""The files that the page shows."""

NOVAS = "nova.scheduler.filters.all_filters"
OURS = "os_prefilter.nova.activate"
BLAZARS = "blazarnova.scheduler.filters.blazar_filter.BlazarFilter"
_OPTIONS = ("enabled_filters", "reported_traits", "wait_for_reports")


class Read(NamedTuple):
    available_filters: list[str]
    section: dict[str, object]
    """Of ``[prefilter]``, what the recipes set."""


def read_conf(*arguments: str | Path) -> Read:
    """Return the options as nova-scheduler reads them when started with these
    arguments.
    """
    conf = cfg.ConfigOpts()
    scheduler.register_opts(conf)
    register_opts(conf)
    conf(
        [str(each) for each in arguments],
        project="nova",
        prog="nova-scheduler",
    )
    return Read(
        conf.filter_scheduler.available_filters,
        {name: conf.prefilter[name] for name in _OPTIONS},
    )


SECTION = read_conf("--config-file", DROP_IN).section
"""What all recipes, and the pages, recommend."""
NOTHING = read_conf("--config-file", "/dev/null").section
