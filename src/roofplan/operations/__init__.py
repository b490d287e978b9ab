"""What a step must compute, move and send: model x strategy x step -> a table of operations per layer kind.

An `Operation` holds the work, traffic or message of one rank. Fields are floats, or arrays where the strategy or the
step has arrays; nothing here knows a device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from roofplan import catalogue
from roofplan.laws import Number, attention, larger, matmul, memory, parameters, smaller, where
from roofplan.records.engine import Kernels
from roofplan.records.model import Attention, Dense, Group, LatentAttention, Layer, Linear, Mixture, Model, Recurrence
from roofplan.records.strategy import Strategy
from roofplan.records.terms import NONE

ACTIVATION_BYTES = 2.0
"""Bytes of an activation: serving computes in 16 bits between tensor products."""

STEP_KERNELS = {"attention": 2.0, "latent attention": 3.0, "state update": 3.0, "experts": 6.0, "sampling": 6.0}
"""Kernels that an operation starts: rotary and cache write beside attention (one more expansion for a latent cache);
convolution, scan and gate of a recurrence; top-k, sort, two grouped products, activation and sum of a mixture; penalties,
top-k, top-p, softmax, draw and copy of the sampler. An estimate from the structure of such layers, not from a trace; the
fitted gap between kernels absorbs its error."""

GATED_PASSES = 1.5
"""Tensors of the first product's width that an activation function reads and writes: two halves in, one half out."""

LOGIT_BYTES = 4.0
"""Bytes of a logit while it is sampled, fp32 [B]."""

LOGIT_PASSES = 3.0
"""Passes over fp32 logits: copy, softmax, draw."""


HANDOVER = "handover"
"""Kind of an operation that passes over what the kernel before it wrote."""


class Operation(NamedTuple):
    """One kernel or message of one rank.

    Parameters
    ----------
    name, kind : what it is; kinds are matmul, experts, prefill_attention, decode_attention, memory, handover (of tensors that
        one kernel leaves in the cache for the next, where they fit), all_reduce, gather, exchange.
    work : operations [FLOP].
    traffic : bytes to and from memory, or the message of a collective [B].
    compute : number format of the tensor unit; ``gguf`` for blocks that the engine multiplies in a type of its own.
    entries : weights read by a product [1].
    width : inner width of an expert on a rank, of grouped products alone [1].
    rows : rows of a product, of one expert where it is grouped [1].
    stored : format of its weights.
    converted : elements that a product reads and writes where each of its matrices converts its own inputs [1].
    kernels : launches [1].
    ranks : ranks of a collective [1].
    groups : groups that experts stand in, and those that a token's may [1].
    inputs : elements that products read of what enters them, fused ones once [1].
    among : of a message, whose ranks it passes between: ``tensor``, ``context`` or ``expert``.
    beside : whether a framework may send it beside the products of the same pass.
    text, numbers : formula and what goes into it by name, each a number or a pair (number, unit).
    role : what it does for a product: ``cast`` of its inputs, ``unpack`` or ``norm`` of its weights, ``entering`` of a message that
        gathers its inputs; ``attention`` of attention's own products.
    """

    name: str
    kind: str
    work: Number
    traffic: Number
    compute: str = "bf16"
    entries: Number = 0.0
    rows: Number = 0.0
    stored: str = "bf16"
    converted: Number = 0.0
    kernels: float = 1.0
    ranks: Number = 1.0
    text: str = ""
    numbers: Mapping[str, Any] = NONE
    groups: tuple[int, int] = (1, 1)
    inputs: Number = 0.0
    among: str = "tensor"
    beside: bool = False
    role: str = ""
    width: Number = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The tokens of one step of one attention group; fields may be arrays.

    Parameters
    ----------
    sequences : decoding sequences [1].
    each : tokens that each computes, more than one when verifying drafts [1].
    context : tokens that each has in its cache [1].
    new : prompt tokens computed now [1].
    past : tokens already cached before them [1].
    requests : prompts that they belong to [1].
    coupled : whether the other groups that share the experts have as much to do; False for one prompt alone.
    """

    sequences: Number = 0.0
    each: Number = 1.0
    context: Number = 0.0
    new: Number = 0.0
    past: Number = 0.0
    requests: Number = 0.0
    coupled: bool = True

    @property
    def decodes(self) -> bool:
        """Whether sequences decode in it."""
        return type(self.sequences) is not float or self.sequences > 0.0

    @property
    def prefills(self) -> bool:
        """Whether prompts are computed in it."""
        return type(self.new) is not float or self.new > 0.0

    @property
    def tokens(self) -> Number:
        """Tokens that pass the layers [1]."""
        return self.sequences * self.each + self.new

    def together(self, groups: Number) -> Number:
        """Return the tokens of attention groups that compute a layer together; a prompt alone has no company [1]."""
        return self.tokens * (groups if self.coupled else 1.0)

    @property
    def sampled(self) -> Number:
        """Positions that pass the head [1]."""
        return self.sequences * self.each + self.requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Parallel degrees as the operations need them; floats or arrays.

    Parameters
    ----------
    tp : ranks that divide feed-forwards [1].
    attention : ranks that divide attention, tp / attention_dp [1].
    groups : attention groups that share one set of experts or feed-forwards, and wait for each other [1].
    inner : of these, groups inside tp [1].
    ep : ranks that divide the experts whole; where there are fewer than tp, the others divide each by its width [1].
    """

    tp: Number
    attention: Number
    groups: Number
    inner: Number
    ep: Number

    @classmethod
    def of(cls, strategy: Strategy) -> Split:
        """Return the degrees of a strategy."""
        tp, ep, inner = 1.0 * strategy.tp, 1.0 * strategy.ep, 1.0 * strategy.attention_dp
        return cls(tp=tp, attention=tp / inner, groups=larger(ep / tp, 1.0) * inner, inner=inner, ep=ep)

    @property
    def expert_width(self) -> Number:
        """Ranks that divide each expert by its width [1]."""
        return larger(self.tp / self.ep, 1.0)


