"""The command that prints the manual page, which is made of the help of all commands."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import cleandoc
from textwrap import indent

import click

from tidemark import __version__


@click.command()
@click.pass_context
def man(ctx: click.Context) -> None:
    """Print the manual page of all commands, for man.

    \b
    tidemark man | man -l -
    tidemark man > ~/.local/share/man/man1/tidemark.1
    """
    click.echo(manual_page(ctx.find_root().command), nl=False)


def manual_page(root: click.Command) -> str:
    """Return the page in the language of troff."""
    lines = [
        f'.TH TIDEMARK 1 "" "tidemark {__version__}" "Tidemark"',
        ".SH NAME",
        r"tidemark \- durable, content-based publish/subscribe",
        ".SH SYNOPSIS",
        r"\fBtidemark\fR [OPTIONS] COMMAND [ARGS]...",
        ".SH DESCRIPTION",
        *_described(root, click.Context(root, info_name="tidemark")),
        ".SH COMMANDS",
    ]
    for command, context in _commands(root, click.Context(root, info_name="tidemark")):
        usage = " ".join(command.collect_usage_pieces(context))
        lines += [f".SS {_plain(f'{context.command_path} {usage}'.strip())}", *_described(command, context)]
    return "\n".join(lines) + "\n"


def _commands(group: click.Command, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """Yield all commands below a group, each with a context that knows its whole name."""
    if not isinstance(group, click.Group):
        return
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        below = click.Context(command, info_name=name, parent=context)
        yield command, below
        yield from _commands(command, below)


def _described(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yield what a command does, and its options."""
    for paragraph in cleandoc(command.help or "").split("\n\n"):
        as_it_is = paragraph.startswith("\b\n")
        text = indent(paragraph.removeprefix("\b\n"), "    ") if as_it_is else paragraph
        yield from (".PP", ".nf" if as_it_is else ".ad l", _plain(text), *((".fi",) if as_it_is else ()))
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            yield from (".TP", rf"\fB{_plain(record[0])}\fR", _plain(record[1]))


def _plain(text: str) -> str:
    """Return the text so that no character of it is a command of troff."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-")
    return "\n".join(rf"\&{line}" if line.startswith((".", "'")) else line for line in escaped.split("\n"))
