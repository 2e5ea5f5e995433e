"""The page to name groups, in a real browser."""

import csv
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from openauc.features.classifier.discovery import Group, Groups
from openauc.features.classifier.labels import read_lines
from openauc.intervals import Interval
from openauc.report import groups_report

from .conftest import Open, Opened

EVIL = "</script><script>document.title='taken'</script><!--"
CLASSES = ["ant", "bee", "cat"]


def made(sizes: tuple[int, ...] = (4, 3, 2), piece_of: Any = None, notes: tuple[str, ...] = ()) -> Groups:
    """Row 0 is accepted, row 1 rejected and in no group; those of the groups follow."""
    labels = np.append([-1, -1], np.repeat(np.arange(len(sizes)), sizes))
    groups = [
        Group(
            np.flatnonzero(labels == g)[::-1],
            0.82,
            Interval(0.7, 0.91),
            ("bee", "ant"),
            piece_of if g == 0 else None,
            ("wing", "leg") if g == 0 else (),
        )
        for g in range(len(sizes))
    ]
    return Groups(labels, np.arange(len(labels)) > 0, tuple(groups), notes)


def captions(groups: Groups) -> list[str]:
    return [f"text {row}" for row in range(len(groups.labels))]


def report(groups: Groups | None = None, **options: Any) -> str:
    groups = made() if groups is None else groups
    return groups_report(groups, **{"classes": CLASSES, "captions": captions(groups), **options})


def name(opened: Opened, group: int, text: str) -> None:
    opened.page.fill(f"#name-{group}", text)
    opened.page.press(f"#name-{group}", "Enter")


def press(opened: Opened, *keys: str) -> None:
    for key in keys:
        opened.page.keyboard.press(key)


def row(opened: Opened, number: int, group: int) -> Any:
    return opened.page.locator(f"#group-{group} [data-row='{number}']")


def choose(opened: Opened, button: str | Any, group: int) -> None:
    """Choose a group in what a button opens."""
    (opened.page.locator(button) if isinstance(button, str) else button).click()
    opened.page.select_option("#others", str(group))
    opened.page.click("#take")


def saved(opened: Opened, file: Path | None = None) -> list[tuple[str, ...]]:
    with opened.page.expect_download() as download:
        opened.page.click("#save")
    assert download.value.suggested_filename == "labels.csv"
    text = Path(download.value.path()).read_bytes().decode()
    if file is not None:
        download.value.save_as(file)
    header, *lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    assert header == ["row", "group", "label", "note", "text"]
    return [tuple(line) for line in lines]


def expected(group: int, rows: range, label: str, note: str = "") -> list[tuple[str, ...]]:
    return [(str(one), str(group), label, note, f"text {one}") for one in rows]


GROUP_0, GROUP_1, GROUP_2 = range(5, 1, -1), range(8, 5, -1), range(10, 8, -1)


def test_opens_quietly_says_what_it_holds_and_calls_nobody(open_page: Open) -> None:
    html = report(made(piece_of="cat", notes=("two rows are empty",)), name="zoo", model="my zoo", folder="found")
    opened = open_page(html)
    assert opened.text("h1") == "Of 10 rows that zoo rejected, 9 form 3 groups: what are they?"
    assert "1 other rejected row fits no group." in opened.text(".lead")
    assert opened.text("ul.note") == "Two rows are empty."
    card = opened.text("#group-0").replace("\xa0", " ")
    assert "Group 0 4 rows" in card
    assert "About 82 % of one class; between 70 % and 91 % in nine of ten such groups." in card
    assert "Perhaps a piece of cat: it is nearer to this class than known classes are to one another." in card
    assert opened.page.locator("#group-0 .words span:not(.hidden)").all_inner_texts() == ["wing", "leg"]
    assert opened.page.locator("#group-0 .belongs").all_inner_texts() == ["cat", "bee", "ant"]
    assert opened.page.locator("#group-0 .own p").all_inner_texts() == [f"text {one}" for one in GROUP_0]
    assert opened.text("#progress") == "0 of 3 groups named, 0 of 9 rows"
    assert opened.text("#next_command") == "openauc extend 'my zoo' found/labels.csv -o MODEL2"
    assert "into the folder found, beside rows.parquet" in opened.text("#next")
    for width in (1280, 390):
        opened.page.set_viewport_size({"width": width, "height": 900})
        opened.page.wait_for_timeout(100)
        assert opened.page.evaluate("document.documentElement.scrollWidth") == width
    unnamed = opened.page.evaluate(
        "[...document.querySelectorAll('button, input, select')].filter(e => !e.labels?.length && !e.textContent.trim()"
        " && !e.ariaLabel && !e.getAttribute('aria-labelledby')).map(e => e.outerHTML)"
    )
    assert unnamed == []
    assert opened.complaints == []
    assert [url for url in opened.requests if not url.startswith("file:")] == []


