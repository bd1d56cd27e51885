"""What `magnetar doctor` makes of a broker's metrics."""

from __future__ import annotations

from magnetar.cli.diagnosis.doctor import BAD, GOOD, history


def test_a_store_that_may_not_be_written_and_lost_files_are_named() -> None:
    text = "# HELP x\nmagnetar_offload_stores_read_only 2\nmagnetar_lake_files_gone 3\n"
    stores, files = history(text)
    assert (stores.state, files.state) == (BAD, BAD)
    assert "2 object stores" in stores.detail
    assert "3 objects" in files.detail


def test_history_without_trouble_is_one_line_and_none_is_none() -> None:
    (found,) = history('magnetar_offload_stores_read_only{cluster="c"} 0\nmagnetar_lake_files_gone 0\n')
    assert found.state == GOOD
    assert list(history("magnetar_lake_files_gone_more 3\npulsar_storage_size 1\n")) == []
