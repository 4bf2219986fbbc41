"""The table of fuzzing runs can be added to."""

import history


def test_a_run_is_a_line_and_part_of_the_sum(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(history.PAGE.read_text())
    before = page.read_text()
    runs = int(history.TOTAL.search(before)[0].split()[5])
    programs = int(history.TOTAL.search(before)[0].split()[2].replace(",", ""))
    history.keep({"models": 3, "cache": 2}, 1, "cpu", page)
    history.keep({"models": 1}, 0, "cuda", page)
    after = page.read_text()
    lines = [x for x in after.split("\n") if x not in before.split("\n")]
    assert f"So far: {programs + 6:,} programs in {runs + 2} runs." in lines
    assert [x.split("|")[5:] for x in lines if x.startswith("|")] == [
        [" 3 ", " 0 ", " 0 ", " 2 ", " 0 ", " 0 ", " 5 ", " 1 ", ""],
        [" 1 ", " 0 ", " 0 ", " 0 ", " 0 ", " 0 ", " 1 ", " 0 ", ""],
    ]
    assert all(line in after.split("\n") for line in before.split("\n") if not line.startswith("So far"))


def test_the_sum_of_the_page_is_that_of_its_table():
    text = history.PAGE.read_text()
    last = [x for x in text[text.index(history.HEAD) :].split("\n\n")[0].split("\n")][-1]
    without = text.replace(last + "\n", "", 1)
    assert history.added(without, last) == text
