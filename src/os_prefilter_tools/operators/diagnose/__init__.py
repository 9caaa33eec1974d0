# SPDX-License-Identifier: Apache-2.0

"""Diagnosis: why a request has no host, and the suggested changes."""
