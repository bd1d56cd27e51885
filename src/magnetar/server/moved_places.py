"""A data folder that has moved: its history is where the folder is now, and its catalog is made anew."""

from __future__ import annotations

from collections.abc import Mapping

from magnetar.managedlog.moved_store import former_places
from magnetar.metadata.store import MetadataStore
from magnetar.server.settings.config import StandaloneConfig
from magnetar.server.storage.datafolder import FolderPaths


async def moved_places(
    config: StandaloneConfig, folder: FolderPaths, metadata: MetadataStore, *, is_alone: bool
) -> Mapping[str, str]:
    """See `former_places`. `is_alone`: no other process uses the folder, so that what was made for its former
    place can be removed. Raises MetadataError, InvalidLogDataError."""

    def moved() -> None:
        # The tables in it are where the folder was; they are made anew from the lists.
        if is_alone and not config.lake_catalog and not config.offload_url:
            folder.lake_catalog_file.unlink(missing_ok=True)

    return await former_places(metadata, folder.offloaded_dir.absolute(), moved)
