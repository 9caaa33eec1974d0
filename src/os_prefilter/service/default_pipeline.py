"""The one default pipeline, behind :func:`process_reqspec`."""

import threading
from typing import Any

from oslo_config import cfg

from os_prefilter.pipeline.decision import Decision
from os_prefilter.service.pipeline import Pipeline

_lock = threading.Lock()
_pipeline: Pipeline | None = None


def process_reqspec(context: Any, request_spec: Any) -> Decision:
    """Run the filters that oslo.config's ``CONF`` enables on ``request_spec``, which is changed in place.

    It has the signature of Nova's function of that name. The first call loads the filters. A service that must not
    start with a wrong configuration, or that provides facts, calls ``Pipeline.from_conf(CONF)`` when it starts, and may
    pass the pipeline to :func:`os_prefilter.service.default_pipeline.use`.

    :raises ConfigurationError: at the first call, if the configuration is wrong.
    :raises RequestRejected: if the request cannot be scheduled as it is.
    :raises FilterFailed: if a filter raises an error of its own.
    """
    global _pipeline  # noqa: PLW0603 - the only global, and what this module is for
    if _pipeline is None:
        with _lock:
            _pipeline = _pipeline or Pipeline.from_conf(cfg.CONF)
    return _pipeline.apply(request_spec, context)


def use(pipeline: Pipeline | None) -> None:
    """Set the pipeline of ``process_reqspec``; None lets the next call load it from ``CONF`` again."""
    global _pipeline  # noqa: PLW0603
    with _lock:
        _pipeline = pipeline
