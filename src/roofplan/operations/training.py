"""Operations of a layer in a training step: the forward pass, and the backward pass derived from it.

They are counted from the same records as in serving, so a new mixer or feed-forward needs no formula of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from roofplan.laws import Number, attention, matmul, where
from roofplan.laws import memory as memory_laws
from roofplan.operations import activations
from roofplan.operations.activations import LOW_PRECISION, again, shared_part, stream_bytes, visited, width
from roofplan.operations.attention import attended_pairs, latent_pairs
from roofplan.operations.table import (
    ACTIVATION_BYTES,
    ROUTED_EXPERTS,
    ROUTING_PASSES,
    STATE_UPDATE,
    Operation,
    element_bytes,
    kv_heads_of,
    label_of,
    product,
)
from roofplan.records.model import Attention, Dense, Group, LatentAttention, Layer, Linear, Mixture, Model, Recurrence
from roofplan.records.training import Adapter, Framework, Job, Layout

SCORE_PASSES = 6.5
"""Memory passes over the scores in unfused attention: QK^T write, softmax read and write, dropout read, write and mask,
PV read [1]."""

BACKWARD_SCORE_PASSES = 8.5
"""The same for the backward pass: PV gradient write and read, dropout, softmax with its saved output, and reads by two
matmuls [1]."""

BACKWARD_PASSES = 1.5
"""Backward over forward traffic and kernels of a memory-bound pass: it reads the saved tensor and the gradient [1]."""

FLASH_BACKWARD = 2.5
"""Backward over forward work of flash attention: five matmuls against two (Dao 2023, arXiv 2307.08691) [1]."""


def forward(
    layer: Layer, tokens: Number, job: Job, layout: Layout, model: Model, framework: Framework
) -> list[Operation]:
    """Return the operations of one layer's forward pass over one micro-batch.

    Parameters
    ----------
    layer : one decoder layer.
    tokens : tokens of a micro-batch on one rank [token].
    job : sequence length, precision and adapter.
    layout : degrees of parallelism.
    model : the whole model, for its dimensions.
    framework : which kernels are fused.

    Returns
    -------
    Operations of one rank, in order.
    """
    table: list[Operation] = []
    for mixer in layer.mixers:
        table += _collective(tokens, layout, model, "before attention", forward=True, entering=True)
        for index, group in enumerate(mixer.groups):
            leaving = index == len(mixer.groups) - 1
            made = product(
                label_of(group), group, tokens, layout.tp, model, leaving=leaving, kv_heads=kv_heads_of(mixer)
            )
            table.append(made._replace(makes=_made_by(group)))
        table += _mixing(mixer, tokens, job, layout, framework)
        table += _collective(tokens, layout, model, "after attention", forward=True, entering=False)
    for feed in layer.feed_forwards:
        if isinstance(feed, Mixture):
            table += _mixture_pass(feed, tokens, layout, model, framework)
            continue
        table += _collective(tokens, layout, model, "before feed-forward", forward=True, entering=True)
        table += _feed(feed, tokens, layout, model, "")
        table += _collective(tokens, layout, model, "after feed-forward", forward=True, entering=False)
    table += _stream_passes(layer, tokens, layout, model, framework)
    if job.adapter is not None:
        table += _adapting(layer, tokens, layout, job.adapter)
    return [_at_precision(op, job) for op in [*table, *_casts(table, job, framework)]]


def _adapting(layer: Layer, tokens: Number, layout: Layout, adapter: Adapter) -> list[Operation]:
    """Return the operations that adapters add to a layer: low-rank matmuls, and dequantisation of frozen weights."""
    table = []
    for group, tensor in activations.groups_of(layer, layout):
        name = label_of(group)
        size = sum(linear.weights for linear in group) / tensor
        if adapter.stored != "bf16":
            moved = size * (element_bytes(adapter.stored) + ACTIVATION_BYTES)
            text = "{weights} weights x ({entry_bytes} B read + 2 B written)"
            numbers = {"weights": size, "entry_bytes": element_bytes(adapter.stored)}
            made = Operation(f"unpack {name}", "memory", 0.0, moved, text=text, numbers=numbers, role="unpack")
            table.append(made._replace(makes=_made_by(group)))
        updated = [linear for linear in group if activations.words((linear,))[0] in adapter.targets]
        if adapter.method == "dora" and updated and adapter.fixed is None:
            table.append(_weight_norm(updated, adapter, tensor))
        entries = activations.update_entries(group, adapter) / tensor
        if updated and adapter.fixed is None:
            through = tokens * (updated[0].inputs + sum(linear.outputs for linear in updated)) / tensor
            table.append(
                Operation(
                    f"low-rank update of {name}",
                    "low_rank",
                    matmul.work(tokens, entries, 1.0),
                    (2.0 * through + entries) * ACTIVATION_BYTES,
                    entries=entries,
                    rows=tokens,
                    kernels=2.0 * (1 if adapter.fused else len(updated)) + 2.0,
                    text="{tokens} tokens x {entries} adapter weights",
                    numbers={"tokens": tokens, "entries": entries},
                    makes=_made_by(group),
                )
            )
    return table


ROUTER_TRAFFIC = 24.0
"""Traffic of a router's score of an expert: six passes over its four bytes for softmax, top-k and bookkeeping, an estimate [B]."""

