import subprocess
import sys
from pathlib import Path

import pytest
import torch

import openauc.methods
from openauc.methods import build_method, load_method, make_method, method_names, method_options, recipe_for
from openauc.methods.base import Method
from openauc.methods.openauc import OpenAUC


def test_names_are_those_of_the_files_that_end_in_a_method():
    files = {file.stem for file in Path(openauc.methods.__file__).parent.glob("*.py")}
    assert method_names() == sorted(files - {"__init__", "base"})
    for name in method_names():
        assert issubclass(load_method(name), Method)


def test_the_papers_nine_methods_are_there():
    compared = {"softmax", "gcpl", "rpl", "arpl", "arpl_cs", "ce_plus", "arpl_plus", "acc_auc", "openauc"}
    assert compared <= set(method_names())


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
    with pytest.raises(ValueError, match=f"method is '{name}'; expected one of .*'openauc'"):
        load_method(name)
    with pytest.raises(ValueError, match="Did you mean 'openauc'"):
        load_method("opnauc")


def test_options_are_those_of_the_constructor():
    assert method_options(OpenAUC) == OpenAUC.preset("paper") | {
        "margin": None,
        "gather": False,
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


def same_weights(method, other):
    ours, theirs = method.state_dict(), other.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(value, theirs[key]) for key, value in ours.items())


def test_whatever_takes_a_method_by_name_also_takes_its_class():
    assert load_method(OpenAUC) is OpenAUC
    assert same_weights(
        build_method(OpenAUC, 4, image_size=8, width=4), build_method("openauc", 4, image_size=8, width=4)
    )
    assert recipe_for("plus", "tinyimagenet", OpenAUC) == recipe_for("plus", "tinyimagenet", "openauc")


def test_build_method_draws_network_and_method_with_one_seed():
    first, second, other = (build_method("gcpl", 4, image_size=8, width=4, seed=seed) for seed in (3, 3, 4))
    assert first.num_classes == 4
    assert same_weights(first, second)
    assert not torch.equal(first.points, other.points)
    assert not torch.equal(first.backbone.conv1.weight, other.backbone.conv1.weight)
    assert first.rng.random() == second.rng.random() != other.rng.random()


def test_build_method_does_not_depend_on_the_global_generator():
    methods = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        methods.append(build_method("openauc", 4, image_size=8, width=4))
    assert same_weights(*methods)


@pytest.mark.parametrize(
    ("name", "image_size", "backbone", "expected"),
    [
        ("arpl_cs", 16, None, "VGG32ABN"),
        ("softmax", 64, None, "VGG32"),
        ("softmax", 65, None, "ResNet50"),
        ("softmax", 16, "resnet50", "ResNet50"),
    ],
)
def test_build_method_takes_the_papers_network_unless_told(name, image_size, backbone, expected):
    options = {"generator_width": 8, "discriminator_width": 4} if name == "arpl_cs" else {}
    method = build_method(name, 4, image_size=image_size, backbone=backbone, width=2, method_args=options)
    assert type(method.backbone).__name__ == expected


def test_build_method_tells_the_image_size_to_a_method_that_asks():
    options = {"generator_width": 8, "discriminator_width": 4}
    assert build_method("arpl_cs", 4, image_size=16, width=2, method_args=options).image_size == 16
    own = build_method("arpl_cs", 4, image_size=16, width=2, method_args={**options, "image_size": 32})
    assert own.image_size == 32
    assert build_method("openauc", 4, image_size=16, width=2, method_args={"lam": 0.3}).lam == 0.3
