"""``roofplan web``."""

from __future__ import annotations

from roofplan.errors import InputError
from roofplan.inputs import WebInputs
from roofplan.questions.question import Reply, question


@question(WebInputs)
def web(asked: WebInputs, reply: Reply) -> None:
    """Questions as pages in a browser: plans, pictures, and every number with its source."""
    try:
        from roofplan.web.server import serve
    except ModuleNotFoundError as error:
        if error.name not in {"starlette", "uvicorn"}:
            raise
        raise InputError(
            "web: needs the extra [web]: pip install 'roofplan[web]'", code="extra_missing", argument="web"
        ) from None
    serve(asked, reply.remark)
