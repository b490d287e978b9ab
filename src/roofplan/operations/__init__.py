"""The work of a serving step: model x strategy x step -> a table of operations for each kind of layer.

An `Operation` holds the work, memory traffic or message of one rank. Its fields are floats, or arrays if the strategy
or the step has array fields. Operations do not depend on the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from roofplan.catalogue import format_entry
from roofplan.laws import Number, larger, matmul, smaller, where
from roofplan.operations.attention import attention_operations, latent_operations
from roofplan.operations.table import (
    ACTIVATION_BYTES,
    GATED_PASSES,
    HANDOVER,
    ROUTED_EXPERTS,
    ROUTING_PASSES,
    STATE_UPDATE,
    STEP_KERNELS,
    Operation,
    Split,
    Step,
    all_reduce_of,
    compute_format,
    element_bytes,
    label_of,
    product,
    quantising_kernels,
)
from roofplan.records.engine import Kernels
from roofplan.records.model import Attention, Dense, LatentAttention, Layer, Mixture, Model, Recurrence
from roofplan.records.strategy import Strategy

LOGIT_BYTES = 4.0
"""Bytes of a logit during sampling, in fp32 [B]."""

STATE_SCAN = "state scan"
"""Name of the operation that loops over the tokens of a prompt."""

LOGIT_PASSES = 3.0
"""Memory passes over the fp32 logits: copy, softmax, draw."""


def layer_operations(
    layer: Layer, step: Step, split: Split, model: Model, kv_bytes: float, kernels: Kernels
) -> list[Operation]:
    """Return the kernels and messages of one layer on one rank in one step.

    Parameters
    ----------
    layer : the layer.
    step : tokens of the step; its fields may be arrays.
    split : parallel degrees, floats or arrays.
    model : the model.
    kv_bytes : bytes of a cached element [B].
    kernels : kernels of the engine or framework.

    Returns
    -------
    Kernels and messages of one rank, in order.
    """
    table: list[Operation] = []
    for mixer in layer.mixers:
        if isinstance(mixer, Attention):
            table += attention_operations(mixer, step, split, model, kv_bytes, kernels)
        elif isinstance(mixer, LatentAttention):
            table += latent_operations(mixer, step, split, model, kv_bytes, kernels)
        else:
            table += _recurrence(mixer, step, split, model, kernels)
    for feed_forward in layer.feed_forwards:
        if isinstance(feed_forward, Dense):
            table += _dense(feed_forward, step, split, model, kernels)
        else:
            table += _mixture(feed_forward, step, split, model, kernels)
    passes = 2.0 * (bool(layer.mixers) + bool(layer.feed_forwards))
    each = ACTIVATION_BYTES * kernels.elementwise
    table.append(
        Operation(
            "norms and residual",
            HANDOVER,
            0.0,
            step.tokens * model.hidden * each * 2.0 * passes,
            kernels=passes / 2.0,
            text="{passes} passes over {tokens} tokens x {hidden} x {each} B",
            numbers={"passes": 2.0 * passes, "tokens": step.tokens, "hidden": model.hidden, "each": each},
        )
    )
    return [
        op._replace(kernels=op.kernels + quantising_kernels(op.stored, op.compute)) if op.kind == "matmul" else op
        for op in table
    ]


def _recurrence(mixer: Recurrence, step: Step, split: Split, model: Model, kernels: Kernels) -> list[Operation]:
    tensor = split.attention
    last = len(mixer.groups) - 1
    table = [
        product(label_of(group), group, step.tokens, tensor, model, leaving=index == last)
        for index, group in enumerate(mixer.groups)
    ]
    state = (mixer.state_elements * mixer.state_bytes + mixer.convolution_elements * ACTIVATION_BYTES) / tensor
    passes = step.sequences + step.requests
    traffic = kernels.state_traffic * passes * state + step.tokens * 4.0 * model.hidden * ACTIVATION_BYTES / tensor
    scanned = step.new if kernels.scans else 0.0
    table.append(
        Operation(
            STATE_UPDATE,
            "memory",
            (step.tokens - scanned) * mixer.update_flops / tensor,
            traffic,
            kernels=STEP_KERNELS["state update"],
            extra=STATE_UPDATE,
            text="{passes} x {sequences} sequences x {state} B of state",
            numbers={"passes": kernels.state_traffic, "sequences": passes, "state": state},
        )
    )
    if kernels.scans and step.prefills:
        table.append(
            Operation(
                STATE_SCAN,
                "memory",
                scanned * mixer.update_flops / tensor,
                0.0,
                kernels=0.0,
                text="{tokens} tokens of the prompt, one after the other, x {update}",
                numbers={"tokens": scanned, "update": (mixer.update_flops / tensor, "FLOP")},
                role="scan",
            )
        )
    table.append(all_reduce_of("all-reduce after mixer", step.tokens, tensor, model))
    return table


def _dense(feed_forward: Dense, step: Step, split: Split, model: Model, kernels: Kernels) -> list[Operation]:
    tokens = step.together(split.inner)
    last = len(feed_forward.groups) - 1
    table = [
        product(label_of(group), group, tokens, split.tp, model, leaving=index == last and last > 0)
        for index, group in enumerate(feed_forward.groups)
    ]
    inner = sum(linear.outputs for linear in feed_forward.groups[0])
    each = GATED_PASSES * ACTIVATION_BYTES * kernels.elementwise
    table.append(Operation("activation function", HANDOVER, 0.0, tokens * inner / split.tp * each))
    table.append(all_reduce_of("all-reduce after feed-forward", tokens, split.tp, model))
    return table


def _mixture(moe: Mixture, step: Step, split: Split, model: Model, kernels: Kernels) -> list[Operation]:
    """Return an MoE layer's operations on its busiest rank: expected number of experts read, rows padded to tiles."""
    domain = step.together(split.groups)
    chosen, experts = float(moe.chosen), float(moe.experts)
    width, ranks = split.expert_width, split.ep
    busy = where(ranks > 1, matmul.most_loaded_rank(experts, 1.0 * ranks, chosen, domain), 1.0)
    read = smaller(matmul.experts_read(experts, chosen, domain) / ranks * busy, experts / ranks)
    visits = domain * chosen / ranks * busy
    each = visits / read
    rows = matmul.padded_expert_rows(
        visits, read, matmul.grouped_tile(each, kernels.smallest_tile, kernels.largest_tile)
    )
    weights = sum(linear.weights for group in moe.expert for linear in group)
    stored = sum(linear.weights * element_bytes(linear.format) for group in moe.expert for linear in group)
    hidden, inner = moe.expert[0][0].inputs, sum(linear.outputs for linear in moe.expert[0])
    kind = moe.expert[0][0].format
    compute = compute_format(kind, model.quantization.activation if model.quantization else None, model.dtype)
    traffic = read * stored / width + visits * (2.0 * hidden + GATED_PASSES * inner / width) * ACTIVATION_BYTES
    table = [
        Operation(
            ROUTED_EXPERTS,
            "experts",
            matmul.work(rows, weights / width, 1.0),
            traffic,
            compute,
            read * weights / width,
            each,
            kind,
            visits * (2.0 * hidden + GATED_PASSES * inner / width),
            kernels=STEP_KERNELS["experts"] + 2.0 * quantising_kernels(kind, compute) + (2.0 if moe.shared else 0.0),
            text="{read} of {held} experts read x {weights_each} weights at {entry_bytes} B",
            numbers={
                "read": read,
                "held": experts / ranks,
                "weights_each": weights / width,
                "entry_bytes": element_bytes(kind),
            },
            inputs=visits * (hidden + moe.expert[-1][0].inputs / width),
            width=moe.expert[-1][0].inputs / width,
            extra=ROUTED_EXPERTS,
        ),
        *_around_experts(visits, hidden, inner / width, kernels),
    ]
    if moe.router is not None:
        table.append(product("router", (moe.router,), step.tokens, split.tp, model, leaving=False))
    for index, group in enumerate(moe.shared):
        leaving = index == len(moe.shared) - 1 or group[0].name.endswith("down_proj")
        table.append(
            product("shared " + label_of(group), group, step.together(split.inner), split.tp, model, leaving=leaving)
        )
    spread = split.groups > 1
    # tensor ranks all-reduce the shared experts, and the routed ones too without expert parallelism
    table.append(
        all_reduce_of("all-reduce after experts", step.tokens, where(spread, split.attention, split.tp), model)
    )
    return [*table, *_exchanges(chosen, hidden, domain, step, split)]


