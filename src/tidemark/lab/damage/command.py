"""The command `tidemark damage`: runs the campaign and prints what came of it."""

from __future__ import annotations

import json
from collections import Counter

import click

from tidemark.lab.damage.campaign import HARMLESS, REFUSED, SILENT, TOLD, Verdict, run

OUTCOMES = (HARMLESS, TOLD, REFUSED, SILENT)


def damage(places: int, seed: int, *, as_json: bool) -> int:
    """Flip a bit at so many places, and delete or age every file. Returns 1 if a harm was silent, else 0."""
    counted: Counter[tuple[str, str, str]] = Counter()
    silent = 0
    for verdict in run(places, seed):
        counted[verdict.moment, verdict.harm.kind, verdict.outcome] += 1
        silent += verdict.outcome == SILENT
        if as_json:
            click.echo(json.dumps(_json(verdict)))
        elif verdict.outcome == SILENT:
            click.echo(f"SILENT after {verdict.harm} ({verdict.moment}): {verdict.detail}")
    if not as_json:
        click.echo(_table(counted))
        total = sum(counted.values())
        click.echo(f"{total} harms: {silent} silent" if silent else f"{total} harms: told or harmless, each")
    return 1 if silent else 0


def _json(verdict: Verdict) -> dict[str, object]:
    harm = verdict.harm
    return {
        "moment": verdict.moment,
        "harm": harm.kind,
        "where": harm.where,
        "offset": harm.offset,
        "bit": harm.bit,
        "outcome": verdict.outcome,
        "detail": verdict.detail,
    }


def _table(counted: Counter[tuple[str, str, str]]) -> str:
    lines = [f"{'directory':<10}{'harm':<9}" + "".join(f"{outcome:>10}" for outcome in OUTCOMES)]
    for moment, kind in dict.fromkeys((moment, kind) for moment, kind, _ in counted):
        numbers = "".join(f"{counted[moment, kind, outcome]:>10}" for outcome in OUTCOMES)
        lines.append(f"{moment:<10}{kind:<9}{numbers}")
    return "\n".join(lines)
