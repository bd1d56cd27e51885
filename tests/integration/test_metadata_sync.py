"""The device under the metadata fails: the process leaves, and has claimed nothing that was refused."""

from __future__ import annotations

from pathlib import Path
from urllib.error import HTTPError

import pytest

from support import disk_log
from support.standalone import StandaloneProcess

pytestmark = [pytest.mark.process, pytest.mark.one_process("folder")]


def test_a_failed_sync_of_the_metadata_ends_the_process(tmp_path: Path) -> None:
    """It used to stay, to report ready, and to refuse every write; its log said that topics were created."""
    if reason := disk_log.why_impossible():
        pytest.skip(reason)
    fail = tmp_path / "fail"
    process = StandaloneProcess(
        tmp_path / "standalone", environment=disk_log.environment(tmp_path / "standalone", fail=fail)
    )
    try:
        process.start()
        process.admin("PUT", "persistent/public/default/kept", {})
        fail.write_text("metadata.db")
        with pytest.raises(HTTPError) as refused:
            process.admin("PUT", "persistent/public/default/refused", {})
        assert refused.value.code == 500
        assert process.wait(30) == 1
        text = process.log_text()
        assert "the metadata store stops: metadata in" in text
        assert "\nmagnetar: metadata in" in text
        assert "topic created: persistent://public/default/kept" in text
        assert "topic created: persistent://public/default/refused" not in text
        assert not (tmp_path / "standalone" / "ready.json").exists()
        fail.unlink()
        process.start()
        found = process.admin("GET", "persistent/public/default")
        assert "persistent://public/default/kept" in found
        assert process.stop() == 0
    finally:
        process.kill()
