# SPDX-License-Identifier: Apache-2.0

"""Laws of the documents that os-prefilter reads: each module is a law, proved
for every row of the table.
"""
