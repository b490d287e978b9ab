"""Encoders: text embedders, vision towers with their projectors, and Whisper."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from roofplan.errors import ConfigError
from roofplan.hf.blocks import attention, linear, mlp
from roofplan.hf.fields import Fields
from roofplan.records.model import Attention, Dense, Group, Layer, Stack


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder:
    """Result of an encoder family function.

    Parameters
    ----------
    stacks : layer lists with what surrounds each.
    embedding : parameters of the token or patch embedding.
    """

    stacks: tuple[Stack, ...]
    embedding: int
    hidden: int
    vocabulary: int = 0
    other: int = 0
    max_positions: int | None = None
    generates: bool = False


def _block(
    hidden: int,
    heads: int,
    inner: int,
    *,
    norm: int = 2,
    head_dim: int | None = None,
    extra: int = 0,
    bias: bool = True,
    key_bias: bool | None = None,
    gated: bool = False,
    mlp_bias: bool | None = None,
) -> Layer:
    """Return a bidirectional layer with two norms."""
    width = head_dim or hidden // heads
    return Layer(
        mixers=(attention(hidden, heads, heads, width, bias=bias, key_bias=key_bias, output_bias=bias, causal=False),),
        feed_forwards=(mlp(hidden, inner, gated=gated, bias=bias if mlp_bias is None else mlp_bias),),
        vectors=2 * norm * hidden + extra,
    )


def bert(f: Fields) -> Encoder:
    """BERT, RoBERTa and XLM-R with their pooler; sentence embedders often drop it."""
    hidden, positions = f.int("hidden_size"), f.int("max_position_embeddings")
    vocabulary = f.int("vocab_size")
    layer = _block(hidden, f.int("num_attention_heads"), f.int("intermediate_size"))
    around = positions * hidden + f.int("type_vocab_size", least=0) * hidden + 2 * hidden + hidden * hidden + hidden
    stack = Stack(name="encoder.layer", role="encoder", layers=(layer,) * f.int("num_hidden_layers"), extra=around)
    return Encoder(
        stacks=(stack,), embedding=vocabulary * hidden, hidden=hidden, vocabulary=vocabulary, max_positions=positions
    )


def clip_vision_stack(f: Fields, *, name: str = "encoder.layers") -> tuple[Stack, int]:
    """Return the CLIP vision tower and its patch embedding."""
    hidden, patch = f.int("hidden_size"), f.int("patch_size")
    patches = (f.int("image_size") // patch) ** 2
    embedding = hidden * f.int("num_channels", default=3) * patch * patch
    around = hidden + (patches + 1) * hidden + 4 * hidden
    layer = _block(hidden, f.int("num_attention_heads"), f.int("intermediate_size"))
    return Stack(
        name=name, role="vision", layers=(layer,) * f.int("num_hidden_layers"), extra=around, tokens=patches + 1
    ), embedding


def clip_vision(f: Fields) -> Encoder:
    """CLIP vision tower."""
    stack, embedding = clip_vision_stack(f)
    return Encoder(stacks=(stack,), embedding=embedding, hidden=f.int("hidden_size"))


def clip(f: Fields) -> Encoder:
    """CLIP: text and vision towers with projections."""
    text, vision = f.sub("text_config"), f.sub("vision_config")
    hidden, width = text.int("hidden_size"), f.int("projection_dim")
    layer = _block(hidden, text.int("num_attention_heads"), text.int("intermediate_size"))
    around = text.int("vocab_size") * hidden + text.int("max_position_embeddings") * hidden + 2 * hidden
    texts = Stack(
        name="text_model.encoder.layers", role="encoder", layers=(layer,) * text.int("num_hidden_layers"), extra=around
    )
    images, patch = clip_vision_stack(vision, name="vision_model.encoder.layers")
    projections = width * (hidden + vision.int("hidden_size")) + 1
    return Encoder(
        stacks=(texts, images), embedding=0, hidden=hidden, vocabulary=text.int("vocab_size"), other=patch + projections
    )


def _siglip_stack(f: Fields, *, name: str, patches: int, embedding_bias: int) -> tuple[Stack, int]:
    hidden, inner, patch = f.int("hidden_size"), f.int("intermediate_size"), f.int("patch_size")
    around = embedding_bias + patches * hidden + 2 * hidden
    if f.flag("vision_use_head", True):
        around += hidden + 4 * (hidden * hidden + hidden) + 2 * hidden + 2 * hidden * inner + inner + hidden
    layer = _block(hidden, f.int("num_attention_heads"), inner)
    stack = Stack(name=name, role="vision", layers=(layer,) * f.int("num_hidden_layers"), extra=around, tokens=patches)
    return stack, hidden * f.int("num_channels", default=3) * patch * patch


def siglip_vision_stack(f: Fields, *, name: str = "encoder.layers") -> tuple[Stack, int]:
    """Return the SigLIP vision tower and its patch embedding."""
    return _siglip_stack(
        f, name=name, patches=(f.int("image_size") // f.int("patch_size")) ** 2, embedding_bias=f.int("hidden_size")
    )


def siglip_vision(f: Fields) -> Encoder:
    """SigLIP vision tower."""
    stack, embedding = siglip_vision_stack(f)
    return Encoder(stacks=(stack,), embedding=embedding, hidden=f.int("hidden_size"))


def siglip2_vision(f: Fields) -> Encoder:
    """SigLIP 2 vision tower: a fixed count of patches whatever the image."""
    stack, embedding = _siglip_stack(
        f, name="encoder.layers", patches=f.int("num_patches"), embedding_bias=f.int("hidden_size")
    )
    return Encoder(stacks=(stack,), embedding=embedding, hidden=f.int("hidden_size"))


def siglip(f: Fields) -> Encoder:
    """SigLIP: text and vision towers, scale and bias of the loss."""
    text, vision = f.sub("text_config"), f.sub("vision_config")
    hidden, vocabulary = text.int("hidden_size"), text.int("vocab_size")
    projection = text.int("projection_size", default=hidden)
    layer = _block(hidden, text.int("num_attention_heads"), text.int("intermediate_size"))
    around = text.int("max_position_embeddings") * hidden + 2 * hidden + hidden * projection + projection
    texts = Stack(
        name="text_model.encoder.layers", role="encoder", layers=(layer,) * text.int("num_hidden_layers"), extra=around
    )
    images, patch = siglip_vision_stack(vision, name="vision_model.encoder.layers")
    return Encoder(
        stacks=(texts, images), embedding=vocabulary * hidden, hidden=hidden, vocabulary=vocabulary, other=patch + 2
    )


def dinov2(f: Fields) -> Encoder:
    """DINOv2: layer scales, mask token."""
    hidden, patch = f.int("hidden_size"), f.int("patch_size")
    patches = (f.int("image_size") // patch) ** 2
    inner = int(hidden * f.raw("mlp_ratio"))
    if f.flag("use_swiglu_ffn", False):
        inner = (int(inner * 2 / 3) + 7) // 8 * 8
    layer = _block(hidden, f.int("num_attention_heads"), inner, extra=2 * hidden, gated=f.flag("use_swiglu_ffn", False))
    embedding = hidden * f.int("num_channels") * patch * patch
    around = hidden + hidden * f.flag("use_mask_token", True) + (patches + 1) * hidden + hidden + 2 * hidden
    stack = Stack(
        name="encoder.layer",
        role="vision",
        layers=(layer,) * f.int("num_hidden_layers"),
        extra=around + embedding,
        tokens=patches + 1,
    )
    return Encoder(stacks=(stack,), embedding=0, hidden=hidden)


def dinov3(f: Fields) -> Encoder:
    """DINOv3: rotary positions, register tokens, layer scales."""
    hidden, patch = f.int("hidden_size"), f.int("patch_size")
    bias = f.flag("query_bias", True)
    layer = Layer(
        mixers=(
            attention(
                hidden,
                f.int("num_attention_heads"),
                f.int("num_attention_heads"),
                hidden // f.int("num_attention_heads"),
                bias=bias,
                key_bias=f.flag("key_bias", False),
                output_bias=f.flag("proj_bias", True),
                causal=False,
            ),
        ),
        feed_forwards=(
            mlp(
                hidden, f.int("intermediate_size"), gated=f.flag("use_gated_mlp", False), bias=f.flag("mlp_bias", True)
            ),
        ),
        vectors=6 * hidden,
    )
    registers = f.int("num_register_tokens", default=0, least=0)
    embedding = hidden * f.int("num_channels") * patch * patch
    patches = (f.int("image_size") // patch) ** 2
    around = 2 * hidden + registers * hidden + hidden + 2 * hidden
    stack = Stack(
        name="model.layer",
        role="vision",
        layers=(layer,) * f.int("num_hidden_layers"),
        extra=around,
        tokens=patches + 1 + registers,
    )
    return Encoder(stacks=(stack,), embedding=embedding, hidden=hidden)


_WHISPER_FRAMES, _WHISPER_TARGETS = 1500, 448  # Radford et al. 2022, arXiv 2212.04356: 30 s of audio, section 2.2


def whisper(f: Fields) -> Encoder:
    """Whisper: fixed sinusoid encoder positions, keys without bias, cross-attention over constant frames."""
    hidden, vocabulary = f.int("d_model"), f.int("vocab_size")
    mels, frames = f.int("num_mel_bins"), f.int("max_source_positions", default=_WHISPER_FRAMES)
    targets = f.int("max_target_positions", default=_WHISPER_TARGETS)
    encode = _block(hidden, f.int("encoder_attention_heads"), f.int("encoder_ffn_dim"), key_bias=False)
    heads = f.int("decoder_attention_heads")
    own = attention(hidden, heads, heads, hidden // heads, bias=True, key_bias=False, output_bias=True)
    cross = attention(
        hidden,
        heads,
        heads,
        hidden // heads,
        bias=True,
        key_bias=False,
        output_bias=True,
        cross=frames,
        prefix="encoder_attn",
    )
    decode = Layer(
        mixers=(own, cross),
        feed_forwards=(mlp(hidden, f.int("decoder_ffn_dim"), gated=False, bias=True),),
        vectors=6 * hidden,
    )
    convolutions = mels * hidden * 3 + hidden + hidden * hidden * 3 + hidden
    encoder = Stack(
        name="model.encoder.layers",
        role="encoder",
        layers=(encode,) * f.int("encoder_layers"),
        extra=convolutions + frames * hidden + 2 * hidden,
        tokens=frames,
    )
    decoder = Stack(
        name="model.decoder.layers",
        role="decoder",
        layers=(decode,) * f.int("decoder_layers"),
        extra=targets * hidden + 2 * hidden,
    )
    return Encoder(
        stacks=(encoder, decoder),
        embedding=vocabulary * hidden,
        hidden=hidden,
        vocabulary=vocabulary,
        max_positions=targets,
        generates=True,
    )


# Towers in front of a language model -------------------------------------------------------------


def _patch_tower(hidden: int, heads: int, inner: int, depth: int) -> tuple[Layer, ...]:
    fused = linear("attn.qkv", hidden, 3 * hidden, bias=True, split="heads")
    groups: tuple[Group, ...] = ((fused,), (linear("attn.proj", hidden, hidden, bias=True, split="heads"),))
    mixer = Attention(
        heads=heads, kv_heads=heads, head_dim=hidden // heads, value_dim=hidden // heads, groups=groups, causal=False
    )
    return (
        Layer(mixers=(mixer,), feed_forwards=(mlp(hidden, inner, gated=False, bias=True),), vectors=4 * hidden),
    ) * depth


def qwen_vision(vision: Fields, hidden: int) -> tuple[Stack, ...]:
    """Return the Qwen3-VL tower, its merger and its deep-stack mergers."""
    del hidden
    width, patch = vision.int("hidden_size"), vision.int("patch_size")
    merged = width * vision.int("spatial_merge_size") ** 2
    out = vision.int("out_hidden_size")
    embedding = width * vision.int("in_channels") * vision.int("temporal_patch_size") * patch * patch + width
    merger = merged * merged + merged + merged * out + out
    positions = vision.int("num_position_embeddings")
    tower = Stack(
        name="model.visual.blocks",
        role="vision",
        tokens=None,
        layers=_patch_tower(width, vision.int("num_heads"), vision.int("intermediate_size"), vision.int("depth")),
        extra=embedding + positions * width + 2 * width + merger,
    )
    deep = len(vision.list("deepstack_visual_indexes") or [])
    if not deep:
        return (tower,)
    step = Layer(
        feed_forwards=(
            Dense(
                groups=(
                    (linear("linear_fc1", merged, merged, bias=True),),
                    (linear("linear_fc2", merged, out, bias=True),),
                ),
                vectors=2 * merged,
            ),
        )
    )
    return tower, Stack(name="model.visual.deepstack_merger_list", role="projector", layers=(step,) * deep)


def early_qwen_vision(vision: Fields, hidden: int) -> tuple[Stack, ...]:
    """Return the tower of Qwen2-VL, or of Qwen2.5-VL with its gated blocks, and its patch merger."""
    gated = vision.optional_int("embed_dim") is None
    width, patch, heads = (
        vision.int("hidden_size" if gated else "embed_dim"),
        vision.int("patch_size"),
        vision.int("num_heads"),
    )
    inner = vision.int("intermediate_size") if gated else vision.int("mlp_ratio") * width
    norm = width if gated else 2 * width
    kept = vision.int("num_key_value_heads", default=heads)
    layer = Layer(
        mixers=(attention(width, heads, kept, width // heads, bias=True, output_bias=True, causal=False),),
        feed_forwards=(mlp(width, inner, gated=gated, bias=True),),
        vectors=2 * norm,
    )
    channels = vision.int("in_channels", "in_chans", default=3)
    merged = width * vision.int("spatial_merge_size") ** 2
    out = hidden if gated else vision.int("hidden_size")
    merger = norm + merged * merged + merged + merged * out + out
    tower = Stack(
        name="model.visual.blocks",
        role="vision",
        layers=(layer,) * vision.int("depth"),
        extra=width * channels * vision.int("temporal_patch_size") * patch * patch + merger,
    )
    return (tower,)


def glm_vision(vision: Fields, hidden: int) -> tuple[Stack, ...]:
    """Return the GLM-4.5V tower with its downsampling and merger; its blocks have the inner width of the language model."""
    del hidden
    width, patch, out = vision.int("hidden_size"), vision.int("patch_size"), vision.int("out_hidden_size")
    inner, merge = vision.int("intermediate_size"), vision.int("spatial_merge_size")
    bias = vision.flag("attention_bias", False)
    heads = vision.int("num_heads")
    groups: tuple[Group, ...] = (
        (linear("attn.qkv", width, 3 * width, bias=bias, split="heads"),),
        (linear("attn.proj", width, width, split="heads"),),
    )
    mixer = Attention(
        heads=heads, kv_heads=heads, head_dim=width // heads, value_dim=width // heads, groups=groups, causal=False
    )
    layer = Layer(mixers=(mixer,), feed_forwards=(mlp(width, out),), vectors=2 * width)
    embedding = width * vision.int("in_channels") * vision.int("temporal_patch_size") * patch * patch + width
    positions = (vision.int("image_size") // patch) ** 2
    downsample = out * width * merge * merge + out
    merger = out * out + 2 * out + 3 * out * inner
    return (
        Stack(
            name="model.visual.blocks",
            role="vision",
            layers=(layer,) * vision.int("depth"),
            tokens=positions,
            extra=embedding + positions * width + 2 * width + downsample + merger,
        ),
    )


def gemma_vision(vision: Fields, hidden: int) -> tuple[Stack, ...]:
    """Return Gemma 3's SigLIP tower with its projector."""
    stack, patch = siglip_vision_stack(vision, name="model.vision_tower.encoder.layers")
    width = vision.int("hidden_size")
    projector = Stack(
        name="model.multi_modal_projector", role="projector", layers=(), extra=patch + width + width * hidden
    )
    return stack, projector


