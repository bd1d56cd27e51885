"""Where the admin API is, who asks, and whom to trust."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from magnetar.adminclient.errors import AdminTargetError

if TYPE_CHECKING:
    import ssl

DEFAULT_URL = "http://127.0.0.1:8080"


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedies:
    """What a caller whose call failed can do, in the words of his own options."""

    address: str = "is the broker running? check --admin-url or the context"
    timeout: str = "is it busy? check --timeout"
    trust: str = "check --trust-certs"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminTarget:
    """One admin API. Secrets do not show in its text."""

    url: str = DEFAULT_URL
    """http://host:port or https://host:port."""
    token: str = ""
    """Sent with each call; empty for none."""
    token_file: Path | None = None
    """Read for each program run, in place of `token`."""
    authorization: Callable[[], str | None] | None = None
    """Called before each call for the header of that name, in place of `token` and `token_file`; for
    programs that outlive a credential."""
    trust_certs: Path | None = None
    """Certificates to trust over https, PEM; None: those of the system."""
    tls_context: Callable[[], ssl.SSLContext] | None = None
    """Called for each connection over https, in place of `trust_certs`."""
    timeout_s: float = 30.0
    """For one call to be answered."""
    remedies: Remedies = Remedies()
    """The remedies in the errors of calls."""

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

    def credentials(self) -> Callable[[], str | None]:
        """What gives the header Authorization of each call, None for none. Raises AdminTargetError."""
        if self.authorization is not None:
            return self.authorization
        token = self.read_token()
        header = f"Bearer {token}" if token else None
        return lambda: header

    def read_token(self) -> str:
        """The token, "" for none. Raises AdminTargetError when its file cannot be read."""
        if self.token_file is None:
            return self.token
        try:
            return self.token_file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise AdminTargetError(f"the token file {self.token_file} cannot be read: {error}") from error
