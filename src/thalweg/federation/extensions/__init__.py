"""Optional features of a round, one file each.

A feature that has a part on the server is a `RoundExtension` (extensions/base.py). The ordered list
of all extensions is `EXTENSIONS` in federation/server_round.py.
"""
