"""Offer: the values of image properties and extra specs that a cloud serves."""
