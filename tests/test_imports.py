"""Nothing is loaded in a circle. (`.importlinter` says which way imports go, those for type checkers included.)"""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import grimp
import pytest


def in_order(imports: dict[str, set[str]]) -> list[str]:
    """Modules, each after those that it imports; fails with the circle where there is one."""
    try:
        return [*TopologicalSorter(imports).static_order()]
    except CycleError as error:
        pytest.fail(f"modules import each other: {' <- '.join(error.args[1])}")


def test_no_module_imports_itself_through_others() -> None:
    graph = grimp.build_graph(
        "steelyard", "pyspark_rocketmq", exclude_type_checking_imports=True, cache_dir=None
    )
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(imports) > 400
    assert set(in_order(imports)) == graph.modules


def test_a_circle_is_found() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"a <- b <- a|b <- a <- b"):
        in_order({"a": {"b"}, "b": {"a"}, "c": {"a"}})
