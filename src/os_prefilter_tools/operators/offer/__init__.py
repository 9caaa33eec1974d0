# SPDX-License-Identifier: Apache-2.0

"""Offer: the values of image properties and extra specs that a cloud
serves.
"""
