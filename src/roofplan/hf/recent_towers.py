"""Vision and audio towers of models of the second half of 2026, each with what leads from it into the language model."""

from __future__ import annotations

from dataclasses import replace

from roofplan.errors import ConfigError
from roofplan.hf.blocks import attention, mixture, mlp
from roofplan.hf.fields import Fields
from roofplan.records.model import Layer, Stack


def _encoder(
    width: int, heads: int, inner: int, *, bias: bool = True, gated: bool = False, norms: int = 4, vectors: int = 0
) -> Layer:
    """Return a bidirectional layer: `norms` vectors of norms over the stream, `vectors` learned numbers inside attention."""
    mixer = attention(width, heads, heads, width // heads, bias=bias, output_bias=bias, vectors=vectors, causal=False)
    return Layer(mixers=(mixer,), feed_forwards=(mlp(width, inner, gated=gated, bias=bias),), vectors=norms * width)


def _patches(vision: Fields, width: int) -> int:
    """Return the weights that turn a patch of an image, or of a few frames, into a vector [parameters]."""
    frames = vision.int("temporal_patch_size", "patch_temporal", default=1)
    return width * vision.int("num_channels", "in_channels", default=3) * frames * vision.int("patch_size") ** 2


def _sizes(vision: Fields) -> tuple[int, int, int, int]:
    return (
        vision.int("hidden_size"),
        vision.int("num_attention_heads", "num_heads"),
        vision.int("intermediate_size"),
        vision.int("num_hidden_layers", "depth"),
    )


def minimax_m3(f: Fields, hidden: int) -> tuple[Stack, ...]:
    """Return the tower of MiniMax M3, a projector of every patch and a merger of neighbouring ones."""
    vision, out = f.sub("vision_config"), f.int("projector_hidden_size", default=hidden)
    width, heads, inner, depth = _sizes(vision)
    pressed = vision.sub("img_token_compression_config") if "img_token_compression_config" in vision else vision
    frames = vision.filled(temporal_patch_size=pressed.int("temporal_patch_size"))
    merged = pressed.int("spatial_merge_size") ** 2 * hidden
    projector = width * out + out + out * hidden + hidden
    merger = merged * out + out + out * hidden + hidden
    tower = Stack(
        name="vision_tower.vision_model.encoder.layers",
        role="vision",
        layers=(_encoder(width, heads, inner),) * depth,
        extra=_patches(frames, width) + 2 * width,
    )
    return tower, Stack(name="multi_modal_projector", role="projector", layers=(), extra=projector + merger)


def glm_next(f: Fields, hidden: int) -> tuple[Stack, ...]:
    """Return the tower of GLM-5.3 Flash: gated blocks with norms over queries and keys, a downsampling and a merger."""
    del hidden
    vision = f.sub("vision_config")
    width, heads, inner, depth = _sizes(vision)
    layer = _encoder(width, heads, inner, gated=True, norms=2, vectors=2 * (width // heads))
    out, middle = vision.int("out_hidden_size"), vision.int("projection_intermediate_size")
    down = out * width * vision.int("spatial_merge_size") ** 2 + out
    merger = out * out + 2 * out + 3 * out * middle
    extra = _patches(vision, width) + width + width + down + merger
    return (Stack(name="model.visual.blocks", role="vision", layers=(layer,) * depth, extra=extra),)


def hunyuan4(f: Fields, hidden: int) -> tuple[Stack, ...]:
    """Return the tower of Hy4 with its merger of neighbouring patches."""
    vision = f.sub("vision_config")
    width, heads, inner, depth = _sizes(vision)
    positions = (vision.int("max_image_size") // vision.int("patch_size")) ** 2 + 1
    merge = vision.int("spatial_merge_size") ** 2
    merger = width * hidden * merge + hidden + hidden * hidden + hidden + hidden + width
    extra = _patches(vision, width) + width + positions * width
    return (
        Stack(
            name="model.vision_tower.layers",
            role="vision",
            layers=(_encoder(width, heads, inner),) * depth,
            extra=extra,
        ),
        Stack(name="model.vision_tower.patch_merger", role="projector", layers=(), extra=merger),
    )


def muse(f: Fields, hidden: int) -> tuple[Stack, ...]:
    """Return the tower of Muse Glimmer and Muse Spark with its adapter, and the audio tower of the latter."""
    vision = f.sub("vision_config")
    width, heads, inner, depth = _sizes(vision)
    merged, middle = f.int("out_hidden_size"), f.int("projector_hidden_size")
    extra = _patches(vision, width) + vision.int("max_position_embeddings") * width + 4 * width
    found = (
        Stack(
            name="model.vision_tower.layers",
            role="vision",
            layers=(_encoder(width, heads, inner),) * depth,
            extra=extra,
        ),
        Stack(
            name="model.vision_adapter",
            role="projector",
            layers=(),
            extra=merged * middle + middle * middle + middle * hidden,
        ),
    )
    return (*found, *_muse_audio(f, hidden)) if isinstance(f.values.get("audio_config"), dict) else found


def step37(f: Fields, hidden: int) -> tuple[Stack, ...]:
    """Return the tower of Step 3.7: scaled residuals, two strided convolutions that halve the image's sides, a projector."""
    vision = f.sub("vision_config")
    width, heads, inner, depth = _sizes(vision)
    positions = (vision.int("image_size") // vision.int("patch_size")) ** 2
    once, twice = 2 * width, 4 * width
    convolved = 9 * width * once + once + 9 * once * twice + twice
    extra = _patches(vision, width) + positions * width + 2 * width + convolved
    return (
        Stack(
            name="model.vision_model.layers",
            role="vision",
            layers=(_encoder(width, heads, inner, norms=6),) * depth,
            extra=extra,
        ),
        Stack(name="model.multi_modal_projector", role="projector", layers=(), extra=twice * hidden),
    )


def dots3(f: Fields, hidden: int) -> tuple[Stack, ...]:
    """Return the towers of dots3: vision with mixtures of ever more experts in its later layers, and audio."""
    vision = f.sub("vision_config")
    width, heads, inner, depth = _sizes(vision)
    kinds = vision.list("mlp_layer_types", depth) or ["dense"] * depth
    plain = attention(width, heads, heads, width // heads, vectors=2 * (width // heads), causal=False)
    dense, layers = mlp(width, inner), []
    for i, kind in enumerate(kinds):
        feed = (
            dense
            if kind == "dense"
            else mixture(
                width,
                vision.int("moe_intermediate_size"),
                vision.layer(i).int("num_local_experts"),
                vision.int("num_experts_per_tok"),
            )
        )
        layers.append(Layer(mixers=(plain,), feed_forwards=(feed,), vectors=2 * width))
    merged = width * vision.int("adapter_merge_size", "spatial_merge_size") ** 2
    merger = 2 * width + merged * merged + merged + merged * hidden + hidden
    extra = _patches(vision, width) + width + width + merger + width
    tower = Stack(name="model.vision_tower.blocks", role="vision", layers=tuple(layers), extra=extra)
    return (tower, *_dots_audio(f, hidden)) if isinstance(f.values.get("audio_config"), dict) else (tower,)


def _dots_audio(f: Fields, hidden: int) -> tuple[Stack, ...]:
    audio = f.sub("audio_config")
    width, heads, inner, depth = _sizes(audio)
    channels = audio.int("downsample_hidden_size")
    mixer = attention(width, heads, heads, width // heads, bias=True, key_bias=False, output_bias=True, causal=False)
    layer = Layer(mixers=(mixer,), feed_forwards=(mlp(width, inner, bias=True),), vectors=2 * width)
    stem = 9 * channels * (1 + 2 * channels) + 3 * channels + audio.int("conv_output_size") * width
    adapter = 2 * width + width * hidden + hidden + hidden * hidden + hidden
    return (
        Stack(name="model.audio_tower.layers", role="encoder", layers=(layer,) * depth, extra=stem + width + adapter),
    )


def _muse_audio(f: Fields, hidden: int) -> tuple[Stack, ...]:
    """Return Muse Spark's audio tower: stages that collapse samples, of convolutions per channel and small feed-forwards."""
    audio = f.sub("audio_config")
    names = ("patch_sizes", "hidden_sizes", "depths")
    stages = [audio.ints(name, least=1) for name in names]
    if len({len(one) for one in stages}) > 1:
        raise ConfigError(f"config.json: {', '.join(names)} of audio_config differ in length", argument=names[0])
    kernel, ratio, before, total = audio.int("conv_kernel_size"), audio.factor("mlp_ratio"), 1, 0
    for patch, width, depth in zip(*stages, strict=True):
        inner = int(ratio * width)
        block = width * kernel + width + width + 2 * width * inner + inner + width
        total += patch * before * width + 2 * width + depth * block
        before = width
    out = audio.int("out_hidden_size", default=hidden)
    leaving = before + before * out + out + out
    return (Stack(name="model.audio_tower", role="encoder", layers=(), extra=total + leaving),)


def lfm2(f: Fields, hidden: int) -> tuple[Stack, ...]:
    """Return the SigLIP 2 tower of LFM2-VL, with its pooling head where the configuration has one, and its projector."""
    vision = f.sub("vision_config")
    width, heads, inner, depth = _sizes(vision)
    layer = _encoder(width, heads, inner)
    pooling = width + layer.parameters - 2 * width if vision.flag("vision_use_head", True) else 0
    extra = _patches(vision, width) + width + vision.int("num_patches") * width + 2 * width + pooling
    merged, middle = width * f.int("downsample_factor") ** 2, f.int("projector_hidden_size")
    bias, normed = f.flag("projector_bias", True), f.flag("projector_use_layernorm", True)
    projector = merged * middle + middle * hidden + (middle + hidden) * bias + 2 * merged * normed
    return (
        Stack(name="model.vision_tower.encoder.layers", role="vision", layers=(layer,) * depth, extra=extra),
        Stack(name="model.multi_modal_projector", role="projector", layers=(), extra=projector),
    )


def radio(f: Fields, hidden: int) -> tuple[Stack, ...]:
    """Return the RADIO tower of Nemotron 3 Omni: scaled residuals, registers, patches of one image and of two frames."""
    vision = f.sub("vision_config")
    width, heads = vision.int("hidden_size"), vision.int("num_attention_heads")
    layer = _encoder(width, heads, int(vision.factor("mlp_ratio") * width), norms=6)
    places = (vision.int("max_img_size") // vision.int("patch_size")) ** 2
    marks = vision.int("num_cls_tokens") + vision.int("num_registers")
    patch = vision.int("num_channels") * vision.int("patch_size") ** 2
    extra = width * (places + marks + patch * (1 + vision.int("video_temporal_patch_size")))
    merged, middle = width * round(1 / f.factor("downsample_ratio")) ** 2, f.int("projector_hidden_size")
    return (
        Stack(
            name="vision_model.encoder.layer",
            role="vision",
            layers=(layer,) * vision.int("num_hidden_layers"),
            extra=extra,
        ),
        Stack(
            name="multi_modal_projector", role="projector", layers=(), extra=merged + merged * middle + middle * hidden
        ),
    )


def llama_vision(f: Fields, hidden: int) -> tuple[Stack, ...]:
    """Return the tower of Llama 3.2 Vision: tiles with learned positions, gated global layers, a projector of several depths."""
    vision = f.sub("vision_config")
    width, heads, inner = vision.int("hidden_size"), vision.int("attention_heads"), vision.int("intermediate_size")
    mixer = attention(width, heads, heads, width // heads, causal=False)
    layer = Layer(mixers=(mixer,), feed_forwards=(mlp(width, inner, gated=False, bias=True),), vectors=4 * width)
    gated = replace(layer, vectors=layer.vectors + 2)
    patches = (vision.int("image_size") // vision.int("patch_size")) ** 2 + 1
    tiles, shapes = vision.int("max_num_tiles"), len(vision.list("supported_aspect_ratios") or []) + 1
    positions = patches * width + shapes * tiles * patches * width + 2 * shapes * tiles * width + 3
    extra = width + _patches(vision, width) + positions + 4 * width
    depth, above = vision.int("num_hidden_layers"), vision.int("num_global_layers")
    return (
        Stack(
            name="model.vision_model.transformer.layers",
            role="vision",
            layers=((layer,) * depth + (gated,) * above),
            tokens=tiles * patches,
            extra=extra,
        ),
        Stack(
            name="model.multi_modal_projector",
            role="projector",
            layers=(),
            extra=vision.int("vision_output_dim") * hidden + hidden,
        ),
    )


def deepseek_v41(f: Fields, hidden: int) -> tuple[Stack, ...]:
    """Return the tower of DeepSeek V4.1 with its aligner and the marks around images."""
    vision = f.sub("vision_config")
    width, heads, inner, depth = _sizes(vision)
    mixer = attention(width, heads, heads, width // heads, bias=True, output_bias=True, causal=False)
    layer = Layer(mixers=(mixer,), feed_forwards=(mlp(width, inner),), vectors=2 * width)
    merged = width * vision.int("downsample_ratio") ** 2
    aligner = merged * hidden + hidden + hidden * hidden + hidden
    return (
        Stack(name="vision.blocks", role="vision", layers=(layer,) * depth, extra=_patches(vision, width) + 2 * width),
        Stack(name="aligner", role="projector", layers=(), extra=aligner + 3 * hidden),
    )
