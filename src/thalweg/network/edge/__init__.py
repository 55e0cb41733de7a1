"""One device: its durable store, its live data, and the daemon that answers for it."""
