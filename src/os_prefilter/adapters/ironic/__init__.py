# SPDX-License-Identifier: Apache-2.0

"""Ironic's API, through openstacksdk: nodes, their traits and deploy steps."""
