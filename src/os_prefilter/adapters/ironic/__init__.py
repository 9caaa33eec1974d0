"""Ironic's API: nodes, their traits and their deploy steps."""

from os_prefilter.common.errors import ConfigurationError, install_extra

# Once for all modules here, which import the SDK without a guard.
try:
    import openstack  # noqa: F401
except ModuleNotFoundError as missing:
    raise ConfigurationError(
        f"Talking to Ironic needs {missing.name}, which is not installed: {install_extra('cli')}."
    ) from missing