WHOLE_COLUMN = 8192.0
"""Entries that one scale per output channel stands for, as in the formats that have no other [1]."""


def bits(format_id: str) -> tuple[float, float, float]:
    """Return bits of an entry, entries per scale, and bits of a scale; ``awq-g64`` overrides the group."""
    base, _, group = format_id.partition("-g") if "-g" in format_id else (format_id.removesuffix("-channel"), "", "")
    entry = catalogue.formats()[base]
    size = float(group) if group else WHOLE_COLUMN if format_id.endswith("-channel") else float(entry.get("group", 1))
    return float(entry["bits"]), size, float(entry.get("scale_bits", 0.0))


def format_entry(format_id: str) -> dict[str, Any]:
    """Return the catalogue entry of a format, its group suffix aside."""
    base = format_id.partition("-g")[0].removesuffix("-channel")
    return catalogue.formats()[base]


@lru_cache(maxsize=256)
def element_bytes(format_id: str) -> float:
    """Return the mean bytes of one stored entry, scales included [B]."""
    return float(parameters.stored_bytes(1.0, *bits(format_id)))


def compute_format(format_id: str, activation: str | None, base: str) -> str:
    """Return the number format that a product of such weights runs in, before the device is asked.

    fp8 checkpoints carry activations in fp8; 4-bit float formats only where the checkpoint says so; weight-only
    formats run in the model's own type.
    """
    entry = format_entry(format_id)
    if entry["kernel"] == "dequantise":
        return base
    if entry["kernel"] == "blocks":
        return "gguf"
    wanted = str(entry["compute"])
    if wanted == "fp4":
        return activation if activation in {"fp4", "fp8"} else base
    return wanted


def fraction(linear: Linear, tensor: Number, kv_heads: int | None) -> Number:
    """Return the share of a matrix that one of `tensor` ranks holds."""
    if linear.split == "none":
        return 1.0
    if linear.split == "kv_heads" and kv_heads is not None:
        return memory.heads_per_rank(float(kv_heads), tensor) / kv_heads
    return 1.0 / tensor