def test_names_are_saved_for_each_row(open_page: Open) -> None:
    opened = open_page(report())
    name(opened, 0, '  big "dog", brown ')
    opened.page.click("#group-2 .belongs >> nth=0")
    assert opened.text("#state-0") == "A new class."
    assert opened.text("#state-2") == "Joins the known class."
    assert opened.text("#progress") == "2 of 3 groups named, 6 of 9 rows"
    assert saved(opened) == expected(0, GROUP_0, 'big "dog", brown') + expected(2, GROUP_2, "bee")
    assert opened.text("#progress") == "Saved 6 rows with a name; see below what comes next."
    assert opened.complaints == []


def test_rows_left_out_and_groups_that_are_not_one_thing(open_page: Open) -> None:
    opened = open_page(report())
    name(opened, 0, "dog")
    row(opened, 4, 0).locator(".drop").click()
    row(opened, 7, 1).locator(".drop").click()
    name(opened, 2, "elk")
    opened.page.click("#group-2 .mixed")
    assert opened.page.input_value("#name-2") == ""
    assert opened.text("#progress") == "1 of 3 groups named, 3 of 9 rows; 4 left out"
    lines = expected(0, GROUP_0, "dog")
    lines[1] = ("4", "0", "", "left out", "text 4")
    alone = [("7", "1", "", "left out", "text 7")]
    assert saved(opened) == lines + alone + expected(2, GROUP_2, "", "not one thing")
    row(opened, 4, 0).locator(".drop").click()
    name(opened, 2, "elk")
    assert saved(opened) == expected(0, GROUP_0, "dog") + alone + expected(2, GROUP_2, "elk")


def test_a_row_moves_to_another_group_and_back(open_page: Open) -> None:
    opened = open_page(report())
    name(opened, 0, "dog")
    name(opened, 1, "elk")
    row(opened, 4, 0).locator(".move").click()
    assert opened.text("#asked") == "Move row 4 to"
    assert opened.page.locator("#others option").all_inner_texts() == [
        "Group 1, 3 rows: elk",
        "Group 2, 2 rows: text 10",
    ]
    opened.page.click("#leave")
    choose(opened, row(opened, 4, 0).locator(".move"), 1)
    assert "now in group 1" in row(opened, 4, 0).inner_text()
    assert "from group 0" in row(opened, 4, 1).inner_text()
    rest = [line for line in expected(0, GROUP_0, "dog") if line[0] != "4"]
    assert saved(opened) == rest + expected(1, GROUP_1, "elk") + [("4", "1", "elk", "", "text 4")]
    row(opened, 4, 1).locator(".move").click()
    assert row(opened, 4, 1).count() == 0
    assert saved(opened) == expected(0, GROUP_0, "dog") + expected(1, GROUP_1, "elk")
    choose(opened, row(opened, 4, 0).locator(".move"), 2)  # which has no name: the row gets none
    assert saved(opened) == rest + expected(1, GROUP_1, "elk")