def _siglip_before(f: Fields, projector: int, *, head: bool = False) -> tuple[Stack, ...]:
    """Return a SigLIP tower, with its pooling head if the family keeps it, and a projector of so many parameters."""
    vision = f.sub("vision_config")
    kept = vision if head else vision.filled(vision_use_head=False)
    stack, patch = siglip_vision_stack(kept, name="model.vision_tower.encoder.layers")
    return stack, Stack(name="model.multi_modal_projector", role="projector", layers=(), extra=patch + projector)


def idefics(f: Fields, hidden: int) -> tuple[Stack, ...]:
    """Return the tower of Idefics 3 and SmolVLM, whose squares of patches are projected at once."""
    merged = f.sub("vision_config").int("hidden_size") * f.int("scale_factor") ** 2
    return _siglip_before(f, merged * hidden)


def paligemma(f: Fields, hidden: int) -> tuple[Stack, ...]:
    """Return the tower of PaliGemma with its projector of one layer."""
    return _siglip_before(f, f.sub("vision_config").int("hidden_size") * hidden + hidden)


def llava_onevision(f: Fields, hidden: int) -> tuple[Stack, ...]:
    """Return the tower of LLaVA-OneVision, a projector of two layers and the learned end of a row of patches."""
    width = f.sub("vision_config").int("hidden_size")
    bias = f.flag("multimodal_projector_bias", True)
    return _siglip_before(f, width * hidden + hidden * hidden + 2 * hidden * bias + hidden)


