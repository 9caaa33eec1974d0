"""A cloud through openstacksdk: its images, flavors and servers."""