def product(
    name: str, group: Group, tokens: Number, tensor: Number, model: Model, *, leaving: bool, kv_heads: int | None = None
) -> Operation:
    """Return one fused product; in a leaving (row-parallel) product the inputs are divided, else the outputs."""
    weights = stored = outputs = 0.0
    for linear in group:
        share = fraction(linear, tensor, kv_heads)
        weights = weights + linear.weights * share
        stored = stored + linear.weights * element_bytes(linear.format) * share
        outputs = outputs + linear.outputs * linear.copies * (1.0 if leaving else share)
    first = group[0]
    inputs = first.inputs * first.copies * (fraction(first, tensor, kv_heads) if leaving else 1.0)
    moved = stored + tokens * (inputs + outputs) * ACTIVATION_BYTES
    compute = compute_format(first.format, model.quantization.activation if model.quantization else None, model.dtype)
    return Operation(
        name,
        "matmul",
        matmul.work(tokens, weights, 1.0),
        moved,
        compute,
        weights,
        tokens,
        first.format,
        tokens * (inputs * len(group) + outputs),
        text="{tokens} tokens x {weights} weights at {entry_bytes} B",
        numbers={"tokens": tokens, "weights": weights, "entry_bytes": element_bytes(first.format)},
        inputs=tokens * inputs,
    )


def label_of(group: Group) -> str:
    """Return the words of fused products, such as ``gate+up``."""
    return "+".join(linear.name.rsplit(".", 1)[-1].removesuffix("_proj") for linear in group)


def layer_operations(
    layer: Layer, step: Step, split: Split, model: Model, kv_bytes: float, kernels: Kernels
) -> list[Operation]:
    """Return what one layer asks of one rank in one step."""
    table: list[Operation] = []
    for mixer in layer.mixers:
        if isinstance(mixer, Attention):
            table += _attention(mixer, step, split, model, kv_bytes, kernels)
        elif isinstance(mixer, LatentAttention):
            table += _latent(mixer, step, split, model, kv_bytes, kernels)
        else:
            table += _recurrence(mixer, step, split, model)
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
    return table


def _reduce(name: str, tokens: Number, ranks: Number, model: Model) -> Operation:
    message = tokens * model.hidden * ACTIVATION_BYTES
    return Operation(
        name,
        "all_reduce",
        0.0,
        message,
        kernels=0.0,
        ranks=ranks,
        text="{tokens} tokens x {hidden} x 2 B over {ranks} ranks",
        numbers={"tokens": tokens, "hidden": model.hidden, "ranks": ranks},
    )


def _attention(
    mixer: Attention, step: Step, split: Split, model: Model, kv_bytes: float, kernels: Kernels
) -> list[Operation]:
    tensor = split.attention
    table = []
    last = len(mixer.groups) - 1
    groups = mixer.groups
    if mixer.cross is not None:
        # queries come from the decoder's tokens; keys and values once per request from the encoder's positions
        queries, kept_once = (
            tuple(linear for linear in groups[0] if (linear.split == "heads") is own) for own in (True, False)
        )
        groups = (queries, *groups[1:])
        if step.prefills:
            positions = step.requests * mixer.cross
            table.append(
                product(
                    label_of(kept_once), kept_once, positions, tensor, model, leaving=False, kv_heads=mixer.kv_heads
                )
            )
    for index, group in enumerate(groups):
        leaving = index == last
        table.append(
            product(label_of(group), group, step.tokens, tensor, model, leaving=leaving, kv_heads=mixer.kv_heads)
        )
    heads = mixer.heads / tensor
    kept = memory.heads_per_rank(float(mixer.kv_heads), tensor) * (
        mixer.head_dim if mixer.key_is_value else mixer.head_dim + mixer.value_dim
    )
    if step.decodes:
        read = heads * (mixer.head_dim + mixer.value_dim) if kernels.reads_per_head else kept
        table.append(_decode_attention(mixer, step, heads, read, kv_bytes))
    if step.prefills:
        table.append(_prefill_attention(mixer, step, heads, kept))
        if kernels.scores:
            table.append(_scores(step, heads, kernels.scores, mixer.cross))
    table.append(_reduce("all-reduce after attention", step.tokens, tensor, model))
    return table


