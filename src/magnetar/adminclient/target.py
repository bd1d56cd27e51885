"""Where the admin API is, who asks, and whom to trust."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from magnetar.adminclient.errors import AdminTargetError

DEFAULT_URL = "http://127.0.0.1:8080"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminTarget:
    """One admin API. Secrets do not show in its text."""

    url: str = DEFAULT_URL
    """http://host:port or https://host:port."""
    token: str = ""
    """Sent with each call; empty for none."""
    token_file: Path | None = None
    """Read for each program run, in place of `token`."""
    trust_certs: Path | None = None
    """Certificates to trust over https, PEM; None: those of the system."""
    timeout_s: float = 30.0
    """For one call to be answered."""

    def __repr__(self) -> str:
        return f"AdminTarget({self.url})"

    def parts(self) -> SplitResult:
        """The address, cut. Raises AdminTargetError when it is none."""
        parts = urlsplit(self.url)
        try:
            known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            known = False
        if not known:
            raise AdminTargetError(f"{self.url} is not an HTTP URL; check --admin-url")
        return parts

    def read_token(self) -> str:
        """The token, "" for none. Raises AdminTargetError when its file cannot be read."""
        if self.token_file is None:
            return self.token
        try:
            return self.token_file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise AdminTargetError(f"the token file {self.token_file} cannot be read: {error}") from error
