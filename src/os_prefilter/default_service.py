# SPDX-License-Identifier: Apache-2.0

"""The one default service, behind :func:`process_reqspec`."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from os_prefilter.pipeline.decision import Decision

if TYPE_CHECKING:
    from os_prefilter.service import Service

_lock = threading.Lock()
_service: Service | None = None


def process_reqspec(context: Any, request_spec: Any) -> Decision:
    """Run the filters that ``CONF`` enables on ``request_spec``.

    ``request_spec`` is changed in place, and ``CONF`` is that of oslo.config.

    It has the signature of Nova's function of that name. The first call loads
    the filters. A scheduler that must not start with a wrong configuration, or
    that provides facts, calls ``Service.from_conf(CONF)`` when it starts, and
    may pass the service to :func:`os_prefilter.default_service.use`.

    :raises ConfigurationError: at the first call, if the configuration is
        wrong.
    :raises RequestRejected: if the request cannot be scheduled as it is.
    :raises FilterFailed: if a filter raises an error of its own.
    """
    global _service  # noqa: PLW0603 - the only global, and what this module is for
    if _service is None:
        # Late: without it, the library needs neither oslo.config nor threads.
        from oslo_config import cfg  # noqa: PLC0415

        from os_prefilter.service import Service  # noqa: PLC0415

        with _lock:
            _service = _service or Service.from_conf(cfg.CONF)
    return _service.apply(request_spec, context)


def use(service: Service | None) -> None:
    """Set the service of ``process_reqspec``.

    With None, the next call loads it from ``CONF`` again.
    """
    global _service  # noqa: PLW0603
    with _lock:
        _service = service
