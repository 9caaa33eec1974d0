# SPDX-License-Identifier: Apache-2.0

"""One capability reporter a virt driver, and what it knows of its hosts."""