def test_groups_merge_by_name_and_by_button_and_separate(open_page: Open) -> None:
    opened = open_page(report())
    name(opened, 0, "dog")
    name(opened, 1, "dog")
    assert opened.text("#state-1") == "A new class. Together with group 0."
    choose(opened, "#group-0 .merge", 2)
    assert opened.page.input_value("#name-2") == "dog"  # the name goes with the group
    assert opened.page.input_value("#name-0") == "dog"
    assert opened.page.is_disabled("#name-0")
    assert opened.text("#state-0") == "Merged with group 2."
    assert opened.text("#state-2") == "A new class. Together with group 0, 1."
    name(opened, 2, "elk")
    assert saved(opened) == expected(0, GROUP_0, "elk") + expected(1, GROUP_1, "dog") + expected(2, GROUP_2, "elk")
    opened.page.click("#group-2 .merge")
    assert opened.page.locator("#others option").all_inner_texts() == ["Group 1, 3 rows: dog"]
    opened.page.click("#leave")
    choose(opened, "#group-2 .merge", 1)
    assert opened.page.input_value("#name-0") == "dog"
    opened.page.click("#group-0 .merge")
    assert opened.page.input_value("#name-0") == ""
    assert saved(opened) == expected(1, GROUP_1, "dog") + expected(2, GROUP_2, "dog")


def test_undo_takes_back_every_step_also_after_a_reload(open_page: Open) -> None:
    opened = open_page(report())

    def shown() -> list[str]:
        inputs = opened.page.locator(".naming").evaluate_all("all => all.map(input => input.value)")
        return [*inputs, opened.text("#progress"), *opened.page.locator(".group").all_inner_texts()]

    steps = [shown()]
    for act in (
        lambda: name(opened, 0, "dog"),
        lambda: name(opened, 0, "hound"),
        lambda: row(opened, 4, 0).locator(".drop").click(),
        lambda: choose(opened, row(opened, 3, 0).locator(".move"), 1),
        lambda: opened.page.click("#group-1 .belongs >> nth=1"),
        lambda: choose(opened, "#group-0 .merge", 1),
        lambda: opened.page.click("#group-2 .mixed"),
    ):
        act()
        steps.append(shown())
        assert steps[-1] != steps[-2]
    lines = saved(opened)
    opened.page.reload()
    opened.page.wait_for_selector(".chart svg", state="attached")
    assert shown() == steps.pop()
    assert saved(opened) == lines
    for i, before in enumerate(reversed(steps)):
        if i % 2:
            opened.page.click("#undo")
        else:
            press(opened, "Control+z")
        assert shown() == before
    assert opened.page.is_disabled("#undo")
    assert opened.complaints == []


def test_a_draft_belongs_to_its_content(open_page: Open) -> None:
    opened = open_page(report())
    name(opened, 0, "dog")
    file = Path(opened.page.evaluate("decodeURI(location.pathname)"))
    file.write_text(report(made((3, 3, 3))), encoding="utf-8")
    opened.page.reload()
    assert opened.page.input_value("#name-0") == ""
    file.write_text(report(command="made again"), encoding="utf-8")
    opened.page.reload()
    assert opened.page.input_value("#name-0") == "dog"


def test_where_no_draft_can_be_kept_the_page_says_so(open_page: Open) -> None:
    opened = open_page(report())
    name(opened, 0, "dog")
    assert opened.page.locator("#no_draft").is_hidden()
    opened.page.evaluate("void (Storage.prototype.setItem = () => { throw new Error('full') })")
    name(opened, 1, "elk")
    assert opened.page.locator("#no_draft").is_visible()
    assert saved(opened) == expected(0, GROUP_0, "dog") + expected(1, GROUP_1, "elk")


