# SPDX-License-Identifier: Apache-2.0

"""What compute hosts run: the agent, and the commands for one host.

The commands of os_prefilter_tools share the parts of its command line.
"""