def _around_experts(visits: Number, hidden: int, inner: Number, kernels: Kernels) -> list[Operation]:
    """Return the passes over the rows of routed experts around their products, whose kernels are counted with those."""
    each = ACTIVATION_BYTES * kernels.elementwise
    return [
        Operation("experts' activation function", HANDOVER, 0.0, visits * GATED_PASSES * inner * each, kernels=0.0),
        Operation(
            "routing, sorting and summing",
            HANDOVER,
            0.0,
            visits * hidden * ROUTING_PASSES * each,
            kernels=0.0,
            text="{passes} passes over {visits} visits x {hidden} x {each} B",
            numbers={"passes": ROUTING_PASSES, "visits": visits, "hidden": hidden, "each": each},
        ),
    ]


def _exchanges(chosen: float, hidden: int, domain: Number, step: Step, split: Split) -> list[Operation]:
    """Return the messages that bring tokens, `hidden` numbers each, to the ranks of their experts and back."""
    spread = split.groups > 1
    message = step.tokens / split.attention * chosen * hidden * ACTIVATION_BYTES
    gathered = domain * hidden * ACTIVATION_BYTES
    exchanged = smaller(message, gathered)
    ranks_apart = where(spread, larger(1.0 * split.ep, split.tp), 1.0)
    return [
        Operation(
            name,
            "exchange",
            0.0,
            exchanged,
            kernels=0.0,
            ranks=ranks_apart,
            text="the less of {tokens} tokens x {chosen} experts x {hidden} x 2 B / {ranks} ranks and {gathered} gathered",
            numbers={
                "tokens": step.tokens,
                "chosen": chosen,
                "hidden": hidden,
                "ranks": split.attention,
                "gathered": (gathered, "B"),
            },
        )
        for name in ("expert dispatch", "expert combine")
    ]