WEIGHT_NORM_PASSES = 5.0
"""Memory passes over a 16-bit weight for its DoRA norm: read weight and update, write the update, write and read their
sum (arXiv 2402.09353, section 4.3, which detaches the norm from the gradient, as PEFT does) [1]."""


def _weight_norm(updated: Sequence[Linear], adapter: Adapter, tensor: Number) -> Operation:
    """Return DoRA's weight norm in a forward pass: multiply out the update, add it to the weight, take column norms.

    No gradient passes through the norm.
    """
    weights = sum(linear.weights for linear in updated) / tensor
    return Operation(
        f"norm of updated {label_of(tuple(updated))}",
        "memory",
        matmul.work(weights, float(adapter.rank), 1.0),
        WEIGHT_NORM_PASSES * weights * ACTIVATION_BYTES,
        kernels=3.0 * len(updated),
        text="{passes} passes over {weights} weights x 2 B",
        numbers={"passes": WEIGHT_NORM_PASSES, "weights": weights},
        role="norm",
    )


CAST_BYTES, FROZEN_CAST_BYTES = 4.0, 3.0
"""Bytes moved to cast an entry: 16 bits read, 8 written, and 8 written transposed for the backward pass
(TransformerEngine). Frozen weights need no transposed copy [B]."""


def _casts(table: Sequence[Operation], job: Job, framework: Framework) -> list[Operation]:
    """Return the casts of FP8 and FP4 matmul inputs.

    Activations are cast in the forward pass and gradients in the backward pass; half of the total counts in each. A
    framework with fused casts lets norms and activation functions write the low-precision format. Inputs of grouped
    GEMMs are sorted first, so they need a separate cast.
    """
    if job.precision not in LOW_PRECISION:
        return []
    each = CAST_BYTES if job.adapter is None else FROZEN_CAST_BYTES
    return [
        Operation(
            f"cast for {op.name}",
            "memory",
            0.0,
            matmul.conversion_traffic(_cast_elements(op, framework), each) / 2.0,
            makes=op.makes,
        )
        for op in table
        if op.kind in {"matmul", "experts"} and op.entries is not None
    ]


def _cast_elements(op: Operation, framework: Framework) -> Number:
    """Return the elements of a matmul that separate kernels cast, forward and backward [1]."""
    both = (op.traffic - op.entries * ACTIVATION_BYTES) / ACTIVATION_BYTES
    return both - op.inputs if framework.kernels.casts_fused else both


def _at_precision(op: Operation, job: Job) -> Operation:
    """Return a product in the number format of the job; those of attention stay in 16 bits."""
    kept = op.kind not in {"matmul", "experts"} or (op.role == "attention" and job.precision in LOW_PRECISION)
    return op if kept else op._replace(compute=job.precision, stored=job.precision)


