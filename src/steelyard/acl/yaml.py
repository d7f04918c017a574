"""YAML in which files of accounts are written: all scalars are texts, and empty ones are None.

Errors name the line and never quote it, because it may have a secret.
"""

from __future__ import annotations

from collections.abc import Hashable

import yaml

from steelyard.errors import ConfigError

Yaml = str | None | list["Yaml"] | dict[str, "Yaml"]
"""What a document has."""

_NULL = "tag:yaml.org,2002:null"


class _Loader(yaml.SafeLoader):
    """Takes scalars as they are written, and no key twice."""

    yaml_implicit_resolvers = {  # noqa: RUF012  # declared so by PyYAML
        first: [(tag, pattern) for tag, pattern in found if tag == _NULL]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(
        self, node: yaml.MappingNode, deep: bool = False
    ) -> dict[Hashable, object]:
        table = super().construct_mapping(node, deep)
        if len(table) < len(node.value):
            raise yaml.constructor.ConstructorError(problem_mark=node.start_mark)
        return table


def read(text: str) -> Yaml:
    """Return what a document has. Raises ConfigError."""
    try:
        found: Yaml = yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}: " if mark is not None else ""
        if isinstance(error, yaml.constructor.ConstructorError):
            raise ConfigError(f"{line}a key is there twice, or something is not a text") from None
        raise ConfigError(
            f"{line}this is not YAML; put texts with special characters into quotes"
        ) from None
    except (yaml.YAMLError, RecursionError):
        raise ConfigError("this is not YAML, or too deep") from None
    return found
