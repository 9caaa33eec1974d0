# SPDX-License-Identifier: Apache-2.0

"""Outside systems: provider files of nova-compute, the login at a cloud."""