def _collective(
    tokens: Number, layout: Layout, model: Model, where_to: str, *, forward: bool, entering: bool
) -> list[Operation]:
    """Return the message between tensor ranks before or after a mixer or feed-forward.

    Sequence parallelism takes an all-gather before and a reduce-scatter after. Without it there is one all-reduce:
    after the module in the forward pass, before it in the backward pass (conjugate operators of Megatron, arXiv
    1909.08053).
    """
    message = tokens * model.hidden * ACTIVATION_BYTES
    if layout.sequence_parallel:
        kind = "gather"
    elif entering is forward:
        return []
    else:
        kind = "all_reduce"
    scattered = kind == "gather" and entering is not forward
    name = f"{'reduce-scatter' if scattered else 'gather' if kind == 'gather' else 'all-reduce'} {where_to}"
    text = "{tokens} tokens x {hidden} x 2 B over {ranks} ranks"
    numbers = {"tokens": tokens, "hidden": model.hidden, "ranks": layout.tp}
    role = "entering" if entering else ""
    return [Operation(name, kind, 0.0, message, kernels=0.0, ranks=layout.tp, text=text, numbers=numbers, role=role)]


def _mixing(
    mixer: Attention | LatentAttention | Recurrence, tokens: Number, job: Job, layout: Layout, framework: Framework
) -> list[Operation]:
    """Return the operations that mix tokens: attention, divided over heads and context ranks, or a recurrent scan."""
    if isinstance(mixer, Recurrence):
        width = mixer.groups[-1][0].inputs * mixer.groups[-1][0].copies / layout.tp
        moved = tokens * 4.0 * width * ACTIVATION_BYTES
        work = tokens * mixer.update_flops / layout.tp
        return [Operation(STATE_UPDATE, "memory", work, moved, kernels=3.0, makes=MIXED)]
    sequences = tokens * layout.cp / job.sequence
    length, indexing = float(job.sequence), 0.0 * tokens
    if isinstance(mixer, Attention):
        key, value, kv = mixer.head_dim, mixer.value_dim, memory_laws.heads_per_rank(float(mixer.kv_heads), layout.tp)
        pairs = attended_pairs(mixer, length, 0.0)
        if framework.attention == "eager":
            pairs = length * min(length, mixer.window or length)
        scored = attention.prefill_pairs(length, 0.0) / mixer.compression / mixer.index_pool
        indexing = 2.0 * scored * mixer.index_heads * mixer.index_elements
    else:
        key, value, kv = mixer.nope_dim + mixer.rope_dim, mixer.value_dim, mixer.heads / layout.tp
        pairs, indexing = latent_pairs(mixer, length, 0.0) if framework.attention == "flash" else (length * length, 0.0)
    heads = mixer.heads / layout.tp
    here = sequences * pairs / layout.cp
    # every tensor rank runs the whole indexer
    work = attention.work(here, heads, key, value) + sequences * indexing / layout.cp
    traffic = tokens * (heads + kv) * (key + value) * ACTIVATION_BYTES
    table = [
        Operation(
            "attention",
            "prefill_attention",
            work,
            traffic,
            width=pairs / length,
            kernels=2.0,
            text="2 x {pairs} pairs x {heads} heads x {widths}",
            numbers={"pairs": here, "heads": heads, "widths": key + value},
            makes=MIXED,
        )
    ]
    if framework.attention == "eager":
        table[0] = table[0]._replace(kind="matmul", name="attention products", entries=0.0, role="attention")
        scores = here * heads
        table.append(
            Operation(
                "scores",
                "scores",
                0.0,
                scores * ACTIVATION_BYTES * SCORE_PASSES,
                kernels=3.0,
                text="{passes} passes over {scores} scores x 2 B",
                numbers={"passes": SCORE_PASSES, "scores": scores},
                makes=(("core_attn",),),
            )
        )
    rotary = 2.0 * tokens * (heads * key + kv * key) * ACTIVATION_BYTES * framework.keeps("memory_passes")
    table.append(Operation("rotary and layout", "memory", 0.0, rotary, kernels=2.0, makes=(("rotary",),)))
    return [*table, *_context(tokens, heads, kv, key, value, layout)]


