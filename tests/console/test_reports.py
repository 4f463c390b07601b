"""The pages of reports and audits that a console shows: those of one directory, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

from tests.console.live_console import live_console
from tests.live_node import live_node
from tidemark.console.reports import REPORTS_MAX, list_reports, read_report


def write(path: Path, heading: str, at: int) -> None:
    path.write_text(f"<!doctype html><h1>{heading}</h1>")
    os.utime(path, (at, at))


def test_the_newest_pages_come_first_with_what_they_say(tmp_path: Path) -> None:
    write(tmp_path / "archive.html", "Archive <code>/data</code>", 100)
    write(tmp_path / "audit.html", "Exactly once &amp; in order", 200)
    (tmp_path / "notes.txt").write_text("none of these")
    (tmp_path / "inside.html").mkdir()
    assert [(each.name, each.heading, each.at) for each in list_reports(tmp_path)] == [
        ("audit.html", "Exactly once & in order", 200_000_000),
        ("archive.html", "Archive /data", 100_000_000),
    ]
    for number in range(REPORTS_MAX + 5):
        write(tmp_path / f"more-{number}.html", "", 300)
    assert len(list_reports(tmp_path)) == REPORTS_MAX
    assert list_reports(tmp_path / "nowhere") == []


def test_nothing_outside_the_directory_is_read(tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    write(tmp_path / "secret.html", "secret", 1)
    (tmp_path / "reports" / "link.html").symlink_to(tmp_path / "secret.html")
    for name in ("../secret.html", "/etc/passwd", "link.html", ".html", "nothing.html", "a/b.html"):
        assert read_report(tmp_path / "reports", name) is None


def test_a_console_shows_them_and_lets_them_run_nothing(tmp_path: Path) -> None:
    write(tmp_path / "audit.html", "Exactly once <script>alert(1)</script>", 100)
    with live_node(tmp_path) as node, live_console(node.url, reports=tmp_path) as console:
        page = console.ask("GET", "/pipeline")
        assert "Exactly once alert(1)" in page.text
        assert 'href="/pipeline/reports/audit.html"' in page.text
        report = console.ask("GET", "/pipeline/reports/audit.html")
        assert (report.status, report.headers["content-security-policy"][:29]) == (
            200,
            "sandbox; default-src 'none'; ",
        )
        assert console.ask("GET", "/pipeline/reports/..%2faudit.html").status == 404
        assert console.ask("GET", "/pipeline/reports/other.html").status == 404
    with live_node(tmp_path / "b") as node, live_console(node.url) as console:
        assert "--reports DIRECTORY" in console.ask("GET", "/pipeline").text
        assert console.ask("GET", "/pipeline/reports/audit.html").status == 404
