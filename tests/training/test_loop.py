"""The training loop: order, logs, checkpoints, signals, several processes; on the embedded digits."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate.tracking import GeneralTracker
from hypothesis import given
from hypothesis import strategies as st
from methods.device_reads import device_reads
from PIL import Image
from safetensors.torch import load_file

from openauc._trial_files import CHECKPOINT, LOG, WEIGHTS
from openauc.methods import build_method, recipe_for
from openauc.methods.softmax import Softmax
from openauc.models import make_backbone
from openauc.models.base import Backbone
from openauc.protocols import Protocol, get_protocol
from openauc.training import loop
from openauc.training.checkpoint import load_checkpoint, save_checkpoint
from openauc.training.loop import TrainingInterrupted, epoch_batches, train
from openauc.training.predict import predict
from openauc.training.schedule import learning_rate

RECIPE = recipe_for("plus", "digits", epochs=2, batch_size=50)
SMALL_ADVERSARIES = {"noise_dim": 8, "generator_width": 8, "discriminator_width": 4}


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def data():
    return get_protocol("digits").load(0).limited(220)


def build(data, name="openauc", **options):
    if name == "arpl_cs":
        options |= SMALL_ADVERSARIES
    return build_method(name, data.num_classes, image_size=RECIPE.image_size, width=4, method_args=options)


def same_weights(method, other):
    theirs = other if isinstance(other, dict) else other.state_dict()
    return all(torch.equal(value, theirs[key]) for key, value in method.state_dict().items())


class Interfering(Softmax):
    """Softmax to which something happens in one batch."""

    batches = 0
    at = 7  # the second of five batches in the second epoch

    def happen(self, loss):
        return loss

    def loss(self, x, y):
        self.batches += 1
        loss = super().loss(x, y)
        return self.happen(loss) if self.batches == self.at else loss


def interfering(kind, data):
    backbone = make_backbone("vgg32", width=4, generator=torch.Generator().manual_seed(0))
    return kind(backbone, data.num_classes, rng=np.random.default_rng(0))


@given(
    count=st.integers(1, 40),
    size=st.integers(1, 12),
    processes=st.integers(1, 4),
    epoch=st.integers(0, 3),
)
def test_processes_share_every_batch(count, size, processes, epoch):
    whole = epoch_batches(count, size, seed=1, epoch=epoch, passes=("a", "b"))
    parts = [
        epoch_batches(count, size, seed=1, epoch=epoch, passes=("a", "b"), process=rank, processes=processes)
        for rank in range(processes)
    ]
    for phase in ("a", "b"):
        rows = np.concatenate([batch.rows for batch in whole if batch.phase == phase])
        assert sorted(rows) == list(range(count))
    for batch, *shards in zip(whole, *parts, strict=True):
        if len(batch.rows) < processes:  # too few to divide
            assert all(s.rows.tolist() == batch.rows.tolist() for s in shards)
        else:
            assert np.concatenate([s.rows for s in shards]).tolist() == batch.rows.tolist()
        assert sum(s.images for s in shards) == pytest.approx(len(batch.rows))
        assert sum(s.share for s in shards) == pytest.approx(processes)
        # Weighted by share, the means of the parts average to the mean of the batch.
        mean = sum(s.share * s.rows.mean() for s in shards) / processes
        assert mean == pytest.approx(batch.rows.mean())


def test_order_depends_on_seed_epoch_and_pass():
    def order(seed, epoch):
        return [batch.rows.tolist() for batch in epoch_batches(9, 9, seed=seed, epoch=epoch, passes=("a", "b"))]

    assert order(0, 0) == order(0, 0)
    assert len({str(rows) for rows in (*order(0, 0), *order(0, 1), *order(1, 0))}) == 6


def test_one_seed_one_set_of_weights(data):
    methods = [build(data) for _ in range(3)]
    for method, seed in zip(methods, (0, 0, 1), strict=True):
        train(method, data, RECIPE, seed=seed)
    assert same_weights(methods[0], methods[1])
    assert not same_weights(methods[0], methods[2])


def test_rows_and_log_show_what_happened(data, tmp_path, capsys):
    rows = train(build(data), data, RECIPE, out=tmp_path, about={"protocol": "digits"})
    assert [row["epoch"] for row in rows] == [1, 2]
    assert [row["learning_rate"] for row in rows] == [learning_rate(RECIPE, epoch) for epoch in range(2)]
    for row in rows:
        assert row["images_per_second"] == pytest.approx(220 / row["seconds"])
        assert 0 <= row["known_accuracy"] <= 1
        assert {"open_score_known", "open_score_mixed", "pair_auc", "hits"} <= set(row)
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == rows
    assert {file.name for file in tmp_path.iterdir()} == {
        "checkpoint.pt",
        "log.jsonl",
        "model.safetensors",
    }
    assert capsys.readouterr() == ("", "")


def test_means_weigh_images_not_batches(data):
    class Counting(Softmax):
        def diagnostics(self):
            return {"size": torch.tensor(len(self._last_batch[1]))}

    (row,) = train(interfering(Counting, data), data, replace(RECIPE, epochs=1))
    assert row["size"] == pytest.approx((4 * 50**2 + 20**2) / 220)


def test_a_terminal_sees_a_progress_bar(data, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    train(build(data), data, replace(RECIPE, epochs=1))
    shown = capsys.readouterr().err
    assert "loss" in shown
    assert "images/s" in shown


def test_training_learns_and_its_recipe_is_remembered():
    data = get_protocol("digits").load(0)
    recipe = recipe_for("plain", "digits", epochs=4)
    method = build_method("softmax", data.num_classes, image_size=recipe.image_size, width=8)
    rows = train(method, data, recipe)
    assert rows[-1]["loss"] < 0.7 * rows[0]["loss"]
    predictions = predict(method, data)
    known = predictions.y_true >= 0
    assert np.mean(predictions.y_pred[known] == predictions.y_true[known]) > 0.5  # chance is 1/6


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_the_same_call_goes_on(data, tmp_path, signum):
    class Stopped(Interfering):
        def happen(self, loss):
            os.kill(os.getpid(), signum)
            return loss

    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(TrainingInterrupted, match=r"in epoch 2 after 2 batches") as stopped:
        train(interfering(Stopped, data), data, RECIPE, out=tmp_path)
    assert stopped.value.signum == signum
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert load_checkpoint(tmp_path / "checkpoint.pt")["progress"]["batch"] == 2
    assert not (tmp_path / "model.safetensors").exists()

    Stopped.at = -1
    resumed, whole = interfering(Stopped, data), interfering(Stopped, data)
    rows = train(resumed, data, RECIPE, out=tmp_path)
    expected = train(whole, data, RECIPE)
    assert same_weights(resumed, whole)
    clocks = ("seconds", "images_per_second")
    for row, other in zip(rows, expected, strict=True):
        assert {k: v for k, v in row.items() if k not in clocks} == {k: v for k, v in other.items() if k not in clocks}


@pytest.mark.parametrize("name", ["openauc", "arpl_cs"])
def test_an_older_checkpoint_leads_to_the_same_weights(name, data, tmp_path):
    """As after kill -9 in the last epoch: the checkpoint is behind the log."""
    whole, resumed = build(data, name), build(data, name)
    out = tmp_path / "run"
    saved = {}

    def remember(path, state):
        save_checkpoint(path, state)
        saved[state["progress"]["epoch"]] = Path(path).read_bytes()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "save_checkpoint", remember)
        rows = train(whole, data, RECIPE, out=out)
    (out / "checkpoint.pt").write_bytes(saved[1])
    again = train(resumed, data, RECIPE, out=out)
    assert same_weights(resumed, whole)
    assert [row["loss"] for row in again] == [row["loss"] for row in rows]
    assert len((out / "log.jsonl").read_text().splitlines()) == 2


def test_a_finished_run_is_not_trained_again(data, tmp_path):
    first, second = build(data), build(data)
    rows = train(first, data, RECIPE, out=tmp_path)
    assert train(second, data, RECIPE, out=tmp_path) == rows
    assert same_weights(first, second)


KILLED = """
import os, signal, sys
sys.path.insert(0, {folder!r})
import torch
torch.set_num_threads(1)
from pathlib import Path
from training.test_loop import RECIPE, Interfering, interfering, train
from openauc.protocols import get_protocol

