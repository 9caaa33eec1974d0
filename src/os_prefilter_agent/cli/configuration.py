# SPDX-License-Identifier: Apache-2.0

"""The configuration of a command.

A file with the options of nova.conf's ``[prefilter]``, and those of other
libraries where the command uses them; or all files of Nova's configuration.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from oslo_config import cfg

from os_prefilter.common.errors import ConfigurationError
from os_prefilter.documents.files import not_utf8, open_file
from os_prefilter.service import conf as service_conf


class _PathAction(argparse.Action):
    """Append the option and its path to those of both options.

    Their order counts: of two values of an option, the last is Nova's.
    """

    def __call__(
        self,
        _parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        _option_string: str | None = None,
    ) -> None:
        before = getattr(namespace, self.dest)
        after = (*before, self.option_strings[0], values)
        setattr(namespace, self.dest, after)


def add_configuration_arguments(parser: Any, text: str) -> None:
    """Add Nova's own ``--config-file`` and ``--config-dir``.

    The argument ``configuration`` has both options in their order, each
    followed by its path.

    :param text: the help
    """
    folder = "the same for all files of a directory that end in .conf"
    for what, about in (("file", text), ("dir", folder)):
        parser.add_argument(
            f"--config-{what}",
            metavar=what.upper(),
            action=_PathAction,
            dest="configuration",
            default=(),
            help=about,
        )


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
