#    Licensed under the Apache License, Version 2.0 (the "License"); you may
#    not use this file except in compliance with the License. You may obtain
#    a copy of the License at
#
#         http://www.apache.org/licenses/LICENSE-2.0
#
#    Unless required by applicable law or agreed to in writing, software
#    distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
#    WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
#    License for the specific language governing permissions and limitations
#    under the License.

"""What holds for every document, whatever its bytes are.

It gives a value, or one error of the library: a printable line that begins with the name of the file. A value that is
written reads back as it was. Each log record on the way is one printable line.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from os_prefilter.common.errors import DocumentError, PrefilterError
from tests.documents.seeds import SEEDS

_LONGEST_MESSAGE = 8_000


@dataclass(frozen=True)
class Document:
    name: str
    read: Callable[[Path], Any]
    """Return the value in a file."""
    check: Callable[[Any], object] = bool
    """Assert what else holds for each value that was read."""
    write: Callable[[Any], bytes] | None = None
    """Return a file with this value."""
    keys: tuple[str, ...] = ()
    """Known keys, the first of them those at the top; empty where there are none, as in XML."""
    suffix: str = ""
    errors: type[PrefilterError] = DocumentError

    def __str__(self) -> str:
        return self.name

    @cached_property
    def seeds(self) -> tuple[bytes, ...]:
        return tuple(dict.fromkeys(SEEDS[self.name]()))


def check_message(message: str, name: str = "") -> None:
    """Assert that a message is one printable line of readable length, and begins with a name."""
    assert message.isprintable(), ascii(message)
    assert len(message) <= _LONGEST_MESSAGE, len(message)
    assert message.startswith(name), message


def value_of(document: Document, data: bytes) -> Any:
    """Return the value in a file with these bytes.

    :raises PrefilterError: one of the document's own, in one line that names the file
    """
    with NamedTemporaryFile(suffix=document.suffix) as file:
        file.write(data)
        file.flush()
        try:
            return document.read(Path(file.name))
        except document.errors as error:
            check_message(str(error), file.name)
            raise


def check(document: Document, data: bytes) -> bool:
    """Assert all laws for these bytes; return whether they give a value."""
    with log_is_watched():
        try:
            value = value_of(document, data)
        except document.errors:
            return False
        if document.write:
            assert value_of(document, document.write(value)) == value
        document.check(value)
        return True


class _OneLine(logging.Handler):
    """Fails at a log record that is more than one printable line."""

    def emit(self, record: logging.LogRecord) -> None:
        check_message(record.getMessage())


@contextmanager
def log_is_watched() -> Iterator[None]:
    """Check each log record of the library, and write none, while the context lasts."""
    logger, handler = logging.getLogger("os_prefilter"), _OneLine()
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]
