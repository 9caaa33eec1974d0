# SPDX-License-Identifier: Apache-2.0

"""A cloud through openstacksdk: its images, flavors and servers."""
