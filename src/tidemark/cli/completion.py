"""The command that prints what a shell needs to complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    eval "$(tidemark completion bash)"          # in ~/.bashrc
    eval "$(tidemark completion zsh)"           # in ~/.zshrc
    tidemark completion fish > ~/.config/fish/completions/tidemark.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(ctx.find_root().command, {}, "tidemark", "_TIDEMARK_COMPLETE").source())
