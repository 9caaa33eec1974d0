"""The options of a placement.conf that limit allocation candidates; Placement's API does not show them.

Names, defaults and values are those of Placement 16.0.0 (``placement/conf/placement.py``); a test compares them.
"""

from pathlib import Path

from oslo_config import cfg

from os_prefilter.adapters.nova_conf import invalid_option, load_conf, read_option
from os_prefilter.common.quoting import escape_line
from os_prefilter.documents.files import open_file

SECTION = "placement"
_LIMITS = [
    cfg.IntOpt("max_allocation_candidates", default=-1),
    cfg.StrOpt(
        "allocation_candidates_generation_strategy", default="depth-first", choices=("depth-first", "breadth-first")
    ),
]
# A nova.conf has a section of the same name, about how to reach Placement.
_OF_CLIENTS = cfg.StrOpt("auth_type"), cfg.StrOpt("auth_section")


def candidate_limits(path: str | Path) -> tuple[int, str]:
    """Return ``max_allocation_candidates``, negative for all, and ``allocation_candidates_generation_strategy``.

    :raises DocumentError: if there is no such file, or it cannot be read
    :raises ConfigurationError: if it is no placement.conf, or one of the options has an invalid value
    """
    where = escape_line(str(path))
    with open_file(path):
        conf = load_conf(path, "placement.conf")
    conf.register_opts((*_LIMITS, *_OF_CLIENTS), group=SECTION)
    for option in _OF_CLIENTS:
        if read_option(conf, where, option.name, SECTION) is not None:
            problem = (
                "this is the option of a client of Placement, as in nova.conf. Give the placement.conf of the service."
            )
            raise invalid_option(where, option.name, problem, SECTION)
    most, strategy = (read_option(conf, where, option.name, SECTION) for option in _LIMITS)
    return most, strategy
