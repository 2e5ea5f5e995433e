"""openauc list, as typed."""

from commands.application import refused, run
from openauc import METRICS
from openauc.bench.benchmarks import benchmark_names
from openauc.encoders import ENCODERS
from openauc.features.scores.registry import SCORES
from openauc.methods import method_names
from openauc.models import BACKBONES
from openauc.protocols import PROTOCOLS


def test_lists_have_a_line_for_everything():
    everything = run("list")
    for what, names in {
        "methods": method_names(),
        "scores": SCORES,
        "encoders": ENCODERS,
        "protocols": PROTOCOLS,
        "recipes": ("plain", "plus", "small"),
        "backbones": BACKBONES,
        "metrics": METRICS,
        "benchmarks": benchmark_names(),
    }.items():
        said = run("list", what)
        first_words = [line.split()[0] for line in said.splitlines()]
        assert set(names) <= set(first_words)
        assert said in everything
    assert len(run("list", "methods").splitlines()) == len(method_names()) + 2
    refused("list", "method", match="'methods'")
