"""`magnetar completion`: the script with which a shell completes the command."""

from __future__ import annotations

import click

_HOW = {
    "bash": 'eval "$(magnetar completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(magnetar completion zsh)"   # in ~/.zshrc',
    "fish": "magnetar completion fish | source   # in ~/.config/fish/config.fish",
}


@click.command(epilog="Example: magnetar completion bash")
@click.argument("shell", type=click.Choice(sorted(_HOW)))
def completion(shell: str) -> None:
    """Print the script that makes SHELL complete commands, options and their values."""
    from click.shell_completion import get_completion_class

    root = click.get_current_context().find_root().command
    found = get_completion_class(shell)
    assert found is not None, "click has all three"
    made = found(root, {}, "magnetar", "_MAGNETAR_COMPLETE")
    click.echo(f"# {_HOW[shell]}")
    # Not `source()`, which looks for a shell of a new enough version on this machine.
    click.echo(made.source_template % made.source_vars())
