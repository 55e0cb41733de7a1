"""The nouns every stage shares: types, seeds, configuration, errors."""
