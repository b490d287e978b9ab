"""``roofplan mcp``."""

from __future__ import annotations

from roofplan.errors import InputError
from roofplan.inputs import AgentsInputs
from roofplan.questions.question import Reply, question


@question(AgentsInputs)
def mcp(asked: AgentsInputs, reply: Reply) -> None:
    """Questions as tools of agents, on standard input and output or over HTTP (Model Context Protocol)."""
    try:
        from roofplan.agents.server import serve
    except ModuleNotFoundError as error:
        if error.name not in {"mcp", "starlette", "uvicorn", "anyio"}:
            raise
        raise InputError(
            "mcp: needs the extra [mcp]: pip install 'roofplan[mcp]'", code="extra_missing", argument="mcp"
        ) from None
    serve(asked, reply.remark)
