"""The one default pipeline, behind :func:`process_reqspec`."""

import threading
from typing import Any

from oslo_config import cfg

from os_prefilter.pipeline.decision import Decision
from os_prefilter.pipeline.pipeline import Pipeline

_lock = threading.Lock()
_pipeline: Pipeline | None = None


def process_reqspec(context: Any, request_spec: Any) -> Decision:
    """Run the filters that oslo.config's ``CONF`` enables on ``request_spec``, which is changed in place.

    It has the signature of Nova's function of that name. The filters are loaded at the first call; a service that wants
    a wrong configuration to stop it at start, or that provides facts, calls ``Pipeline.from_conf(CONF)`` itself, and
    may hand the pipeline to :func:`os_prefilter.pipeline.default_pipeline.use`.

    :raises ConfigurationError: at the first call, if the configuration cannot be served.
    :raises RequestRejected: if the request cannot be scheduled as it was asked.
    :raises FilterFailed: if a filter raises an error of its own.
    """
    return _default().apply(request_spec, context)


def _default() -> Pipeline:
    global _pipeline  # noqa: PLW0603 - the only global, and what this module is for
    if _pipeline is None:
        with _lock:
            if _pipeline is None:
                _pipeline = Pipeline.from_conf(cfg.CONF)
    return _pipeline


def use(pipeline: Pipeline | None) -> None:
    """Let ``process_reqspec`` run this pipeline, of a service that provides facts or has no ``CONF``.

    None lets the next call load it from ``CONF`` again.
    """
    global _pipeline  # noqa: PLW0603
    with _lock:
        _pipeline = pipeline
