"""`/admin/v3/functions`: what functions there are, and their code.

Source: Pulsar's `FunctionsBase`, `FunctionsImpl`, `ComponentImpl`; status codes and texts are Pulsar's, 400
also where a 404 would be expected.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Final

from magnetar.admin.calls.call import Call, Operation, Route, StoredBody
from magnetar.admin.calls.errors import BadRequestError, NotHereError, NotImplementedHereError
from magnetar.admin.functions.receiving import Received, functions_of, received
from magnetar.admin.functions.removing import remove
from magnetar.auth.permissions import Action
from magnetar.base.names import NamespaceName, TopicName
from magnetar.broker.errors import NamespaceNotFoundError
from magnetar.functions.catalogue.owners import owner_after
from magnetar.functions.catalogue.package_files import StoredFile
from magnetar.functions.catalogue.package_name import PackageName, is_package_url
from magnetar.functions.catalogue.records import FunctionRecord
from magnetar.functions.config.checks import check, check_name, with_runtime
from magnetar.functions.config.completing import config_of
from magnetar.functions.config.function_config import PYTHON, FunctionConfig
from magnetar.functions.config.given import Given, given_of
from magnetar.functions.config.showing import document_of
from magnetar.functions.config.updating import updated
from magnetar.functions.refusals import (
    FunctionExistsError,
    FunctionNotFoundError,
    InvalidConfigError,
    UnchangedFunctionError,
)

_V3: Final = "/admin/v3/functions"
F: Final = f"{_V3}/{{tenant}}/{{namespace}}/{{function}}"
"""Path of one function."""
_PARTS: Final = {"functionConfig": "text", "data": "file", "url": "text"}
_PYTHON_FILES: Final = (".py", ".whl", ".zip")
_BUILT_IN: Final = "builtin://"


def name_of(call: Call) -> str:
    """The function of the path. Raises FunctionNotFoundError for what cannot be a name of one."""
    name = call.params["function"]
    try:
        check_name(name)
    except InvalidConfigError as error:
        raise FunctionNotFoundError(f"Function {name[:100]} doesn't exist", remedy=error.remedy) from error
    return name


async def list_functions(call: Call) -> object:
    """Names of the functions of a namespace."""
    return await (await functions_of(call)).catalogue.names(call.namespace())


async def get_function(call: Call) -> object:
    """A function's configuration, with all defaults."""
    record = await (await functions_of(call)).catalogue.get(call.namespace(), name_of(call))
    return document_of(record.config)


async def create_function(call: Call) -> None:
    """Creates a function: a configuration, and its code as a file or the URL of a package."""
    async with received(call, file_part="data") as taken:
        namespace, catalogue = call.namespace(), (await functions_of(call)).catalogue
        await _check_namespace(call, namespace)
        check_name(call.params["function"])
        name = call.params["function"]
        if await catalogue.find(namespace, name) is not None:
            raise FunctionExistsError(
                f"Function {name} already exists", remedy="update it, or delete it first"
            )
        given = _given(call, taken)
        check(given)
        config = config_of(given)
        await _check_admitted(call, config, given)
        package, source = await _package(call, taken)
        if package is None:
            raise BadRequestError("Function Package is not provided")
        _check_package(config, package)
        try:
            record = FunctionRecord(config, package, source=source, owner=call.identity)
            await catalogue.create(namespace, record)
        except BaseException:
            await _unless_received(call, package, taken)
            raise
        taken.keep()


async def update_function(call: Call) -> None:
    """Changes a function's configuration, its code, or both; its instances restart."""
    async with received(call, file_part="data") as taken:
        functions, namespace, name = await functions_of(call), call.namespace(), name_of(call)
        try:
            now = await functions.catalogue.get(namespace, name)
        except FunctionNotFoundError as error:
            raise BadRequestError(str(error), remedy=error.remedy) from error
        given = _given(call, taken)
        package, source = await _package(call, taken)

        def changed(record: FunctionRecord) -> FunctionRecord:
            merged = updated(record.config, given)
            check(merged)
            config = config_of(merged)
            owner = owner_after(record.owner, call.identity, uploads=package is not None)
            if package is not None:
                _check_package(config, package)
                return replace(record, config=config, package=package, source=source, owner=owner)
            if config == record.config and (owner is None or record.owner is not None):
                raise UnchangedFunctionError("Update contains no change")
            return replace(record, config=config, owner=owner)

        try:
            await _check_admitted(call, changed(now).config, given)
            before = await functions.catalogue.update(namespace, name, changed)
        except BaseException:
            await _unless_received(call, package, taken)
            raise
        taken.keep()
        if package is not None and before.package is not None:
            await functions.files.remove(before.package)


async def delete_function(call: Call) -> None:
    """Deletes a function, its code, its subscriptions and its state; with `cleanupSubscription` false the
    last two stay."""
    await remove(call, await functions_of(call), call.namespace(), name_of(call))


async def download_function(call: Call) -> StoredBody:
    """The file with a function's code."""
    functions = await functions_of(call)
    record = await functions.catalogue.get(call.namespace(), name_of(call))
    if record.package is None:
        raise NotHereError(f"Function {record.config.name} is built in: there is no file of it")
    return StoredBody(await functions.files.checked(record.package), record.package.bytes)