def test_without_a_mouse(open_page: Open) -> None:
    opened = open_page(report())
    press(opened, "j", "Enter", *"dog", "Enter")  # names group 0
    press(opened, "ArrowDown", "1", "j", "n", "k")  # group 1 is of bee, 2 not one thing
    press(opened, "ArrowRight", "ArrowRight", "x")  # leaves its second row out
    press(opened, "ArrowUp", "l", "v", "ArrowDown", "Enter")  # moves row 5 to group 2
    lines = [line for line in expected(0, GROUP_0, "dog") if line[0] != "5"]
    bees = expected(1, GROUP_1, "bee")
    bees[1] = ("7", "1", "", "left out", "text 7")
    mixed = [*expected(2, GROUP_2, "", "not one thing"), ("5", "2", "", "not one thing", "text 5")]
    with opened.page.expect_download() as download:
        press(opened, "s")
    text = Path(download.value.path()).read_text(encoding="utf-8")
    assert [tuple(line) for line in csv.reader(text.splitlines())][1:] == lines + bees + mixed
    press(opened, "u", "u", "n")  # row 5 and row 7 are back; n where the row had the focus
    assert opened.text("#progress") == "1 of 3 groups named, 3 of 9 rows; 6 left out"
    press(opened, "m", "ArrowDown", "Enter")  # into group 2, which is not one thing
    assert opened.text("#state-0") == "Merged with group 2."
    press(opened, "Enter")
    press(opened, *"typed", "Control+z")  # a disabled field takes nothing; the merger is undone
    assert opened.text("#state-0") == "Its rows are left out."
    press(opened, "Enter", *"x1nu", "Escape")
    assert opened.page.input_value("#name-0") == ""
    assert opened.text("#state-0") == "Its rows are left out."
    press(opened, "m", "Escape")
    assert opened.page.locator("#choose").is_hidden()
    assert opened.complaints == []


def test_the_answer_for_no_class_is_refused_as_a_name(open_page: Open) -> None:
    opened = open_page(report(unknown_label="other"))
    name(opened, 0, " other")
    assert opened.text("#state-0") == "“other” is the answer of the model for no class; choose another name."
    assert opened.text("#progress") == "0 of 3 groups named, 0 of 9 rows"
    name(opened, 0, "Other ")
    assert "is the answer of the model for no class" in opened.text("#state-0")
    name(opened, 0, "unknown")
    assert opened.text("#state-0") == "A new class."


def test_nothing_is_saved_while_nothing_is_named(open_page: Open) -> None:
    opened = open_page(report())
    opened.page.on("download", lambda download: opened.complaints.append(download.suggested_filename))
    opened.page.click("#group-1 .mixed")
    opened.page.click("#save")
    assert opened.text("#progress") == "Nothing is named yet: name a group before you save."
    assert opened.complaints == []


def test_names_to_choose_from_and_names_nearly_known(open_page: Open) -> None:
    opened = open_page(report(classes=["lost_card", "bee"]))
    name(opened, 0, "Lost card")
    assert opened.text("#state-0") == "A new class. There is a known class lost_card."
    options = opened.page.locator("#names option").evaluate_all("all => all.map(option => option.value)")
    assert options == ["Lost card", "lost_card", "bee"]
    name(opened, 1, "elk")
    name(opened, 2, "Elk")
    assert opened.text("#state-2") == "A new class. Group 1 is called elk."


def test_texts_are_only_text(open_page: Open, tmp_path: Path) -> None:
    groups = made(piece_of=EVIL, notes=(EVIL,))
    texts = [f'{EVIL}, "{row}"\r\nline 2\u2028' for row in range(len(groups.labels))]
    texts[10], texts[9] = "=1+1", "'=1+1"
    html = report(groups, captions=texts, classes=[EVIL], name=EVIL, model=EVIL, folder=EVIL, command=EVIL)
    assert "<script>document" not in html
    opened = open_page(html)
    opened.page.click("#group-0 .belongs >> nth=0")
    name(opened, 2, EVIL)
    assert EVIL in row(opened, 5, 0).inner_text()
    lines = saved(opened, file := tmp_path / "labels.csv")
    assert lines[4][4] == "'=1+1"  # which a spreadsheet does not run
    assert [line.text for line in read_lines(file)] == [texts[one].strip() for one in (*GROUP_0, *GROUP_2)]
    assert {line[2] for line in lines} == {EVIL}
    assert opened.page.title().startswith("openauc discover: </script>")
    assert opened.complaints == []


