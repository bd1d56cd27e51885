"""Refusals of calls about functions and packages.

FunctionRefusedError (a FunctionError)
├── InvalidConfigError         the configuration is refused; Pulsar's words where tools show them
├── FunctionExistsError        a function of this name is there already
├── FunctionNotFoundError      there is no such function, or no such instance of it
├── FunctionsFullError         there are as many functions, packages or files as there may be
├── TooManyOwnersError         more roles have changed a function than rights can be asked for
├── UnchangedFunctionError     an update, start or stop that changes nothing
├── InvalidPackageNameError    a package's name, version or file name cannot be used
├── PackageExistsError         this version of the package is there already
├── PackageNotFoundError       there is no such package, version or uploaded file
├── PackageTooLargeError       a file is larger than the settings allow
├── PackagesFullError          a further file does not fit: the limit of all, or the disk
├── DamagedPackageError        the stored file is missing, or not the one that was uploaded
└── NoWorkersError             no worker runs functions here, or it does not answer
"""

from __future__ import annotations

from magnetar.functions.errors import FunctionError


class FunctionRefusedError(FunctionError):
    """A call about a function or a package is refused. `remedy`: next step."""

    def __init__(self, reason: str, *, remedy: str = "") -> None:
        super().__init__(reason)
        self.remedy = remedy


class InvalidConfigError(FunctionRefusedError):
    """The configuration is refused."""


class FunctionExistsError(FunctionRefusedError):
    """A function of this name is there already."""


class FunctionNotFoundError(FunctionRefusedError):
    """There is no such function, or it has no such instance."""


class FunctionsFullError(FunctionRefusedError):
    """There are as many functions, packages, versions or uploaded files as there may be."""


class TooManyOwnersError(FunctionRefusedError):
    """More roles have changed the function than rights can be asked for with each action of its code."""


class UnchangedFunctionError(FunctionRefusedError):
    """The call would change nothing."""


class InvalidPackageNameError(FunctionRefusedError):
    """The name of a package, of its version or of its file cannot be used."""


class PackageExistsError(FunctionRefusedError):
    """This version of the package is there already; versions do not change."""


class PackageNotFoundError(FunctionRefusedError):
    """There is no such package, version or uploaded file."""


class PackageTooLargeError(FunctionRefusedError):
    """A file is larger than the settings allow."""


class PackagesFullError(FunctionRefusedError):
    """A further file does not fit: all together have reached their limit, or the disk is full."""

    retriable = True


class DamagedPackageError(FunctionRefusedError):
    """A stored file is missing, or does not hold the bytes that were uploaded."""


class NoWorkersError(FunctionRefusedError):
    """No worker runs functions here, or it did not answer."""

    retriable = True
