"""The configuration file that ``--config-file`` names."""

from oslo_config import cfg
from oslo_log import log as logging

from os_prefilter.conf import register_opts
from os_prefilter.documents.files import check_readable
from os_prefilter.errors import ConfigurationError, DocumentError


def read_configuration(path: str | None, *, with_logging: bool = False) -> cfg.ConfigOpts:
    """Return the configuration in a file with our options registered; their defaults without a file.

    :param with_logging: register oslo.log's options, too

    :raises DocumentError: if there is no such file, or it cannot be read
    :raises ConfigurationError: if it is no configuration file
    """
    conf = cfg.ConfigOpts()
    register_opts(conf)
    if with_logging:
        logging.register_options(conf)
    if path:
        check_readable(path)
    try:
        conf([], project="os-prefilter", default_config_files=[path] if path else [], default_config_dirs=[])
    except SystemExit as error:
        # oslo.log's options are also options of a command line, whose parser prints what is wrong, without the file.
        raise ConfigurationError(f"{path}: an option of oslo.log has a wrong value. Correct it.") from error
    except cfg.ConfigFilesNotFoundError as error:
        raise DocumentError(path, "there is no such file. Check the path.") from error
    except IsADirectoryError as error:
        raise DocumentError(path, "this is a directory; give the path of a file.") from error
    except UnicodeDecodeError as error:
        raise DocumentError(path, f"byte {error.start} is not UTF-8; save the file as UTF-8.") from error
    except (OSError, cfg.ConfigFilesPermissionDeniedError) as error:
        reason = getattr(error, "strerror", None) or "permission denied"
        raise DocumentError(path, f"the file cannot be read: {reason}.") from error
    except cfg.Error as error:
        # Rarely needed, and explain starts quickly.
        from os_prefilter.adapters.libvirt.nova_conf import reason_of  # noqa: PLC0415

        # Without its cause, which has the line, in which a password may be.
        raise ConfigurationError(f"{path}: {reason_of(error)} Correct it.") from None
    return conf
