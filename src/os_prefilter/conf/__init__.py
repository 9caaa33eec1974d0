"""The options in the group ``[prefilter]`` of oslo.config, and their plain form for the core."""

from os_prefilter.conf.definitions import GROUP, OPTIONS
from os_prefilter.conf.reader import list_opts, options_from, refused, register_opts

__all__ = ["GROUP", "OPTIONS", "list_opts", "options_from", "refused", "register_opts"]
