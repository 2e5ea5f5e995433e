"""Models on the Hub, by the Hub's own client and a server on this machine."""

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hub import Hub, serving

from openauc import OpenSetClassifier
from openauc.features.classifier.tables import MODEL
from tests.features.samples import blobs

NAMES = np.array(["ant", "bee", "cat", "dog"])


@pytest.fixture(scope="module")
def model() -> OpenSetClassifier:
    X, y = blobs()
    classifier = OpenSetClassifier(random_state=0, rejector="max_logit", folds=2).fit(X, NAMES[y])
    texts = np.array([f"secret text {row}" for row in classifier.examples_.row])
    classifier.examples_ = classifier.examples_._replace(names=texts)
    classifier.table_spec_ = replace(classifier.table_spec_, encoder="minilm")
    return classifier


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tuple[Hub, dict[str, str]]]:
    server = Hub()
    with serving(server, tmp_path / "home") as environment:
        yield server, environment


def python(code: str, environment: dict[str, str], folder: Path) -> str:
    """Output of code where ``model`` is the one in ``folder``; the client reads its settings when it is imported."""
    code = f"from openauc import OpenSetClassifier as C\nmodel = C.load({str(folder)!r})\n{code}"
    done = subprocess.run([sys.executable, "-c", code], env=environment, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_model_goes_to_the_hub_and_comes_back(model, hub, tmp_path) -> None:
    server, environment = hub
    model.save(tmp_path / "model")
    push = "print(model.push_to_hub('me/intents', private=True, commit_message='First.'))"
    url = python(push, environment, tmp_path / "model")
    commit, files = server.commits["me/intents", "main"]
    assert url == f"{server.address}/me/intents/commit/{commit}"
    assert sorted(files) == ["README.md", MODEL]
    assert server.log[0] == {"repo": "me/intents", "private": True}
    assert (server.log[1]["summary"], server.log[1]["revision"]) == ("First.", "main")

    ask = "back = C.from_pretrained('me/intents'{}); print(back.thresholds_.tolist(), back.examples_.names)"
    for revision in ("", f", revision={commit!r}"):
        assert python(ask.format(revision), environment, tmp_path / "model") == f"{model.thresholds_.tolist()} None"
    offline = {**environment, "HF_HUB_OFFLINE": "1"}
    assert python(ask.format(""), offline, tmp_path / "model") == f"{model.thresholds_.tolist()} None"


def test_texts_of_training_rows_are_published_only_if_asked_for(model, hub, tmp_path) -> None:
    server, environment = hub
    model.save(tmp_path / "model")
    for names in (False, True):
        python(
            f"model.push_to_hub('me/intents', names={names}); assert model.examples_.names is not None",
            environment,
            tmp_path / "model",
        )
        files = server.commits["me/intents", "main"][1]
        assert (b"secret text" in files[MODEL]) is names
        assert ("their texts" in files["README.md"].decode()) is names


def test_branches_and_pull_requests(model, hub, tmp_path) -> None:
    server, environment = hub
    model.save(tmp_path / "model")
    python("model.push_to_hub('me/intents', branch='new')", environment, tmp_path / "model")
    assert server.commits["me/intents", "main"][1] == {}
    assert MODEL in server.commits["me/intents", "new"][1]
    url = python("print(model.push_to_hub('me/intents', create_pr=True))", environment, tmp_path / "model")
    assert url == f"{server.address}/me/intents/discussions/1"
    assert server.commits["me/intents", "main"][1] == {}
    back = "print(C.from_pretrained('me/intents', revision='{}').classes_.tolist())"
    for revision in ("new", "refs/pr/1"):
        assert python(back.format(revision), environment, tmp_path / "model") == "['ant', 'bee', 'cat', 'dog']"


@pytest.mark.parametrize(
    ("name", "revision", "said"),
    [
        ("me/nothing", None, "RepositoryNotFoundError"),
        ("me/other", None, "EntryNotFoundError"),
        ("me/other", "old", "RevisionNotFoundError"),
        ("not/a/name", None, "HFValidationError"),
    ],
)
def test_what_is_not_there_is_said(model, hub, tmp_path, name, revision, said) -> None:
    server, environment = hub
    server.commit("me/other", "main", {"config.json": b"{}"})
    model.save(tmp_path / "model")
    code = f"try: C.from_pretrained({name!r}, revision={revision!r})\nexcept FileNotFoundError as error: print(error)"
    text = python(code, environment, tmp_path / "model")
    assert text.startswith(f"there is no folder '{name}', and no {MODEL} in a repository of that name (")
    assert said in text
    assert text.endswith("pass token, or run `hf auth login`.")


def test_a_folder_needs_no_hub(model, tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    model.save_pretrained(tmp_path / "animals")
    back = OpenSetClassifier.from_pretrained(tmp_path / "animals")
    np.testing.assert_array_equal(back.thresholds_, model.thresholds_)
    wanted = r"needs huggingface_hub .*: pip install 'openauc\[hub\]'"
    with pytest.raises(ImportError, match=wanted):
        OpenSetClassifier.from_pretrained("me/animals")
    with pytest.raises(ImportError, match=wanted):
        model.push_to_hub("me/animals")


def test_the_card_says_what_the_model_is_and_its_code_runs(model, tmp_path) -> None:
    model.save_pretrained(tmp_path / "animals", repo_id="me/animals")
    card = (tmp_path / "animals/README.md").read_text()
    assert card.startswith("---\nlibrary_name: openauc\n")
    assert "\n# animals\n" in card
    assert model.guarantee_[1:] in card
    assert str(model.report_) in card
    assert "`ant`, `bee`, `cat`, `dog`" in card
    assert "`minilm`" in card
    (code,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    compile(code, "card", "exec")
    assert 'from_pretrained("me/animals")' in code


def test_a_card_that_is_there_stays(model, tmp_path) -> None:
    model.save_pretrained(tmp_path / "animals")
    (tmp_path / "animals/README.md").write_text("Mine.")
    model.save_pretrained(tmp_path / "animals")
    assert (tmp_path / "animals/README.md").read_text() == "Mine."


def test_nothing_is_created_for_a_model_that_cannot_be_saved(hub, tmp_path, model) -> None:
    server, environment = hub
    model.save(tmp_path / "model")
    code = "try: C().push_to_hub('me/intents')\nexcept Exception as error: print(type(error).__name__)"
    assert python(code, environment, tmp_path / "model") == "NotFittedError"
    assert server.log == []