def test_texts_stay_text_in_the_script() -> None:
    script = (Path(groups_report.__code__.co_filename).parent / "assets" / "groups.js").read_text(encoding="utf-8")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", script)


def test_without_captions_rows_have_numbers_and_classes_may(open_page: Open) -> None:
    opened = open_page(report(captions=None, classes=[0, 1], unknown_label=-1))
    assert row(opened, 5, 0).locator("p").inner_text() == "row 5"
    name(opened, 0, "-1")
    assert "“-1” is the answer" in opened.text("#state-0")
    name(opened, 0, "7")
    assert saved(opened) == [(str(one), "0", "7", "", "") for one in GROUP_0]


def test_long_groups_show_some_rows_and_name_all(open_page: Open) -> None:
    groups = made((300, 5))
    texts = captions(groups)
    texts[301] = "long " * 100
    opened = open_page(report(groups, captions=texts))
    shown = opened.page.locator("#group-0 .own li")
    assert shown.count() == 8
    assert "Show 40 more of 292 more rows like these" in opened.text("#group-0 .own + p")
    press(opened, "j", "e")
    assert shown.count() == 48
    while opened.page.locator("#group-0 .further").is_visible():
        opened.page.click("#group-0 .further")
    assert shown.count() == 200
    assert opened.text("#group-0 .rest") == "and 100 more rows like these"
    assert shown.first.inner_text().startswith("long long")
    assert "long…" in shown.first.inner_text()
    name(opened, 0, "dog")
    lines = saved(opened)
    assert [line[0] for line in lines] == list(map(str, groups.groups[0].rows.tolist()))
    assert {line[2] for line in lines} == {"dog"}
    assert [line[4] != "" for line in lines] == [i < 200 and line[0] != "301" for i, line in enumerate(lines)]


def test_many_rows_stay_a_small_page(open_page: Open) -> None:
    groups = made((500,) * 40)
    html = report(groups, captions=[f"{row} " + "words of a text " * 7 for row in range(20_002)])
    assert len(html.encode()) < 2_500_000
    opened = open_page(html)
    assert opened.page.locator(".group").count() == 40
    assert opened.page.locator(".rows li").count() == 320
    name(opened, 39, "dog")
    assert opened.text("#progress") == "1 of 40 groups named, 500 of 20,000 rows"
    assert opened.complaints == []


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_thumbnails_are_shown(open_page: Open, kind: str) -> None:
    file = io.BytesIO()
    Image.new("RGB", (32, 32), "red").save(file, kind)
    opened = open_page(report(images={3: file.getvalue(), 0: b"of an accepted row"}))
    drawn = row(opened, 3, 0).locator("img")
    assert drawn.evaluate("image => image.decode().then(() => image.naturalWidth)") == 32
    assert opened.page.locator("img").count() == 1
    assert opened.complaints == []
    assert [url for url in opened.requests if not url.startswith(("file:", "data:"))] == []


def test_no_group_at_all(open_page: Open) -> None:
    opened = open_page(report(made(())))
    assert opened.text("h1") == "1 row was rejected by model, and no group was found."
    assert opened.complaints == []


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="captions has 2 entries but labels has 11"):
        report(captions=["a", "b"])
    with pytest.raises(ValueError, match="the image of row 3 is neither PNG nor JPEG; convert it"):
        report(images={3: b"GIF89a"})
