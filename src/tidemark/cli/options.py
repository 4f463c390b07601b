"""Options that many commands have, with one meaning everywhere."""

from __future__ import annotations

from pathlib import Path

import click

from tidemark.errors import ConfigError

BROKER_DEFAULT = "tidemark://127.0.0.1:7676"
BROKER_VARIABLE = "TIDEMARK_BROKER"

JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")


def _checked_url(context: click.Context, option: click.Parameter, url: str) -> str:
    """Return the URL if it is one; BadParameter, which names the option or the variable, if it is not."""
    from tidemark.client.connecting.addresses import parse_url

    try:
        parse_url(url)
    except ConfigError as error:
        raise click.BadParameter(error.reason, context, option) from None
    return url


BROKER = click.option(
    "--broker",
    "url",
    callback=_checked_url,
    metavar="URL",
    envvar=BROKER_VARIABLE,
    default=BROKER_DEFAULT,
    show_default=True,
    show_envvar=True,
    help="The broker, or several that stand in for each other: tidemark://a:7676,b:7676.",
)
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def duration(text: str) -> float:
    """Return the seconds of a duration as people write it: 250ms, 10s, 2h, or a plain number."""
    from tidemark.node.config.units import parse_duration

    if text.replace(".", "", 1).isdecimal():
        return float(text)
    try:
        return parse_duration(text) / 1e6
    except ConfigError as error:
        raise click.BadParameter(error.reason) from None


def settings(given: tuple[str, ...]) -> dict[str, str]:
    """Return key -> value of the arguments of `--set KEY=VALUE`; BadParameter for one without `=`."""
    from tidemark.node.config.loading import SetOption

    for each in given:
        if "=" not in each:
            raise click.BadParameter(
                f"{each!r} has no '='; write --set storage.durability=os", param_hint="--set"
            )
    pairs = [each.split("=", 1) for each in given]
    return {key: SetOption(value) for key, value in pairs}


SET = click.option(
    "--set", "given", metavar="KEY=VALUE", multiple=True, help="Any other setting; see docs/configuration.md."
)
