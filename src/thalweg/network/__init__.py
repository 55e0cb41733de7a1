"""Clients on a network: wire format, secure aggregation, Flower, devices and live sources."""
