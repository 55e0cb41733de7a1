"""Banks: the models of a run, and the assignment of models to clients.

Most recipes have one global model (`OneModel`). Methods for concept drift keep several models and
open, merge or close them during the run. A bank is any object with `init`, `assign` and `shares`
(`Bank`); the optional protocols `SplitsSamples`, `MixesModels` and `ExtraBankMetrics` add sample
weights per model, mixtures for prediction, and metrics.
"""

from thalweg.bank.base import (
    Bank,
    BankAssignment,
    ExtraBankMetrics,
    MixesModels,
    OneModel,
    SplitContext,
    SplitsSamples,
    WatchesClients,
    find_max_jobs,
    require_cohort,
)
from thalweg.bank.feddaa import FedDaa  # FedRC in time steps, with drift detection
from thalweg.bank.feddrift import FedDrift  # new models after a drift, similar models merged
from thalweg.bank.fedrc import FedRc  # all clients train all models, with weighted samples
from thalweg.bank.ifca import Ifca  # a fixed number of models, each client trains the best one
from thalweg.bank.local_models import (  # banks of baselines
    Centralised,  # one model, trained in one place
    FineTuned,  # one model; clients predict with the result of their local steps
    OnePerClient,  # each client trains alone
)
from thalweg.bank.oracle import Oracle  # one model per true concept
from thalweg.bank.two_mixtures import TwoMixtures  # models are opened if clients contradict

BANKS = {
    "one-model": OneModel,
    "feddrift": FedDrift,
    "fedrc": FedRc,
    "feddaa": FedDaa,
    "two-mixtures": TwoMixtures,
    "ifca": Ifca,
    "oracle": Oracle,
    "one-per-client": OnePerClient,
    "fine-tuned": FineTuned,
    "centralised": Centralised,
}

__all__ = [
    "BANKS",
    "Bank",
    "BankAssignment",
    "Centralised",
    "ExtraBankMetrics",
    "FedDaa",
    "FedDrift",
    "FedRc",
    "FineTuned",
    "Ifca",
    "MixesModels",
    "OneModel",
    "OnePerClient",
    "Oracle",
    "SplitContext",
    "SplitsSamples",
    "TwoMixtures",
    "WatchesClients",
    "find_max_jobs",
    "require_cohort",
]
