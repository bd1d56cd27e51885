"""Chooses the catalog of a broker's tables by its setting. Pure.

    (empty)                        SQLite, a file in the data folder
    none                           no tables
    http://host:port/path          a REST catalog
    postgresql+psycopg2://host/db  a database, through SQLAlchemy
    environment                    as pyiceberg finds it: PYICEBERG_CATALOG__MAGNETAR__…, .pyiceberg.yaml

Credentials are never settings: pyiceberg takes them from its environment, for every kind of catalog.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from magnetar.lake.lake_values import CatalogSettings
from magnetar.lake.locations import FOLDER, NoLakeHereError, io_properties, location_of

NONE: Final = "none"
ENVIRONMENT: Final = "environment"
FILE_IO: Final = "pyiceberg.io.pyarrow.PyArrowFileIO"


def check_catalog(catalog: str) -> None:
    """Raises ValueError when a setting has none of the forms above; the message shows no secret."""
    if catalog in ("", NONE, ENVIRONMENT):
        return
    try:
        parts = urlsplit(catalog)
        secret = parts.password
    except ValueError as error:
        raise ValueError(f"not a URL: {error}") from None
    if "://" not in catalog or not parts.scheme:
        raise ValueError(f"a URL, {NONE} or {ENVIRONMENT}")
    if secret:
        raise ValueError(
            f"the URL holds a password: write {ENVIRONMENT}, and give the broker"
            " PYICEBERG_CATALOG__MAGNETAR__URI by its environment"
        )


def catalog_settings(catalog: str, *, store_url: str, file: Path | None) -> CatalogSettings:
    """The settings with which the worker opens the catalog. `file`: file of the SQLite catalog, which the
    empty setting needs.

    Raises NoLakeHereError when other programs cannot open files of the store.
    """
    if catalog == NONE:
        raise NoLakeHereError("tables are turned off")
    warehouse = f"{location_of(store_url)}/{FOLDER}"
    properties = {"py-io-impl": FILE_IO, **io_properties(store_url)}
    if not catalog:
        properties |= {"type": "sql", "uri": f"sqlite:///{file}", "warehouse": warehouse}
    elif catalog.startswith(("http://", "https://")):
        properties |= {"type": "rest", "uri": catalog}
    elif catalog != ENVIRONMENT:
        properties |= {"type": "sql", "uri": catalog, "warehouse": warehouse}
    return CatalogSettings(properties, warehouse)