def _decode_attention(mixer: Attention, step: Step, heads: Number, kept: Number, kv_bytes: float) -> Operation:
    seen, indexed = _seen(mixer, step.context)
    work = attention.work(step.sequences * step.each * seen, heads, mixer.head_dim, mixer.value_dim)
    work = work + 2.0 * step.sequences * step.each * indexed * mixer.index_heads * mixer.index_elements
    traffic = step.sequences * (seen * kept + indexed * mixer.index_elements) * kv_bytes
    return Operation(
        "decode attention",
        "decode_attention",
        work,
        traffic,
        kernels=STEP_KERNELS["attention"],
        text="{sequences} sequences x {seen} tokens x {kept} elements x {kv_bytes} B",
        numbers={"sequences": step.sequences, "seen": seen, "kept": kept, "kv_bytes": kv_bytes},
    )


def attended_pairs(mixer: Attention, each: Number, past: Number) -> Number:
    """Return the query-key pairs of `each` new tokens of one sequence after `past` cached ones [1]."""
    window = float("inf") if mixer.window is None else float(mixer.window)
    if mixer.cross is not None:
        return each * mixer.cross
    if not mixer.causal:
        return each * each
    if mixer.compression > 1:
        whole = attention.prefill_pairs(each, past) / mixer.compression
        return whole + attention.windowed_pairs(each, past, window)
    if mixer.window is None:
        return attention.prefill_pairs(each, past)
    if mixer.chunked:
        return attention.chunked_pairs(each, past, window)
    return attention.windowed_pairs(each, past, window)


def _prefill_attention(mixer: Attention, step: Step, heads: Number, kept: Number) -> Operation:
    each, past = step.new / step.requests, step.past
    window = float("inf") if mixer.window is None else float(mixer.window)
    pairs = step.requests * attended_pairs(mixer, each, past)
    work = attention.work(pairs, heads, mixer.head_dim, mixer.value_dim)
    traffic = (
        step.requests * smaller(past + each, window) * kept + step.new * heads * (mixer.head_dim + mixer.value_dim)
    ) * ACTIVATION_BYTES
    return Operation(
        "prefill attention",
        "prefill_attention",
        work,
        traffic,
        kernels=STEP_KERNELS["attention"],
        text="2 x {pairs} pairs x {heads} heads x {widths}",
        numbers={"pairs": pairs, "heads": heads, "widths": mixer.head_dim + mixer.value_dim},
    )


def _scores(step: Step, heads: Number, score: float, cross: int | None = None) -> Operation:
    """Return the scores of prompts that go through memory, since no fused kernel keeps them.

    A part of a prompt scores what went before it: the mean part half of the rest of its prompt.
    """
    prompt = step.new / step.requests
    part = smaller(prompt, 1.0 * step.new)
    seen = step.past + (prompt + part) / 2.0 if cross is None else float(cross)
    return Operation(
        "attention scores",
        HANDOVER,
        0.0,
        attention.score_traffic(step.new, seen, heads, score),
        kernels=0.0,
        text="{tokens} tokens x {seen} seen x {heads} heads x {score} B",
        numbers={"tokens": step.new, "seen": seen, "heads": heads, "score": score},
    )


def _seen(mixer: Attention, context: Number) -> tuple[Number, Number]:
    """Return the cache entries that a query reads, and those that its indexer scores."""
    if mixer.cross is not None:
        return float(mixer.cross), 0.0
    if mixer.compression > 1:
        entries = context / mixer.compression
        chosen = entries if mixer.compressed_top is None else smaller(entries, float(mixer.compressed_top))
        return chosen + smaller(context, float(mixer.window or 0)), entries if mixer.index_elements else 0.0
    if mixer.window is None:
        return context, 0.0
    # a fixed chunk fills from empty to full, so half of it is in force on average; a sliding window stays full
    full = smaller(context, float(mixer.window))
    if mixer.chunked:
        return where(context > mixer.window, full / 2.0, full), 0.0
    return full, 0.0


