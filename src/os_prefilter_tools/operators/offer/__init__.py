# SPDX-License-Identifier: Apache-2.0

"""Offer: the values of properties and extra specs that work."""
