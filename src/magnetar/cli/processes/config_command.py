"""`magnetar config`: the settings of `magnetar standalone`, without starting it."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from pathlib import Path
from typing import Final

import click

from magnetar.base.errors import MagnetarError
from magnetar.cli.output import FORMATS, show

_FILE: Final = click.Path(path_type=Path)
_CONFIG: Final = click.option(
    "--config",
    "file",
    type=_FILE,
    envvar="MAGNETAR_CONFIG",
    help="File of settings: TOML, or Pulsar's *.conf.  [none]",
)
_OUTPUT: Final = click.option(
    "-o", "--output", type=click.Choice(FORMATS), default="table", help="Format of the output.  [table]"
)


class UnknownSettingError(MagnetarError):
    """No setting has that name."""


def shown(value: object) -> object:
    """The value of a setting for output: a secret that stands in the setting itself is hidden."""
    if type(value).__name__ == "Inline":
        return "(set, not shown)"
    return str(value) if isinstance(value, Path) else value


def descriptions() -> dict[str, str]:
    """The description of each setting, from the docstrings of StandaloneConfig."""
    from magnetar.server.settings.config import StandaloneConfig

    found: dict[str, str] = {}
    for owner in reversed(StandaloneConfig.__mro__):
        if not dataclasses.is_dataclass(owner):
            continue
        (tree,) = ast.parse(inspect.getsource(owner)).body
        assert isinstance(tree, ast.ClassDef)
        for field, text in zip(tree.body, tree.body[1:], strict=False):
            match (field, text):
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str() as said)),
                ):
                    found[name] = " ".join(said.split())
    return found


@click.group()
def config() -> None:
    """Settings of a broker: show those in force, check a file, explain a setting."""


@config.command("show", epilog="Example: magnetar config show --config broker.toml")
@_CONFIG
@click.option("--all", "everything", is_flag=True, help="Also show settings with their default value.")
@_OUTPUT
def show_(file: Path | None, everything: bool, output: str) -> None:
    """Show the settings with which a broker would start here: from the file, the environment, and the
    defaults."""
    from magnetar.server.settings.config import StandaloneConfig
    from magnetar.server.settings.loading import load

    settings = load({}, file=file).config
    defaults = StandaloneConfig()
    rows = {
        field.name: shown(getattr(settings, field.name))
        for field in dataclasses.fields(settings)
        if everything or getattr(settings, field.name) != getattr(defaults, field.name)
    }
    show(rows, output)


@config.command(epilog="Example: magnetar config check broker.toml")
@click.argument("file", type=_FILE)
def check(file: Path) -> None:
    """Check whether a broker would start with FILE, and which settings in it have no effect."""
    from magnetar.server.settings.loading import load

    loaded = load({}, file=file, environment={"HOME": str(Path.home())})
    for note in (*loaded.warnings, *loaded.notes):
        click.echo(note)
    click.echo(f"{file} is valid")


@config.command("explain", epilog="Example: magnetar config explain segment_bytes")
@click.argument("key")
@_OUTPUT
def explain_(key: str, output: str) -> None:
    """Show the effect of the setting KEY, its default, and its environment variable."""
    from magnetar.server.settings.config import StandaloneConfig
    from magnetar.server.settings.loading import ENVIRONMENT_PREFIX

    known = {field.name: field for field in dataclasses.fields(StandaloneConfig)}
    if key not in known:
        import difflib

        close = difflib.get_close_matches(key.replace("-", "_").lower(), known, n=1)
        hint = f"did you mean {close[0]}?" if close else "`magnetar config show --all` lists them"
        raise UnknownSettingError(f"there is no setting {key!r}; {hint}")
    field = known[key]
    show(
        {
            "setting": key,
            "meaning": descriptions().get(key, ""),
            "default": shown(field.default),
            "type": str(field.type),
            "variable": ENVIRONMENT_PREFIX + key.upper(),
        },
        output,
    )
