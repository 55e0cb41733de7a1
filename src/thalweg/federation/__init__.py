"""The round: its server part, its client part, and the interface between them."""

from thalweg.federation.base import Federation, KnowsConcepts, SurveyStage
from thalweg.federation.batching import BatchBuilder, MiniBatch
from thalweg.federation.capabilities import Capabilities
from thalweg.federation.client_round import (
    ClientRound,
    ClientTraining,
    LocalTrainer,
    run_client_round,
    start_round,
)
from thalweg.federation.client_state import ClientProgram, ClientState, Received
from thalweg.federation.context import ClientContext, DrawModel, RoundContext
from thalweg.federation.extensions.base import RoundExtension
from thalweg.federation.extensions.staleness import NO_REQUESTS, max_wait
from thalweg.federation.extensions.surveys import MakeProbe, run_client_survey
from thalweg.federation.ingest import Ingest, catch_up
from thalweg.federation.messages import (
    Hello,
    Octets,
    SurveyRequest,
    SurveyResponse,
    TrainRequest,
    TrainResponse,
    build_updates,
    drop_odd_lengths,
    make_train_requests,
    select_client_broadcast,
    select_uniform_responses,
    split_updates,
    stack_uploads,
    tabulate_responses,
    uploads_per_model,
)
from thalweg.federation.server_round import EXTENSIONS, run_server_round
from thalweg.federation.server_state import (
    ServedModels,
    ServerState,
    get_served_models,
    new_server,
)
from thalweg.federation.server_steps import bytes_up
from thalweg.federation.validation import match_updates, validate_updates

__all__ = [
    "EXTENSIONS",
    "NO_REQUESTS",
    "BatchBuilder",
    "Capabilities",
    "ClientContext",
    "ClientProgram",
    "ClientRound",
    "ClientState",
    "ClientTraining",
    "DrawModel",
    "Federation",
    "Hello",
    "Ingest",
    "KnowsConcepts",
    "LocalTrainer",
    "MakeProbe",
    "MiniBatch",
    "Octets",
    "Received",
    "RoundContext",
    "RoundExtension",
    "ServedModels",
    "ServerState",
    "SurveyRequest",
    "SurveyResponse",
    "SurveyStage",
    "TrainRequest",
    "TrainResponse",
    "build_updates",
    "bytes_up",
    "catch_up",
    "drop_odd_lengths",
    "get_served_models",
    "make_train_requests",
    "match_updates",
    "max_wait",
    "new_server",
    "run_client_round",
    "run_client_survey",
    "run_server_round",
    "select_client_broadcast",
    "select_uniform_responses",
    "split_updates",
    "stack_uploads",
    "start_round",
    "tabulate_responses",
    "uploads_per_model",
    "validate_updates",
]
