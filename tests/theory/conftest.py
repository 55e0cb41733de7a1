from hypothesis import settings

# A busy machine is not a failing property. Everything else stays as the run has it.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
