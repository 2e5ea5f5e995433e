"""One Hypothesis profile for all tests; this file also puts `oracles` and `strategies` on the import path."""

from hypothesis import HealthCheck, settings

# Derandomized: a commit passes or fails the same way everywhere. The first call of a compiled function may take
# seconds, so there is no deadline; monkeypatch only sets the backend, which every example shares.
settings.register_profile(
    "openauc",
    deadline=None,
    derandomize=True,
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("openauc")
