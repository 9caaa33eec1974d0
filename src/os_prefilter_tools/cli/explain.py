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

"""``os-prefilter explain``: the requirements of a request, their filters and sources."""

import argparse
from typing import Any

from os_prefilter_tools.cli.context import values_of
from os_prefilter_tools.cli.filters_and_hosts import FiltersAndHosts
from os_prefilter_tools.cli.listing import RequestListing
from os_prefilter_tools.cli.request_arguments import RequestArguments
from os_prefilter_tools.operators.explain import explain


class ExplainRequest(RequestListing):
    """Show what a request requires of a host, which filter requires it, and why."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], list[Any]]:
        asked = values_of(FiltersAndHosts, parsed_args)
        spec = values_of(RequestArguments, parsed_args).read(self.context)
        service = asked.service(asked.reported(self.context), self.context)
        lines = explain(spec, service)
        if not lines:
            self.tell("Nothing is required of a host.")
        return ("Trait", "Rule", "On", "By", "Because of"), list(lines)
