"""The JSON schema of suite files, from the models that read them, for editors that complete and check YAML."""

from __future__ import annotations

import inspect
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import DEFAULT_REF_TEMPLATE, GenerateJsonSchema, models_json_schema
from pydantic_core import core_schema

from harness.core.settings import key_texts
from harness.planning.suite_model import SUITES, empty_mapping

DIALECT = "http://json-schema.org/draft-07/schema#"


class SuiteSchema(GenerateJsonSchema):
    """Pydantic's schema, with what is read in a suite file: null for an empty mapping, and the docstrings of keys."""

    def function_before_schema(self, schema: core_schema.BeforeValidatorFunctionSchema) -> dict[str, Any]:
        """Return the schema of a value; one that may be left out after its key may be null."""
        inner = super().function_before_schema(schema)
        if schema["function"]["function"] is not empty_mapping:
            return inner
        return {"anyOf": [inner, {"type": "null"}]}

    def dict_schema(self, schema: core_schema.DictSchema) -> dict[str, Any]:
        """Return the schema of a mapping; if its keys have a pattern, there are no others."""
        mapping = super().dict_schema(schema)
        return mapping | {"additionalProperties": False} if "patternProperties" in mapping else mapping

    def model_schema(self, schema: core_schema.ModelSchema) -> dict[str, Any]:
        """Return the schema of a model, with a description of each key that its docstring describes."""
        model = super().model_schema(schema)
        described = key_texts(schema["cls"])
        for name, key in model.get("properties", {}).items():
            key.pop("title", None)
            key.pop("default", None)  # of the merged settings: what a part of a suite leaves out, another part may give
            if name in described:
                key["description"] = described[name]
        model.pop("title", None)
        model["description"] = (inspect.getdoc(schema["cls"]) or "").partition("\n\n")[0].replace("\n", " ")
        return model


def suite_schema(cluster: type[BaseModel]) -> dict[str, Any]:
    """Return the schema of suites of all kinds, conditional on the key `kind`; `cluster`: the model of that section."""
    models = {name: cls.file_model() for name, cls in sorted(SUITES.items())}
    references, document = models_json_schema(
        [(model, "validation") for model in (*models.values(), cluster)],
        schema_generator=SuiteSchema,
        ref_template=DEFAULT_REF_TEMPLATE,
    )
    parts = {name: references[model, "validation"] for name, model in models.items()}
    for part in parts.values():
        properties = document["$defs"][part["$ref"].rpartition("/")[2]]["properties"]
        properties["cluster"]["anyOf"][0] = references[cluster, "validation"]
    return {
        "$schema": DIALECT,
        "title": "A suite of invertbench",
        "type": "object",
        "properties": {"kind": {"enum": list(models)}},
        "required": ["kind"],
        "allOf": [
            {"if": {"properties": {"kind": {"const": name}}, "required": ["kind"]}, "then": part}
            for name, part in parts.items()
        ],
        "$defs": document["$defs"],
    }
