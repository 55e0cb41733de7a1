"""Secure aggregation on a network: the server learns the sum of the updates, not single updates.

`client` derives keys, shares and masks; `server` runs the four exchanges of a round and removes the
masks from the sum. Both need the package cryptography, which is installed with Flower.
"""
