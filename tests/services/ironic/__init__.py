# SPDX-License-Identifier: Apache-2.0

"""What the library does to a real Ironic."""