class Killed(Interfering):
    at = int(sys.argv[2])

    def happen(self, loss):
        os.kill(os.getpid(), signal.SIGKILL)

data = get_protocol("digits").load(0).limited(220)
train(interfering(Killed, data), data, RECIPE, out=Path(sys.argv[1]))
"""


@pytest.mark.slow
def test_resuming_after_sigkill_gives_the_same_bits(data, tmp_path):
    script = tmp_path / "killed.py"
    script.write_text(KILLED.format(folder=str(Path(__file__).parents[1])))

    def run(out, at):
        return subprocess.run([sys.executable, str(script), str(out), str(at)], check=False).returncode

    assert run(tmp_path / "run", 8) == -signal.SIGKILL  # the middle of the second epoch
    progress = load_checkpoint(tmp_path / "run/checkpoint.pt")["progress"]
    assert (progress["epoch"], progress["batch"]) == (1, 0)
    assert run(tmp_path / "run", -1) == 0
    whole = interfering(Softmax, data)
    train(whole, data, RECIPE)
    assert same_weights(whole, load_file(tmp_path / "run/model.safetensors"))
    lines = (tmp_path / "run/log.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == [1, 2]


class Diverging(Interfering):
    def happen(self, loss):
        return loss * float("nan")


def test_a_loss_that_is_not_finite_stops_the_run_at_the_end_of_its_epoch(data, tmp_path):
    method = interfering(Diverging, data)
    with pytest.raises(FloatingPointError, match=r"the loss is nan in epoch 2, .*checkpoint is kept in .*\.$"):
        train(method, data, RECIPE, out=tmp_path)
    assert method.batches == 10  # the epoch was finished
    checkpoint = load_checkpoint(tmp_path / CHECKPOINT)
    assert (checkpoint["progress"]["epoch"], checkpoint["progress"]["batch"]) == (1, 0)
    assert all(value.isfinite().all() for value in checkpoint["model"].values())
    assert len((tmp_path / LOG).read_text().splitlines()) == 1
    assert not (tmp_path / WEIGHTS).exists()
    with pytest.raises(FloatingPointError, match=r"add warm-up epochs\.$"):
        train(interfering(Diverging, data), data, RECIPE)


@pytest.mark.parametrize("last", [10, 9])
def test_no_signal_makes_a_checkpoint_of_what_is_not_finite(data, tmp_path, last):
    """Neither after the last batch nor within the epoch."""

    class Stopped(Diverging):
        def loss(self, x, y):
            loss = super().loss(x, y)
            if self.batches == last:
                os.kill(os.getpid(), signal.SIGTERM)
            return loss

    with pytest.raises(FloatingPointError, match=r"the loss is nan in epoch 2"):
        train(interfering(Stopped, data), data, RECIPE, out=tmp_path)
    checkpoint = load_checkpoint(tmp_path / CHECKPOINT)
    assert (checkpoint["progress"]["epoch"], checkpoint["progress"]["batch"]) == (1, 0)
    assert all(value.isfinite().all() for value in checkpoint["model"].values())


def test_whatever_else_a_step_reports_has_to_be_finite_too(data):
    class Reporting(Softmax):
        def train_batch(self, *args, **options):
            return super().train_batch(*args, **options) | {"generator_loss": torch.tensor(float("inf"))}

    with pytest.raises(FloatingPointError, match="the generator loss is inf in epoch 1, at a learning rate of"):
        train(interfering(Reporting, data), data, RECIPE)


def test_the_recipe_s_label_smoothing_reaches_a_method_with_an_optimiser_of_its_own(data):
    class Own(Softmax):
        def optimizer(self, recipe):
            return torch.optim.SGD(self.parameters(), lr=recipe.learning_rate)

    short = replace(RECIPE, epochs=1)
    rows = [train(interfering(Own, data), data, replace(short, label_smoothing=s))[0]["loss"] for s in (0.0, 0.5)]
    assert rows[0] != rows[1]


def test_an_optimiser_leaves_the_method_as_it_is(data):
    method = interfering(Softmax, data)
    method.optimizer(replace(RECIPE, label_smoothing=0.5))
    assert method.label_smoothing == 0


# RandAugment reads how often it drew each operation, of draws made on the CPU, wherever the images are.
OF_TWO_BATCHES, OF_ELEVEN = (replace(RECIPE, epochs=1, batch_size=size, augmentation="crop_flip") for size in (110, 20))


@pytest.mark.parametrize("name", ["openauc", "arpl_cs"])
def test_an_epoch_reads_from_the_device_as_often_however_many_batches_it_has(name, data, tmp_path):
    found = []
    for recipe in (OF_TWO_BATCHES, OF_ELEVEN):
        with device_reads() as reads:
            train(build(data, name), data, recipe, out=tmp_path / str(recipe.batch_size))
        found.append(reads)
    assert found[0] == found[1] != []
    with device_reads() as reads:
        train(build(data, name), data, OF_ELEVEN)
    assert reads == ["tolist"]  # the sums of the epoch; the rest above is the checkpoint


def test_a_step_that_reads_makes_the_loop_read_with_every_batch(data):
    class Reading(Softmax):
        def diagnostics(self):
            return {name: torch.tensor(value.item()) for name, value in super().diagnostics().items()}

    found = []
    for recipe in (OF_TWO_BATCHES, OF_ELEVEN):
        with device_reads() as reads:
            train(interfering(Reading, data), data, recipe)
        found.append(len(reads))
    assert found == [2 + 1, 11 + 1]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seed": 3}, "seed was 0, now 3"),
        ({"recipe": replace(RECIPE, learning_rate=0.5)}, r"recipe.learning_rate was 0.1, now 0.5"),
        ({"about": {"width": 8}}, "width was None, now 8"),
    ],
)
def test_another_run_in_the_same_folder_is_refused(data, tmp_path_factory, changes, said):
    out = tmp_path_factory.mktemp("run")
    short = replace(RECIPE, epochs=1)
    train(build(data), data, short, out=out)
    if "recipe" in changes:
        changes = {"recipe": replace(changes["recipe"], epochs=1)}
    with pytest.raises(ValueError, match=f"holds another run: {said}"):
        train(build(data), data, **({"recipe": short, "out": out} | changes))


class Notebook(GeneralTracker):
    """A tracker that remembers."""

    name = "notebook"
    requires_logging_directory = False

    def __init__(self):
        super().__init__()
        self.rows, self.finished = [], False

    @property
    def tracker(self):
        return self.rows

    def store_init_configuration(self, values):
        self.configuration = values

    def log(self, values, step=None, **kwargs):
        self.rows.append((step, values))

    def finish(self):
        self.finished = True


def test_trackers_get_every_row(data):
    notebook = Notebook()
    rows = train(build(data), data, RECIPE, trackers=[notebook])
    assert notebook.rows == [(row["epoch"], row) for row in rows]
    assert notebook.configuration["seed"] == "0"
    assert notebook.finished


def test_trackers_that_are_not_there(data, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.setattr("openauc.training.loop.find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pip install wandb"):
        train(build(data), data, RECIPE, trackers=["wandb"])
    with pytest.raises(ValueError, match="Did you mean 'tensorboard'"):
        train(build(data), data, RECIPE, trackers=["tensorbord"])


def test_precisions_follow_each_other(data):
    short = replace(RECIPE, epochs=1)
    losses = [train(build(data), data, short, precision=precision)[0]["loss"] for precision in ("fp32", "bf16", "fp32")]
    assert losses[0] == losses[2] != losses[1]
    assert losses[1] == pytest.approx(losses[0], rel=0.1)


def test_the_method_is_given_back_unwrapped(data):
    method = build(data)
    train(method, data, replace(RECIPE, epochs=1), precision="bf16")
    assert "forward" not in vars(method) or method.forward.__func__ is type(method).forward
    assert method.eval()(torch.rand(1, 3, 16, 16)).dtype == torch.float32


def test_compiled_training(data, monkeypatch):
    # Without the code generator, which takes a minute; what is compiled and how it is called stays the same.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    short = replace(RECIPE, epochs=1, batch_size=220)
    plain, compiled = build(data, "softmax"), build(data, "softmax")
    losses = [train(m, data, short, compile=flag)[0]["loss"] for m, flag in ((plain, False), (compiled, True))]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    assert list(compiled.state_dict()) == list(plain.state_dict())
    assert compiled.backbone._compiled_call_impl is not None


def test_compressed_images_train_like_arrays(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        for i in range(10):
            pixels = rng.integers(256, size=(8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{i}.png")
    lazy = Protocol.from_folder(tmp_path, known=["a", "b"], unknown=["c"], image_size=8).load(0)
    decoded = replace(lazy, read_train=lambda: (lazy.train._replace(images=lazy.train.images[:]), lazy.validation))
    methods = [build(lazy), build(lazy)]
    for method, data in zip(methods, (lazy, decoded), strict=True):
        train(method, data, replace(RECIPE, batch_size=5))
    assert same_weights(*methods)


def test_bad_arguments(data):
    method = build(data)
    with pytest.raises(ValueError, match="seed is -1"):
        train(method, data, RECIPE, seed=-1)
    with pytest.raises(ValueError, match="precision is 'fp17'"):
        train(method, data, RECIPE, precision="fp17")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="needs a GPU"):
            train(method, data, RECIPE, precision="fp16")
    other = get_protocol("cifar+10").load(0)
    with pytest.raises(ValueError, match="the method has 6 classes but the data 4"):
        train(method, other, RECIPE)
    empty = replace(
        data, read_train=lambda: (data.limited(1).train._replace(labels=data.train.labels[:0]), data.validation)
    )
    with pytest.raises(ValueError, match="training part is empty"):
        train(method, empty, RECIPE)


class WithoutBatchNorm(Backbone):
    """Features that depend on one image alone, so that it does not matter who computes them."""

    cut_points = ("input", "features")
    feature_dim = 12

    def __init__(self):
        super().__init__()
        self.convolution = torch.nn.Conv2d(3, 12, 3, padding=1)

    def stage(self, name, hidden):
        return torch.tanh(self.convolution(hidden)).mean(dim=(2, 3)) * 10


def shared_run(out):
    """One training and prediction, the same whether one process or several execute it."""
    torch.manual_seed(0)
    data = get_protocol("digits").load(1).limited(121)
    method = Softmax(WithoutBatchNorm(), data.num_classes, rng=np.random.default_rng(0))
    recipe = recipe_for("plain", "digits", epochs=2, batch_size=30)  # 121 = 4 * 30 + 1: one has no image left
    rows = train(method, data, recipe, out=out)
    return method, rows, predict(method, data)


SHARED = """
import sys
sys.path.insert(0, {folder!r})
import torch
torch.set_num_threads(1)
from pathlib import Path
from training.test_loop import shared_run
from openauc.training.process import process_state

