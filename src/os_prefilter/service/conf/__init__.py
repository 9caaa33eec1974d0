"""The options in the group ``[prefilter]`` of oslo.config, and their plain form for the core."""

from os_prefilter.service.conf.definitions import GROUP, OPTIONS
from os_prefilter.service.conf.reader import (
    check_values,
    list_opts,
    misspelt_names,
    options_from,
    register_opts,
    warn_of_misspelt_names,
)

__all__ = [
    "GROUP",
    "OPTIONS",
    "check_values",
    "list_opts",
    "misspelt_names",
    "options_from",
    "register_opts",
    "warn_of_misspelt_names",
]
