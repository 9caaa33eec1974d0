# SPDX-License-Identifier: Apache-2.0

"""A libvirt daemon, or its recorded documents, and the settings of nova.conf
about it.
"""