async def upload_file(call: Call) -> None:
    """Keeps a file under a path, in place of an earlier one; for `download`."""
    async with received(call, file_part="data") as taken:
        path = taken.text("path")
        if taken.file is None or not path:
            raise BadRequestError(f"Function Package is not provided {path[:200]}".strip())
        await (await functions_of(call)).packages.upload(path, taken.file)
        taken.keep()


async def download_file(call: Call) -> StoredBody:
    """A file that was uploaded under a path."""
    functions, path = await functions_of(call), call.query.get("path", "")
    if not path:
        raise BadRequestError("query parameter path is missing")
    file = await functions.packages.uploaded(path)
    return StoredBody(await functions.files.checked(file), file.bytes)


async def built_in(call: Call) -> object:
    """Built-in functions; there are none."""
    await functions_of(call)
    return []


async def reload_built_in(call: Call) -> None:
    """Does nothing: there are no built-in functions."""
    await functions_of(call)


# -- parts of a create or update


def _given(call: Call, taken: Received) -> Given:
    """The configuration of the body, with the names of the path. Raises BadRequestError,
    InvalidConfigError."""
    text = taken.text("functionConfig")
    if not text:
        raise BadRequestError("Function config is not provided")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRequestError(f"part functionConfig is not JSON: {error}") from error
    names: Given = {
        "tenant": call.params["tenant"],
        "namespace": call.params["namespace"],
        "name": call.params["function"],
    }
    return with_runtime({**given_of(document), **names})


async def _check_namespace(call: Call, namespace: NamespaceName) -> None:
    policies = call.broker.policies
    if await policies.tenant(namespace.tenant) is None:
        raise BadRequestError("Tenant does not exist", remedy=f"there is no tenant {namespace.tenant}")
    try:
        await policies.namespace(namespace)
    except NamespaceNotFoundError as error:
        raise BadRequestError("Namespace does not exist", remedy=f"create {namespace} first") from error


async def _check_admitted(call: Call, config: FunctionConfig, given: Given) -> None:
    """Whether this broker runs such functions, and the caller may use its topics. Raises
    NotImplementedHereError, BadRequestError, AuthorizationError."""
    if given.get("jar", "").startswith(_BUILT_IN):
        raise BadRequestError("Built-in FUNCTION is not available", remedy="upload the function's code")
    if config.runtime != PYTHON:
        language = config.runtime.capitalize()
        raise NotImplementedHereError(f"this broker runs functions in Python; {language} is not offered yet")
    guard, identity = call.broker.guard, call.identity
    if guard is None or identity is None:
        return
    # A function acts with the rights of its owner: what it reads and writes, the owner must be allowed to.
    for text in config.inputs:
        topic = TopicName.parse(text)
        await guard.require_topic(identity, call.peer, Action.CONSUME, topic, config.subscription)
    for text in (config.output, config.log_topic, config.dead_letter_topic):
        if text:
            await guard.require_topic(identity, call.peer, Action.PRODUCE, TopicName.parse(text))


async def _package(call: Call, taken: Received) -> tuple[StoredFile | None, str]:
    """The code that was sent, or a copy of the package that was named; and that name."""
    url = taken.text("url")
    if not url:
        if taken.file is not None and not taken.file.bytes:
            raise BadRequestError("Function Package is not provided", remedy="the uploaded file is empty")
        return taken.file, ""
    if taken.file is not None:
        raise BadRequestError("send a file or a url, not both")
    if not is_package_url(url):
        raise BadRequestError(
            "Function Package url is not valid: other machines and local files are not read",
            remedy="upload the file, or a package, and name that: function://TENANT/NAMESPACE/NAME@VERSION",
        )
    functions, name = await functions_of(call), PackageName.parse(url)
    if call.broker.guard is not None and call.identity is not None and name.namespace != call.namespace():
        await call.broker.guard.require_namespace(call.identity, call.peer, Action.PACKAGES, name.namespace)
    record = await functions.packages.resolve(name)
    return await functions.files.linked(record.file), str(name)


async def _unless_received(call: Call, package: StoredFile | None, taken: Received) -> None:
    """Removes a copy of a package that no record names; what was received is removed elsewhere."""
    if package is not None and package is not taken.file:
        await (await functions_of(call)).files.remove(package)


def _check_package(config: FunctionConfig, package: StoredFile) -> None:
    if config.runtime == PYTHON and not package.name.endswith(_PYTHON_FILES):
        raise BadRequestError(
            f"a function in Python is a file {', '.join(_PYTHON_FILES)}, not {package.name[:100]!r}"
        )


ROUTES: list[Route] = [
    ("GET", f"{_V3}/{{tenant}}/{{namespace}}", list_functions),
    ("GET", F, get_function),
    ("POST", F, Operation(create_function, upload=_PARTS)),
    ("PUT", F, Operation(update_function, upload={**_PARTS, "updateOptions": "text"})),
    ("DELETE", F, delete_function),
    ("GET", f"{F}/download", download_function),
    ("POST", f"{_V3}/upload", Operation(upload_file, upload={"data": "file", "path": "text"})),
    ("GET", f"{_V3}/download", Operation(download_file, query=("path",))),
    ("GET", f"{_V3}/builtins", built_in),
    ("POST", f"{_V3}/builtins/reload", reload_built_in),
    ("GET", f"{_V3}/connectors", built_in),
]
