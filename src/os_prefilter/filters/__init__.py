# SPDX-License-Identifier: Apache-2.0

"""Request filters.

A filter is a function that gets a read-only view of the request and returns
what it requires of a host::

    def noop(request: Request) -> Requirements:
        return NOTHING

It does no I/O, reads no global, changes nothing and keeps nothing, so the same
request always gets the same result. What else it needs it declares as
keyword-only parameters: ``options``
(:class:`os_prefilter.vocabulary.options.Options`), ``required_before`` (the
requirements of the filters before it), or the name of a fact about the
deployment that the embedding service provides
(:mod:`os_prefilter.service.deployment_facts`).

``docs/CONTRIBUTING.rst`` lists what a new one needs, its entry point above
all. A device model needs no filter, but a row in
:mod:`os_prefilter.vocabulary` and a result of each reporter.
``row_filters.py`` has the filters that are rows and nothing else; any other is
one file. ``noop.py`` is the smallest, ``remote_managed_ports.py`` one that
declares what else it reads.

Functions written the Nova way, ``f(context, request_spec) -> bool``, which
change the request spec themselves, are accepted under the same entry point
group: see :mod:`os_prefilter.pipeline.nova_style`.
"""
