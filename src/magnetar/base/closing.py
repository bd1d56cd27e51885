"""Base class of objects that a `with` block closes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Closing(ABC):
    """An object whose `close` a `with` block calls at its end, also after an exception."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Releases the resources of the object."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
