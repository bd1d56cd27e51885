"""A configuration and a file to the plan of an instance."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.functions.local.local_plan import local_plan
from magnetar.functions.refusals import InvalidConfigError


def test_class_name_and_namespace_have_defaults(tmp_path: Path) -> None:
    plan = local_plan({"inputs": ["orders"]}, Path("lib/exclaim.py"), tmp_path)
    assert (plan.full_name, plan.class_name, plan.package) == (
        "public/default/exclaim",
        "exclaim",
        "lib/exclaim.py",
    )
    assert (plan.subscription, plan.subscription_type) == ("public/default/exclaim", "Shared")
    assert (plan.confines, plan.memory_bytes_max, plan.file_bytes_max) == (False, 0, 0)
    assert Path(plan.state_file).is_relative_to(tmp_path)


def test_the_topics_of_a_recording_are_inputs_when_none_is_named(tmp_path: Path) -> None:
    code = Path("exclaim.py")
    assert [each.topic for each in local_plan({}, code, tmp_path, inputs=["a"]).inputs] == ["a"]
    named = local_plan({"inputs": ["b"]}, code, tmp_path, inputs=["a"])
    assert [each.topic for each in named.inputs] == ["b"]


def test_the_rules_are_those_of_functions_beside_the_broker(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError):
        local_plan({"inputs": ["a"], "output": "a"}, Path("f.py"), tmp_path)
    with pytest.raises(InvalidConfigError):
        local_plan({}, Path("f.py"), tmp_path)
