"""Names of packages and files: what may be one, and what would leave its place."""

from __future__ import annotations

import pytest

from magnetar.base.names import InvalidNamespaceNameError, NamespaceName
from magnetar.functions.catalogue.package_name import PackageName, file_name_of, is_package_url
from magnetar.functions.refusals import InvalidPackageNameError

NAMESPACE = NamespaceName("public", "default")


def test_a_url_names_a_version_or_the_latest() -> None:
    found = PackageName.parse("function://public/default/ex@1.0")
    assert found == PackageName.of("function", NAMESPACE, "ex", "1.0")
    assert str(found) == "function://public/default/ex@1.0"
    assert PackageName.parse("sink://public/default/ex").version == "latest"
    assert PackageName.parse("source://public/default/ex@").version == "latest"


@pytest.mark.parametrize(
    "url",
    [
        *("ex", "function://public/ex@1", "function://a/b/c/d@1", "function://public/default/ex@1@2"),
        *("file://public/default/ex@1", "FUNCTION://public/default/ex@1", "function://public/default/@1"),
        *(
            "function://public/default/..@1",
            "function://public/default/ex@..",
            "function://public/default/a\\b@1",
        ),
        *("function://public/default/ex\0@1", f"function://public/default/{'n' * 256}@1"),
    ],
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(InvalidPackageNameError, match="Invalid package"):
        PackageName.parse(url)


def test_a_namespace_of_a_url_is_one() -> None:
    with pytest.raises(InvalidNamespaceNameError):
        PackageName.parse("function://../default/ex@1")


def test_only_stored_packages_have_such_urls() -> None:
    assert is_package_url("function://a/b/c@1")
    for other in ("http://a/b", "file:///etc/passwd", "builtin://x", "function", ""):
        assert not is_package_url(other)


def test_a_file_keeps_the_last_part_of_what_was_sent() -> None:
    assert file_name_of("ex.py") == "ex.py"
    assert file_name_of("/home/me/ex.py") == "ex.py"
    assert file_name_of("C:\\Users\\me\\ex one.py") == "ex one.py"
    assert file_name_of("../../etc/passwd") == "passwd"
    for wrong in ("", "..", "a/..", "a/", ".hidden", "a\nb", "n" * 201, "\N{SNOWMAN}" * 70, "\ud800"):
        with pytest.raises(InvalidPackageNameError):
            file_name_of(wrong)
