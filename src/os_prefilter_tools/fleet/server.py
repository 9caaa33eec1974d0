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

"""A server that exists, with the request that it was scheduled by."""

from collections.abc import Sequence
from dataclasses import dataclass

from os_prefilter.request.spec import RequestSpec
from os_prefilter.request.view import UNKNOWN_MACHINE_TYPE


@dataclass(slots=True)
class Server:
    """A server that runs, or one that has no host at present."""

    request: RequestSpec
    """The request that it was scheduled by."""
    host: str = ""
    """The name of the resource provider of its host: Nova's ``node``; empty if it has no host."""
    uuid: str = ""
    name: str = ""
    project: str = ""
    machine_type: str | None = UNKNOWN_MACHINE_TYPE
    """The machine type that it keeps; None if it keeps none and gets the default of its next host; empty if that is not
    known, which excludes no host."""
    unknown: str = ""
    """Why too little of :attr:`request` is known for an all-clear; empty if it is known."""
    not_judged: Sequence[str] = ()
    """Other needs of its next host, which are not part of :attr:`request`."""


@dataclass(frozen=True)
class HostFilter:
    """A host filter of Nova, run on the candidates that those before it left."""

    name: str
    left: int
    """How many hosts it left."""
    excluded: tuple[str, ...]
    not_known: tuple[str, ...]
    """What it read and no API shows: fields of hosts, or its error. Such hosts are left."""