def _context(tokens: Number, heads: Number, kv: Number, key: float, value: float, layout: Layout) -> list[Operation]:
    """Return context-parallel messages: all-to-all (Ulysses) if there is a KV head for each rank, else ring attention.

    The all-to-all sends queries, keys, values and outputs once (DeepSpeed-Ulysses, arXiv 2309.14509). The ring passes
    keys and values on while attention runs on the previous block (Liu et al. 2023, arXiv 2310.01889).
    """
    enough = kv >= layout.cp
    moved = tokens * (heads + kv) * (key + value) * ACTIVATION_BYTES
    passed = tokens * kv * (key + value) * ACTIVATION_BYTES * (layout.cp - 1.0)
    return [
        Operation(
            "exchange of heads for sequence",
            "exchange",
            0.0,
            moved,
            kernels=0.0,
            ranks=where(enough, layout.cp, 1.0),
            among="context",
            text="{moved} over {ranks} ranks",
            numbers={"moved": (moved, "B"), "ranks": layout.cp},
        ),
        Operation(
            "ring of keys and values",
            "ring",
            0.0,
            passed,
            kernels=0.0,
            ranks=where(enough, 1.0, layout.cp),
            among="context",
            text="{passed} passed on over {ranks} ranks beside attention",
            numbers={"passed": (passed, "B"), "ranks": layout.cp},
        ),
    ]


def _feed(feed: Dense, tokens: Number, layout: Layout, model: Model, prefix: str) -> list[Operation]:
    last = len(feed.groups) - 1
    table = [
        product(prefix + label_of(group), group, tokens, layout.tp, model, leaving=index == last and last > 0)._replace(
            makes=_made_by(group)
        )
        for index, group in enumerate(feed.groups)
    ]
    entering, leaving = width(feed.groups[0], layout.tp), feed.groups[-1][0].inputs / layout.tp
    moved = tokens * (entering + leaving) * ACTIVATION_BYTES
    made = "shared_experts_act" if prefix else "mlp_act"
    return [*table, Operation(f"{prefix}activation function", "memory", 0.0, moved, makes=((made,),))]


def _mixture_pass(moe: Mixture, tokens: Number, layout: Layout, model: Model, framework: Framework) -> list[Operation]:
    """Return the forward pass of an MoE layer on the busiest expert-parallel rank."""
    mine, visits = visited(moe, tokens, layout)
    held = moe.experts / layout.ep
    weights = sum(linear.weights for group in moe.expert for linear in group)
    hidden, inner = moe.expert[0][0].inputs, sum(linear.outputs for linear in moe.expert[0])
    leaving = moe.expert[-1][0].inputs
    each = visits * layout.ep / moe.experts
    rows = matmul.padded_expert_rows(
        visits, held, matmul.grouped_tile(each, framework.kernels.smallest_tile, framework.kernels.largest_tile)
    )
    moved = held * weights * ACTIVATION_BYTES + visits * (2.0 * hidden + inner + leaving) * ACTIVATION_BYTES
    table = [
        Operation(
            ROUTED_EXPERTS,
            "experts",
            matmul.work(rows, weights, 1.0),
            moved,
            entries=held * weights,
            rows=each,
            kernels=2.0 * float(framework.keeps("expert_kernels")),
            text="{visits} visits in {rows} rows x {weights} weights",
            numbers={"visits": visits, "rows": rows, "weights": weights},
            width=leaving,
            makes=(("moe",),),
        ),
        Operation(
            "experts' activation function",
            "memory",
            0.0,
            visits * (inner + leaving) * ACTIVATION_BYTES,
            makes=(("moe_act",),),
        ),
        Operation(
            "routing, sorting and summing",
            "memory",
            0.0,
            visits * hidden * ACTIVATION_BYTES * ROUTING_PASSES + mine * moe.experts * ROUTER_TRAFFIC,
            kernels=12.0,
            text="{passes} passes over {visits} visits x {hidden} x 2 B",
            numbers={"passes": ROUTING_PASSES, "visits": visits, "hidden": hidden},
            makes=(("moe",),),
        ),
    ]
    if moe.router is not None:
        table.append(product("router", (moe.router,), mine, 1.0, model, leaving=False)._replace(makes=(("moe",),)))
    if moe.shared:
        shared = shared_part(moe)
        table += _collective(tokens, layout, model, "before shared experts", forward=True, entering=True)
        table += _feed(shared, tokens, layout, model, "shared ")
        table += _collective(tokens, layout, model, "after shared experts", forward=True, entering=False)
    message = visits * hidden * ACTIVATION_BYTES
    table += [
        Operation(
            name,
            "exchange",
            0.0,
            message,
            rows=float(moe.chosen) if layout.capacity is None else 0.0,  # inputs padded to capacity are sent per expert
            groups=(moe.groups, moe.chosen_groups),
            kernels=0.0,
            ranks=layout.ep,
            among="expert",
            text="{visits} visits x {hidden} x 2 B over {ranks} ranks",
            numbers={"visits": visits, "hidden": hidden, "ranks": layout.ep},
            makes=(("moe",),),
        )
        for name in ("expert dispatch", "expert combine")
    ]
    return table


