# SPDX-License-Identifier: Apache-2.0

"""A libvirt daemon, its recorded documents, and its settings in nova.conf."""
