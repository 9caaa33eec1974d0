# SPDX-License-Identifier: Apache-2.0

"""Commands for one host, and what each command of os-prefilter is built on."""
