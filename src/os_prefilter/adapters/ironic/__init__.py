"""Ironic's API, through openstacksdk: nodes, their traits and their deploy steps."""
