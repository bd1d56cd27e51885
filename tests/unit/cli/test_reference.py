"""docs/cli.md says what the commands say."""

from __future__ import annotations

import re

import cli_reference

from magnetar.cli import exit_codes


def test_the_page_is_up_to_date() -> None:
    text = cli_reference.PAGE.read_text("utf-8")
    assert cli_reference.page(text) == text, "write it anew: python tools/cli_reference.py"


def test_exit_codes_are_those_of_the_code() -> None:
    rows = re.compile(r"^\| (\d+) \| (.*?) \|$", re.MULTILINE)
    documented = dict(rows.findall(cli_reference.PAGE.read_text("utf-8")))
    said = dict(rows.findall(exit_codes.__doc__ or ""))
    assert documented.keys() == said.keys()
    codes = {str(value) for name, value in vars(exit_codes).items() if name.isupper() and name[0] != "_"}
    assert codes <= documented.keys()
