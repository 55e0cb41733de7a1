"""Clients on a network.

- `wire`, `fields`: encoding and validation of messages; `handshake`: messages for joining a run.
- `remote_federation`: the server's side, with `limits` on what clients may send.
- `remote_node`: a client's side.
- `secure_aggregation`: masked updates, of which the server learns the sum only.
- `flower`: transport, processes and certificates on Flower.
- `edge`: the daemon on a device; `sources`: its live data.

No package but `cli` imports this one.
"""
