"""The round: the server half, the client half, and the interface between them."""
