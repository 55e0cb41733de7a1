"""``thalweg certs``"""

from __future__ import annotations

from pathlib import Path

import typer

from thalweg.network.flower.certs import make_certs


def certs_command(folder: Path, hosts: list[str], nodes: int, renew: bool, days: int) -> None:
    made = make_certs(folder, hosts, nodes, renew, days)
    lines = []
    if made.server is not None:
        lines.append(
            f"{made.server}/   to the server: thalweg serve RECIPE --on SCENARIO --certs "
            f"{made.server}"
        )
    if made.nodes:
        first, last = made.nodes[0], made.nodes[-1]
        which = f"{first}/" if first == last else f"{first}/ ... {last}/"
        lines.append(
            f"{which}   to one device each: thalweg join SERVER --data SOURCE --certs {first.name}"
        )
        lines.append(
            f"{folder / 'server' / 'nodes'}/   public keys of all devices, for join --peers with "
            "secure aggregation"
        )
        if made.server is None:
            lines.append(
                f"{folder / 'server' / 'nodes'}/   the new public keys: copy them to the server, "
                "which lets them in within seconds"
            )
    if lines:
        lines.append(
            f"{folder / 'ca.key'}   signs new certificates: keep it here and do not share it"
        )
    else:
        lines.append(f"nothing to do: {folder} has all of it (--nodes for more keys, --renew)")
    typer.echo("\n".join(lines))
