# SPDX-License-Identifier: Apache-2.0

"""Other services: clouds through openstacksdk, an embedded Placement."""
