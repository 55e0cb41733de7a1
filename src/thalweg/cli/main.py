"""The command line. Commands import their modules when they are called, so that --help is fast.

To add an option, declare it here and pass it by name to the function of the command.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Annotated

import typer

from thalweg.cli.completion import (
    complete_in_bash,
    complete_name,
    complete_recipe,
    complete_scenario,
    complete_setting,
    complete_study,
    complete_tracker,
)
from thalweg.cli.messages import print_message
from thalweg.core.errors import ConfigError, ThalwegError, format_warning
from thalweg.core.remedies import messages_for

app = typer.Typer(
    name="thalweg",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help=(
        "Streaming federated learning: data arrive continuously, do not fit in memory, and drift; "
        "clients come and go.\n\n"
        "Try [bold]thalweg run sfedpo --on digits-partial[/bold], then "
        "[bold]thalweg compare fedavg feddrift --on alarms-digits --seeds 3[/bold]."
    ),
)

On = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="SCENARIO",
        help="Name of a scenario, a .csv/.parquet/.npz file, a folder of .npy files, "
        "hf:NAME or river:NAME.",
        autocompletion=complete_scenario,
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PART.FIELD=VALUE",
        help="Change a part of the recipe or the scenario: [cyan]memory.budget=0.3[/cyan], "
        "[cyan]weights=equal[/cyan], [cyan]world.num_clients=100[/cyan]. May be repeated.",
        autocompletion=complete_setting,
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="FILE.py:NAME",
        help="Your own torch.nn.Module: a class or a function in a file or a package; or the name "
        "of a net.",
    ),
]
Loss = Annotated[
    str | None,
    typer.Option(
        "--loss",
        metavar="NAME|FILE.py:NAME",
        help="Loss of a sample: cross_entropy, binary_cross_entropy, mse, mae, huber, quantile, or "
        "your own function of outputs and targets. Short for [cyan]--set loss=...[/cyan]",
    ),
]
Optimizer = Annotated[
    str | None,
    typer.Option(
        "--optimizer",
        metavar="NAME",
        help="Optimizer of the clients: [cyan]sgd[/cyan], [cyan]adam[/cyan], [cyan]adamw[/cyan], "
        "or another class of torch.optim, such as [cyan]rmsprop[/cyan]. Options: "
        "[cyan]--set local.optimizer.betas=0.9,0.99[/cyan].",
    ),
]
MetricNames = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        metavar="NAME|FILE.py:NAME",
        help="A further metric on the test set: f1, auroc, log_loss, or your own function of "
        "targets and predictions. May be repeated.",
    ),
]
Recipe = Annotated[
    str,
    typer.Argument(
        help="Name of a recipe (see thalweg list), a run folder or a plan.toml.",
        autocompletion=complete_recipe,
    ),
]
Seed = Annotated[int | None, typer.Option(help="Seed of all random draws. Default: 0.")]
Rounds = Annotated[int | None, typer.Option(help="Number of rounds. Default: the scenario's.")]
RunFolderOption = Annotated[
    Path | None, typer.Option("--out", help="Run folder. Default: a new folder in runs/.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue after the last complete round.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
JsonObject = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
DataDir = Annotated[
    Path | None,
    typer.Option(help="Folder of data sets. Default: THALWEG_DATA, then the cache."),
]
Engine = Annotated[
    str,
    typer.Option(
        help="fast (in C where possible), torch (never in C), reference (slow, the specification), "
        "ray (fast, on the machines of a Ray cluster) or auto (fast)."
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Ray cluster of [cyan]--engine ray[/cyan], or auto: the cluster of this machine. "
        "Default: start Ray on this machine.",
    ),
]
NumGpus = Annotated[
    float | None,
    typer.Option(help="GPUs, or the fraction of one, that each Ray worker reserves."),
]
Device = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Where clients train: cpu, cuda, cuda:N, mps, xpu, or auto (an accelerator that "
        "PyTorch reports if PyTorch computes the net or the net is large).",
    ),
]
RunsAtOnce = Annotated[
    int | None, typer.Option("--workers", help="Runs at the same time. Default: one per core.")
]
Track = Annotated[
    list[str] | None,
    typer.Option(
        "--track",
        metavar="NAME",
        help="Send the metrics of each round to [cyan]tensorboard[/cyan], [cyan]mlflow[/cyan], "
        "[cyan]wandb[/cyan] or [cyan]trackio[/cyan]. May be repeated.",
        autocompletion=complete_tracker,
    ),
]
Certs = Annotated[
    Path | None,
    typer.Option(help="Folder with TLS certificate and keys, made by [cyan]thalweg certs[/cyan]."),
]
Insecure = Annotated[
    bool,
    typer.Option("--insecure", help="Allow other machines without TLS and keys. For tests only."),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


# Settings that have an option of their own.
_SHORT_FORMS = {
    "--model": ("net", "net.kind", "net.path"),
    "--loss": ("loss", "loss.kind", "loss.path"),
    "--optimizer": ("optimizer", "local.optimizer", "local.optimizer.kind"),
    "--metric": ("metrics",),
}


def _add_short_forms(
    sets: list[str] | None,
    model: str | None,
    loss: str | None,
    optimizer: str | None,
    metrics: list[str] | None = None,
    is_absolute: bool = False,
) -> list[str]:
    """Return the settings with those of ``--model`` and other short forms, which come first."""
    given = {"--model": model, "--loss": loss, "--optimizer": optimizer, "--metric": metrics}
    for option, same in _SHORT_FORMS.items():
        both = [each for each in sets or [] if each.partition("=")[0].strip() in same]
        if given[option] and both:
            raise ConfigError(
                f"{option} and --set {both[0]} are the same setting, but both were given. Leave "
                "one of them out."
            )
    names = [] if loss is None else [f"loss={loss}"]
    if optimizer is not None:
        names.append(f"local.optimizer={optimizer}")
    if metrics:
        names.append(f"metrics={json.dumps(metrics)}")
    if model is not None and is_absolute and ":" in model:
        from thalweg.nets.module import make_path_absolute

        model = make_path_absolute(model)
    if model is not None:
        names += ["net=module", f"net.path={model}"] if ":" in model else [f"net={model}"]
    return [*names, *(sets or [])]


@app.command()
def run(
    recipe: Recipe,
    on: On = None,
    model: Model = None,
    loss: Loss = None,
    optimizer: Optimizer = None,
    metrics: MetricNames = None,
    sets: Sets = None,
    seed: Seed = None,
    rounds: Rounds = None,
    out: RunFolderOption = None,
    resume: Resume = False,
    as_json: JsonLines = False,
    engine: Engine = "auto",
    address: Address = None,
    num_gpus: NumGpus = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes; the results do not depend on it.")
    ] = None,
    device: Device = "auto",
    data_dir: DataDir = None,
    track: Track = None,
    debug: Debug = False,
) -> None:
    """Run one recipe on one scenario.

    thalweg run sfedpo --on fashion-mnist-partial --seed 7 --set memory.budget=0.3

    thalweg run fedavg --on digits-partial --track tensorboard

    After an interruption, the same command with --resume (and --out) continues
    the run. The result is the same, bit for bit.
    """
    from thalweg.cli.run import run_command

    run_command(
        recipe,
        on=on,
        sets=_add_short_forms(sets, model, loss, optimizer, metrics),
        seed=seed,
        rounds=rounds,
        out=out,
        resume=resume,
        as_json=as_json,
        engine=engine,
        address=address,
        num_gpus=num_gpus,
        workers=workers,
        device=device,
        data_dir=data_dir,
        track=track or [],
    )


@app.command()
def compare(
    recipes: Annotated[
        list[str],
        typer.Argument(
            help="Recipes; a variant is written [cyan]sfedpo,weights=equal[/cyan].",
            autocompletion=complete_recipe,
        ),
    ],
    on: On = None,
    model: Model = None,
    loss: Loss = None,
    optimizer: Optimizer = None,
    metrics: MetricNames = None,
    seeds: Annotated[
        str, typer.Option(help="Number of seeds (3 means 0, 1, 2), or a list: 4,8,15.")
    ] = "3",
    sets: Sets = None,
    rounds: Rounds = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the comparison. Default: a folder in runs/.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per run.")] = False,
    engine: Engine = "auto",
    address: Address = None,
    num_gpus: NumGpus = None,
    workers: RunsAtOnce = None,
    device: Device = "auto",
    data_dir: DataDir = None,
    track: Track = None,
    debug: Debug = False,
) -> None:
    """Compare several recipes on one scenario with the same seeds.

    thalweg compare fedavg sfedpo,weights=equal --on digits-partial --seeds 3

    Writes a table (mean and standard deviation over seeds), a figure and a
    self-contained HTML page. Finished runs in the folder are not repeated.
    """
    from thalweg.cli.arguments import make_comparison_arguments
    from thalweg.cli.compare import compare_command

    arguments = make_comparison_arguments(
        seeds=seeds,
        sets=_add_short_forms(sets, model, loss, optimizer, metrics),
        rounds=rounds,
        out=out,
        engine=engine,
        address=address,
        num_gpus=num_gpus,
        workers=workers,
        device=device,
        data_dir=data_dir,
        track=track or [],
    )
    compare_command(recipes, on, arguments, as_json)


@app.command()
def tune(
    recipe: Annotated[
        str,
        typer.Argument(
            help="Name of a recipe or baseline (see thalweg list).", autocompletion=complete_recipe
        ),
    ],
    on: On = None,
    over: Annotated[
        list[str] | None,
        typer.Option(
            "--over",
            metavar="FIELD=VALUE,VALUE",
            help="Values to choose from: [cyan]local.lr=0.01,0.03,0.1[/cyan], "
            "[cyan]memory=fifo,reservoir[/cyan]. May be repeated; all combinations are tried.",
            autocompletion=complete_setting,
        ),
    ] = None,
    model: Model = None,
    loss: Loss = None,
    optimizer: Optimizer = None,
    metrics: MetricNames = None,
    seeds: Annotated[
        str, typer.Option(help="Number of seeds (2 means 0, 1), or a list: 4,8,15.")
    ] = "2",
    sets: Sets = None,
    rounds: Rounds = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the tuning. Default: a folder in runs/.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per configuration.")
    ] = False,
    engine: Engine = "auto",
    address: Address = None,
    num_gpus: NumGpus = None,
    workers: RunsAtOnce = None,
    device: Device = "auto",
    data_dir: DataDir = None,
    debug: Debug = False,
) -> None:
    """Choose settings of a recipe by successive halving, and print the best command.

    thalweg tune fedavg --on digits-partial --over local.lr=0.01,0.03,0.1

    thalweg tune sfedpo --on digits-partial --over local.lr=0.01,0.03 --over memory.budget=0.2,0.5

    All configurations run for a few rounds; the best third runs for three times
    as many rounds, and so on. The score is the metric on a part of the test
    samples that is reserved for choosing, or the prequential (test-then-train)
    metric if the data are ordered in time. It is never the test metric.
    Finished runs in the folder are not repeated: after an interruption, the
    same command continues.
    """
    from thalweg.cli.arguments import make_comparison_arguments
    from thalweg.cli.tune import tune_command

    arguments = make_comparison_arguments(
        seeds=seeds,
        sets=_add_short_forms(sets, model, loss, optimizer, metrics),
        rounds=rounds,
        out=out,
        engine=engine,
        address=address,
        num_gpus=num_gpus,
        workers=workers,
        device=device,
        data_dir=data_dir,
    )
    tune_command(recipe, on, over or [], arguments, as_json)


@app.command()
def reproduce(
    study: Annotated[
        str | None,
        typer.Argument(
            help="Name of a study, or your own: FILE.py:NAME. Default: list all.",
            autocompletion=complete_study,
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WORDS",
            help="Only rows and columns that contain these words: "
            "[cyan]--only sfedpo,flash,partial[/cyan]. May be repeated.",
        ),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(help="Number of seeds, or a list: 4,8,15. Default: the study's."),
    ] = None,
    scale: Annotated[
        str,
        typer.Option(
            metavar="quick|paper",
            help="quick: a tenth of the rounds and one seed, not comparable with the paper.",
        ),
    ] = "paper",
    data: Annotated[
        str | None,
        typer.Option(help="Use another data set, such as fashion-mnist or digits."),
    ] = None,
    show: Annotated[
        bool, typer.Option("--show", help="Run nothing; write and show the results so far.")
    ] = False,
    status: Annotated[
        bool,
        typer.Option(
            "--status", help="List all tables and figures of the papers, and what was measured."
        ),
    ] = False,
    save: Annotated[
        bool,
        typer.Option(
            "--save",
            help="Store the finished cells in the clone, for the status report and the docs.",
        ),
    ] = False,
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="I/N",
            help="Run the I-th of N parts of the runs, for batch systems: "
            "[cyan]--shard 2/8[/cyan]. All parts use the same --out; the last one writes the "
            "table.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of runs and pages. Default: runs/reproduce[-quick]."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per run.")] = False,
    engine: Engine = "auto",
    address: Address = None,
    num_gpus: NumGpus = None,
    workers: RunsAtOnce = None,
    device: Device = "auto",
    data_dir: DataDir = None,
    debug: Debug = False,
) -> None:
    """Reproduce a table of a paper, next to the published numbers.

    thalweg reproduce sfedpo-table-1 --only fashion-mnist

    A study runs several recipes on several scenarios with several seeds.

    Finished runs are not repeated, and tables share the runs they have in
    common. An interrupted study is continued by the same command. Missing data
    and unknown names are reported before anything runs. The results are a page,
    a Markdown table and a CSV table, which list failed runs with the reason.
    """
    from thalweg.cli.reproduce import reproduce_command

    reproduce_command(
        study,
        only=only or [],
        seeds=seeds,
        scale=scale,
        data=data,
        show=show,
        shard=shard,
        save=save,
        status=status,
        out=out,
        as_json=as_json,
        engine=engine,
        address=address,
        num_gpus=num_gpus,
        workers=workers,
        device=device,
        data_dir=data_dir,
    )


@app.command()
def serve(
    recipe: Recipe,
    on: On = None,
    model: Model = None,
    loss: Loss = None,
    optimizer: Optimizer = None,
    metrics: MetricNames = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 means all addresses.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8470,
    certs: Certs = None,
    state: Annotated[
        Path | None,
        typer.Option(help="Folder of Flower's database and logs. Default: server/ in --out."),
    ] = None,
    out: RunFolderOption = None,
    min_clients: Annotated[
        int | None,
        typer.Option(help="Clients that a round needs. Default: 1, or as before a --resume."),
    ] = None,
    deadline: Annotated[
        float | None,
        typer.Option(help="Seconds until a round ends. Default: 600, or as before a --resume."),
    ] = None,
    share: Annotated[
        float | None,
        typer.Option(
            help=(
                "Share of the responses after which the other clients have a grace time; 1: wait "
                "for all until the deadline. Default: 0.9, or as before a --resume."
            )
        ),
    ] = None,
    grace: Annotated[
        float | None,
        typer.Option(
            help=(
                "Minimum grace time in seconds; it is as long as the other responses took if "
                "that is longer. Default: 30, or as before a --resume."
            )
        ),
    ] = None,
    wait: Annotated[
        float | None,
        typer.Option(help="Seconds to wait for enough clients. Default: no limit."),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help=(
                "Upper limit of what a client may send: [cyan]norm_factor=5[/cyan] (times the "
                "median norm of a round's updates), [cyan]max_norm[/cyan], "
                "[cyan]max_samples[/cyan], [cyan]max_steps[/cyan], [cyan]max_value[/cyan], "
                "[cyan]report_factor[/cyan] (times the median of the clients' reports; none: no "
                "limit). May be repeated."
            ),
        ),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Clients use their own data as it arrives.")
    ] = False,
    clients: Annotated[
        int | None, typer.Option(help="Largest number of clients. Default: the scenario's.")
    ] = None,
    rounds: Rounds = None,
    seed: Seed = None,
    sets: Sets = None,
    resume: Resume = False,
    as_json: JsonLines = False,
    insecure: Insecure = False,
    data_dir: DataDir = None,
    debug: Debug = False,
) -> None:
    """Serve a recipe to real clients, over Flower.

    On one machine, in one terminal; and one line for each client in other terminals:

    thalweg serve fedavg --on digits-partial --clients 3 --rounds 20

    thalweg join 127.0.0.1 --data replay --state client0

    Rounds, metrics, checkpoints and the run folder are the same as those of
    [bold]thalweg run[/bold]. With the same seed and the same arrivals, the model is the same
    too. Clients may join late, leave or fail; a round ends without clients that
    are much slower than the others (--share), and at the deadline. After an
    interruption, the same command with --resume continues the run, and clients
    reconnect. To listen on other addresses than this machine's, make keys
    first: [bold]thalweg certs --help[/bold].
    """
    from thalweg.cli.serve import ServeArguments, serve_command

    arguments = ServeArguments(
        host=host,
        port=port,
        certs=certs,
        state=state,
        min_clients=min_clients,
        deadline_s=deadline,
        share=share,
        grace_s=grace,
        wait_s=wait,
        live=live,
        data_dir=data_dir,
        insecure=insecure,
        limits=tuple(limit or ()),
    )
    serve_command(
        recipe,
        on=on,
        sets=_add_short_forms(sets, model, loss, optimizer, metrics, is_absolute=True),
        seed=seed,
        rounds=rounds,
        clients=clients,
        out=out,
        resume=resume,
        as_json=as_json,
        arguments=arguments,
    )


@app.command()
def join(
    server: Annotated[
        str,
        typer.Argument(metavar="SERVER[:PORT]", help="Address of [cyan]thalweg serve[/cyan]."),
    ],
    data: Annotated[
        str,
        typer.Option(
            metavar="SOURCE",
            help=(
                "[cyan]replay[/cyan]: the samples of the scenario, as in a simulation, of a "
                "built-in data set; [cyan]replay:NAME[/cyan]: of your file or data set, such as "
                "[cyan]replay:a.csv?label=b[/cyan]. For a "
                "--live server: [cyan]mqtt://host/topic[/cyan], a growing .csv, .jsonl or .parquet "
                "file, a folder of images, [cyan]river:Elec2[/cyan], "
                "[cyan]package.module:function[/cyan]."
            ),
        ),
    ],
    state: Annotated[
        Path,
        typer.Option(
            help=(
                "Folder of this client: identity, memory and counters. One folder per client; do "
                "not delete it."
            )
        ),
    ] = Path("client"),
    certs: Certs = None,
    client: Annotated[
        int | None, typer.Option(help="Number of the client. Default: the lowest free number.")
    ] = None,
    capacity: Annotated[
        int | None, typer.Option(help="Samples in memory. Default: the scenario's number.")
    ] = None,
    queue: Annotated[
        int | None,
        typer.Option(
            help="Samples that may wait on disk, half of them for their labels. Default: 256."
        ),
    ] = None,
    component: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE.py:NAME",
            help="A class or function of yours that the server's plan may use by its name. May be "
            "repeated.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.py:NAME",
            help="The module to train, if the server trains one; a copy of the server's file.",
        ),
    ] = None,
    peers: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Public keys (*.pub) of the other nodes that may take part in secure sums with "
            "this device. Default: trust on first use.",
        ),
    ] = None,
    min_participants: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Send updates only by secure aggregation, as part of a sum of at least N clients.",
        ),
    ] = None,
    max_params: Annotated[
        int, typer.Option(help="Largest number of model parameters.")
    ] = 100_000_000,
    max_memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Memory for the model and the samples, such as 500MB. Default: all of it.",
        ),
    ] = None,
    max_samples: Annotated[
        int,
        typer.Option(help="Samples of local training per round, counted as often as used."),
    ] = 10_000_000,
    min_interval: Annotated[
        float, typer.Option(metavar="SECONDS", help="Least time between two rounds.")
    ] = 0.0,
    recipes: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="Recipes that the server may run, with at least their privacy, such as 'fedavg' "
            "or 'fedavg?privacy=gaussian'. Default: all.",
        ),
    ] = None,
    min_noise: Annotated[
        float,
        typer.Option(
            metavar="NOISE",
            help="Least privacy.noise of the server's plan; then nothing is sent without noise.",
        ),
    ] = 0.0,
    max_epsilon: Annotated[
        float | None,
        typer.Option(
            metavar="EPSILON",
            help="Privacy budget of the data for all servers together. Default: no account.",
        ),
    ] = None,
    delta: Annotated[float, typer.Option(help="Delta of the privacy budget.")] = 1e-5,
    privacy_account: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Privacy account, for --max-epsilon. Default: one file per user.",
        ),
    ] = None,
    insecure: Insecure = False,
    as_json: JsonLines = False,
    data_dir: DataDir = None,
    debug: Debug = False,
) -> None:
    """Join a server as one client: store samples as they arrive, train on request.

    thalweg join 127.0.0.1 --data replay --state client0

    thalweg join fl.example.org --certs nodes/0 --data 'mqtt://localhost/sensors/#' --state client

    Runs until Ctrl-C and reconnects whenever the server returns. After a crash,
    the same command continues with the same memory, as the same client. The
    exit code is 1 if server and client are incompatible (version, data, plan,
    or the state folder of another run); the message names the difference.
    """
    from thalweg.cli.join import join_command
    from thalweg.network.edge.device_limits import DeviceLimits, parse_recipes, parse_size

    limits = DeviceLimits(
        max_params,
        None if max_memory is None else parse_size(max_memory),
        min_interval,
        () if recipes is None else parse_recipes(recipes),
        min_noise,
        max_epsilon,
        delta,
        max_samples,
    )
    join_command(
        server,
        data=data,
        state=state,
        certs=certs,
        client=client,
        data_dir=data_dir,
        capacity=capacity,
        queue=queue,
        components=component or (),
        limits=limits,
        model=model,
        insecure=insecure,
        as_json=as_json,
        peers=peers,
        min_participants=min_participants,
        account=privacy_account,
    )


@app.command()
def certs(
    folder: Annotated[Path, typer.Argument(help="Folder to write to; nothing is overwritten.")],
    host: Annotated[
        list[str] | None,
        typer.Option(help="Name or address of the server as clients use it. May be repeated."),
    ] = None,
    nodes: Annotated[int, typer.Option(help="Total number of devices that need a key.")] = 0,
    renew: Annotated[
        bool,
        typer.Option("--renew", help="Renew the server's certificate; clients keep their keys."),
    ] = False,
    days: Annotated[int, typer.Option(help="Validity of the server's certificate in days.")] = 397,
    debug: Debug = False,
) -> None:
    """Make certificates and keys for a first deployment.

    thalweg certs keys --host fl.example.org --host 192.168.1.4 --nodes 3

    The folder gets a certificate authority, a certificate for the server and a
    key for each device. Copy keys/server to the server (serve --certs),
    keys/nodes/0 to the first device (join --certs), and so on. Keep keys/ca.key
    where it is. Later, run it on the same folder with --nodes 5 for two more
    devices, or with --renew before the certificate expires.
    """
    from thalweg.cli.certs import certs_command

    certs_command(folder, host or [], nodes, renew, days)


@app.command("flower-app")
def flower_app(
    folder: Annotated[Path, typer.Argument(help="New folder for the project.")],
    recipe: Recipe,
    on: On = None,
    sets: Sets = None,
    seed: Seed = None,
    rounds: Rounds = None,
    model: Model = None,
    min_clients: Annotated[int, typer.Option(help="Clients that a round needs.")] = 1,
    deadline: Annotated[float, typer.Option(help="Seconds until a round ends.")] = 600.0,
    debug: Debug = False,
) -> None:
    """Write a Flower project that runs a recipe, for an existing SuperLink.

    thalweg flower-app my-app sfedpo --on digits-partial

    flwr run my-app SUPERLINK

    thalweg flower-app my-app fedavg --on digits-partial --model net.py:Net

    The project contains a copy of net.py; devices join with --model.
    """
    from thalweg.cli.flower_app import flower_app_command

    flower_app_command(
        folder,
        recipe,
        on=on,
        sets=_add_short_forms(sets, model, None, None),
        seed=seed,
        rounds=rounds,
        min_clients=min_clients,
        deadline_s=deadline,
    )


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="New or empty folder for the project.")],
    debug: Debug = False,
) -> None:
    """Create a small project: a table, a model, a memory policy and a script.

    thalweg init pumps
    """
    from thalweg.cli.init import init_command

    init_command(folder)


@app.command()
def predict(
    run_folder: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    data: Annotated[Path, typer.Option(help="Rows to predict: a .csv, .parquet or .npz file.")],
    out: Annotated[Path, typer.Option(help="File of predictions: .csv or .parquet.")],
    client: Annotated[
        str | None,
        typer.Option(help="Name of a client. Default: the model that most clients use."),
    ] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Add the probability of each class.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Predict new rows with the model of a run.

    thalweg predict runs/fedavg-shop-seed0 --data new.csv --out predicted.csv

    The rows are encoded and scaled as the training data, and predictions are in
    the order of the rows. If the file contains the label, the accuracy (or the
    mean absolute error) is printed.
    """
    from thalweg.cli.predict import predict_command

    predict_command(run_folder, data=data, out=out, client=client, probabilities=probabilities)


