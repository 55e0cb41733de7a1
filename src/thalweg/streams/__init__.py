"""Stage 1: what arrives, at which client, and when."""

from thalweg.streams.base import StateBook, World, WorldSpec
from thalweg.streams.latent import LatentStates  # clients that wander among latent states
from thalweg.streams.replay import Replay  # a data set in its own order, by its own clients

WORLDS = {"latent-states": LatentStates, "replay": Replay}

__all__ = ["WORLDS", "LatentStates", "Replay", "StateBook", "World", "WorldSpec"]