_, rows, predictions = shared_run(Path({out!r}))
state = process_state()
assert state.num_processes == 2
predictions.save(Path({out!r}) / f"{{state.process_index}}.npz")
state.destroy_process_group()
"""


@pytest.mark.slow
def test_two_processes_train_and_predict_as_one(tmp_path):
    from openauc import Predictions

    script = tmp_path / "shared.py"
    script.write_text(SHARED.format(folder=str(Path(__file__).parents[1]), out=str(tmp_path / "two")))
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*launch, str(script)], capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr[-2000:]
    one, rows, predictions = shared_run(tmp_path / "one")
    two = load_file(tmp_path / "two/model.safetensors")
    # Sums in another order: float32 rounding, over ten steps.
    for key, value in one.state_dict().items():
        torch.testing.assert_close(two[key], value, rtol=1e-4, atol=1e-6)
    logged = [json.loads(line) for line in (tmp_path / "two/log.jsonl").read_text().splitlines()]
    assert [row["loss"] for row in logged] == pytest.approx([row["loss"] for row in rows], rel=1e-5)
    assert [row["known_accuracy"] for row in logged] == pytest.approx([row["known_accuracy"] for row in rows])
    for process in range(2):
        found = Predictions.load(tmp_path / f"two/{process}.npz")
        np.testing.assert_array_equal(found.y_true, predictions.y_true)  # each image once, in order
        np.testing.assert_allclose(found.open_score, predictions.open_score, rtol=1e-4)
    assert len(load_checkpoint(tmp_path / "two/checkpoint.pt")["processes"]) == 2
