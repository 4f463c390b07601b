"""The pages of the console, as a browser without scripts sees them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest

from tests.console.live_console import LiveConsole, Reply, live_console
from tests.live_node import LiveNode, live_node
from tests.waiting import eventually
from tidemark import sync
from tidemark.ticks import CheckpointToken
from tidemark.wire.answers import ARCHIVED, REPORT_ENGINE, EngineStatus

PAGES = (
    "/",
    "/topics",
    "/topics/trades",
    "/tail",
    "/try",
    "/subscriptions",
    "/overlay",
    "/pipeline",
    "/access",
    "/http",
    "/login",
)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNode]:
    with live_node(tmp_path_factory.mktemp("pages")) as node, sync.connect(node.url) as tm:
        tm.create_topic("trades", "[symbol: string, price: double, qty: int?]")
        with tm.subscribe("trades", "price > 10", durable="audit", ack="client"):
            pass
        with tm.subscribe("trades", "price > 100", durable="narrow", ack="client"):
            pass
        tm.publish_many("trades", [{"symbol": f"S{n}", "price": float(n)} for n in range(30)])
        tm.publish("open", {"inside": {"deep": [1, {"x": "<script>alert(1)</script>"}]}})
        yield node


@pytest.fixture(scope="module")
def console(node: LiveNode) -> Iterator[LiveConsole]:
    with live_console(node.url) as console:
        yield console


class Browser:
    """Keeps the cookie, and sends forms with their token."""

    def __init__(self, console: LiveConsole) -> None:
        self._console = console
        self.cookie = ""

    def get(self, path: str) -> Reply:
        reply = self._console.ask("GET", path, headers={"Cookie": self.cookie})
        self._keep(reply)
        return reply

    def send(self, path: str, token: str, **fields: str) -> Reply:
        body = urlencode({"form_token": token, **fields})
        headers = {"Cookie": self.cookie, "Content-Type": "application/x-www-form-urlencoded"}
        reply = self._console.ask("POST", path, body, headers)
        self._keep(reply)
        return reply

    def token(self, path: str) -> str:
        found = re.search(r'name="form_token" value="([^"]+)"', self.get(path).text)
        assert found is not None
        return found.group(1)

    def _keep(self, reply: Reply) -> None:
        if "set-cookie" in reply.headers:
            self.cookie = reply.headers["set-cookie"].partition(";")[0]


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_there(console: LiveConsole, path: str) -> None:
    reply = console.ask("GET", path)
    assert reply.status == 200, reply.text
    assert "<h1>" in reply.text
    assert "frame-ancestors 'none'" in reply.headers["content-security-policy"]
    assert "samesite=strict" in reply.headers["set-cookie"].lower()
    assert "httponly" in reply.headers["set-cookie"].lower()


def test_the_overview_tells_who_is_behind_and_who_holds_what(console: LiveConsole) -> None:
    eventually(lambda: "19" in console.ask("GET", "/").text)
    text = console.ask("GET", "/").text
    assert 'href="/subscriptions/audit"' in text
    assert "Who holds what" in text
    assert "Nothing is wrong." in text


def test_the_newest_events_come_first_and_a_selector_picks_some(console: LiveConsole) -> None:
    text = console.ask("GET", "/topics/trades?where=" + quote("price >= 27")).text
    assert [int(n) for n in re.findall(r"&#34;S(\d+)&#34;", text)][::2] == [29, 28, 27]
    assert "[symbol: string" in text


def test_a_search_goes_further_back_and_leaves_out_and_repeats_nothing(
    node: LiveNode, console: LiveConsole
) -> None:
    with sync.connect(node.url) as tm:
        tm.create_topic("many", "[n: int]")
        tm.publish_many("many", [{"n": n} for n in range(130)])
    path, seen = "/topics/many?where=" + quote("n <> 77"), []
    while path:
        text = console.ask("GET", path).text
        seen += [int(n) for n in re.findall(r'<span class="value">(\d+)</span>\s*</summary>', text)]
        more = re.search(r'rel="next" href="([^"]+)"', text)
        path = more.group(1).replace("&amp;", "&") if more is not None else ""
    assert seen == [n for n in range(129, -1, -1) if n != 77]
    assert "No event was found" in console.ask("GET", "/topics/many?before=2001-01-01").text
    assert 'role="alert"' in console.ask("GET", "/topics/many?before=yesterday").text


def test_what_is_not_there_is_a_page_for_a_person_and_json_for_a_program(console: LiveConsole) -> None:
    page = console.ask("GET", "/nonsense", headers={"Accept": "text/html,*/*"})
    assert (page.status, "there is nothing at /nonsense" in page.text) == (404, True)
    assert "<nav" in page.text
    assert console.ask("GET", "/nonsense").json["error"]["code"] == "request"


def test_a_wrong_selector_is_shown_with_its_place(console: LiveConsole) -> None:
    reply = console.ask("GET", "/topics/trades?where=" + quote("price > > 5"))
    assert reply.status == 200
    assert "^" in reply.text
    assert 'role="alert"' in reply.text
    unknown = console.ask("GET", "/topics/trades?where=" + quote("prise > 5"))
    assert "prise" in unknown.text.partition('role="alert"')[2].partition("</pre>")[0]


def test_text_of_strangers_is_text(console: LiveConsole) -> None:
    text = console.ask("GET", "/topics/open").text
    assert "<script>alert" not in text
    assert "alert(1)" in text


def test_no_text_of_a_stranger_or_of_an_address_becomes_markup(node: LiveNode, console: LiveConsole) -> None:
    mark = "\"'><script>alert(1)</script>"
    literal = mark.replace("'", "''")
    with sync.connect(node.url, publisher="<script>alert(1)</script>") as tm:
        with tm.subscribe("strange", f"text = '{literal}'", durable=mark, ack="client"):
            pass
        tick = tm.publish(
            "strange", {"text": mark, "<script>alert(1)</script>": [mark, {mark: mark}]}, key=mark, sequence=1
        )
    shown = quote(mark, safe="")
    where = quote(f"text = '{literal}'", safe="")
    eventually(lambda: console.ask("GET", f"/subscriptions/{shown}").status == 200)
    pages = [
        *(f"/subscriptions/{shown}", f"/subscriptions/{shown}/change?what=remove", "/subscriptions", "/"),
        *(
            f"/subscriptions/{shown}/change?what={name}&to={shown}&where={shown}"
            for name in ("seek", "selector")
        ),
        *(
            f"/subscriptions/{shown}/change?what={shown}",
            f"/subscriptions/{shown}/change?what=selector&where={where}",
        ),
        *(
            "/topics/strange",
            f"/topics/strange?where={where}",
            f"/topics/strange?where={shown}&before={shown}",
        ),
        *(
            f"/topics/{shown}",
            f"/topics?q={shown}",
            f"/subscriptions?q={shown}",
            f"/{shown}",
            f"/login?next={shown}",
        ),
        *(f"/try?topic=strange&where={where}", f"/try?topic={shown}&where={shown}&last={shown}"),
        *(f"/tail?topic={shown}&where={shown}", f"/tail?topic=strange&where={where}"),
        *(f"/why?pubend=main&tick={tick}&subscription={shown}", f"/why?pubend={shown}&tick={shown}"),
        *(
            f"/why?pubend=main&tick={tick}&where={where}&user={shown}",
            f"/overlay?broker={shown}&pubend={shown}",
        ),
        *(f"/access?user={shown}&topic={shown}&where={shown}", f"/pipeline/reports/{shown}"),
    ]
    strange = 0
    for path in pages:
        reply = console.ask("GET", path, headers={"Accept": "text/html"})
        assert reply.status != 500, path
        assert "<script>alert" not in reply.text, path
        assert "'><" not in reply.text, path
        strange += "&lt;script&gt;alert" in reply.text
    assert strange > len(pages) / 2, "the pages show these texts"


def test_why_an_event_matches_is_told_condition_by_condition(console: LiveConsole) -> None:
    text = console.ask("GET", "/topics/trades?where=" + quote("price = 20")).text
    link = re.search(r'href="(/why\?[^"]+)"', text)
    assert link is not None
    why = link.group(1).replace("&amp;", "&")
    assert "The event matches." in console.ask("GET", why + "&subscription=audit").text
    narrow = console.ask("GET", why + "&subscription=narrow").text
    assert "The event does not match." in narrow
    assert "price is 20.0" in narrow
    lacking = console.ask("GET", why + "&where=" + quote("qty > 1 OR symbol = 'S20'")).text
    assert "qty is not there" in lacking
    assert "The event matches." in lacking
    assert console.ask("GET", "/why?pubend=main&tick=5").status == 404
    assert console.ask("GET", "/why?pubend=main&tick=x").status == 400


def test_a_selector_is_tried_before_anybody_subscribes(console: LiveConsole) -> None:
    text = console.ask("GET", "/try?topic=trades&where=" + quote("price >= 15")).text
    assert "50.0 %" in text
    assert "narrow" in text
    assert 'href="/subscriptions/audit"' not in text
    wrong = console.ask("GET", "/try?topic=trades&where=" + quote("nothing = 1")).text
    assert 'role="alert"' in wrong


def test_a_change_is_shown_and_then_made_by_its_own_form(node: LiveNode, console: LiveConsole) -> None:
    with sync.connect(node.url) as tm, tm.subscribe("trades", durable="doomed"):
        pass
    browser = Browser(console)
    path = "/subscriptions/doomed/change"
    eventually(lambda: browser.get("/subscriptions/doomed").status == 200)
    token = browser.token(f"{path}?what=remove")
    assert Browser(console).send(path, token, what="remove").status == 403
    assert browser.send(path, "", what="remove").status == 403
    done = browser.send(path, token, what="remove")
    assert (done.status, done.headers["location"]) == (303, "/subscriptions")
    assert "The subscription doomed was removed." in browser.get("/subscriptions").text
    assert browser.get("/subscriptions/doomed").status == 404


def test_a_subscription_may_have_anything_in_its_name(node: LiveNode, console: LiveConsole) -> None:
    name = "team/app?x=1#%2F&é"
    with sync.connect(node.url) as tm, tm.subscribe("trades", durable=name, ack="client"):
        pass
    browser, at = Browser(console), f"/subscriptions/{quote(name, safe='')}"
    eventually(lambda: browser.get(at).status == 200)
    assert f'href="{at}"' in browser.get("/subscriptions").text
    preview = browser.get(f"{at}/change?what=remove")
    assert "ends for good" in preview.text
    assert f'action="{at}/change"' in preview.text
    assert (
        browser.send(f"{at}/change", browser.token(f"{at}/change?what=remove"), what="remove").status == 303
    )
    assert browser.get(at).status == 404


def test_a_subscription_is_moved_and_its_selector_changed(node: LiveNode, console: LiveConsole) -> None:
    with sync.connect(node.url) as tm, tm.subscribe("trades", "price > 1", durable="moved", ack="client"):
        tm.publish("trades", {"symbol": "X", "price": 50.0})
    browser = Browser(console)
    path = "/subscriptions/moved/change"
    eventually(lambda: browser.get("/subscriptions/moved").status == 200)
    where = quote("price > 40")
    preview = browser.get(f"{path}?what=selector&where={where}").text
    assert re.search(
        r"Of the last \d+ events of trades it would have got 1; by the old selector it got \d+", preview
    )
    token = browser.token(f"{path}?what=selector&where={where}")
    assert browser.send(path, token, what="selector", to="price > 40").status == 303
    assert "price &gt; 40" in browser.get("/subscriptions/moved").text
    for wrong in ("price >", "prise > 5"):
        refused = browser.get(f"{path}?what=selector&where=" + quote(wrong))
        assert (refused.status, 'role="alert"' in refused.text) == (422, True)
        assert "Selector from now on" in refused.text
    assert browser.get(f"{path}?what=seek&to=never").status == 400
    token = browser.token(f"{path}?what=seek&to=now")
    assert browser.send(path, token, what="seek", to="now").status == 303
    with sync.connect(node.url) as tm:
        (one,) = [each for each in tm.ask("subscriptions") if each["name"] == "moved"]
    assert sum(each["owed_events"] for each in one["pubends"].values()) == 0


def test_a_topology_is_planned_before_it_is_applied(console: LiveConsole) -> None:
    browser = Browser(console)
    token = browser.token("/overlay")
    wrong = browser.send("/overlay/plan", token, text="[brokers")
    assert wrong.status == 422
    assert 'role="alert"' in wrong.text


def test_the_pipeline_page_shows_the_engine_of_the_archive_and_how_far_it_is(tmp_path: Path) -> None:
    with (
        live_node(tmp_path, retention__archive="true") as node,
        live_console(node.url) as console,
        sync.connect(node.url) as tm,
    ):
        tick = tm.publish("t", {"n": 1})
        assert tick is not None
        tm.publish("t", {"n": 2})
        tm.ask(ARCHIVED, token=CheckpointToken({"main": tick}).text())
        engine = EngineStatus(
            "spark", "local[2]", 1, "http://127.0.0.1:4040", 7, 1_234, 250.0, "no room", time.time()
        )
        # An engine of an earlier version does not say how many files there are.
        tm.ask(REPORT_ENGINE, **{k: v for k, v in engine.json_items().items() if "file" not in k})
        silent = console.ask("GET", "/pipeline").text
        tm.ask(REPORT_ENGINE, **replace(engine, files=42, file_bytes=3 << 20).json_items())
        eventually(lambda: "files" in console.ask("GET", "/pipeline").text)
        text = console.ask("GET", "/pipeline").text
    assert "files" not in silent
    for shown in ("spark", "on local[2]", ">7<", "1,234", "250/s", 'href="http://127.0.0.1:4040"', "no room"):
        assert shown in text, shown
    assert '<span class="big">42</span> files, 3.0 MiB' in text
    assert text.count("main") > 1


def test_the_tail_sends_rows_as_they_come(console: LiveConsole) -> None:
    with console.stream("/tail/rows?topic=tailed") as stream:
        stream.wait_open()
        console.post("tailed", {"n": 0})
        seen = ""
        for n in range(1, 200):
            console.post("tailed", {"n": n})
            kind, data = stream.raw()
            if kind == "rows":
                seen = data
                break
        assert "tailed" in seen
        assert "<tr>" in seen


@pytest.mark.parametrize(
    ("topic", "events", "text", "told"),
    [
        ("capped", 60, "x", "more matched in the last second than are shown"),
        ("sampled", 300, "x" * 1_000, "this is a sample of it"),
    ],
)
def test_a_tail_shows_what_an_eye_can_read_and_says_what_it_leaves_out(
    node: LiveNode, console: LiveConsole, topic: str, events: int, text: str, told: str
) -> None:
    values = [{"n": n, "text": text} for n in range(events)]
    with console.stream(f"/tail/rows?topic={topic}") as stream, sync.connect(node.url) as tm:
        stream.wait_open()
        said = []
        for _ in range(200):
            tm.publish_many(topic, values)
            kind, data = stream.raw()
            if kind == "rows":
                assert data.count("<tr>") <= 20
            else:
                said.append(data)
            if any(told in each for each in said):
                break
        assert any(told in each for each in said), said[-3:]
