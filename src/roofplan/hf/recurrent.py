"""Decoders whose mixers are all recurrences."""

from __future__ import annotations

import math
from dataclasses import replace

from roofplan.hf.blocks import (
    linear,
    mamba,
    mamba2,
)
from roofplan.hf.decoders import Decoder
from roofplan.hf.fields import Fields
from roofplan.hf.hybrids import decoder_of
from roofplan.records.model import Dense, Layer, Recurrence


def mamba_model(f: Fields) -> Decoder:
    """Mamba and Falcon-Mamba: one mixer a layer, no feed-forward, no cache that grows."""
    hidden = f.int("hidden_size", "d_model")
    inner = f.int("intermediate_size", "d_inner", default=hidden * f.int("expand"))
    rank = f.raw("time_step_rank", "dt_rank", default="auto")
    rank = math.ceil(hidden / 16) if rank == "auto" else int(rank)
    mixer = mamba(
        hidden,
        inner,
        f.int("state_size", "d_state"),
        f.int("conv_kernel", "d_conv"),
        rank,
        conv_bias=f.flag("use_conv_bias", True),
        bias=f.flag("use_bias", False),
    )
    layers = [Layer(mixers=(mixer,), vectors=hidden)] * f.int("num_hidden_layers", "n_layer")
    return decoder_of(f, layers, hidden, tied=True, final=hidden, name="backbone.layers")


def mamba2_model(f: Fields) -> Decoder:
    """Mamba-2."""
    hidden = f.int("hidden_size")
    mixer = mamba2(
        hidden,
        f.int("num_heads"),
        f.int("head_dim"),
        f.int("n_groups"),
        f.int("state_size"),
        f.int("conv_kernel"),
        conv_bias=f.flag("use_conv_bias", True),
        bias=f.flag("use_bias", False),
    )
    layers = [Layer(mixers=(mixer,), vectors=hidden)] * f.int("num_hidden_layers")
    return decoder_of(f, layers, hidden, tied=False, final=hidden, name="backbone.layers")


def rwkv(f: Fields) -> Decoder:
    """RWKV 4: token mixing by decay, channel mixing; layer 0 normalises the embedding."""
    hidden = f.int("hidden_size")
    width, inner = f.int("attention_hidden_size", default=hidden), f.int("intermediate_size", default=4 * hidden)
    mix = Recurrence(
        kind="rwkv",
        groups=(
            (
                linear("attention.key", hidden, width),
                linear("attention.value", hidden, width),
                linear("attention.receptance", hidden, width),
            ),
            (linear("attention.output", width, hidden),),
        ),
        vectors=2 * width + 3 * hidden,
        state_elements=3 * width,
        convolution_elements=2 * hidden,
        update_flops=12 * width,
    )
    feed = Dense(
        groups=(
            (linear("feed_forward.key", hidden, inner), linear("feed_forward.receptance", hidden, hidden)),
            (linear("feed_forward.value", inner, hidden),),
        ),
        vectors=2 * hidden,
    )
    layer = Layer(mixers=(mix,), feed_forwards=(feed,), vectors=4 * hidden)
    first = replace(layer, vectors=6 * hidden)
    built = [first, *[layer] * (f.int("num_hidden_layers") - 1)]
    decoder = decoder_of(f, built, hidden, tied=False, final=2 * hidden, name="rwkv.blocks")
    return replace(decoder, max_positions=None)
