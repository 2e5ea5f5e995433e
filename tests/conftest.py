"""One Hypothesis profile for all tests; this file also puts `oracles` and `strategies` on the import path."""

from hypothesis import HealthCheck, settings

# Derandomized: a commit passes or fails the same way everywhere. No deadline: the first call of a compiled
# function takes seconds. Function-scoped monkeypatch only sets the backend, which every example may share.
settings.register_profile(
    "openauc",
    deadline=None,
    derandomize=True,
    max_examples=30,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("openauc")
