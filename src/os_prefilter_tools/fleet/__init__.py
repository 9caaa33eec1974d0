# SPDX-License-Identifier: Apache-2.0

"""A fleet of hosts as data: its model, its file and the matcher."""
