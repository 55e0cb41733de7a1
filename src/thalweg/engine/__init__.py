"""Runs recipes in this process: `reference` is the specification, `fast` is the default."""