def _latent(
    mixer: LatentAttention, step: Step, split: Split, model: Model, kv_bytes: float, kernels: Kernels
) -> list[Operation]:
    """Return latent attention: absorbed against the cached latent in decode, expanded in prefill."""
    tensor = split.attention
    table = []
    last = next(i for i, group in enumerate(mixer.groups) if group[0].name.endswith("o_proj"))
    for index, group in enumerate(mixer.groups):
        # prefill expands the latents of cached tokens as well as its own
        expands = group[0].name.endswith("kv_b_proj")
        tokens = step.tokens + step.requests * step.past if expands else step.tokens
        table.append(product(label_of(group), group, tokens, tensor, model, leaving=index == last))
    heads = mixer.heads / tensor
    if step.decodes:
        table.append(_latent_decode(mixer, step, heads, kv_bytes))
    if step.prefills:
        table.append(_latent_prefill(mixer, step, heads))
        if kernels.scores:
            table.append(_scores(step, heads, kernels.scores))
    table.append(_reduce("all-reduce after attention", step.tokens, tensor, model))
    return table


def _latent_decode(mixer: LatentAttention, step: Step, heads: Number, kv_bytes: float) -> Operation:
    entry = mixer.latent + mixer.rope_dim
    seen = step.context if mixer.top is None else smaller(step.context, float(mixer.top))
    work = attention.latent_work(step.sequences * step.each * seen, heads, mixer.latent, mixer.rope_dim)
    work = work + 2.0 * step.sequences * step.each * step.context * mixer.index_heads * mixer.index_dim
    traffic = step.sequences * (seen * entry + step.context * mixer.index_dim) * kv_bytes
    return Operation(
        "decode attention",
        "decode_attention",
        work,
        traffic,
        kernels=STEP_KERNELS["latent attention"],
        text="{sequences} sequences x {seen} tokens x {entry} latent elements x {kv_bytes} B",
        numbers={"sequences": step.sequences, "seen": seen, "entry": entry, "kv_bytes": kv_bytes},
    )


def _latent_prefill(mixer: LatentAttention, step: Step, heads: Number) -> Operation:
    each = step.new / step.requests
    pairs = attention.prefill_pairs(each, step.past)
    kept = pairs if mixer.top is None else attention.windowed_pairs(each, step.past, float(mixer.top))
    width = mixer.nope_dim + mixer.rope_dim + mixer.value_dim
    work = attention.work(step.requests * kept, heads, mixer.nope_dim + mixer.rope_dim, mixer.value_dim)
    work = work + 2.0 * step.requests * pairs * mixer.index_heads * mixer.index_dim
    seen = step.new + step.requests * step.past
    traffic = (step.new + seen) * (mixer.latent + mixer.rope_dim + heads * width) * ACTIVATION_BYTES
    return Operation(
        "prefill attention",
        "prefill_attention",
        work,
        traffic,
        kernels=STEP_KERNELS["latent attention"],
        text="2 x {pairs} pairs x {heads} heads x {width}",
        numbers={"pairs": step.requests * kept, "heads": heads, "width": width},
    )


def _recurrence(mixer: Recurrence, step: Step, split: Split, model: Model) -> list[Operation]:
    tensor = split.attention
    last = len(mixer.groups) - 1
    table = [
        product(label_of(group), group, step.tokens, tensor, model, leaving=index == last)
        for index, group in enumerate(mixer.groups)
    ]
    state = (mixer.state_elements * mixer.state_bytes + mixer.convolution_elements * ACTIVATION_BYTES) / tensor
    passes = step.sequences + step.requests
    traffic = 2.0 * passes * state + step.tokens * 4.0 * model.hidden * ACTIVATION_BYTES / tensor
    table.append(
        Operation(
            "state update",
            "memory",
            step.tokens * mixer.update_flops / tensor,
            traffic,
            kernels=STEP_KERNELS["state update"],
            text="2 x {sequences} sequences x {state} B of state",
            numbers={"sequences": passes, "state": state},
        )
    )
    table.append(_reduce("all-reduce after mixer", step.tokens, tensor, model))
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
    table.append(_reduce("all-reduce after feed-forward", tokens, split.tp, model))
    return table


