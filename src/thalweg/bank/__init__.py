"""Banks of models: which models exist, and which clients train which."""

from thalweg.bank.base import (
    Bank,
    BankAssignment,
    ExtraBankMetrics,
    MixesModels,
    OneModel,
    SplitContext,
    SplitsSamples,
    require_cohort,
)
from thalweg.bank.feddaa import FedDaa  # as many as there are concepts in a time step
from thalweg.bank.feddrift import FedDrift  # a model per concept, opened and merged
from thalweg.bank.fedrc import FedRc  # models that explain samples beyond their labels
from thalweg.bank.oracle import Oracle  # a model per true concept

BANKS = {
    "one-model": OneModel,
    "feddrift": FedDrift,
    "fedrc": FedRc,
    "feddaa": FedDaa,
    "oracle": Oracle,
}

__all__ = [
    "BANKS",
    "Bank",
    "BankAssignment",
    "ExtraBankMetrics",
    "FedDaa",
    "FedDrift",
    "FedRc",
    "MixesModels",
    "OneModel",
    "Oracle",
    "SplitContext",
    "SplitsSamples",
    "require_cohort",
]
