# SPDX-License-Identifier: Apache-2.0

"""The configuration file of a command.

It has the options of nova.conf's ``[prefilter]``, and those of other libraries
where the command uses them.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from oslo_config import cfg

from os_prefilter.common.errors import ConfigurationError
from os_prefilter.documents.files import not_utf8, open_file
from os_prefilter.service import conf as service_conf


def read_configuration(
    path: str | None, *register: Callable[[cfg.ConfigOpts], Any]
) -> cfg.ConfigOpts:
    """Return the configuration in a file, with our options registered.

    Without a file they have their defaults.

    :param register: registers options of another library
    :raises DocumentError: if there is no such file, or it cannot be read
    :raises ConfigurationError: if it is no configuration file, or an option of
        ours has a wrong value
    """
    conf = cfg.ConfigOpts()
    for each in (service_conf.register_opts, *register):
        each(conf)
    with open_file(path) if path else nullcontext():
        try:
            conf(
                [],
                project="os-prefilter",
                default_config_files=[path] if path else [],
                default_config_dirs=[],
            )
        except SystemExit as error:
            # oslo.log's options are also command-line options: argparse prints
            # what is wrong, without the file's name.
            raise ConfigurationError(
                f"{path}: an option of oslo.log has a wrong value. Correct it."
            ) from error
        except UnicodeDecodeError as error:
            raise not_utf8(path, error) from error
        except cfg.Error as error:
            from os_prefilter.adapters.nova_conf import (  # noqa: PLC0415
                reason_of,
            )

            # Without its cause, which has the line, in which a password may
            # be.
            raise ConfigurationError(
                f"{path}: {reason_of(error)} Correct it."
            ) from None
    service_conf.check_values(conf)
    return conf
