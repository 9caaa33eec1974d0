# SPDX-License-Identifier: Apache-2.0

"""Calls that may never return, made in a thread of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def start_thread(call: Callable[[], T], name: str) -> Future[T]:
    """Begin a call, and return where its outcome will be.

    The thread does not keep the process from ending.

    :param name: of the thread
    """
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - it is raised where the outcome is looked at
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
