"""The page on training loops runs as it stands, with Lightning and the Trainer of transformers."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from openauc import evaluate

PAGE = Path(__file__).resolve().parents[1] / "docs" / "torch.md"
N, CLASSES = 60, 3

pytestmark = pytest.mark.filterwarnings("ignore::openauc.ScoreDirectionWarning")


def blocks(heading):
    """Python code below a heading, up to the next one."""
    section = re.search(rf"^#+ {heading}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.DOTALL | re.MULTILINE)[1]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


@pytest.fixture(scope="module")
def samples():
    rng = torch.Generator().manual_seed(0)
    return torch.randn(N, 4, generator=rng), torch.arange(N) % (CLASSES + 1) - 1


class Linear(torch.nn.Module):
    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.layer = torch.nn.Linear(4, CLASSES)

    def forward(self, inputs, labels):
        logits = self.layer(inputs)
        return {"loss": cross_entropy(logits, labels), "logits": logits}


def wanted(model, inputs, labels):
    logits = model.layer(inputs)
    return evaluate(labels, logits.argmax(1), -logits.amax(1), level=None)


def test_a_loop(samples, capsys):
    model, (inputs, labels) = Linear(), samples
    batches = list(zip(labels.split(16), model.layer(inputs).split(16), strict=True))
    exec(blocks("In a training loop")[0], {"batches": batches})
    value = re.search(r"'OpenAUC': tensor\((\d\.\d+)", capsys.readouterr().out)[1]
    assert float(value) == pytest.approx(wanted(model, inputs, labels).openauc, abs=1e-4)


@pytest.mark.slow
def test_lightning(samples, tmp_path, monkeypatch):
    import lightning

    monkeypatch.chdir(tmp_path)

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = Linear()

        def training_step(self, batch):
            return self.model(*batch)["loss"]

        def validation_step(self, batch):
            return {"labels": batch[1], "logits": self.model.layer(batch[0])}

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    inputs, labels = samples
    known = labels >= 0
    order = labels.argsort(descending=True)  # the first batches lack unknown samples
    validation = list(zip(inputs[order].split(8), labels[order].split(8), strict=True))
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    made = []

    class Quiet(lightning.Trainer):
        def __init__(self, **options):
            super().__init__(**options, **quiet, accelerator="cpu")
            made.append(self)

    callback, use = blocks("Lightning")
    names = {
        "module": Module(),
        "train_batches": DataLoader([(inputs[known], labels[known])], batch_size=None),
        "validation_batches": DataLoader(validation, batch_size=None),
    }
    exec(callback, names)
    monkeypatch.setattr(lightning, "Trainer", Quiet)
    exec(use, names)
    expected = wanted(names["module"].model, inputs, labels)
    logged = {name: value.item() for name, value in made[0].callback_metrics.items()}
    assert logged == pytest.approx(
        {
            "val/OpenAUC": expected.openauc,
            "val/AUROC": expected.auroc,
            "val/ClosedSetAccuracy": expected.closed_set_accuracy,
            "val/FPRAtTPR": expected.fpr_at_95tpr,
        },
        abs=1e-6,
    )


def test_compute_metrics_of_arrays(samples):
    inputs, labels = samples
    names = {}
    exec(blocks("Trainer of Hugging Face")[0], names)
    logits = Linear().layer(inputs).detach().numpy()
    prediction = SimpleNamespace(predictions=logits, label_ids=np.where(labels < 0, -100, labels))
    assert names["compute_metrics"](prediction) == dict(wanted(Linear(), inputs, labels).values)


@pytest.mark.slow
def test_trainer_in_batches(samples, tmp_path, capsys):
    from transformers import Trainer, TrainingArguments

    inputs, labels = samples
    rows = [{"inputs": x, "labels": torch.where(y < 0, -100, y)} for x, y in zip(inputs, labels, strict=True)]
    arguments = TrainingArguments(
        tmp_path,
        batch_eval_metrics=True,
        per_device_eval_batch_size=16,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
    )
    names = {"Trainer": Trainer, "model": Linear(), "arguments": arguments, "samples": rows}
    for code in blocks("Trainer of Hugging Face")[1:]:
        exec(code, names)
    expected = wanted(names["model"], inputs, labels).openauc
    found = names["trainer"].evaluate()
    assert found["eval_openauc"] == pytest.approx(expected, abs=1e-2)
    assert found["eval_openauc_low"] <= expected <= found["eval_openauc_high"]
    assert str(found["eval_openauc"]) in capsys.readouterr().out
