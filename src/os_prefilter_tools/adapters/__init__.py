# SPDX-License-Identifier: Apache-2.0

"""Other services, as the commands use them: clouds through openstacksdk, and a
Placement embedded in the process.
"""
