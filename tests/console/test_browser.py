"""The console in a real browser: every page, every change, on a real overlay.

`./run ui` runs this file alone, and takes the pictures of docs/console.md.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from playwright.sync_api import Browser

import tidemark
from tests import security_on
from tests.archiving import archiving
from tests.console.accessibility import problems_of
from tests.console.browser import CHROMIUM, WHY_NOT, browser_page, started_browser
from tests.console.live_console import LiveConsole, live_console
from tests.live_node import OverlayNodes, live_node
from tests.node.security.secured import PASSWORDS, document
from tests.waiting import PATIENCE_SECONDS, eventually
from tidemark import sync
from tidemark.spark.page_parts import document as page_of

playwright = pytest.importorskip("playwright.sync_api")
expect = playwright.expect
expect.set_options(timeout=PATIENCE_SECONDS * 1_000)

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason=WHY_NOT)]
#: Where `./run ui` puts the pictures; without it none are taken.
PICTURES = os.environ.get("TIDEMARK_PICTURES")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with started_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def overlay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OverlayNodes]:
    nodes = OverlayNodes(tmp_path_factory.mktemp("browser"), "north", "middle", "south")
    try:
        with sync.connect(nodes.url("north")) as tm:
            tm.create_topic("trades", "[symbol: string, price: double, qty: int?]")
            with sync.connect(nodes.url("middle")) as near:
                for name, where in (("audit", "price > 10 AND symbol LIKE 'S1%'"), ("alarms", "price > 90")):
                    with near.subscribe("trades", where, durable=name, ack="client") as sub:
                        # From then on events of all brokers are for it, and not only those of its own.
                        eventually(lambda sub=sub: {"north", "middle", "south"} <= set(sub.checkpoint))  # type: ignore[misc]
            tm.publish_many("trades", [{"symbol": f"S{n % 40}", "price": float(n % 97)} for n in range(300)])
            yield nodes
    finally:
        nodes.close()


@pytest.fixture(scope="module")
def console(overlay: OverlayNodes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveConsole]:
    reports = tmp_path_factory.mktemp("reports")
    (reports / "audit.html").write_text(page_of("Audit", "<h1>Exactly once, in order</h1>"))
    with live_console(overlay.url("middle"), reports=reports) as console:
        eventually(lambda: "audit" in console.ask("GET", "/subscriptions").text)
        yield console


def picture(page: object, name: str) -> None:
    if PICTURES is not None:
        page.screenshot(path=str(Path(PICTURES) / f"{name}.png"))  # type: ignore[attr-defined]


def test_a_person_walks_through_all_pages(
    overlay: OverlayNodes, console: LiveConsole, browser: Browser
) -> None:
    base = f"http://127.0.0.1:{console.port}"
    with browser_page(browser) as page, sync.connect(overlay.url("north")) as tm:
        page.goto(base)
        expect(page.locator("#no-alarms")).to_have_text("Nothing is wrong.")
        expect(page.get_by_role("link", name="audit").first).to_be_visible()
        expect(page.locator("[data-charts]")).to_have_attribute("data-samples", re.compile(r"[3-9]|\d\d"))
        with tm.subscribe("trades"):
            tm.publish_many("trades", [{"symbol": "S1", "price": 5.0} for _ in range(50)])
            expect(page.locator("#latency")).to_contain_text("half")
        picture(page, "overview")

        page.get_by_role("link", name="Topics").click()
        page.get_by_role("link", name="trades").click()
        page.get_by_label("Selector").fill("price > > 5")
        page.get_by_role("button", name="Search").click()
        expect(page.get_by_role("alert")).to_contain_text("^")
        page.get_by_label("Selector").fill("price = 95")
        page.get_by_role("button", name="Search").click()
        expect(page.locator("table.events tbody tr")).to_have_count(3)
        page.locator("table.events summary").first.click()
        picture(page, "topic")

        page.get_by_role("link", name="Why did it").first.click()
        page.get_by_label("Subscription").fill("alarms")
        page.get_by_role("button", name="Explain").click()
        expect(page.locator(".verdict")).to_have_text("The event matches.")
        page.get_by_label("Subscription").fill("audit")
        page.get_by_role("button", name="Explain").click()
        expect(page.locator(".verdict")).to_contain_text("match")
        picture(page, "why")

        page.get_by_role("link", name="Selectors").click()
        page.get_by_label("Topic").fill("trades")
        page.get_by_label("Selector").fill("price >= 50")
        page.get_by_role("button", name="Try").click()
        expect(page.locator("#share")).to_contain_text("%")
        expect(page.get_by_role("link", name="alarms")).to_be_visible()
        picture(page, "selectors")

        page.get_by_role("link", name="Tail").click()
        page.get_by_label("Topic or pattern").fill("trades")
        page.get_by_role("button", name="Tail").click()
        expect(page.locator("#told")).to_contain_text("shown")
        tm.publish("trades", {"symbol": "NEW", "price": 1.0})
        expect(page.locator("#rows")).to_contain_text("NEW")
        page.get_by_role("button", name="Pause").click()
        shown = page.locator("#rows tr").count()
        tm.publish("trades", {"symbol": "UNSEEN", "price": 1.0})
        page.wait_for_timeout(1_500)
        assert page.locator("#rows tr").count() == shown
        expect(page.locator("#paused")).to_contain_text("At least 1 event came since")
        picture(page, "tail")

        page.get_by_role("link", name="Overlay").click()
        expect(page.locator("svg.overlay .broker")).to_have_count(3)
        page.get_by_role("link", name="north", exact=True).first.click()
        expect(page.locator("svg.overlay .way polygon")).to_have_count(2)
        picture(page, "way")
        page.get_by_role("link", name="all links").click()
        expect(page.locator("svg.overlay .way")).to_have_count(0)
        page.locator("svg.overlay a").nth(1).click()
        expect(page.get_by_role("heading", name=re.compile("is drained"))).to_be_visible()
        picture(page, "overlay")

        page.get_by_role("link", name="Pipeline").click()
        page.get_by_role("link", name="audit.html").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Exactly once, in order")
        page.go_back()
        access = "Users, roles and rules" if security_on.is_on() else "is open"
        for title, words in (("Pipeline", "of no archive"), ("Access", access), ("HTTP", "OpenAPI")):
            page.get_by_role("link", name=title, exact=True).click()
            expect(page.locator("main")).to_contain_text(words)
            if title == "HTTP":
                picture(page, "http")


def test_a_person_changes_a_subscription_after_seeing_what_that_means(
    overlay: OverlayNodes, console: LiveConsole, browser: Browser
) -> None:
    with sync.connect(overlay.url("middle")) as tm, tm.subscribe("trades", durable="temporary", ack="client"):
        tm.publish("trades", {"symbol": "X", "price": 2.0})
    with browser_page(browser, expects_errors=True) as page:
        page.goto(f"http://127.0.0.1:{console.port}/subscriptions/temporary")
        where = page.get_by_label("Selector from now on")
        where.fill("price > > 5")
        page.get_by_role("button", name="Show what that means").last.click()
        expect(page.get_by_role("alert")).to_contain_text("^")
        where.fill("price > 5")
        page.get_by_role("button", name="Show what that means").last.click()
        expect(page.locator(".meaning")).to_contain_text("it would have got")
        page.get_by_role("button", name="Do it").click()
        expect(page.get_by_role("status")).to_contain_text("The selector of temporary was changed.")
        page.get_by_role("link", name="temporary").click()
        expect(page.locator("main")).to_contain_text("price > 5")
        page.get_by_role("button", name="Show what that means").first.click()
        expect(page.locator(".meaning")).to_contain_text("goes on with what is published from now on")
        picture(page, "confirm")
        page.get_by_role("button", name="Do it").click()
        expect(page.get_by_role("status")).to_contain_text("was moved")
        page.get_by_role("link", name="temporary").click()
        page.get_by_role("button", name=re.compile("Remove it")).click()
        page.get_by_role("button", name="Do it").click()
        expect(page.get_by_role("status")).to_contain_text("was removed")
        expect(page.get_by_role("link", name="temporary")).to_have_count(0)
        picture(page, "subscriptions")


def test_a_person_sees_how_a_subscription_catches_up_and_that_it_was_told_a_gap(
    tmp_path: Path, browser: Browser
) -> None:
    with (
        live_node(tmp_path, retention__max_bytes="300KiB") as node,
        live_console(node.url) as console,
        sync.connect(node.url) as tm,
        browser_page(browser) as page,
    ):
        tm.create_topic("readings", "[n: int, text: string]")
        with tm.subscribe("readings", durable="reader", ack="client"):
            pass
        for first in range(0, 4_000, 100):
            tm.publish_many("readings", [{"n": n, "text": "x" * 200} for n in range(first, first + 100)])
        eventually(lambda: tm.ask("pubends")[0]["bytes"] <= 300 << 10)
        with tm.subscribe("readings", durable="reader", ack="client", gaps=True) as sub:
            items = [sub.next(PATIENCE_SECONDS) for _ in range(300)]
            assert any(isinstance(each, tidemark.Gap) for each in items)
            sub.ack(sync=True)
            page.goto(f"http://127.0.0.1:{console.port}/subscriptions/reader")
            expect(page.locator("progress")).to_be_visible()
            for _ in range(300):
                sub.next(PATIENCE_SECONDS)
            sub.ack(sync=True)
            expect(page.locator("#live")).to_contain_text("done in about")
            expect(page.locator("#live")).to_contain_text("history that it needed was gone")
            picture(page, "subscription")
        page.goto(f"http://127.0.0.1:{console.port}/subscriptions")
        page.get_by_label("only slow ones and those with gaps").check()
        page.get_by_role("button", name="Find").click()
        expect(page.get_by_role("link", name="reader")).to_be_visible()


def test_a_person_sees_how_far_the_archive_is_and_who_writes_it(tmp_path: Path, browser: Browser) -> None:
    reports = tmp_path
    (reports / "audit.html").write_text(page_of("Audit", "<h1>Exactly once, in order</h1>"))
    with (
        TemporaryDirectory(prefix="tidemark-") as folder,
        live_node(Path(folder), retention__archive="true") as node,
        live_console(node.url, reports=reports) as console,
        sync.connect(node.url) as tm,
        archiving([node.url], Path(folder) / "data" / "archive"),
        browser_page(browser) as page,
    ):
        tm.create_topic("trades", "[symbol: string, price: double]")
        tm.publish_many("trades", [{"symbol": "ACME", "price": float(n)} for n in range(1_000)])
        page.goto(f"http://127.0.0.1:{console.port}/pipeline")
        tiles = page.locator(".tiles")
        expect(tiles).to_contain_text("light")
        expect(tiles).to_contain_text(re.compile(r"1,000\s+events archived"))
        expect(page.get_by_role("row", name=re.compile("^main"))).to_contain_text("0 s")
        expect(page.get_by_role("link", name="audit.html")).to_be_visible()
        picture(page, "pipeline")


def test_a_person_plans_another_topology_and_makes_its_first_step(tmp_path: Path, browser: Browser) -> None:
    nodes = OverlayNodes(tmp_path, "east", "west")
    try:
        with live_console(nodes.url("east")) as console, browser_page(browser) as page:
            page.goto(f"http://127.0.0.1:{console.port}/overlay")
            topology = page.get_by_label("The topology")
            written = topology.input_value()
            topology.fill(written.replace("[brokers.west]\n", "[brokers.west]\ndraining = true\n"))
            page.get_by_role("button", name="Show what would change").click()
            expect(page.locator("main")).to_contain_text("west")
            picture(page, "topology_plan")
            page.get_by_role("button", name="Make the first step").click()
            expect(page.get_by_role("status")).to_contain_text("is under way")
            expect(page.locator("main")).to_contain_text("Version 1 of the topology")
            expect(page.get_by_role("row", name=re.compile("^west")).first).to_contain_text("draining")
    finally:
        nodes.close()


def test_a_person_logs_in_plans_another_access_document_and_puts_it_into_force(
    tmp_path: Path, browser: Browser
) -> None:
    access = tmp_path / "access.toml"
    access.write_text(document())
    settings = {"security__mode": "accounts", "security__access": str(access)}
    with (
        live_node(tmp_path, **settings) as node,
        live_console(node.url) as console,
        browser_page(browser) as page,
    ):
        page.goto(f"http://127.0.0.1:{console.port}/access")
        page.get_by_label("User").fill("ops")
        page.get_by_label("Password").fill(PASSWORDS["ops"])
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("link", name="Access", exact=True).click()
        page.get_by_label("User", exact=True).fill("alice")
        page.get_by_label("Topic or pattern").fill("t.one")
        page.get_by_role("button", name="Try").click()
        expect(page.locator("dl")).to_contain_text("subscribe")
        picture(page, "access_try")
        text = page.get_by_label("Users, roles and rules")
        text.fill(text.input_value() + '\n[roles.guest]\nsubscribe = ["news.>"]\n')
        page.get_by_role("button", name="Show what would change").click()
        expect(page.get_by_role("row", name=re.compile("guest"))).to_be_visible()
        picture(page, "access_plan")
        page.get_by_role("button", name="Put it into force").click()
        expect(page.get_by_role("status")).to_contain_text("is in force")
        expect(page.get_by_label("Users, roles and rules")).to_contain_text("news.>")


def everywhere(overlay: OverlayNodes) -> list[str]:
    """The address of every page that needs no form, with something on it."""
    with sync.connect(overlay.url("north")) as tm:
        tick = tm.publish("trades", {"symbol": "S1", "price": 5.0})
    return [
        *("/topics", "/topics/trades", "/topics/trades?where=price > > 5", "/tail?topic=trades"),
        *("/try?topic=trades&where=price>5", "/try?topic=trades&where=price>", "/http", "/login", "/nowhere"),
        *("/subscriptions", "/subscriptions?q=nothing", "/subscriptions/audit", "/subscriptions/nobody"),
        *("/subscriptions/alarms/change?what=selector&where=price>5", "/overlay", "/overlay?pubend=north"),
        *(
            "/overlay?broker=north",
            "/pipeline",
            "/access",
            f"/why?pubend=north&tick={tick}&subscription=alarms",
        ),
        "/",
    ]


@pytest.mark.parametrize(("is_dark", "width"), [(True, 400), (False, 1_200)])
def test_every_page_is_for_people_who_see_little_for_narrow_screens_and_for_the_keyboard(
    overlay: OverlayNodes, console: LiveConsole, browser: Browser, is_dark: bool, width: int
) -> None:
    base = f"http://127.0.0.1:{console.port}"
    with browser_page(browser, is_dark=is_dark, width=width, height=800, expects_errors=True) as page:
        found = {}
        for path in everywhere(overlay):
            page.goto(base + path)
            page.evaluate("document.querySelectorAll('main details').forEach((each) => (each.open = true))")
            if problems := problems_of(page):
                found[path] = problems
        assert not found
        for action, button in (
            ("/overlay", "Show what would change"),
            ("/overlay?broker=south", "Plan to drain it"),
        ):
            page.goto(base + action)
            with page.expect_navigation():  # a script that runs while a page is replaced finds none
                page.get_by_role("button", name=button).click()
            assert not problems_of(page), button
        page.goto(base)
        back = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert back == ("rgb(15, 23, 28)" if is_dark else "rgb(251, 252, 253)")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        if is_dark:
            picture(page, "narrow")


def test_everything_can_be_done_with_the_keyboard(console: LiveConsole, browser: Browser) -> None:
    focused = "document.activeElement.name || document.activeElement.textContent"
    with browser_page(browser) as page:
        page.goto(f"http://127.0.0.1:{console.port}/subscriptions")
        page.keyboard.press("/")
        assert page.evaluate(focused) == "q"
        page.keyboard.type("audit/p?")
        assert page.get_by_label("Find").input_value() == "audit/p?"
        page.get_by_label("Find").fill("audit")
        page.keyboard.press("Enter")
        expect(page.get_by_role("link", name="alarms")).to_have_count(0)
        page.get_by_role("link", name="audit").focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_contain_text("audit")
        page.get_by_role("button", name=re.compile("Remove it")).focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name="Do it")).to_be_visible()
        page.keyboard.press("?")
        assert page.evaluate(focused) == "Overview"
        page.get_by_role("link", name="Tail").focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name="Pause")).to_be_visible()
        page.keyboard.press("p")
        expect(page.get_by_role("button", name="Go on")).to_have_attribute("aria-pressed", "true")
        page.get_by_role("link", name="Overlay").focus()
        page.keyboard.press("Enter")
        page.locator("svg.overlay a").first.focus()
        page.evaluate("document.getElementById('live').dataset.old = 'yes'")
        expect(page.locator("#live:not([data-old])")).to_be_visible()
        assert page.evaluate("document.activeElement.id").startswith("broker-"), "a refresh keeps the focus"
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name=re.compile("is drained"))).to_be_visible()
        page.get_by_role("button", name="Plan to drain it").focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("button", name="Make the first step")).to_be_visible()


def test_a_page_that_cannot_be_refreshed_says_so_and_goes_on(tmp_path: Path, browser: Browser) -> None:
    with (
        live_node(tmp_path) as node,
        live_console(node.url) as console,
        browser_page(browser, expects_errors=True) as page,
    ):
        page.goto(f"http://127.0.0.1:{console.port}")
        expect(page.locator("#stale")).to_be_hidden()
        console.stop()
        expect(page.locator("#stale")).to_contain_text("has not been refreshed since")
        expect(page.locator("#stale")).to_contain_text("the console does not answer")
        console.start()
        expect(page.locator("#stale")).to_be_hidden()
        node.stop()
        expect(page.locator("#stale")).to_be_visible()


def test_a_page_of_ones_own_charts_what_comes(overlay: OverlayNodes, browser: Browser) -> None:
    pages = Path(__file__).parent.parent.parent / "examples" / "live_trades"
    with (
        live_console(overlay.url("middle"), pages=pages) as console,
        sync.connect(overlay.url("north")) as tm,
        browser_page(browser) as page,
    ):
        page.goto(f"http://127.0.0.1:{console.port}/pages/")
        told = page.locator("#told")
        for n in range(1_000):
            tm.publish("trades", {"symbol": "LIVE", "price": float(n)})
            if "LIVE" in (told.text_content() or ""):
                break
        expect(told).to_contain_text("LIVE")
        seen = page.evaluate("JSON.parse(sessionStorage.getItem('points')).length")
        tm.publish("trades", {"symbol": "AFTER", "price": 1.5})
        expect(told).to_contain_text("AFTER")
        page.reload()
        tm.publish("trades", {"symbol": "AGAIN", "price": 2.5})
        expect(told).to_contain_text("AGAIN")
        assert page.evaluate("JSON.parse(sessionStorage.getItem('points')).length") > seen
        picture(page, "live_trades")
