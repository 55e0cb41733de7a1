"""One device: its durable store, its live data, and its daemon."""
