"""What nova-scheduler reads from the files that a deployment tool writes."""

from pathlib import Path
from typing import NamedTuple

from nova.conf import scheduler
from oslo_config import cfg

from os_prefilter.conf import register_opts
from tests.test_docs import DOCS, files_of

FILES = files_of(DOCS / "deployment-tools.rst")
"""The files that the page shows."""

DROP_IN = DOCS / "examples" / "nova" / "os-prefilter.conf"
NOVAS = "nova.scheduler.filters.all_filters"
OURS = "os_prefilter.nova.activate"
BLAZARS = "blazarnova.scheduler.filters.blazar_filter.BlazarFilter"
ENABLED = ["image_metadata", "owner"]
"""What all recipes enable."""


class Read(NamedTuple):
    """The options of nova-scheduler that activate our filters."""

    available_filters: list[str]
    enabled_filters: list[str]


def read_conf(*arguments: str | Path) -> Read:
    """Return the options as nova-scheduler reads them when started with these arguments."""
    conf = cfg.ConfigOpts()
    scheduler.register_opts(conf)
    register_opts(conf)
    conf([str(each) for each in arguments], project="nova", prog="nova-scheduler")
    return Read(conf.filter_scheduler.available_filters, conf.prefilter.enabled_filters)
