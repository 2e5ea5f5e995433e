import subprocess
import sys

import pytest

from openauc.methods import load_method, make_method, method_names, method_options
from openauc.methods.openauc import OpenAUC


def test_names_are_those_of_the_command_line():
    expected = {"softmax", "gcpl", "rpl", "arpl", "arpl_cs", "ce_plus", "arpl_plus", "acc_auc", "openauc"}
    assert method_names() == sorted(expected)


def test_listing_names_does_not_import_torch():
    code = "import sys, openauc.methods as m; m.method_names(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_method_kept_elsewhere(tmp_path, monkeypatch, backbone, rng):
    package = tmp_path / "elsewhere"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "mine.py").write_text(
        "from openauc.methods.softmax import Softmax\nclass Mine(Softmax):\n    pass\nMETHOD = Mine\n"
    )
    (package / "empty.py").write_text("METHOD = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert type(make_method("elsewhere.mine", backbone, 3, rng=rng)).__name__ == "Mine"
    with pytest.raises(ValueError, match=r"'elsewhere.empty' has no METHOD"):
        load_method("elsewhere.empty")
    with pytest.raises(ValueError, match=r"'elsewhere.nothing' cannot be imported.*openauc"):
        load_method("elsewhere.nothing")


@pytest.mark.parametrize("name", ["opnauc", "base", "scores"])
def test_a_wrong_name_is_refused(name):
    with pytest.raises(ValueError, match=f"method is '{name}'; expected one of 'acc_auc'"):
        load_method(name)
    with pytest.raises(ValueError, match="Did you mean 'openauc'"):
        load_method("opnauc")


def test_options_are_those_of_the_constructor():
    assert method_options(OpenAUC) == OpenAUC.preset("paper") | {
        "margin": None,
        "warm_up": 0,
        "min_confidence": 0.0,
        "gradient": "both",
        "gather": False,
        "score": None,
        "label_smoothing": None,
    }


def test_make_method_passes_options_on(backbone, rng):
    method = make_method("openauc", backbone, 3, rng=rng, method_args={"lam": 0.4, "pairing": "all"})
    assert (method.lam, method.pairing, method.num_classes) == (0.4, "all", 3)
    assert make_method(OpenAUC, backbone, 3, rng=rng).lam == 0.1


def test_make_method_expands_a_preset_and_lets_options_win(backbone, rng):
    method = make_method("openauc", backbone, 3, rng=rng, method_args={"preset": "public_code", "lam": 0.05})
    assert (method.pairing, method.score_space, method.lam) == ("half_batch", "logit", 0.05)
    assert method.ranking.pairwise.normalizer == "hits"


def test_unknown_options_and_presets_are_refused(backbone, rng):
    with pytest.raises(ValueError, match=r"option of OpenAUC is 'lamb'; expected one of 'lam', .* Did you mean 'lam'"):
        make_method("openauc", backbone, 3, rng=rng, method_args={"lamb": 0.1})
    with pytest.raises(ValueError, match="option of Softmax is 'rng'"):
        make_method("softmax", backbone, 3, rng=rng, method_args={"rng": 1})
    with pytest.raises(ValueError, match=r"preset is 'papr'.*Did you mean 'paper'"):
        make_method("openauc", backbone, 3, rng=rng, method_args={"preset": "papr"})
    with pytest.raises(ValueError, match="Softmax has no presets"):
        make_method("softmax", backbone, 3, rng=rng, method_args={"preset": "paper"})
