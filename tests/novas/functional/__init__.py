# SPDX-License-Identifier: Apache-2.0

"""Whole scheduling runs with Nova's own services in one process; that process
is for these tests alone.

Nova's functional base classes choose between native threads and eventlet when
they are imported, for the whole process, and replace parts of Nova and of
``unittest.mock``. The plain ``pytest`` of the project does not collect this
folder.
"""