@app.command()
def export(
    run_folder: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    to: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="[cyan]model.pt2[/cyan] (torch.export), [cyan]model.onnx[/cyan], or "
            "[cyan]model.safetensors[/cyan] (weights only).",
        ),
    ],
    client: Annotated[
        str | None,
        typer.Option(help="Name of a client. Default: the model that most clients use."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Export the model of a run for other software.

    thalweg export runs/fedavg-shop-seed0 --to model.pt2

    A .pt2 or .onnx program takes any number of rows, contains the scaling of
    the inputs, and returns class probabilities or numbers. It is checked
    against the predictions of the run.
    """
    from thalweg.cli.export import export_command

    export_command(run_folder, to=to, client=client)


@app.command("list")
def list_(as_json: JsonObject = False) -> None:
    """List recipes, scenarios, and the choices for every part."""
    from thalweg.cli.catalogue import list_command

    list_command(as_json)


@app.command()
def show(
    name: Annotated[
        str,
        typer.Argument(
            help="A recipe, a scenario, a policy, or a run folder.", autocompletion=complete_name
        ),
    ],
    debug: Debug = False,
) -> None:
    """Explain one name: what it does, its fields and their defaults.

    thalweg show dds
    """
    from thalweg.cli.catalogue import show_command

    show_command(name)


@app.command()
def doctor(
    recipe: Annotated[
        str | None,
        typer.Argument(
            help="A recipe, a run folder or a plan.toml. Default: only this machine.",
            autocompletion=complete_recipe,
        ),
    ] = None,
    on: On = None,
    sets: Sets = None,
    engine: Engine = "auto",
    device: Device = "auto",
    as_json: JsonObject = False,
    data_dir: DataDir = None,
    debug: Debug = False,
) -> None:
    """Report which code computes on this machine, and why.

    thalweg doctor moon --on digits-partial

    Prints the native kernel, the compiler, cores, PyTorch, GPU and Ray. With
    a recipe also whether training and prediction use the kernel or PyTorch,
    and on which device.
    """
    from thalweg.cli.doctor import doctor_command

    doctor_command(
        recipe,
        on=on,
        sets=sets or [],
        engine=engine,
        device=device,
        as_json=as_json,
        data_dir=data_dir,
    )


@app.command()
def explain(
    run_folder: Annotated[Path, typer.Argument(help="Folder of a run, finished or not.")],
    as_json: JsonObject = False,
    debug: Debug = False,
) -> None:
    """Describe in sentences what happened in a run, and why.

    thalweg explain runs/auto-digits-partial-seed0

    Lists what the recipe monitored, then alarms, sessions, changes of models
    and the decisions of its policies with their reasons, round by round.
    """
    from thalweg.cli.explain import explain_command

    explain_command(run_folder, as_json=as_json)


@app.command()
def gap(
    run_folder: Annotated[Path, typer.Argument(help="Folder of a run of sfedpo.")],
    as_json: JsonObject = False,
    data_dir: DataDir = None,
    debug: Debug = False,
) -> None:
    """Measure the cost of a run's forecasts, compared with the true probabilities.

    thalweg gap runs/sfedpo-digits-partial-seed0
    """
    from thalweg.cli.gap import gap_command

    gap_command(run_folder, as_json=as_json, data_dir=data_dir)


@app.command()
def states(
    recipe: Recipe = "sfedpo",
    on: On = None,
    seed: Seed = None,
    sets: Sets = None,
    out: Annotated[
        Path | None, typer.Option(help="File of a figure, .png or .svg. Default: no figure.")
    ] = None,
    as_json: JsonObject = False,
    data_dir: DataDir = None,
    debug: Debug = False,
) -> None:
    """Show the latent states of a scenario: classes, visits and renewal.

    thalweg states sfedpo --on digits-partial --out states.png

    Nothing is trained. The figure has three panels over the states: samples
    of each class, the probability of each state at each client, and the share
    of the memory that the recipe renews in it.
    """
    from thalweg.cli.states import states_command

    states_command(
        recipe,
        on=on,
        sets=sets or [],
        seed=seed,
        out=out,
        as_json=as_json,
        data_dir=data_dir,
    )


@app.command()
def variability(
    run_folder: Annotated[Path, typer.Argument(help="Folder of a run, or its plan.toml.")],
    rounds: Annotated[int | None, typer.Option(help="Only the first rounds.")] = None,
    as_json: JsonObject = False,
    data_dir: DataDir = None,
    debug: Debug = False,
) -> None:
    """Measure a run's effective sample size and gradient variability.

    The run is repeated, with the same result bit for bit; its folder is not
    changed.

    thalweg variability runs/stream-ours-streams-synthetic-seed0
    """
    from thalweg.cli.variability import variability_command

    variability_command(run_folder, rounds=rounds, as_json=as_json, data_dir=data_dir)


@app.callback(invoke_without_command=True)
def version(
    context: typer.Context,
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.")
    ] = False,
) -> None:
    context.with_resource(messages_for("command line"))
    if show_version:
        from thalweg import __version__

        typer.echo(__version__)
        raise typer.Exit


def main() -> None:
    """Run a command; a `ThalwegError` becomes one message and exit code 2."""
    is_bash = os.environ.get("_THALWEG_COMPLETE") == "complete_bash"
    warnings.formatwarning = format_warning
    try:
        complete_in_bash(app) if is_bash else app()
    except ThalwegError as error:
        if "--debug" in sys.argv:
            raise
        print_message(f"thalweg: {error}")
        raise SystemExit(2) from None
