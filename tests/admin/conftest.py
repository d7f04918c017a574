"""One cluster for all tests that look at commands as processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.admin.processes import Ports, cluster


@pytest.fixture(scope="session")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ports]:
    with cluster(tmp_path_factory.mktemp("cluster")) as ports:
        yield ports
