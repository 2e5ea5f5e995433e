"""The commands on files of predictions, through the real command line."""

import json
import os
import shlex
import shutil
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from rich.text import Text
from typer.testing import CliRunner

import openauc
from openauc import Predictions, evaluate
from openauc.cli import COMMANDS, app

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
TRIPLE = ([0, 1, 1, 0, -1, -1, -1], [0, 1, 0, 0, 1, 0, 1], [0.1, 0.6, 0.2, 0.3, 0.5, 0.9, 0.7])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.npz"
    Predictions.of(*TRIPLE).save(path)
    return path


def run(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output + result.stderr
    return result.stdout if code == 0 else result.stderr


def write_csv(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_evaluate_prints_every_metric(file: Path) -> None:
    text = run("evaluate", file, "--replicates", 50)
    for label in (metric.label for metric in openauc.METRICS.values()):
        assert label in text
    assert f"{openauc.openauc_score(*TRIPLE):.4f}" in text
    assert "4 known, 3 unknown" in text


def test_evaluate_json_is_the_evaluation(file: Path, tmp_path: Path) -> None:
    run("evaluate", file, "--json", tmp_path / "out.json", "--replicates", 50)
    values = json.loads((tmp_path / "out.json").read_text())
    assert openauc.Evaluation.from_dict(values) == openauc.evaluate(*TRIPLE, n_replicates=50)
    assert {"n_known", "n_unknown", "values", "intervals", "thresholds"} <= values.keys()
    assert "curves" not in values


def test_json_dash_prints_json_only(file: Path) -> None:
    values = json.loads(run("evaluate", file, "--json", "-", "--curves", "--replicates", 50))
    assert values["values"]["openauc"] == openauc.openauc_score(*TRIPLE)
    assert values["curves"]["oscr"]["x"][0] == 0.0


def test_several_files_are_keyed_by_path(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    Predictions.of(*TRIPLE).save(other)
    values = json.loads(run("evaluate", file, other, "--json", "-", "--replicates", 50))
    assert values[str(file)] == values[str(other)]


def test_options_reach_the_metrics(file: Path, tmp_path: Path) -> None:
    tied = tmp_path / "tied.npz"
    Predictions.of([0, -1], [0, 0], [1.0, 1.0]).save(tied)
    strict = json.loads(run("evaluate", tied, "--json", "-", "--ties", "strict", "--replicates", 10))
    assert strict["values"]["openauc"] == 0.0
    part = json.loads(run("evaluate", file, "--json", "-", "--max-ofpr", 0.5, "--replicates", 10))
    assert part["values"]["partial_openauc"] == openauc.openauc_score(*TRIPLE, max_ofpr=0.5)
    wide, narrow = (
        json.loads(run("evaluate", file, "--json", "-", "--level", level, "--replicates", 10))["intervals"]["openauc"]
        for level in (0.99, 0.5)
    )
    assert wide[0] < narrow[0]
    assert narrow[1] < wide[1]


def test_columns_unknown_label_and_direction(tmp_path: Path) -> None:
    path = write_csv(
        tmp_path / "mine.csv",
        "label,guess,confidence\ncat,cat,0.9\ndog,dog,0.4\nother,cat,0.5\nother,dog,0.1\n",
    )
    text = run(
        *(
            "evaluate",
            path,
            "--json",
            "-",
            "--replicates",
            10,
            "--lower-is-unknown",
            "--unknown-label",
            "other",
        ),
        *("--label-column", "label", "--pred-column", "guess", "--score-column", "confidence"),
    )
    assert json.loads(text)["values"]["openauc"] == 0.75


EXPORT = "label,prediction,confidence\n0,0,0.9\n1,1,0.4\n2,2,0.8\nother,1,0.5\nother,2,0.1\n"


def test_one_error_leads_from_an_export_to_its_metrics(tmp_path: Path) -> None:
    """Classes by number, a word for unknown and a confidence, as pandas writes them."""
    path = write_csv(tmp_path / "mine.csv", EXPORT)
    message = run("evaluate", path, code=2)
    assert message == (
        f"error: {path} has no columns 'y_true', 'y_pred', 'open_score'; it has 'label', 'prediction', 'confidence'. "
        "Likely: --label-column label --pred-column prediction --score-column confidence --lower-is-unknown "
        "--unknown-label other\n"
    )
    options = shlex.split(message.partition("Likely: ")[2])
    values = json.loads(run("evaluate", path, *options, "--json", "-", "--replicates", 10))["values"]
    assert values["closed_set_accuracy"] == 1.0
    assert values["openauc"] == pytest.approx(5 / 6)
    for command in ("audit", "threshold", "compare", "report"):
        assert "--unknown-label other" in run(command, path, code=2)


def test_options_already_given_are_not_proposed_and_names_are_quoted(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "mine.csv", EXPORT.replace("label,", "true label,").replace("other", "none of them"))
    message = run("evaluate", path, "--score-column", "confidence", "--lower-is-unknown", code=2)
    assert message.endswith(
        "Likely: --label-column 'true label' --pred-column prediction --unknown-label 'none of them'\n"
    )


def test_what_cannot_be_guessed_is_asked_for_by_option(tmp_path: Path) -> None:
    message = run("evaluate", write_csv(tmp_path / "a.csv", "a,b\n0.5,1.5\n"), code=2)
    assert message.endswith(
        "name yours with --label-column, --pred-column, --score-column, or with --probability-columns where each class "
        "has a column.\n"
    )


CLASSES = ["cat", "dog", "owl"]
PROBABILITIES = np.array([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.5, 0.1, 0.4], [0.4, 0.35, 0.25], [0.1, 0.2, 0.7]])
LABELS = ["cat", "dog", "owl", "unknown", "unknown"]
EXPECTED = Predictions.of(["cat", "dog", "owl", "-1", "-1"], ["cat", "dog", "cat", "cat", "owl"], [2, 3, 5, 6, 3])


def by_class(name: str, values: np.ndarray = PROBABILITIES) -> pd.DataFrame:
    """A number for each class, in columns with names such as ``prob_{}``, as people make them of predict_proba."""
    return pd.DataFrame(values, columns=[name.format(label) for label in CLASSES])


FRAMES = {
    "a label and predict_proba, with the index": by_class("prob_{}").assign(label=LABELS),
    "columns called as classes_": by_class("{}").assign(y_true=LABELS),
    "beside texts": by_class("{}_probability").assign(text="a, b", target=LABELS),
    "beside predicted classes": by_class("p.{}").assign(true=LABELS, predicted=EXPECTED.y_pred),
    "probability of unknown": by_class("p_{}").assign(p_unknown=[0.2, 0.3, 0.5, 0.6, 0.3], actual=LABELS),
    "logits": by_class("logits_{}", 10 * PROBABILITIES - 5).assign(labels=LABELS),
    "sigmoids": by_class("sigmoid_{}", PROBABILITIES**0.5).assign(y_true=LABELS),
    "categories": by_class("prob_{}").assign(label=pd.Categorical(LABELS)),
    "shuffled": by_class("prob_{}").assign(label=LABELS).sample(frac=1, random_state=0),
}


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("title", FRAMES)
def test_one_error_leads_from_columns_by_class_to_their_metrics(tmp_path: Path, title: str, suffix: str) -> None:
    path = tmp_path / f"p.{suffix}"
    getattr(FRAMES[title], f"to_{suffix}")(path)
    options = shlex.split(run("threshold", path, code=2).partition("Likely: ")[2])
    measured = json.loads(run("evaluate", path, *options, "--replicates", 10, "--json", "-"))["values"]
    assert measured == pytest.approx(evaluate(*EXPECTED, level=None).values)
    for command in ("audit", "compare", "report"):
        assert shlex.split(run(command, path, code=2).partition("Likely: ")[2]) == options


def test_predictions_of_a_trainer_and_of_keras(tmp_path: Path) -> None:
    """Hugging Face's ``predictions`` are logits; those of Keras are probabilities, in float32."""
    ids = np.array([0, 1, 2, -1, -1])
    np.savez(tmp_path / "trainer.npz", predictions=PROBABILITIES * 10 - 5, label_ids=ids)
    np.savez(tmp_path / "keras.npz", y_pred=PROBABILITIES.astype(np.float32), y_test=ids)
    pd.DataFrame(PROBABILITIES.astype(np.float32)).assign(y_true=ids).to_csv(tmp_path / "keras.csv")
    for name in ("trainer.npz", "keras.npz", "keras.csv"):
        options = shlex.split(run("evaluate", tmp_path / name, code=2).partition("Likely: ")[2])
        found = json.loads(run("evaluate", tmp_path / name, *options, "--replicates", 10, "--json", "-"))["values"]
        assert found == pytest.approx(evaluate(*EXPECTED, level=None).values)


def test_what_is_no_probability_names_the_other_option(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    by_class("z_{}", PROBABILITIES * 2).assign(y_true=LABELS).to_csv(path, index=False)
    message = run("evaluate", path, "--probability-columns", "z_*", code=2)
    assert "p.csv: the columns 'z_*' are not probabilities, as sample 0 has 1.6" in message
    option, _, pattern = message.rstrip(".\n").rpartition(" ")[2].partition("=")
    assert "OpenAUC" in run("evaluate", path, option, shlex.split(pattern)[0], "--replicates", 10)
    assert "no column that fits 'w_*'; it has 'z_cat'" in run("evaluate", path, "--logit-columns", "w_*", code=2)
    both = ("--logit-columns", "z_*", "--probability-columns", "z_*")
    assert "--probability-columns and --logit-columns are both given" in run("evaluate", path, *both, code=2)
    (by_class("z_{}").assign(y_true=LABELS)).to_csv(path)
    flipped = ("--probability-columns", "z_*", "--lower-is-unknown")
    assert "--lower-is-unknown is about a column of scores" in run("evaluate", path, *flipped, code=2)


def test_semicolons_and_decimal_commas_are_said(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "mine.csv", "y_true;y_pred;open_score\n0;0;0,5\n-1;0;1,5\n")
    result = CliRunner().invoke(app, ["evaluate", str(path), "--json", "-", "--replicates", "10"])
    assert json.loads(result.stdout)["values"]["openauc"] == 1.0
    assert result.stderr == (
        f"warning: {path}: read as separated by ';', not by commas.\n"
        f"warning: {path}: column 'open_score' is read with decimal commas.\n"
    )


def test_binary_labels_of_parquet(tmp_path: Path) -> None:
    columns = {"y_true": [b"cat", b"-1"], "y_pred": [b"cat", b"cat"], "open_score": [0.0, 1.0]}
    pq.write_table(pa.table(columns), tmp_path / "p.parquet")
    values = json.loads(run("evaluate", tmp_path / "p.parquet", "--json", "-", "--replicates", 10))["values"]
    assert values["openauc"] == 1.0


@pytest.mark.parametrize("name", ["exp[lr=0.1].npz", "[bold].npz", ":smile:.npz", "a\\[b].npz"])
def test_names_of_files_are_no_markup(file: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    shutil.copy(file, name)
    assert run("evaluate", name, "--replicates", 10, "--legacy").startswith(f"{name}: 4 known, 3 unknown samples")
    assert Path(name).stem in run("compare", file, name, "--metric", "auroc")


def test_a_closing_tag_is_a_name_too(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    Path("[").mkdir()
    shutil.copy(file, "[/bold].npz")
    assert run("evaluate", "[/bold].npz", "--replicates", 10).startswith("[/bold].npz: 4 known")
    labels = "[/dim]", "[red]", "[/dim]"
    Predictions.of(labels, ["[/dim]", "[/dim]", "[red]"], [0.0, 1.0, 2.0]).save("names.npz")
    assert "no unknown sample" in run("evaluate", "names.npz", code=2)
    assert "3 known, 0 unknown" not in run("threshold", "names.npz", "--target", "known_acceptance=0.5")


@pytest.mark.parametrize("width", [80, 120])
def test_help_names_each_command_in_one_line_of_a_panel(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", width)
    lines, group = run("--help").splitlines(), typer.main.get_command(app)
    panels = [line.strip("╭─╮ ") for line in lines if line.startswith("╭")]
    assert panels == ["Options", *COMMANDS]
    for name, command in group.commands.items():
        sentence = command.help.partition("\n\n")[0]
        said = [line.strip("│ ").split(None, 1) for line in lines if line.startswith(f"│ {name} ")]
        assert said == [[name, sentence]]
    assert max(map(len, lines)) == width


def test_the_shell_completes_names_of_commands() -> None:
    asked = {"_OPENAUC_COMPLETE": "complete_bash", "COMP_WORDS": "openauc e", "COMP_CWORD": "1"}
    command = [sys.executable, "-c", "import sys; sys.argv = ['openauc']; from openauc.cli import main; main()"]
    names = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True, check=False).stdout
    assert "--install-completion" in run("--help")
    assert names.split() == ["embed", "extend", "evaluate"]


def test_only_the_terminal_breaks_the_lines_of_a_help() -> None:
    for command in typer.main.get_command(app).commands.values():  # type: ignore[attr-defined]
        assert all("\n" not in paragraph for paragraph in command.help.split("\n\n")), command.name


def test_no_help_loses_its_brackets() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    texts = [
        text for c in commands.values() for text in (c.help, *(getattr(p, "help", None) for p in c.params)) if text
    ]
    assert len(texts) > 50
    for text in texts:
        assert Text.from_markup(text).plain == text.replace("\\[", "[")


def openauc_command(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, as a shell starts it."""
    command = [sys.executable, "-c", "from openauc.cli import main; main()", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})


def test_a_terminal_without_unicode(file: Path) -> None:
    shown = openauc_command("evaluate", file, "--replicates", 10, PYTHONIOENCODING="ascii")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.isascii()
    strange = openauc_command("evaluate", "學.npz", PYTHONIOENCODING="ascii")
    assert strange.returncode == 2
    assert "Traceback" not in strange.stderr


def test_json_goes_through_pipes_devices_and_links(file: Path, tmp_path: Path) -> None:
    wanted = json.loads(run("evaluate", file, "--json", "-", "--replicates", 10))
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    run("evaluate", file, "--json", tmp_path / "link.json", "--replicates", 10)
    assert (tmp_path / "link.json").is_symlink()
    assert json.loads((tmp_path / "real.json").read_text()) == wanted
    os.mkfifo(tmp_path / "pipe")
    with ThreadPoolExecutor(1) as reader:
        read = reader.submit((tmp_path / "pipe").read_text)
        run("evaluate", file, "--json", tmp_path / "pipe", "--replicates", 10)
        assert json.loads(read.result(timeout=10)) == wanted
    message = run("evaluate", file, "--json", "/dev/full", "--replicates", 10, code=2)
    assert message == "error: /dev/full: No space left on device.\n"
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


def test_the_output_itself_is_a_file_to_write_to(file: Path, tmp_path: Path) -> None:
    """Both the table and the JSON arrive, in this order, though the output is redirected to a file."""
    command = shlex.join([sys.executable, "-c", "from openauc.cli import main; main()"])
    options = f"{shlex.quote(str(file))} --replicates 10"
    redirected = f"{command} evaluate {options} --json /dev/stdout > {tmp_path}/both.txt"
    subprocess.run(redirected, shell=True, check=True)
    table, brace, values = (tmp_path / "both.txt").read_text().partition("{")
    assert table.startswith(str(file))
    assert json.loads(brace + values)["n_known"] == 4
    substituted = f"{command} evaluate {options} --json >(cat > {tmp_path}/copy.json) > {tmp_path}/table.txt; wait $!"
    subprocess.run(["bash", "-c", substituted], check=True)
    assert json.loads((tmp_path / "copy.json").read_text())["n_known"] == 4


def test_legacy_is_shown_and_stored(file: Path) -> None:
    assert "arpl_oscr" in run("evaluate", file, "--legacy", "--replicates", 10)
    rows = json.loads(run("evaluate", file, "--legacy", "--json", "-", "--replicates", 10))["legacy"]
    assert {row["name"] for row in rows} >= {"arpl_oscr", "vaze_error_at_tpr"}


def test_compare(tmp_path: Path, file: Path) -> None:
    worse = tmp_path / "worse.csv"
    Predictions.of(TRIPLE[0], [1, 0, 0, 0, 1, 0, 1], TRIPLE[2]).save(worse)
    text = run("compare", file, worse)
    assert "model" in text
    assert "worse" in text
    rows = json.loads(run("compare", file, worse, "--json", "-"))["differences"]
    expected = openauc.openauc_score(*TRIPLE) - openauc.openauc_score(*Predictions.load(worse))
    assert rows[0]["difference"] == pytest.approx(expected)
    third = tmp_path / "third.npz"
    Predictions.of(*TRIPLE).save(third)
    assert "p (Holm)" in run("compare", file, worse, third, "--baseline", file, "--metric", "auroc")


def test_compare_names_files_by_folder_where_stems_clash(tmp_path: Path, file: Path) -> None:
    (tmp_path / "b").mkdir()
    Predictions.of(*TRIPLE).save(tmp_path / "b" / file.name)
    assert json.loads(run("compare", file, tmp_path / "b" / file.name, "--json", "-"))["names"] == [
        tmp_path.name,
        "b",
    ]


def test_audit(file: Path) -> None:
    assert "Table 1" in run("audit", file)
    assert json.loads(run("audit", file, "--json", "-"))["table1"]["OpenAUC"]["P4"]["answer"] == "yes"


def test_audit_says_what_it_could_not_show(tmp_path: Path) -> None:
    perfect = tmp_path / "perfect.npz"
    Predictions.of([0, 1, -1, -1], [0, 1, 0, 0], [1.0, 2.0, 3.0, 4.0]).save(perfect)
    assert "– " in run("audit", perfect)


def test_threshold(file: Path) -> None:
    assert "label a sample unknown when its score >" in run("threshold", file, "--target", "macro_f_score")
    point = json.loads(run("threshold", file, "--target", "known_acceptance=0.5", "--json", "-"))
    assert point["threshold"] == 0.3
    cost = run("threshold", file, "--target", "cost", "--cost", "unknown_accepted=5", "--cost", "unknown_share=0.1")
    assert "expected cost" in cost
    assert "confidence <" in run("threshold", file, "--target", "unknown_recall=0.5", "--lower-is-unknown")


def test_version() -> None:
    assert run("--version").strip() == openauc.__version__


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("short.csv", "y_true,y_pred\n0,0\n", "no column 'open_score'"),
        ("twice.csv", "y_true,y_pred,open_score,y_true\n0,0,1,1\n", "two columns named 'y_true'"),
        ("header.csv", "y_true,y_pred,open_score\n", "header.csv holds no sample, only the names of its columns"),
        ("text.csv", "y_true,y_pred,open_score\n0,0,1\n-1,0,high\n", "line 3: column 'open_score' holds 'high'"),
        ("comma.csv", "y_true,y_pred,open_score\n0,0,0,5\n", "decimals are written with a point"),
        ("logits.csv", "y_true,logit_0,logit_1\n0,a,1\n", "line 2: column 'logit_0' holds 'a', which is not a number"),
        ("nan.csv", "y_true,y_pred,open_score\n0,0,1\n-1,0,nan\n", "open_score is NaN for sample 1"),
        ("known.csv", "y_true,y_pred,open_score\n0,0,1\n1,0,2\n", "there is no unknown sample"),
        ("unknown.csv", "y_true,y_pred,open_score\n-1,0,1\n-1,0,2\n", "there is no known sample"),
        ("ragged.csv", "y_true,y_pred,open_score\n0,0\n", "line 2 has 2 values"),
        ("corrupt.npz", "not a zip", "not a readable .npz"),
        ("table.txt", "", "suffix '.txt'"),
    ],
)
def test_bad_files_end_in_one_sentence(tmp_path: Path, name: str, text: str, sentence: str) -> None:
    message = run("evaluate", write_csv(tmp_path / name, text), code=2)
    assert sentence in message
    assert message.startswith("error: ")
    assert len(message.strip().splitlines()) == 1


def test_wrong_length_in_npz(tmp_path: Path) -> None:
    np.savez(tmp_path / "short.npz", y_true=[0, -1], y_pred=[0, 0], open_score=[1.0])
    assert "open_score has 1 entries but y_true has 2" in run("evaluate", tmp_path / "short.npz", code=2)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("evaluate", "missing.npz"), "there is no file missing.npz"),
        (("threshold", "FILE", "--target", "luck"), "--target is 'luck'; expected one of 'known_acceptance'"),
        (("threshold", "FILE", "--target", "known_acceptance=most"), "must read NAME=NUMBER"),
        (("threshold", "FILE", "--target", "cost", "--cost", "5"), "must read NAME=NUMBER"),
        (("threshold", "FILE", "--target", "cost", "--cost", "foo=1"), "--cost is 'foo'; expected one of 'unknown_acc"),
        (("threshold", "FILE", "--target", "cost", "--cost", "unknown_acepted=1"), "Did you mean 'unknown_accepted'?"),
        (("threshold", "FILE", "--target", "unknown_recall"), "for example --target unknown_recall=0.95"),
        (("threshold", "FILE", "--target", "youden_index", "--confidence", "0.9"), "--target 'youden_index' takes"),
        (("evaluate", "FILE", "--unknown-label", "²"), "--unknown-label is '²' but y_true holds integers"),
        (("evaluate", "FILE", "--unknown-label", "7"), "Relabel the samples or set --unknown-label."),
        (("evaluate", "FILE", "--replicates", "1"), "--replicates is 1; a bootstrap needs at least 2"),
        (("evaluate", "FILE", "--max-ofpr", "0.1", "--min-ofpr", "0.2"), "--min-ofpr 0.2 must be below --max-ofpr 0.1"),
        (("evaluate", "FILE", "--label-column", "unknown_label"), "has no column 'unknown_label'"),
        (("evaluate", "max_ofpr.csv"), "there is no file max_ofpr.csv"),
        (("audit", "FILE", "--threshold", "nan"), "--threshold is NaN"),
        (("evaluate", "FILE", "--seed", "-1"), "--seed"),
        (("compare", "FILE", "FILE", "--metric", "roc"), "named twice"),
        (("compare", "FILE"), "at least two models"),
        (("evaluate", "FILE", "--json", "no/such/folder/out.json"), "does not exist"),
        (("evaluate", "FILE", "--json", "."), "it is a folder; name a file in it"),
        (
            ("evaluate", "FILE", "--level", "95"),
            "error: --level is 95.0; expected a fraction in (0, 1), not a percentage",
        ),
    ],
)
def test_bad_options_end_in_one_sentence(file: Path, arguments: tuple[str, ...], sentence: str) -> None:
    assert sentence in run(*(file if a == "FILE" else a for a in arguments), code=2)


def test_warning_about_direction_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "reversed.npz"
    Predictions.of([0, 1, -1, -1], [0, 1, 0, 0], [3.0, 4.0, 1.0, 2.0]).save(path)
    result = CliRunner().invoke(app, ["evaluate", str(path), "--replicates", "10"])
    assert result.stderr.startswith("warning: AUROC is 0.0000")
    assert "--lower-is-unknown" in result.stderr


def test_no_traceback_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAUC_TRACEBACK", "1")
    assert isinstance(CliRunner().invoke(app, ["evaluate", "missing.npz"]).exception, FileNotFoundError)


def test_installed_command_on_the_shipped_examples() -> None:
    """The README's first command, as a user types it."""
    command = [
        Path(sys.executable).with_name("openauc"),
        "compare",
        EXAMPLES / "network.npz",
        EXAMPLES / "linear.npz",
    ]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "closed_set_accuracy" in output


def test_shipped_examples_are_small_and_hold_no_pickles() -> None:
    files = sorted(EXAMPLES.glob("*.npz"))
    assert len(files) == 2
    assert sum(file.stat().st_size for file in files) < 200_000
    a, b = map(Predictions.load, files)  # allow_pickle is never set
    assert np.array_equal(a.y_true, b.y_true)


def test_a_usual_word_for_unknown_is_recognised(tmp_path: Path) -> None:
    rows = "a,a,0.1\nb,b,0.2\na,b,0.4\nOut of scope,a,0.9\nOut of scope,b,0.3\n"
    file = write_csv(tmp_path / "p.csv", f"y_true,y_pred,open_score\n{rows}")
    result = CliRunner().invoke(app, ["evaluate", str(file), "--replicates", "10"])
    assert result.exit_code == 0, result.stderr
    assert "y_true holds no -1, so 'Out of scope' is taken as the label of unknown samples" in result.stderr
    assert "3 known, 2 unknown samples" in result.stdout
    assert "Threshold for" in run("threshold", file, "--target", "unknown_recall=0.5")
    predicted = write_csv(tmp_path / "q.csv", f"y_true,y_pred,open_score\n{rows}a,Out of scope,1\n")
    assert "no unknown sample" in run("evaluate", predicted, code=2)


def test_classes_that_are_never_predicted(tmp_path: Path) -> None:
    rows = "a,a,0.1\nb,b,0.2\na,b,0.4\nc,a,0.9\nd,b,0.3\n"
    file = write_csv(tmp_path / "p.csv", f"y_true,y_pred,open_score\n{rows}")
    said = run("evaluate", file, code=2)
    assert said.startswith("error: there is no unknown sample")
    assert "'c', 'd' (2 of 5 samples)" in said
    assert "add --unseen-unknown" in said
    assert "3 known, 2 unknown" in run("evaluate", file, "--unseen-unknown", "--replicates", 10)
    told = CliRunner().invoke(app, ["threshold", str(file), "--target", "known_acceptance=0.5"])
    assert (told.exit_code, "hint: Never predicted" in told.stderr) == (0, True), "this target needs no unknown sample"
    file.write_text(file.read_text() + "-1,a,0.7\n")
    result = CliRunner().invoke(app, ["evaluate", str(file), "--replicates", "10"])
    assert "hint: Never predicted" in result.stderr
    assert "5 known, 1 unknown" in result.stdout
    assert "3 known, 3 unknown" in run("evaluate", file, "--unseen-unknown", "--replicates", 10)
    numbers = write_csv(tmp_path / "n.csv", "y_true,y_pred,open_score\n0,0,0.1\n1,1,0.2\n7,1,0.9\n")
    assert "2 known, 1 unknown" in run("evaluate", numbers, "--unseen-unknown", "--replicates", 10)
    assert "3 known, 3 unknown" in run("audit", file, "--unseen-unknown")
    twin = write_csv(tmp_path / "q.csv", file.read_text())
    assert "3 known, 3 unknown" in run("compare", file, twin, "--unseen-unknown", "--replicates", 10)
    write_csv(twin, file.read_text().replace("c,a", "c,c"))  # the other model knows c
    assert "4 known, 2 unknown" in run("compare", file, twin, "--unseen-unknown", "--replicates", 10)
    page = tmp_path / "page.html"
    assert "add --unseen-unknown" in run("report", write_csv(twin, "y_true,y_pred,open_score\n0,0,1\n7,0,2\n"), code=2)
    run("report", twin, "--unseen-unknown", "--replicates", 10, "-o", page)
    assert "1 known and 1 unknown" in page.read_text()
    assert "--unseen-unknown needs all samples" in run("evaluate", file, "--shards", "--unseen-unknown", code=2)


def test_a_class_with_a_column_is_known_though_never_predicted(tmp_path: Path) -> None:
    rows = "a,0.8,0.1,0.1\nb,0.1,0.8,0.1\nc,0.4,0.3,0.3\nd,0.3,0.4,0.3\n"
    file = write_csv(tmp_path / "p.csv", f"y_true,prob_a,prob_b,prob_c\n{rows}")
    options = ("--probability-columns", "prob_*", "--replicates", 10)
    said = run("evaluate", file, *options, code=2)
    assert "'d' (1 of 4 samples)" in said
    assert "3 known, 1 unknown" in run("evaluate", file, *options, "--unseen-unknown")
    logits = np.log([[8, 1, 1], [1, 8, 1], [4, 3, 3], [3, 4, 3]])
    for y_true, more in (([0, 1, 2, 7], {}), (list("abcd"), {"classes": list("abc")})):
        np.savez(tmp_path / "p.npz", y_true=y_true, logits=logits, **more)
        assert "3 known, 1 unknown" in run("evaluate", tmp_path / "p.npz", "--unseen-unknown", "--replicates", 10)


@pytest.mark.parametrize("column", ["0.3,0.2,0.9", "a,x,y", "a,,b"])
def test_a_column_prediction_of_another_meaning_is_left_alone(tmp_path: Path, column: str) -> None:
    cells = zip(("a,a,0.1", "b,b,0.2", "-1,a,0.9"), column.split(","), strict=True)
    text = "\n".join(f"{row},{cell}" for row, cell in cells)
    file = write_csv(tmp_path / "p.csv", f"y_true,y_pred,open_score,prediction\n{text}\n")
    assert "threshold" not in run("evaluate", file, "--replicates", 10).splitlines()[0]
    assert "--acceptance is 95.0" not in run("evaluate", file, "--acceptance", 95, "--replicates", 10)


@pytest.mark.parametrize("link", [None, os.symlink, os.link], ids=["same", "symlink", "hardlink"])
def test_outputs_do_not_replace_inputs(file: Path, tmp_path: Path, link) -> None:  # type: ignore[no-untyped-def]
    before, output = file.read_bytes(), file
    if link is not None:
        output = tmp_path / "output.npz"
        link(file, output)
    for command in (("evaluate", file, "--json"), ("report", file, "-o"), ("evaluate", tmp_path, "--json")):
        said = run(*command, output, "--replicates", 10, code=2)
        assert f"{output}: it is an input" in said
    assert file.read_bytes() == before


def test_files_in_the_folder_of_a_training_are_inputs(tmp_path: Path) -> None:
    for name in ("validation.parquet", "trials/a/predictions.parquet"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Predictions.of(*TRIPLE).save(tmp_path / name)
        before = (tmp_path / name).read_bytes()
        for command in (("threshold", tmp_path, "--json"), ("report", tmp_path, "-o")):
            assert f"{name}: it is an input" in run(*command, tmp_path / name, code=2)
        assert (tmp_path / name).read_bytes() == before


def test_two_outputs_are_two_files(file: Path, tmp_path: Path) -> None:
    (tmp_path / "link.html").symlink_to(tmp_path / "out")
    command = ("evaluate", file, "--json", tmp_path / "out", "--report", tmp_path / "link.html")
    assert "name a file for each" in run(*command, code=2)
    run("evaluate", file, "--json", "/dev/null", "--report", "/dev/null", "--replicates", 10)


def test_escape_sequences_do_not_reach_the_terminal(tmp_path: Path) -> None:
    table = pa.table(dict(zip(Predictions._fields, TRIPLE, strict=True)) | {"part": ["\x1b[2Ja"] * 5 + ["b"] * 2})
    pq.write_table(table, tmp_path / "model.parquet")
    assert "\\x1b[2Ja" in run("evaluate", tmp_path / "model.parquet", "--by", "part")
    assert "\x1b" not in run("evaluate", tmp_path / "\x1b[2J.npz", code=2)


def test_names_of_files_need_not_be_utf8(tmp_path: Path) -> None:
    path, page = tmp_path / "model\udcff.parquet", tmp_path / "page\udcff.html"
    Predictions.of(*TRIPLE).save(path)
    assert "model\\udcff.parquet" in run("evaluate", path, "--replicates", 10)
    assert "model\\udcff.parquet" in run("evaluate", path, "--shards", "--replicates", 10)
    run("report", path, "-o", page, "--replicates", 10)
    assert page.is_file()
