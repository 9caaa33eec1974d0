"""The options in the group ``[prefilter]`` of oslo.config, and their plain form for the core."""

from os_prefilter.conf.definitions import GROUP, OPTIONS
from os_prefilter.conf.reader import as_configuration_error, list_opts, misspelt_names, options_from, register_opts

__all__ = ["GROUP", "OPTIONS", "as_configuration_error", "list_opts", "misspelt_names", "options_from", "register_opts"]