def head_operations(step: Step, split: Split, model: Model) -> list[Operation]:
    """Return the operations of the output head at the sampled positions, and of sampling.

    Parameters
    ----------
    step : tokens of the step; its fields may be arrays.
    split : parallel degrees, floats or arrays.
    model : the model.

    Returns
    -------
    The head's matmul, the sampling kernels and the all-gather of the logits.
    """
    rows, columns = step.sampled, model.vocabulary / split.attention
    stored = model.hidden * columns * element_bytes(head_format(model))
    return [
        Operation(
            "output head",
            "matmul",
            matmul.work(rows, model.hidden, columns),
            stored + rows * (model.hidden + columns) * ACTIVATION_BYTES,
            compute_format(head_format(model), None, model.dtype),
            model.hidden * columns,
            rows,
            head_format(model),
            text="{rows} positions x {hidden} x {columns}",
            numbers={"rows": rows, "hidden": model.hidden, "columns": columns},
        ),
        Operation(
            "sampling",
            "memory",
            0.0,
            rows * model.vocabulary * LOGIT_BYTES * LOGIT_PASSES,
            kernels=STEP_KERNELS["sampling"],
            text="3 passes over {rows} x {vocabulary} logits x 4 B",
            numbers={"rows": rows, "vocabulary": model.vocabulary},
        ),
        Operation(
            "gather of logits",
            "gather",
            0.0,
            rows * model.vocabulary * ACTIVATION_BYTES,
            kernels=0.0,
            ranks=split.attention,
            text="{rows} x {vocabulary} logits over {ranks} ranks",
            numbers={"rows": rows, "vocabulary": model.vocabulary, "ranks": split.attention},
        ),
    ]


def encoder_operations(step: Step, split: Split, model: Model, kernels: Kernels) -> list[Operation]:
    """Return the operations of fixed-length encoders on the inputs of new requests.

    Parameters
    ----------
    step : tokens of the step; its fields may be arrays.
    split : parallel degrees, floats or arrays.
    model : the model.
    kernels : kernels of the engine or framework.

    Returns
    -------
    Kernels and messages of one rank; empty for text-only requests.
    """
    if not step.prefills:
        return []
    table = []
    for stack in model.stacks:
        if stack.role != "encoder" or stack.tokens is None:
            continue
        one = Step(new=step.requests * stack.tokens, requests=step.requests, others=step.others)
        for layer, places in stack.kinds():
            table += layer_operations(layer, one, split, model, ACTIVATION_BYTES, kernels) * len(places)
    return [op._replace(name=f"encoder {op.name}") for op in table]


