"""Models on the Hugging Face Hub, or in a folder as it has them: the arrays, and a model card."""

from __future__ import annotations

from copy import copy
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from jinja2 import StrictUndefined, Template
from sklearn.utils.validation import check_is_fitted

from openauc._files import write_text
from openauc._validation import import_extra
from openauc.features.classifier.files import load, save
from openauc.features.classifier.tables import MODEL

if TYPE_CHECKING:
    from openauc.features.classifier.estimator import OpenSetClassifier


def save_pretrained(classifier: OpenSetClassifier, folder: Any, *, repo_id: str | None = None) -> None:
    """Write the model, and a card of it unless there is one."""
    place = Path(folder)
    save(classifier, place)
    if not (place / "README.md").exists():
        write_text(place / "README.md", card(classifier, repo_id or place.resolve().name))


def from_pretrained(name: Any, **options: Any) -> OpenSetClassifier:
    """The model in a folder, or else in a repository of the Hub."""
    if Path(name).exists():
        return load(name)
    hub = import_extra("huggingface_hub", f"{str(name)!r} is not a folder here, and the Hub", "'openauc[hub]'")
    try:
        file = hub.hf_hub_download(str(name), MODEL, library_name="openauc", **options)
    except Exception as error:  # the Hub's errors and those of its HTTP client have no base in common
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise FileNotFoundError(
            f"there is no folder {str(name)!r}, and no {MODEL} in a repository of that name ({type(error).__name__}: "
            f"{reason}). Name a folder, or a repository as 'user/model'; if it is private, pass token, or run "
            "`hf auth login`."
        ) from error
    return load(Path(file).parent)


def push_to_hub(
    classifier: OpenSetClassifier,
    repo_id: str,
    *,
    names: bool,
    branch: str | None,
    token: Any,
    private: Any,
    **commit: Any,
) -> str:
    """Upload the model and its card in one commit; the address of the commit, or of the pull request."""
    hub = import_extra("huggingface_hub", "push_to_hub", "'openauc[hub]'")
    check_is_fitted(classifier)
    if not names:
        classifier = copy(classifier)
        classifier.examples_ = classifier.examples_._replace(names=None)
    with TemporaryDirectory() as folder:
        save_pretrained(classifier, folder, repo_id=repo_id)  # before anything is created
        api = hub.HfApi(token=token, library_name="openauc")
        repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        if branch is not None:
            api.create_branch(repo_id, branch=branch, exist_ok=True)
        added = [hub.CommitOperationAdd(file.name, file) for file in sorted(Path(folder).iterdir())]
        made = api.create_commit(repo_id, added, revision=branch, **commit)
    return str(made.pr_url or made.commit_url)


def card(classifier: OpenSetClassifier, repo_id: str) -> str:
    """The model card, in Markdown."""
    text = (files("openauc.features.classifier") / "card.md").read_text(encoding="utf-8")
    template: Template = Template(text, undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True)
    return template.render(model=classifier, repo=repo_id, file=MODEL)
