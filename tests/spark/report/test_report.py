"""The report on an archive: its figures by Spark, and the page."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.live_node import live_node
from tidemark import sync
from tidemark.cli import main
from tidemark.spark import round_log
from tidemark.spark.archive.archive import Archive
from tidemark.spark.engine import session
from tidemark.spark.page_parts import Histogram
from tidemark.spark.report import figures as report_figures
from tidemark.spark.report.figures import ArchiveFigures, figures
from tidemark.spark.report.html import page
from tidemark.spark.round_log import Diary, RoundNote, diary_files
from tidemark.spark.upkeep.erasure import new_erasure, save_erasure


@pytest.mark.spark
def test_the_figures_are_those_of_the_archive(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "archive"
    with (
        live_node(tmp_path, **{"retention.archive": "true"}) as node,
        sync.connect(node.url) as tm,
        Archive(node.url, path) as archive,
    ):
        stored: list[int] = []
        for turn in range(3):
            tm.publish_many("trades", [{"n": n} for n in range(10 * (turn + 1))])
            tm.publish("news", {"text": "<b>x</b>"})
            assert archive.round() is not None
            stored.append(archive.extent()[1])
    save_erasure(path, replace(new_erasure("trades", "n = '<3'", {"main": 7}, 1e9, "mara@x"), events=17))
    found = figures(spark, path)
    assert (found.events, found.rounds) == (63, 3)
    assert [(each.topic, each.pubend, each.events) for each in found.topics] == [
        ("trades", "main", 60),
        ("news", "main", 3),
    ]
    for bars in (found.published, found.archived):
        assert bars is not None
        assert sum(bars.counts) == 63
    assert found.written_bytes is not None
    assert found.written_bytes.counts[-1] == found.file_bytes
    assert set(found.latency_ms) == {"p50", "p90", "p99"}
    text = page(found)
    # The first round was noted before anybody had counted, as all were in diaries of earlier versions.
    assert found.stored_bytes is not None
    assert found.stored_bytes.counts[-1] == stored[1] < found.file_bytes == stored[2]
    assert list(found.waited_ms) == ["p50", "p99"]
    for bars in found.waited_ms.values():
        assert bars.counts[-1] > 0
    assert text.count("<figure>") == 8
    assert "63 events" in text
    asked, told = "2001-09-09T01:46:40+00:00", ["mara@x", "trades", "n = &#x27;&lt;3&#x27;", "asked", "-"]
    assert "<h2>Erasures</h2>" in text
    assert "".join(f"<td>{each}</td>" for each in [asked, *told]) in text
    assert '<td class="number">17</td>' in text
    json.dumps(found.to_json())


NOTHING = ArchiveFigures(
    "<script>", 0.0, 0, 0, 0, 0, (), (), None, Histogram([0.0, 1.0], [0]), None, None, None, {}
)


def test_rates_are_a_second_and_what_is_stored_shrinks() -> None:
    bars = Histogram([0.0, 2e6, 4e6], [10, 3_000])
    text = page(replace(NOTHING, published=bars, stored_bytes=Histogram(bars.edges, [4_096, 1_024])))
    assert text.count("<figure>") == 2
    for told in (": 5/s<", ": 1,500/s<", ": 4 KiB<", ": 1 KiB<"):
        assert told in text


def test_an_empty_archive_has_a_page_and_names_are_only_text() -> None:
    text = page(NOTHING)
    assert "<script>" not in text
    assert "<figure>" not in text
    assert "Erasures" not in text


def test_the_command_writes_the_page_and_says_what_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = replace(NOTHING, events=1_234, rounds=5)
    monkeypatch.setattr(report_figures, "figures", lambda *_: found)
    monkeypatch.setattr(session, "quiet_session", lambda *_: nullcontext())
    archive, html = tmp_path / "archive", tmp_path / "week.html"

    def run(*more: str, to: Path = html) -> Any:
        return CliRunner().invoke(
            main, ["pipeline", "report", "--path", str(archive), "--html", str(to), *more]
        )

    refused = run()
    assert refused.exit_code != 0
    assert "there is no directory" in refused.output
    archive.mkdir()
    assert run().output == f"{html}: 1,234 events, 5 rounds\n"
    assert html.read_text() == page(found)
    assert json.loads(run("--json").output) == json.loads(json.dumps(found.to_json()))
    nowhere = run(to=tmp_path / "nowhere" / "week.html")
    assert (nowhere.exit_code, "there is no directory" in nowhere.output) == (2, True)


def test_the_diary_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(round_log, "FILE_BYTES_MAX", 1_000)
    (tmp_path / "_archive").mkdir()
    diary = Diary(tmp_path)
    for n in range(50):
        diary.note(RoundNote(float(n), 1.0, 1, 1, 1, None, None, 0))
    older, newer = diary_files(tmp_path)
    assert json.loads(Path(newer.text).read_text().splitlines()[-1])["at"] == 49.0
    assert Path(older.text).stat().st_size < 1_200
    Diary(tmp_path / "nowhere").note(RoundNote(0.0, 1.0, 1, 1, 1, None, None, 0))
