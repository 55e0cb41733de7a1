"""The command line. Heavy imports happen inside the commands, so that --help answers at once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from thalweg.core.errors import ThalwegError

app = typer.Typer(
    name="thalweg",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help=(
        "Streaming federated learning: data never stops arriving, does not fit in memory, shifts; "
        "devices come and go.\n\n"
        "Try [bold]thalweg run sfedpo --on digits-partial[/bold], then "
        "[bold]thalweg compare sfedpo fedavg fedogd --on digits-partial --seeds 3[/bold]."
    ),
)

On = Annotated[
    str | None,
    typer.Option(
        "--on", metavar="SCENARIO", help="A scenario's name, or a .csv/.parquet/.npz file."
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PART.FIELD=VALUE",
        help="Change anything: [cyan]memory.budget=0.3[/cyan], [cyan]weights=equal[/cyan], "
        "[cyan]world.num_clients=100[/cyan]. May be repeated.",
    ),
]
Rounds = Annotated[int | None, typer.Option(help="Rounds to run instead of the scenario's own.")]
DataDir = Annotated[
    Path | None, typer.Option(help="Where data sets are; THALWEG_DATA and the cache come after it.")
]
Engine = Annotated[str, typer.Option(help="fast, reference (slow, the specification), or auto.")]
RunsAtOnce = Annotated[
    int | None, typer.Option("--workers", help="Runs at the same time; else one per core.")
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


@app.command()
def run(
    recipe: Annotated[
        str, typer.Argument(help="A recipe's name (see thalweg list), a run folder or a plan.toml.")
    ],
    on: On = None,
    sets: Sets = None,
    seed: Annotated[int | None, typer.Option(help="Every random draw follows from it.")] = None,
    rounds: Rounds = None,
    out: Annotated[
        Path | None, typer.Option(help="The run's folder; else one under runs/.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on after the last whole round.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
    engine: Engine = "auto",
    workers: Annotated[int | None, typer.Option(help="Processes; never changes a result.")] = None,
    data_dir: DataDir = None,
    debug: Debug = False,
) -> None:
    """Run one recipe on one scenario.

    thalweg run sfedpo --on fashion-mnist-partial --seed 7 --set memory.budget=0.3

    Stopped with Ctrl-C, killed, or out of power: the same command with --resume (and --out) goes on
    to the same final bits.
    """
    from thalweg.cli.run import run_command

    run_command(
        recipe, on, sets or [], seed, rounds, out, resume, as_json, engine, workers, data_dir
    )


@app.command()
def compare(
    recipes: Annotated[
        list[str], typer.Argument(help="Recipes; a variant is written sfedpo,weights=equal")
    ],
    on: On = None,
    seeds: Annotated[
        str, typer.Option(help="How many seeds (3 means 0, 1, 2), or a list: 4,8,15.")
    ] = "3",
    sets: Sets = None,
    rounds: Rounds = None,
    out: Annotated[Path | None, typer.Option(help="The folder; else one under runs/.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per recipe.")] = False,
    engine: Engine = "auto",
    workers: RunsAtOnce = None,
    data_dir: DataDir = None,
    debug: Debug = False,
) -> None:
    """Run several recipes on one scenario with the same seeds, and set them side by side.

    Ends with a table (mean and spread over seeds), a figure and a self-contained page. What is
    already in the folder is not run again.
    """
    from thalweg.cli.compare import compare_command

    compare_command(recipes, on, seeds, sets or [], rounds, out, as_json, engine, workers, data_dir)


@app.command()
def reproduce(
    study: Annotated[
        str | None,
        typer.Argument(help="A study's name, or your own: FILE.py:NAME. None: list them."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WORDS",
            help="Only rows and columns with these words: [cyan]--only sfedpo,flash,partial[/cyan]. "
            "May be repeated.",
        ),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(help="How many of the study's seeds, or a list: 4,8,15. Else its own."),
    ] = None,
    scale: Annotated[
        str,
        typer.Option(
            metavar="quick|paper",
            help="quick: a tenth of the rounds, one seed; a look, not a result.",
        ),
    ] = "paper",
    data: Annotated[
        str | None,
        typer.Option(help="The same study on another data set, such as fashion-mnist or digits."),
    ] = None,
    show: Annotated[
        bool, typer.Option("--show", help="Run nothing; write and show what is there.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="The folder of all runs and pages; else runs/reproduce or -quick."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per run.")] = False,
    engine: Engine = "auto",
    workers: RunsAtOnce = None,
    data_dir: DataDir = None,
    debug: Debug = False,
) -> None:
    """Fill a table of a paper: recipes x scenarios x seeds, the paper's numbers beside ours.

    thalweg reproduce sfedpo-table-1 --only fashion-mnist

    Runs only what is missing, and runs that several tables have in common once. Stop it whenever you
    like: the same command goes on. Data that are missing, and names that nobody has, are reported
    before anything runs. Ends with a page, a Markdown and a CSV table; a run that failed is
    shown in them with its reason.
    """
    from thalweg.cli.reproduce import reproduce_command

    reproduce_command(
        study, only or [], seeds, scale, data, show, out, as_json, engine, workers, data_dir
    )


@app.command()
def serve(
    recipe: Annotated[
        str, typer.Argument(help="A recipe's name (see thalweg list), a run folder or a plan.toml.")
    ],
    on: On = None,
    host: Annotated[
        str, typer.Option(help="The address to listen at; 0.0.0.0 is every one this machine has.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen at.")] = 8470,
    certs: Annotated[
        Path | None,
        typer.Option(help="The server's folder of [cyan]thalweg certs[/cyan]: TLS and node keys."),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(help="Where Flower keeps its database and logs; else server/ in --out."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The run's folder; else one under runs/.")
    ] = None,
    min_clients: Annotated[
        int | None,
        typer.Option(help="No round begins with fewer clients here; else 1, or as before."),
    ] = None,
    deadline: Annotated[
        float | None,
        typer.Option(help="Seconds a round waits for replies; else 600, or as before."),
    ] = None,
    wait: Annotated[
        float | None, typer.Option(help="Seconds to wait for enough clients; else for ever.")
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="What a client may claim at most: [cyan]norm_factor=5[/cyan] (times the median length of a "
            "round's updates), [cyan]max_norm[/cyan], [cyan]max_samples[/cyan], [cyan]max_steps[/cyan], "
            "[cyan]max_value[/cyan]. May be repeated.",
        ),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Clients bring data of their own, as it comes in.")
    ] = False,
    clients: Annotated[
        int | None, typer.Option(help="How many clients there may be, instead of the scenario's.")
    ] = None,
    rounds: Rounds = None,
    seed: Annotated[int | None, typer.Option(help="Every random draw follows from it.")] = None,
    sets: Sets = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on after the last whole round.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="No TLS and no keys beyond this machine. Do not.")
    ] = False,
    data_dir: DataDir = None,
    debug: Debug = False,
) -> None:
    """Serve a recipe to real clients, over Flower.

    On one machine, in one terminal, and in others one line for each client, with a folder of its own:

    thalweg serve fedavg --on digits-partial --clients 3 --min-clients 2 --rounds 20

    thalweg join 127.0.0.1 --data replay --state client0

    Rounds, metrics, checkpoints and the run folder are those of [bold]thalweg run[/bold]; with the same seed
    and the same arrivals, so is the model. Clients may come late, leave, or die; a round closes at its
    deadline with who has answered. Stopped or killed: the same command with --resume goes on, and clients
    come back by themselves. To listen beyond this machine, make keys first: [bold]thalweg certs --help[/bold].
    """
    from thalweg.cli.serve import ServeArguments, serve_command

    arguments = ServeArguments(
        host,
        port,
        certs,
        state,
        min_clients,
        deadline,
        wait,
        live,
        data_dir,
        insecure,
        tuple(limit or ()),
    )
    serve_command(recipe, on, sets or [], seed, rounds, clients, out, resume, as_json, arguments)


@app.command()
def join(
    server: Annotated[
        str, typer.Argument(metavar="SERVER[:PORT]", help="Where [cyan]thalweg serve[/cyan] runs.")
    ],
    data: Annotated[
        str,
        typer.Option(
            metavar="SOURCE",
            help="[cyan]replay[/cyan]: the scenario's own samples, as in a simulation. For a --live server: "
            "[cyan]mqtt://host/topic[/cyan], a growing .csv, .jsonl or .parquet file, a folder of images, "
            "[cyan]river:Elec2[/cyan], [cyan]package.module:function[/cyan].",
        ),
    ],
    state: Annotated[
        Path,
        typer.Option(
            help="This client's folder: its identity, memory and counts. Keep it, and never share it."
        ),
    ] = Path("client"),
    certs: Annotated[
        Path | None, typer.Option(help="This node's folder of [cyan]thalweg certs[/cyan].")
    ] = None,
    client: Annotated[
        int | None, typer.Option(help="The client's number; else the lowest that is free.")
    ] = None,
    capacity: Annotated[
        int | None, typer.Option(help="Samples it holds, instead of the scenario's number.")
    ] = None,
    queue: Annotated[
        int | None,
        typer.Option(
            help="Samples that may wait on the disk beside those it holds, half of them for their labels; 256."
        ),
    ] = None,
    own_code: Annotated[
        bool,
        typer.Option("--own-code", help="The server's plan may name Python files of this machine."),
    ] = False,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="No TLS and no key beyond this machine. Do not.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
    data_dir: DataDir = None,
    debug: Debug = False,
) -> None:
    """Be one client of a server: keep samples as they come, train when asked.

    thalweg join 127.0.0.1 --data replay --state client0

    thalweg join fl.example.org --certs nodes/0 --data 'mqtt://localhost/sensors/#' --state /var/lib/thalweg

    Runs until Ctrl-C, and comes back whenever the server does. Killed at any moment: the same command goes on
    with the same memory, as the same client. Ends with exit code 1 if the server and this client do not
    fit together (version, data, plan, another run's state folder), and says what each side has.
    """
    from thalweg.cli.join import join_command

    join_command(
        server, data, state, certs, client, data_dir, capacity, queue, own_code, insecure, as_json
    )


@app.command()
def certs(
    folder: Annotated[Path, typer.Argument(help="Where to make them; nothing is overwritten.")],
    host: Annotated[
        list[str] | None,
        typer.Option(help="A name or address by which clients reach the server. May be repeated."),
    ] = None,
    nodes: Annotated[int, typer.Option(help="How many devices need a key, in all.")] = 0,
    renew: Annotated[
        bool,
        typer.Option("--renew", help="A new certificate for the server; clients need nothing."),
    ] = False,
    days: Annotated[int, typer.Option(help="How long the server's certificate is valid.")] = 397,
    debug: Debug = False,
) -> None:
    """Make certificates for a first deployment: an authority, the server's certificate, a key per device.

    thalweg certs keys --host fl.example.org --host 192.168.1.4 --nodes 3

    keys/server goes to the server (serve --certs), keys/nodes/0 to the first device (join --certs), and so on.
    keys/ca.key stays where it is. Later: the same folder with --nodes 5 for two devices more, or --renew
    before the year is over.
    """
    from thalweg.cli.certs import certs_command

    certs_command(folder, host or [], nodes, renew, days)


@app.command("flower-app")
def flower_app(
    folder: Annotated[Path, typer.Argument(help="The folder of the project; a new one.")],
    recipe: Annotated[str, typer.Argument(help="A recipe's name, a run folder or a plan.toml.")],
    on: On = None,
    sets: Sets = None,
    seed: Annotated[int | None, typer.Option(help="Every random draw follows from it.")] = None,
    rounds: Rounds = None,
    min_clients: Annotated[int, typer.Option(help="No round begins with fewer clients.")] = 1,
    deadline: Annotated[float, typer.Option(help="Seconds a round waits for replies.")] = 600.0,
    debug: Debug = False,
) -> None:
    """Write a Flower project that plays a recipe, for those who have a SuperLink already.

    thalweg flower-app my-app sfedpo --on digits-partial

    flwr run my-app SUPERLINK
    """
    from thalweg.cli.flower_app import flower_app_command

    flower_app_command(folder, recipe, on, sets or [], seed, rounds, min_clients, deadline)


@app.command("list")
def list_(
    as_json: Annotated[bool, typer.Option("--json", help="As one JSON object.")] = False,
) -> None:
    """List recipes, scenarios, and the choices for every part."""
    from thalweg.cli.catalogue import list_command

    list_command(as_json)


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A recipe, a scenario, a policy, or a run folder.")],
    debug: Debug = False,
) -> None:
    """Explain one thing: what it does, its fields and their defaults."""
    from thalweg.cli.catalogue import show_command

    show_command(name)


@app.command()
def gap(
    run_folder: Annotated[Path, typer.Argument(help="The folder of a run of sfedpo.")],
    as_json: Annotated[bool, typer.Option("--json", help="As one JSON object.")] = False,
    data_dir: DataDir = None,
    debug: Debug = False,
) -> None:
    """Say what the forecasts of a run cost, compared with knowing the truth.

    thalweg gap runs/sfedpo-digits-partial-seed0
    """
    from thalweg.cli.gap import gap_command

    gap_command(run_folder, as_json, data_dir)


@app.command()
def variability(
    run_folder: Annotated[Path, typer.Argument(help="The folder of a run, or its plan.toml.")],
    rounds: Annotated[int | None, typer.Option(help="Only the first rounds.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As one JSON object.")] = False,
    data_dir: DataDir = None,
    debug: Debug = False,
) -> None:
    """Say how many samples a run was worth, and how unlike the whole its rounds were.

    The run is played again, which gives the same bits; its folder is not touched.

    thalweg variability runs/stream-ours-streams-synthetic-seed0
    """
    from thalweg.cli.variability import variability_command

    variability_command(run_folder, rounds, as_json, data_dir)


@app.callback(invoke_without_command=True)
def version(
    show_version: Annotated[
        bool, typer.Option("--version", help="Say the version and stop.")
    ] = False,
) -> None:
    if show_version:
        from thalweg import __version__

        typer.echo(__version__)
        raise typer.Exit


def main() -> None:
    """Run a command; an error of ours is one message and exit code 2."""
    try:
        app()
    except ThalwegError as error:
        if "--debug" in sys.argv:
            raise
        typer.echo(f"thalweg: {error}", err=True)
        raise SystemExit(2) from None
