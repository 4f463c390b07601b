"""The overlay: its brokers and links as a drawing, what draining one would mean, and changes step by step."""

from __future__ import annotations

from dataclasses import replace

from starlette.responses import Response

from tidemark.admin.numbers import show_bytes
from tidemark.console.pages.overlay_drawing import Way, draw_overlay
from tidemark.console.pages.site import Visit, counted
from tidemark.console.problems import ProblemError
from tidemark.console.watch import OverlayView
from tidemark.errors import TidemarkError
from tidemark.node.topology.file import parse_topology
from tidemark.node.topology.plan import changes, steps
from tidemark.node.topology.text import to_text
from tidemark.node.topology.topology import Topology
from tidemark.wire.answers import PROPOSE


async def show_overlay(visit: Visit) -> Response:
    """Show the overlay as it is."""
    view = await visit.watch.view()
    broker, pubend = visit.query("broker"), visit.query("pubend")
    return visit.page(
        "overlay.html",
        view=view,
        drawing=draw_overlay(view.description, _way(view, pubend)),
        pubend=pubend,
        pubends=sorted(each.pubend for one in view.brokers.values() for each in one.pubends),
        broker=broker,
        drained=_drained(view, broker) if broker in view.brokers else None,
        drained_text=_without(view.topology, broker),
        text=to_text(view.topology),
    )


def _without(topology: Topology, broker: str) -> str:
    """Return the text of a topology with a broker drained; "" if there is none such, or it already is."""
    placed = topology.brokers.get(broker)
    if placed is None or placed.is_draining:
        return ""
    return to_text(replace(topology, brokers={**topology.brokers, broker: replace(placed, is_draining=True)}))


def _way(view: OverlayView, pubend: str) -> Way:
    """Return from which broker to which the events of a pubend go now."""
    return frozenset(
        (route.upstream, name)
        for name, each in view.brokers.items()
        if each.report is not None
        for route in each.report.routes
        if route.pubend == pubend and route.upstream is not None
    )


async def plan_topology(visit: Visit) -> Response:
    """Show what another topology would change, and the step that comes next."""
    form = await visit.form()
    view = await visit.watch.view()
    text = form.get("text", "")
    try:
        after = parse_topology(text, view.topology.version)
        found = changes(view.topology, after)
        planned = steps(view.topology, after)
    except TidemarkError as error:
        return visit.page(
            "topology_plan.html", 422, text=text, problem=str(error), changes=[], steps=[], version=0
        )
    return visit.page(
        "topology_plan.html",
        text=text,
        problem="",
        changes=found,
        steps=planned,
        version=view.topology.version,
    )


async def apply_topology(visit: Visit) -> Response:
    """Tell all brokers of the first step towards another topology."""
    form = await visit.form()
    view = await visit.watch.view()
    if form.get("version") != str(view.topology.version):
        raise ProblemError(409, "version", "the overlay was changed meanwhile: plan the change again")
    planned = steps(view.topology, parse_topology(form.get("text", ""), view.topology.version))
    if not planned:
        return visit.go("/overlay", "Nothing is to be changed.")
    step = planned[0].topology
    problems = await _told(visit, view, step)
    if problems:
        raise ProblemError(502, "broker", "; ".join(problems))
    visit.watch.forget_subscriptions()
    left = len(planned) - 1
    more = f" {left} more to come: plan again when this one is done." if left else ""
    return visit.go("/overlay", f"The first step is under way: {planned[0].sentence}.{more}")


async def _told(visit: Visit, view: OverlayView, step: Topology) -> list[str]:
    problems = []
    text, base = to_text(step), step.version - 1
    for name, broker in view.brokers.items():
        if broker.report is None:
            continue
        try:
            client = await visit.watch.client_of(name)
            await client.ask(PROPOSE, text=text, base=base, force=False)
        except TidemarkError as error:
            problems.append(f"{name}: {error}")
    return problems


def _are(number: int, noun: str) -> str:
    """Return how many of something there are, as the beginning of a sentence."""
    return f"{counted(number, noun)} {'is' if number == 1 else 'are'}"


def _drained(view: OverlayView, broker: str) -> list[str]:
    """What it means to drain a broker, as sentences."""
    found = view.brokers[broker]
    hosted = [each for each in view.subscriptions.values() if each.broker == broker]
    held = sum(each.bytes for each in found.pubends)
    cell = next(each.cell for each in view.description.brokers if each.name == broker)
    others = [each.name for each in view.description.brokers if each.name != broker]
    through = sorted(
        route.pubend
        for route in (found.report.routes if found.report else ())
        if route.upstream is not None and route.followers
    )
    sentences = [
        f"Clients of {broker} are told to connect to another broker: {', '.join(others) or 'there is none'}.",
        f"{_are(len(hosted), 'subscription')} hosted there; each moves with its client.",
        f"{_are(len(found.pubends), 'pubend')} hosted there, with {show_bytes(held)} of events; the "
        "broker can be taken away once everybody has them.",
    ]
    if through:
        sentences.append(f"The streams of {', '.join(through)} go through it now and take another way.")
    if not any(each.cell == cell and each.name != broker for each in view.description.brokers):
        sentences.append(
            f"It is the only broker of the cell {cell}: who is behind it is cut off when it goes."
        )
    return sentences
