"""Where settings come from, which source wins, and what is said of wrong ones."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from magnetar.base.errors import StartupError
from magnetar.server.settings.config import StandaloneConfig, default_data_dir
from magnetar.server.settings.loading import load

REPOSITORY = Path(__file__).parents[4]


def test_defaults() -> None:
    config = load({}, environment={"XDG_DATA_HOME": "/var/data"}).config
    assert config.data_dir == Path("/var/data/magnetar")
    assert (config.host, config.broker_port, config.http_port) == ("127.0.0.1", 6650, 8080)
    assert config.max_message_bytes == 5 * 1024 * 1024


def test_default_folder_ignores_a_relative_xdg_path() -> None:
    expected = Path.home() / ".local" / "share" / "magnetar"
    assert default_data_dir({"XDG_DATA_HOME": "relative"}) == expected
    assert default_data_dir({}) == expected


def test_an_ephemeral_process_has_no_folder() -> None:
    assert load({"ephemeral": True}, environment={}).config.data_dir is None


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('broker_port = 1\nhttp_port = 1\nhost = "file"\ncache_bytes = "2MiB"\nlog_json = true\n')
    environment = {"MAGNETAR_HTTP_PORT": "2", "MAGNETAR_BROKER_PORT": "2", "MAGNETAR_UNRELATED": "x"}
    config = load(
        {"broker_port": 3, "host": None, "data_dir": tmp_path}, file=file, environment=environment
    ).config
    assert (config.broker_port, config.http_port, config.host) == (3, 2, "file")
    assert config.cache_bytes == 2 << 20
    assert config.log_json
    assert config.data_dir == tmp_path


def test_a_former_name_is_read_with_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("disk_room_percent = 80\n")
    loaded = load({}, file=file, environment={})
    assert loaded.config.disk_resume_percent == 80
    (warning,) = loaded.warnings
    assert warning == (
        f"configuration {file}, key 'disk_room_percent': the setting is called disk_resume_percent now;"
        " a later release refuses the former name"
    )
    loaded = load({}, file=file, environment={"MAGNETAR_DISK_ROOM_PERCENT": "70"})
    assert loaded.config.disk_resume_percent == 70
    assert "called MAGNETAR_DISK_RESUME_PERCENT now" in loaded.warnings[1]


@pytest.mark.parametrize("text", ["disk_room_percent = 80\n{}", "{}disk_room_percent = 80\n"])
def test_the_name_of_now_wins_over_the_former_one(tmp_path: Path, text: str) -> None:
    file = tmp_path / "c.toml"
    file.write_text(text.format("disk_resume_percent = 60\n"))
    loaded = load({}, file=file, environment={})
    assert loaded.config.disk_resume_percent == 60
    assert "disk_resume_percent is given as well and counts" in loaded.warnings[0]
    both = {"MAGNETAR_DISK_ROOM_PERCENT": "70", "MAGNETAR_DISK_RESUME_PERCENT": "50"}
    assert load({}, environment=both).config.disk_resume_percent == 50
    assert load({}, environment={}).warnings == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("disk_room_percent = 98", "disk_resume_percent is 98; it must be from 1 to 97"),
        ('disk_room_percent = "x"', "key 'disk_room_percent': 'x' is not a whole number"),
        ("broker-port = 1", "unknown key 'broker-port'; did you mean 'broker_port'?"),
        ("zzz = 1", "unknown key 'zzz'; known keys are "),
        ("broker_port = 70000", "broker_port is 70000; it must be from 0 to 65535"),
        ('functions_connect_ports = "443, https"', "it must be ports from 1 to 65535"),
        ("function_instances_max = 0", "function_instances_max is 0; it must be at least 1"),
        ('broker_port = "x"', "key 'broker_port': 'x' is not a whole number"),
        ("broker_port = true", "True is not a whole number"),
        ("host = 3", "3 is not a text"),
        ('ephemeral = "maybe"', "'maybe' is not true or false"),
        ('cache_bytes = "5 MB"', "'5 MB' is not a size in bytes"),
        ('log_level = "loud"', "log_level is 'loud'; it must be one of debug"),
        ('cluster = "a b"', "cluster is 'a b'"),
        ("http_port = 6650", "broker_port and http_port are both 6650"),
        ("max_message_bytes = 1", "max_message_bytes is 1"),
        ("publish_pending_bytes_max = 1", "publish_pending_bytes_max is 1"),
        ("message_ttl_seconds = -1", "message_ttl_seconds is -1; it must be at least 0"),
        ("limits_interval_seconds = 0", "limits_interval_seconds is 0; it must be at least 1"),
        ('backlog_quota_policy = "x"', "it must be one of producer_request_hold, producer_exception"),
        ("retention_minutes = -2", "retention_minutes is -2"),
        ("deduplication_snapshot_seconds = -2", "it must be 0 or more, or -1 for no limit"),
        ("segment_bytes = 4294967296", "it must be at most 4294967295"),
        ("bookies = 101", "it must be at most 100"),
        ("= 1", "is not valid TOML"),
    ],
)
def test_wrong_settings_name_cause_and_remedy(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "c.toml"
    file.write_text(text)
    with pytest.raises(StartupError) as caught:
        load({}, file=file, environment={})
    assert said in str(caught.value)


@pytest.mark.parametrize("name", [each.name for each in fields(StandaloneConfig) if each.type == "int"])
def test_no_number_is_without_bounds(name: str) -> None:
    """Those that pass are small enough for every place that holds them, and not below what has a meaning."""
    for value in (-2, 1 << 63, 10**30):
        with pytest.raises(StartupError, match=rf"\b{name}\b"):
            load({name: value}, environment={})


def test_other_refusals(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="cannot be read"):
        load({}, file=tmp_path / "absent.toml", environment={})
    with pytest.raises(StartupError, match="environment variable MAGNETAR_BROKER_PORT"):
        load({}, environment={"MAGNETAR_BROKER_PORT": "many"})
    with pytest.raises(StartupError, match="makes no sense"):
        load({"ephemeral": True, "data_dir": tmp_path}, environment={})


def test_every_setting_is_documented() -> None:
    text = (REPOSITORY / "docs" / "configuration.md").read_text()
    # A row's first cell may name several settings.
    named = {name for row in re.findall(r"^\| (`.*?`) \|", text, re.MULTILINE) for name in row.split(", ")}
    missing = [field.name for field in fields(StandaloneConfig) if f"`{field.name}`" not in named]
    assert missing == []