def _stream_passes(layer: Layer, tokens: Number, layout: Layout, model: Model, framework: Framework) -> list[Operation]:
    """Return norms, residual sums and dropout; mixer and feed-forward each read and write the stream twice."""
    halves = float(bool(layer.mixers)) + float(bool(layer.feed_forwards))
    stream = stream_bytes(tokens, layout, model)
    passes = 4.0 * halves + (2.5 * halves if framework.dropout else 0.0)
    moved = passes * stream * framework.keeps("memory_passes")
    return [
        Operation(
            "norms, residual and dropout",
            "memory",
            0.0,
            moved,
            kernels=halves * framework.keeps("stream_kernels"),
            text="{passes} passes over {stream}",
            numbers={"passes": passes, "stream": (stream, "B")},
            makes=(("layernorm",),),
        )
    ]


MORE_BACKWARD = {
    "prefill_attention": (FLASH_BACKWARD, 2.0, 2.0),
    "scores": (1.0, BACKWARD_SCORE_PASSES / SCORE_PASSES, 1.0),
    "memory": (2.0, BACKWARD_PASSES, BACKWARD_PASSES),
}
"""Backward over forward ratios of work, traffic and kernels, by kind of operation [1]."""


def backward(table: Sequence[Operation], job: Job) -> tuple[list[Operation], list[Operation]]:
    """Return the backward pass of a forward pass, with input gradients and weight gradients apart.

    Each matmul has one matmul for its input gradient and one for its weight gradient; attention's two have five.
    Messages are sent again. The gathered input of a matmul is gathered once more for its weight gradient.

    Parameters
    ----------
    table : operations of the forward pass.
    job : the adapter, under which frozen weights have no gradient, and the format of gradients.

    Returns
    -------
    Operations of input gradients, and operations of weight gradients.
    """
    inputs: list[Operation] = []
    weights: list[Operation] = []
    for op in table:
        if op.kind in {"matmul", "experts", "low_rank"}:
            inputs.append(op._replace(name=f"{op.name}, gradient of inputs"))
            if job.adapter is None or op.kind == "low_rank" or op.role == "attention":
                gradient = 2.0 * op.entries * job.gradient
                weights.append(op._replace(name=f"{op.name}, gradient of weights", traffic=op.traffic + gradient))
        elif op.role == "norm":
            continue
        elif op.role == "unpack":
            inputs.append(op._replace(name=f"{op.name}, once more"))
        elif op.kind in MORE_BACKWARD:
            work, traffic, kernels = MORE_BACKWARD[op.kind]
            inputs.append(
                op._replace(
                    name=f"{op.name}, backward",
                    work=op.work * work,
                    traffic=op.traffic * traffic,
                    kernels=op.kernels * kernels,
                )
            )
        else:
            _sent_back(op, inputs, weights)
    return inputs, weights


