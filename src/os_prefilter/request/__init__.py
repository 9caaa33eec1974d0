# SPDX-License-Identifier: Apache-2.0

"""A request: its spec, the view that filters get, its requirements."""
