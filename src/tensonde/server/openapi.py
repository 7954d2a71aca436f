"""Writes the OpenAPI document: `python -m tensonde.server.openapi > web/openapi.json`. The messages of /api/live are in it, too."""

from __future__ import annotations

import json
from typing import Any

from tensonde.server import models
from tensonde.server.app import create_app
from tensonde.server.hub import Hub
from tensonde.server.library import Library


def document() -> dict[str, Any]:
    found = create_app(Hub(Library())).openapi()
    found["info"]["version"] = "1"  # of the API, so that a release does not change the file
    schemas = found["components"]["schemas"]
    for model in (models.LiveMessage, models.LiveRequest):
        schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas.update(schema.pop("$defs", {}))
        schemas[model.__name__] = schema
    return found


def text() -> str:
    return json.dumps(document(), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    print(text(), end="")
