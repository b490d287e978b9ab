"""The JSON Schema of every answer; ``roofplan schema COMMAND`` prints it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field, TypeAdapter, create_model
from pydantic.json_schema import GenerateJsonSchema

from roofplan.errors import InputError
from roofplan.inputs import LISTS, RECORDS
from roofplan.present.answers import (
    benchmarks,
    costs,
    evidence,
    load,
    machine,
    memory,
    pool,
    seen,
    serving,
    things,
    tokens,
    training,
)
from roofplan.present.answers.record import Answer, Json

ANSWERS: dict[str, type[Answer]] = {
    "serve": serving.ServeAnswer,
    "simulate": load.SimulateAnswer,
    "train": training.TrainAnswer,
    "measure endpoint": seen.MeasureAnswer,
    "measure stability": seen.StabilityAnswer,
    "measure machine": machine.AttainedAnswer,
    "measure memory": memory.MemoryAnswer,
    "runs": seen.RunsAnswer,
    "import": seen.ImportAnswer,
    "compare": seen.CompareAnswer,
    "model": things.ModelAnswer,
    "device": things.DeviceAnswer,
    "validate": evidence.ValidateAnswer,
    "calibrate": evidence.CalibrateAnswer,
    "claims": evidence.ClaimsAnswer,
    "benchmarks": benchmarks.BenchmarksAnswer,
    **dict.fromkeys(LISTS, things.ListAnswer),
    "cost chip": costs.ChipAnswer,
    "cost machine": costs.MachineAnswer,
    "cost tokens": tokens.TokensAnswer,
    "cost rent": costs.RentAnswer,
    "cost history": costs.HistoryAnswer,
    "pool plan": pool.PoolPlanAnswer,
    "pool prove": pool.PoolProveAnswer,
    "pool simulate": pool.PoolSimulateAnswer,
}
"""The answer of each command that answers in JSON."""

COMMANDS = tuple(ANSWERS)


def _inputs(command: str) -> type[BaseModel]:
    """Return the model of a command's inputs: their types, defaults and what they mean."""
    record = RECORDS[command]
    kinds = record.kinds()
    declared: dict[str, Any] = {
        name: (kinds[name], Field(default=one.default, description=one.metadata["help"]))
        for name, one in record.each().items()
    }
    return create_model(record.__name__, **declared)


class _Writer(GenerateJsonSchema):
    """Writes schemas in which a member that may be absent has no default."""

    ignored_warning_kinds = frozenset({"non-serializable-default"})  # type: ignore[assignment]


def answer_schema(command: str) -> Json:
    """Return the JSON Schema of a command's answer.

    Parameters
    ----------
    command : name of the command.

    Returns
    -------
    The schema.

    Raises
    ------
    InputError : the command has no schema.
    """
    if command not in ANSWERS:
        raise InputError(
            f"schema: no schema for {command!r}; accepted: {', '.join(COMMANDS)}", argument="COMMAND", value=command
        )
    schema = TypeAdapter(ANSWERS[command]).json_schema(mode="serialization", schema_generator=_Writer)
    inputs = _inputs(command).model_json_schema()
    del schema["$defs"]["Inputs"]
    schema["$defs"] |= inputs.pop("$defs", {}) | {inputs["title"]: inputs}
    schema["properties"]["inputs"] = {"$ref": f"#/$defs/{inputs['title']}"}
    schema["properties"]["command"] |= {"const": command}
    named: Json = _named(schema)
    return named


def _named(schema: Any) -> Any:
    """Return a schema whose members are called as in documents: without the underscore of names that Python keeps for itself."""
    if isinstance(schema, dict):
        return {name.rstrip("_"): _named(value) for name, value in schema.items()}
    if isinstance(schema, list):
        return [name.rstrip("_") if isinstance(name, str) else _named(name) for name in schema]
    return schema