def cohere_vision(f: Fields, hidden: int) -> tuple[Stack, ...]:
    """Return the tower of Command A Vision with its gated projector behind squares of patches."""
    merged = f.sub("vision_config").int("hidden_size") * f.int("downsample_factor") ** 2
    aligned = f.int("alignment_intermediate_size")
    projector = merged * aligned + aligned + aligned // 2 * hidden + hidden
    return _siglip_before(f, projector, head=True)


def _pixtral_tower(vision: Fields) -> Stack:
    width, patch, heads = vision.int("hidden_size"), vision.int("patch_size"), vision.int("num_attention_heads")
    layer = Layer(
        mixers=(attention(width, heads, heads, vision.int("head_dim", default=width // heads), causal=False),),
        feed_forwards=(mlp(width, vision.int("intermediate_size")),),
        vectors=2 * width,
    )
    embedding = width * vision.int("num_channels", default=3) * patch * patch + width
    return Stack(
        name="model.vision_tower.transformer.layers",
        role="vision",
        layers=(layer,) * vision.int("num_hidden_layers"),
        extra=embedding,
        tokens=(vision.int("image_size") // patch) ** 2,
    )


def pixtral_vision(vision: Fields, hidden: int, merge: int, bias: bool) -> tuple[Stack, ...]:
    """Return Pixtral's tower with the patch-merging projector of Mistral 3."""
    width = vision.int("hidden_size")
    projector = width + width * width * merge * merge + width * hidden + hidden * hidden + 2 * hidden * bias
    return _pixtral_tower(vision), Stack(
        name="model.multi_modal_projector", role="projector", layers=(), extra=projector
    )


def llava_vision(vision: Fields, hidden: int, bias: bool, newline: bool) -> tuple[Stack, ...]:
    """Return the tower of LLaVA, CLIP's or Pixtral's, with a projector of two layers; LLaVA-NeXT learns the end of a row of patches."""
    kind = vision.text("model_type")
    if kind == "pixtral":
        tower, patch = _pixtral_tower(vision), 0
    elif kind == "clip_vision_model":
        tower, patch = clip_vision_stack(vision, name="model.vision_tower.encoder.layers")
    else:
        raise ConfigError(
            f"config.json: vision_config.model_type {kind!r} in front of LLaVA is not described; clip_vision_model and pixtral are",
            argument="model_type",
            value=kind,
        )
    projector = vision.int("hidden_size") * hidden + hidden * hidden + 2 * hidden * bias
    extra = patch + projector + hidden * newline
    return tower, Stack(name="model.multi_modal_projector", role="projector", layers=(), extra=extra)


def intern_vision(vision: Fields, hidden: int, merge: int) -> tuple[Stack, ...]:
    """Return InternViT, whose layers scale what they add, with a projector of two layers behind squares of `merge` by `merge` patches."""
    width, heads, patch = vision.int("hidden_size"), vision.int("num_attention_heads"), _side(vision, "patch_size")
    rooted = vision.text("norm_type", default="layer_norm") == "rms_norm"
    normed = vision.flag("qk_normalization", vision.flag("use_qk_norm", False))
    mixer = attention(
        width,
        heads,
        heads,
        width // heads,
        bias=vision.flag("qkv_bias", vision.flag("attention_bias", False)),
        output_bias=True,
        vectors=2 * width * normed,
        causal=False,
    )
    scales = 2 * width
    layer = Layer(
        mixers=(mixer,),
        feed_forwards=(mlp(width, vision.int("intermediate_size"), gated=False, bias=True),),
        vectors=2 * width * (1 if rooted else 2) + scales,
    )
    places = (_side(vision, "image_size") // patch) ** 2 + 1
    around = vision.int("num_channels", default=3) * patch * patch * width + width + width + places * width
    tower = Stack(
        name="model.vision_tower.encoder.layer",
        role="vision",
        layers=(layer,) * vision.int("num_hidden_layers"),
        extra=around,
        tokens=places,
    )
    inner = width * merge * merge
    projector = 2 * inner + inner * hidden + hidden + hidden * hidden + hidden
    return tower, Stack(name="model.multi_modal_projector", role="projector", layers=(), extra=projector)


def _side(vision: Fields, name: str) -> int:
    """Return the side of a square that a configuration states as a number or twice in a list [pixel]."""
    value = vision.raw(name)
    if isinstance(value, list) and len(value) == 2 and value[0] == value[1]:
        return vision.filled(**{name: value[0]}).int(name)
    return vision.int(name)


def llama4_vision(vision: Fields, hidden: int) -> tuple[Stack, ...]:
    """Return Llama 4's tower with its pixel-shuffle adapter and projector."""
    width, patch = vision.int("hidden_size"), vision.int("patch_size")
    patches = (vision.int("image_size") // patch) ** 2
    layer = _block(width, vision.int("num_attention_heads"), vision.int("intermediate_size"))
    embedding = (
        width * vision.int("num_channels", default=3) * patch * patch + width + (patches + 1) * width + 4 * width
    )
    first, second = vision.int("projector_input_dim"), vision.int("projector_output_dim")
    adapter = vision.int("intermediate_size") * first + first * second
    projector = vision.int("vision_output_dim") * hidden
    name = "vision_model.model.layers"
    tower = Stack(
        name=name, role="vision", layers=(layer,) * vision.int("num_hidden_layers"), extra=embedding, tokens=patches + 1
    )
    return tower, Stack(name="multi_modal_projector", role="projector", layers=(), extra=adapter + projector)


def gemma4_vision(vision: Fields, hidden: int) -> tuple[Stack, ...]:
    """Return Gemma 4's tower: four norms a layer, norms on queries and keys, a table of positions per axis."""
    width, heads = vision.int("hidden_size"), vision.int("num_attention_heads")
    head_dim, patch = vision.int("head_dim", default=width // heads), vision.int("patch_size")
    bias = vision.flag("attention_bias", False)
    layer = Layer(
        mixers=(
            attention(
                width,
                heads,
                vision.int("num_key_value_heads", default=heads),
                head_dim,
                bias=bias,
                vectors=2 * head_dim,
                causal=False,
            ),
        ),
        feed_forwards=(mlp(width, vision.int("intermediate_size")),),
        vectors=4 * width,
    )
    axes, channels = 2, 3
    around = axes * vision.int("position_embedding_size") * width + channels * patch * patch * width
    name = "model.vision_tower.encoder.layers"
    tower = Stack(name=name, role="vision", layers=(layer,) * vision.int("num_hidden_layers"), extra=around)
    return tower, Stack(name="model.embed_vision", role="projector", layers=(), extra=width * hidden)


def gemma4_embedders(f: Fields, hidden: int) -> tuple[Stack, ...]:
    """Return what stands for towers in unified Gemma 4: patches of images and frames of sound enter by one product each.

    As `Gemma4UnifiedVisionEmbedder` and `Gemma4UnifiedMultimodalEmbedder` of transformers 5.23 count them [parameters].
    """
    found = []
    if f.raw("vision_config", default=None) is not None:
        vision = f.sub("vision_config")
        width, axes, channels = vision.int("mm_embed_dim"), 2, 3
        patch = channels * (vision.int("patch_size") * vision.int("pooling_kernel_size")) ** 2
        # weights and biases of three norms: of a patch, of its embedding, and of that with its position
        norms = 2 * (patch + 2 * width)
        product, positions = patch * width + width, axes * vision.int("mm_posemb_size") * width
        inside = norms + product + positions
        found.append(Stack(name="model.embed_vision", role="projector", layers=(), extra=inside + width * hidden))
    if f.raw("audio_config", default=None) is not None:
        frame = f.sub("audio_config").int("audio_embed_dim")
        found.append(Stack(name="model.embed_audio", role="projector", layers=(), extra=frame * hidden))
    return tuple(found)


def moonvit(vision: Fields, hidden: int) -> tuple[Stack, ...]:
    """Return the MoonViT tower of Kimi K2.5 and K3 with its patch-merging projector, whose second version norms what leaves it."""
    width, heads, patch = (
        vision.int("vt_hidden_size", "hidden_size"),
        vision.int("vt_num_attention_heads", "num_attention_heads"),
        vision.int("patch_size"),
    )
    norm = 1 if vision.text("norm_type") == "rmsnorm" else 2
    layer = _block(
        width,
        heads,
        vision.int("vt_intermediate_size", "intermediate_size"),
        norm=norm,
        head_dim=vision.int("qkv_hidden_size", default=width) // heads,
        bias=vision.flag("attn_bias", True),
        mlp_bias=vision.flag("linear_bias", True),
    )
    height, across = vision.int("init_pos_emb_height"), vision.int("init_pos_emb_width")
    merged = width
    for factor in vision.raw("merge_kernel_size"):
        merged *= int(factor)
    product = width * (3 * patch * patch + vision.flag("patch_embed_proj_bias", True))
    products = merged * merged + merged * hidden
    second = vision.text("mm_projector_type") == "patchmergerv2"
    projector = products + (hidden if second else 2 * width + merged + hidden)
    depth = vision.int("vt_num_hidden_layers", "num_hidden_layers")
    around = product + height * across * width + norm * width
    tower = Stack(name="model.vision_tower.layers", role="vision", layers=(layer,) * depth, extra=around)
    return tower, Stack(name="model.mm_projector", role="projector", layers=(), extra=projector)


Tower = Callable[[Fields, int], tuple[Stack, ...]]
