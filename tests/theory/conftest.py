from hypothesis import settings

# Disable the deadline, because tests can be slow on a busy machine. Other settings are kept.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
