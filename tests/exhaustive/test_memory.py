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

"""Memory: of parsers in proportion to their documents, however those are built; of impossible requests bounded."""

import gc
import tracemalloc

import pytest

from os_prefilter.adapters.placement.host_traits import HostTraitsReader
from os_prefilter.common.errors import NoHostServes
from os_prefilter.service import Service
from os_prefilter_tools.adapters.embedded import EmbeddedPlacement
from tests.conftest import conf_with, spec_of
from tests.documents.laws import Document, check
from tests.documents.table import DOCUMENTS
from tests.support.placements import Observed, lone_host

_PER_BYTE = 500
"""Bytes of memory for each byte of a document; YAML of empty mappings takes the most."""
_FREE = 80 * 1024 * 1024
"""What a parser may take whatever it reads: the buffer for a file of 64 MiB, the traits of os-traits, caches."""
_SIZE = 50_000

_XML = b"<!DOCTYPE a [<!ENTITY a0 'xxxxxxxxxx'>%s]><capabilities>&a9;</capabilities>"
_ENTITIES = b"".join(b"<!ENTITY a%d '%s'>" % (number, b"&a%d;" % (number - 1) * 10) for number in range(1, 10))
_LAUGHS = b"a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + b"".join(
    b"a%d: &a%d [%s]\n" % (number, number, b",".join([b"*a%d" % (number - 1)] * 10)) for number in range(1, 10)
)
_MERGES = b"a0: &a0 {k0: 1}\n" + b"".join(
    b"a%d: &a%d\n  <<: *a%d\n  k%d: 1\n" % (number, number, number - 1, number) for number in range(1, 500)
)
_BOMBS = {
    "nested lists": b"[" * _SIZE,
    "nested lists that end": b"[" * (_SIZE // 2) + b"]" * (_SIZE // 2),
    "nested mappings": b'{"a":' * (_SIZE // 5),
    "nested mappings of YAML": b"".join(b" " * depth + b"a:\n" for depth in range(500)),
    "nested elements": b"<capabilities>" * (_SIZE // 14),
    "entities of entities": _XML % _ENTITIES,
    "aliases of aliases": _LAUGHS,
    "hosts of aliases": _LAUGHS + b"hosts: *a9\nrules: *a9\ntemplates: *a9\n",
    "traits of aliases": _LAUGHS + b"hosts: {a: {traits: *a9}}\n",
    "a value that contains itself": b"rules: &a [*a]\nhosts: {a: &b {providers: {c: *b}}}\ntemplates: *a\n",
    "merges of merges": _MERGES + b"hosts: {a: *a499}\n",
    "an integer of many digits": b'{"flavor": {"vcpus": ' + b"9" * _SIZE + b"}}",
    "a number of a large exponent": b'{"flavor": {"vcpus": 1e99999}, "hosts": {"a": {"resources": {"VCPU": 1e999}}}}',
    "no numbers": b'{"flavor": {"vcpus": NaN, "ram": Infinity, "disk": -Infinity}}',
    "one key many times": b"{" + b'"a": 1,' * (_SIZE // 7) + b'"a": 1}',
    "one long key": b'{"' + b"k" * _SIZE + b'": 1}',
    "a long key in the right place": b'{"flavor": {"extra_specs": {"trait' + b"k" * _SIZE + b':A": "required"}}}',
    "a long name of an attribute": b"<capabilities " + b"a" * _SIZE + b"='1'/>",
    "many attributes": b"<capabilities " + b" ".join(b"a%d=''" % each for each in range(_SIZE // 10)) + b"/>",
    "halves of characters": b'{"flavor": {"name": "' + b"\\ud800" * (_SIZE // 6) + b'"}}',
    "ends of strings": b'{"flavor": {"name": "' + b"\\u0000" * (_SIZE // 6) + b'"}}',
    "byte order marks": b"\xef\xbb\xbf" * (_SIZE // 3),
    "UTF-16": "{}".encode("utf-16") * (_SIZE // 6),
    "masks of CPUs": b'{"flavor": {"vcpus": 2147483647, "extra_specs": {"hw:cpu_policy": "mixed", "hw:cpu_realtime": '
    b'"yes", "hw:cpu_dedicated_mask": "^0"}}, "image": {"properties": {"hw_cpu_realtime_mask": "^0"}}, "vcpus": 1}',
    "ranges of CPUs": b'{"flavor": {"vcpus": 4, "extra_specs": {"hw:cpu_policy": "mixed", "hw:cpu_realtime": "yes"}}, '
    b'"image": {"properties": {"hw_cpu_realtime_mask": "' + b"0-65535," * (_SIZE // 8) + b'"}}}',
    "images of nothing": b"[" + b"{}," * (_SIZE // 3) + b"{}]",
    "lines of images": b'{"properties": {}}\n' * 200,
    "comments": b"# x\n" * (_SIZE // 4),
    "an option on many lines": b"[libvirt]\nhw_machine_type = " + b"a=b,\n " * (_SIZE // 6),
}


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_memory_is_in_proportion_to_the_document(document: Document) -> None:
    tracemalloc.start()
    try:
        for purpose, data in _BOMBS.items():
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            check(document, data)
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before <= _FREE + _PER_BYTE * len(data), (purpose, peak - before, len(data))
    finally:
        tracemalloc.stop()


def test_memory_is_bounded_for_ten_thousand_different_impossible_requests() -> None:
    with EmbeddedPlacement(lone_host()) as placement:
        observed = Observed(placement)
        conf = conf_with(enabled_filters=["image_metadata"], facts_interval=1800)
        pipeline = Service.from_conf(conf, host_traits=HostTraitsReader(observed.client))
        # The confirmation of each rejection, which the real Placement would take minutes for.
        observed.hook = lambda _method, url: (200, {"resource_providers": []}) if "NE2K_PCI" in url else None

        def reject(first: int, last: int) -> None:
            for number in range(first, last):
                spec = spec_of({"hw_vif_model": "ne2k_pci"}, {"quota:cpu_shares": str(number)})
                with pytest.raises(NoHostServes):
                    pipeline.apply(spec)
                observed.sent.clear()
            gc.collect()

        # More than the cache of decisions has room for.
        reject(0, 2_000)
        tracemalloc.start()
        try:
            reject(2_000, 10_000)
            grown, _peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    # The cache has other requests than before, but not more.
    assert grown < 8_000_000
