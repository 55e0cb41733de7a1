"""A side of `peers.py`: Flower's simulation with Ray, one core per client, FedAvg of Flower.

The data, the model and the optimizer are those of the plain loop. Each actor keeps the model and
the data of the clients that it has trained before, so that a message only causes training.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from peers_work import Work, load_client, load_model, train


def main(folder: str) -> None:
    work = Work(folder, "flower")
    server, client = ServerApp(), ClientApp()

    @server.main()
    def serve(grid: Grid, context: Context) -> None:
        def end_round(rnd: int, arrays: ArrayRecord) -> None:
            if rnd:
                first = arrays.to_torch_state_dict().values() if rnd == 1 else None
                work.end_round(first)

        strategy = FedAvg(
            fraction_evaluate=0.0, min_train_nodes=work.clients, min_available_nodes=work.clients
        )
        initial = ArrayRecord(load_model(folder).state_dict())
        strategy.start(grid, initial, num_rounds=work.rounds, evaluate_fn=end_round)

    @client.train()
    def respond(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        model = load_model(folder)
        arrays: Any = message.content["arrays"]
        model.load_state_dict(arrays.to_torch_state_dict())
        x, y = load_client(folder, int(context.node_config["partition-id"]))
        train(model, x, y, work)
        metrics = MetricRecord({"num-examples": len(y)})
        content: Any = {"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}
        return Message(RecordDict(content), reply_to=message)

    resources: Any = {
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        "init_args": {"num_cpus": work.cores},
    }
    run_simulation(server, client, work.clients, backend_config=resources)


if __name__ == "__main__":
    main(sys.argv[1])