def _sent_back(op: Operation, inputs: list[Operation], weights: list[Operation]) -> None:
    """Add the backward counterpart of a message; tensor-parallel ones overlap the matmuls that need them."""
    back = f"{op.name}, backward"
    if op.kind == "gather" and op.role == "entering":
        # the all-gather of inputs overlaps the input gradient, the reduce-scatter of that gradient the weight gradient
        inputs.append(op._replace(name=f"{op.name}, once more", beside=True))
        weights.append(op._replace(name=back, beside=True))
    elif op.kind == "all_reduce":
        weights.append(op._replace(name=back, beside=True))
    else:
        inputs.append(op._replace(name=back))


def _made_by(group: Group) -> tuple[tuple[str, ...], ...]:
    """Return the modules of the outputs of a fused matmul."""
    names = [word.removesuffix("_proj") for word in activations.words(group)]
    return tuple((MODULE_OF.get(name, f"{name}_proj"),) for name in names)


MODULE_OF = {"o": "mlp_input", "q_b": "mla_up_proj", "kv_b": "mla_up_proj"}
"""Modules of matmuls whose output is part of another tensor that is kept."""

MIXED = (("core_attn", "attn_proj"),)
"""Modules of the output of attention or a recurrence."""


def _share_again(op: Operation, modules: tuple[str, ...]) -> float:
    """Return the share of an operation that must be recomputed."""
    if not op.makes:
        return 0.0
    return sum(any(module in modules for module in made) for made in op.makes) / len(op.makes)


def computed_again(table: Sequence[Operation], layout: Layout, framework: Framework) -> list[Operation]:
    """Return the operations that a layer recomputes before its backward pass: all of them, or those of some modules.

    Parameters
    ----------
    table : operations of the forward pass.
    layout : layout with its recomputation.
    framework : the modules that selective recomputation covers.

    Returns
    -------
    Operations, each scaled to the share that is recomputed.
    """
    if layout.recompute == "full":
        return [op._replace(name=f"{op.name}, again") for op in table]
    if layout.recompute == "none":
        return []
    out, modules = [], again(layout, framework)
    for op in table:
        share = _share_again(op, modules)
        if share:
            out.append(
                op._replace(
                    name=f"{op.name}, again",
                    work=op.work * share,
                    traffic=op.traffic * share,
                    entries=op.entries * share,
                )
            )
    return out


def head_pass(tokens: Number, layout: Layout, model: Model, framework: Framework) -> list[Operation]:
    """Return the operations of the output head and the loss for one micro-batch.

    Parameters
    ----------
    tokens : tokens of a micro-batch on one rank [token].
    layout : degrees of parallelism.
    model : the whole model, for its hidden size and vocabulary.
    framework : bytes that the loss moves per logit.

    Returns
    -------
    Operations of one rank, messages included.
    """
    columns = model.vocabulary / layout.tp
    logits = tokens * columns
    entries = model.hidden * columns
    head = Operation(
        "output head",
        "matmul",
        matmul.work(tokens, model.hidden, columns),
        entries * ACTIVATION_BYTES + (tokens * model.hidden + logits) * ACTIVATION_BYTES,
        entries=entries,
        rows=tokens,
        text="{tokens} positions x {hidden} x {columns}",
        numbers={"tokens": tokens, "hidden": model.hidden, "columns": columns},
    )
    moved = logits * framework.keeps("loss_passes")
    loss = Operation(
        "loss",
        "memory",
        0.0,
        moved,
        kernels=8.0,
        text="{bytes_each} B over {logits} logits",
        numbers={"bytes_each": framework.keeps("loss_passes"), "logits": logits},
    )
    return [*_collective(tokens, layout, model, "before head", forward=True, entering=True), head, loss]


def embedding_pass(tokens: Number, layout: Layout, model: Model) -> list[Operation]:
    """Return the operations of the embedding look-up for one micro-batch.

    Parameters
    ----------
    tokens : tokens of a micro-batch on one rank [token].
    layout : degrees of parallelism.
    model : the whole model, for its hidden size.

    Returns
    -------
    Operations of one rank, messages included.
    """
    moved = 2.0 * tokens * model.hidden * ACTIVATION_BYTES
    return [
        Operation("embedding", "memory", 0.0, moved, kernels=3.0),
        *_collective(tokens, layout, model, "after embedding", forward=True, entering=False),
    ]