def head_format(model: Model) -> str:
    """Return the number format of the output head: GGUF files quantise it, and checkpoints that list it; others do not.

    Parameters
    ----------
    model : the model.

    Returns
    -------
    Number format of the output head.
    """
    plan = model.quantization
    if plan is not None and plan.parts:
        return dict(plan.parts).get("head", model.dtype)
    if plan is not None and plan.beside is not None:
        return plan.beside if plan.gguf or format_entry(plan.beside).get("gguf") else model.dtype
    if plan is not None and format_entry(plan.format).get("gguf"):
        return "q6_k" if plan.format.endswith("_m") else plan.format
    return model.dtype


def draft_operations(
    step: Step, split: Split, model: Model, drafted: int, kv_bytes: float, kernels: Kernels
) -> list[Operation]:
    """Return the operations of MTP drafting before a step: one layer and one head pass for each drafted token.

    The MTP layer has the shape of the last decoder layer, as in all published checkpoints.

    Parameters
    ----------
    step : tokens of the step; its fields may be arrays.
    split : parallel degrees, floats or arrays.
    model : the model.
    drafted : tokens drafted before each step [1].
    kv_bytes : bytes of a cached element [B].
    kernels : kernels of the engine or framework.

    Returns
    -------
    Kernels and messages of one rank; empty if nothing is drafted.
    """
    if not drafted:
        return []
    one = Step(sequences=step.sequences, context=step.context)
    table = [
        *layer_operations(model.decoder.layers[-1], one, split, model, kv_bytes, kernels),
        *head_operations(one, split, model),
    ]
    return [op._replace(name=f"draft {op.name}") for op in table] * drafted


UNPADDED = Kernels(smallest_tile=1.0, largest_tile=1.0)
"""Kernels without tile padding."""


def whole_model(model: Model, step: Step) -> list[Operation]:
    """Return all operations of one step on a single device that holds the whole model.

    Parameters
    ----------
    model : the model.
    step : tokens of the step; its fields may be arrays.

    Returns
    -------
    Kernels of one device, without padding or replication.
    """
    split = Split.of(Strategy())
    layers = [
        op._replace(**{name: getattr(op, name) * len(places) for name in ("work", "traffic", "entries", "kernels")})
        for layer, places in model.decoder.kinds()
        for op in layer_operations(layer, step, split, model, ACTIVATION_BYTES, UNPADDED)
    ]
    return [*layers, *head_operations(step, split, model), *encoder_operations(step, split, model, UNPADDED)]


def stage_contents(
    counts: Sequence[tuple[Layer, tuple[int, ...]]], layers: int, stages: int
) -> list[tuple[float, ...]]:
    """Return the number of layers of each kind on every pipeline stage that can be the slowest.

    Layers are split evenly, in order. If they do not divide evenly, the first stages get one more.

    Parameters
    ----------
    counts : kinds of layers, each with its positions in the model.
    layers : layers of the model [1].
    stages : pipeline stages [1].

    Returns
    -------
    For each stage that can be the slowest: layers of each kind, then 1 for the stage with the head, else 0 [1].
    """
    return _stage_rows(tuple(places for _, places in counts), layers, stages)


@lru_cache(maxsize=1024)
def _stage_rows(kinds: tuple[tuple[int, ...], ...], layers: int, stages: int) -> list[tuple[float, ...]]:
    sizes = [layers // stages + (1 if s < layers % stages else 0) for s in range(stages)]
    rows, start = [], 0
    for index, size in enumerate(sizes):
        row = tuple(float(sum(start <= place < start + size for place in places)) for places in kinds)
        rows.append((*row, 1.0 if index == stages - 1 else 0.0))
        start += size
    return [
        row
        for row in dict.fromkeys(rows)
        if not any(other != row and all(o >= r for o, r in zip(other, row, strict=True)) for other in set(rows))
    ]