def _mixture(moe: Mixture, step: Step, split: Split, model: Model, kernels: Kernels) -> list[Operation]:
    """Return a mixture: experts read in expectation, rows padded to the tile, the most loaded rank deciding."""
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
            "routed experts",
            "experts",
            matmul.work(rows, weights / width, 1.0),
            traffic,
            compute,
            read * weights / width,
            each,
            kind,
            visits * (2.0 * hidden + GATED_PASSES * inner / width),
            kernels=STEP_KERNELS["experts"],
            text="{read} of {held} experts read x {weights_each} weights at {entry_bytes} B",
            numbers={
                "read": read,
                "held": experts / ranks,
                "weights_each": weights / width,
                "entry_bytes": element_bytes(kind),
            },
            inputs=visits * (hidden + moe.expert[-1][0].inputs / width),
            width=moe.expert[-1][0].inputs / width,
        )
    ]
    if moe.router is not None:
        table.append(product("router", (moe.router,), step.tokens, split.tp, model, leaving=False))
    for index, group in enumerate(moe.shared):
        leaving = index == len(moe.shared) - 1 or group[0].name.endswith("down_proj")
        table.append(
            product("shared " + label_of(group), group, step.together(split.inner), split.tp, model, leaving=leaving)
        )
    spread = split.groups > 1
    # ranks of one group reduce their shares of shared experts (and of routed ones, where no group is apart)
    table.append(_reduce("all-reduce after experts", step.tokens, where(spread, split.attention, split.tp), model))
    message = step.tokens / split.attention * chosen * model.hidden * ACTIVATION_BYTES
    gathered = domain * model.hidden * ACTIVATION_BYTES
    exchanged = smaller(message, gathered)
    ranks_apart = where(spread, larger(1.0 * split.ep, split.tp), 1.0)
    table.extend(
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
                "hidden": model.hidden,
                "ranks": split.attention,
                "gathered": (gathered, "B"),
            },
        )
        for name in ("expert dispatch", "expert combine")
    )
    return table


def head_operations(step: Step, split: Split, model: Model) -> list[Operation]:
    """Return the output head on the sampled positions, and the sampling of its logits."""
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
    """Return the passes of a fixed-length encoder over what each new request brings; nothing where requests bring tokens alone."""
    if not step.prefills:
        return []
    table = []
    for stack in model.stacks:
        if stack.role != "encoder" or stack.tokens is None:
            continue
        one = Step(new=step.requests * stack.tokens, requests=step.requests, coupled=step.coupled)
        for layer, places in stack.kinds():
            table += layer_operations(layer, one, split, model, ACTIVATION_BYTES, kernels) * len(places)
    return [op._replace(name=f"encoder {op.name}") for op in table]


def head_format(model: Model) -> str:
    """Return the format of the output head: GGUF files quantise it, other formats leave it alone."""
    plan = model.quantization
    if plan is not None and plan.beside is not None:
        return plan.beside
    if plan is not None and format_entry(plan.format).get("gguf"):
        return "q6_k" if plan.format.endswith("_m") else plan.format
    return model.dtype


def draft_operations(
    step: Step, split: Split, model: Model, drafted: int, kv_bytes: float, kernels: Kernels
) -> list[Operation]:
    """Return the multi-token-prediction layers that propose `drafted` tokens before a step: each one a layer and a head pass.

    The proposing layer has the shape of the decoder's last, as in every checkpoint that carries one.
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
"""Kernels that compute no row twice and pad none."""


def whole_model(model: Model, step: Step) -> list[Operation]:
    """Return all operations of one step on one device that would hold the whole model, nothing padded or replicated."""
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
    """Return, for each pipeline stage that may be slowest, how many layers of each kind it holds and whether the head.

    Layers are dealt evenly in order, the first stages taking one more where they do not divide.
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
