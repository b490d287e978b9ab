"""Model families by ``model_type``: the function that describes each, and the towers in front of language models."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from roofplan.errors import ConfigError
from roofplan.hf import decoders, early, hybrids, mixtures, novel, recent, recent_towers, recurrent, towers
from roofplan.hf.decoders import Decoder
from roofplan.hf.fields import Fields
from roofplan.hf.towers import Encoder
from roofplan.records.model import Stack

DECODERS: dict[str, Callable[[Fields], Decoder]] = {
    "afmoe": mixtures.afmoe,
    "apertus": lambda f: decoders.plain(f, gated=False, qk_norm="head", scalars=2),
    "aquila": decoders.llama,
    "arcee": lambda f: decoders.plain(f, gated=False),
    "axk1": recent.axk1,
    "baichuan": decoders.llama,
    "bailing_hybrid": recent.bailing_hybrid,
    "bailing_moe": mixtures.bailing,
    "bailing_moe_v2": mixtures.bailing,
    "bamba": hybrids.bamba,
    "bloom": early.bloom,
    "chatglm": decoders.chatglm,
    "codegen": early.gptj,
    "cohere": decoders.cohere,
    "cohere2": decoders.cohere,
    "cohere2_moe": mixtures.cohere2_moe,
    "cwm": decoders.mistral,
    "dbrx": mixtures.dbrx,
    "deepseek": mixtures.deepseek,
    "deepseek_v2": mixtures.deepseek,
    "deepseek_v3": mixtures.deepseek,
    "deepseek_v32": mixtures.deepseek_sparse,
    "deepseek_v4": novel.deepseek_v4,
    "deepseek_v41_text": recent.deepseek_v41,
    "dots1": mixtures.dots1,
    "dots3_note_text": recent.dots3,
    "ernie4_5": decoders.ernie,
    "ernie4_5_moe": mixtures.ernie_moe,
    "exaone": decoders.exaone,
    "exaone4": decoders.exaone4,
    "exaone_moe": mixtures.exaone_moe,
    "falcon": early.falcon,
    "falcon_h1": hybrids.falcon_h1,
    "falcon_mamba": recurrent.mamba_model,
    "flex_olmo": mixtures.olmoe,
    "gemma": decoders.gemma,
    "gemma2": decoders.gemma2,
    "gemma3_text": decoders.gemma3,
    "gemma3n_text": novel.gemma3n,
    "gemma4_text": novel.gemma4,
    "gemma4_unified_text": novel.gemma4,
    "glm": decoders.glm,
    "glm4": decoders.glm4,
    "glm4_moe": mixtures.glm4_moe,
    "glm4_moe_lite": mixtures.deepseek,
    "glm4v_moe_text": mixtures.glm4_moe,
    "glm4v_text": lambda f: decoders.glm4(f.filled(attention_bias=f.flag("attention_bias", True))),
    "glm5_next_text": recent.glm_next,
    "glm_moe_dsa": mixtures.glm_dsa,
    "gpt2": early.gpt2,
    "gpt_bigcode": early.gpt_bigcode,
    "gpt_neo": early.gpt_neo,
    "gpt_neox": early.gpt_neox,
    "gpt_oss": mixtures.gpt_oss,
    "gptj": early.gptj,
    "granite": decoders.granite,
    "granitemoe": mixtures.granitemoe,
    "granitemoehybrid": hybrids.granite_hybrid,
    "granitemoeshared": mixtures.granitemoe,
    "helium": decoders.llama,
    "hunyuan_v1_dense": decoders.hunyuan,
    "hunyuan_v1_moe": mixtures.hunyuan_moe,
    "hy_v3": mixtures.hunyuan3,
    "hy_v4": recent.hunyuan4,
    "hy_v4_vl_text": recent.hunyuan4,
    "inkling_text": recent.inkling,
    "internlm": decoders.internlm,
    "internlm2": decoders.llama,
    "internlm3": decoders.internlm3,
    "iquestcoder": decoders.llama,
    "jais2": lambda f: decoders.plain(f, gated=False, norm_width=2),
    "jamba": hybrids.jamba,
    "kimi_k2": mixtures.deepseek,
    "kimi_linear": hybrids.kimi_linear,
    "kolibri1": recent.kolibri,
    "laguna": mixtures.laguna,
    "lfm2": hybrids.lfm2,
    "lfm2_moe": hybrids.lfm2_moe,
    "lfm3": hybrids.lfm3,
    "llama": decoders.llama,
    "llama4_text": mixtures.llama4,
    "longcat_flash": novel.longcat,
    "mamba": recurrent.mamba_model,
    "mamba2": recurrent.mamba2_model,
    "mellum": recent.mellum,
    "mimo": novel.mimo,
    "mimo_v2": novel.mimo_v2,
    "mimo_v2_flash": novel.mimo_v2,
    "minicpm3": mixtures.minicpm3,
    "minimax": hybrids.minimax,
    "minimax_m1": hybrids.minimax,
    "minimax_m2": mixtures.minimax_m2,
    "minimax_m3": recent.minimax_m3,
    "minimax_m3_vl_text": recent.minimax_m3,
    "minimax_text_01": hybrids.minimax,
    "ministral": decoders.mistral,
    "ministral3": decoders.mistral,
    "mistral": decoders.mistral,
    "mistral4": mixtures.deepseek,
    "mistral_large4_text": recent.mistral_large4,
    "mixtral": mixtures.mixtral,
    "mllama_text_model": recent.llama_vision,
    "mpt": early.mpt,
    "nanochat": decoders.nanochat,
    "muse_glimmer_text": recent.muse_glimmer,
    "muse_spark_text": recent.muse_spark,
    "nemotron": decoders.nemotron,
    "nemotron-nas": novel.nemotron_nas,
    "nemotron_h": hybrids.nemotron_h,
    "olmo": decoders.olmo,
    "olmo2": decoders.olmo2,
    "olmo3": decoders.olmo2,
    "olmoe": mixtures.olmoe,
    "opt": early.opt,
    "phi": early.phi,
    "phi-msft": early.phi,
    "phi3": decoders.phi3,
    "phimoe": mixtures.phimoe,
    "qwen": decoders.qwen,
    "qwen2": decoders.qwen2,
    "qwen2_5_vl_text": decoders.qwen2,
    "qwen2_moe": mixtures.qwen2_moe,
    "qwen2_vl_text": decoders.qwen2,
    "qwen3": decoders.qwen3,
    "qwen3_5_moe_text": hybrids.qwen_next,
    "qwen3_5_text": hybrids.qwen_next,
    "qwen3_moe": mixtures.qwen3_moe,
    "qwen4_exp_text": recent.qwen4,
    "qwen3_next": hybrids.qwen_next,
    "qwen3_vl_moe_text": mixtures.qwen3_moe,
    "qwen3_vl_text": decoders.qwen3,
    "recurrent_gemma": hybrids.recurrent_gemma,
    "rwkv": recurrent.rwkv,
    "sarvam_mla": mixtures.deepseek,
    "sarvam_moe": mixtures.glm4_moe,
    "seed_oss": decoders.seed_oss,
    "smollm3": decoders.smollm3,
    "solar_open": mixtures.glm4_moe,
    "stablelm": decoders.stablelm,
    "step3p5": mixtures.step35,
    "starcoder2": early.starcoder2,
    "xverse": decoders.llama,
    "yi": decoders.llama,
    "youtu": mixtures.deepseek,
    "zamba": hybrids.zamba,
    "zamba2": hybrids.zamba2,
}

ENCODERS: dict[str, Callable[[Fields], Encoder]] = {
    "bert": towers.bert,
    "clip": towers.clip,
    "clip_vision_model": towers.clip_vision,
    "dinov2": towers.dinov2,
    "dinov3_vit": towers.dinov3,
    "roberta": towers.bert,
    "siglip": towers.siglip,
    "siglip2_vision_model": towers.siglip2_vision,
    "siglip_vision_model": towers.siglip_vision,
    "whisper": towers.whisper,
    "xlm-roberta": towers.bert,
}


def _pixtral(f: Fields, hidden: int) -> tuple[Stack, ...]:
    return towers.pixtral_vision(
        f.sub("vision_config"),
        hidden,
        f.int("spatial_merge_size", default=2),
        f.flag("multimodal_projector_bias", False),
    )


LLAVA_PARTS: dict[str, dict[str, int]] = {
    "llama": {
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "vocab_size": 32000,
    },
    "mistral": {"num_attention_heads": 32},
    "pixtral": {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16},
}
"""Dimensions of the parts of LLaVA and Pixtral that their files leave to the classes of transformers, by the part's ``model_type``.

Source: configuration_llama.py, configuration_mistral.py and configuration_pixtral.py of transformers 5.23.
"""


def _with_parts(values: Mapping[str, object]) -> Mapping[str, object]:
    """Return the configuration of LLaVA with the dimensions that it leaves to the classes of its parts."""
    parts = {name: part for name in ("text_config", "vision_config") if isinstance(part := values.get(name), Mapping)}
    full = {name: {**LLAVA_PARTS.get(str(part.get("model_type")), {}), **part} for name, part in parts.items()}
    return {**values, **full}


def _renamed(values: Mapping[str, object]) -> Mapping[str, object]:
    """Return InternVL's own configuration with its parts named as in transformers; its language model says whether matrices are tied."""
    kept = {name: value for name, value in values.items() if name != "tie_word_embeddings"}
    return {**kept, "text_config": values.get("llm_config") or values.get("text_config")}


def _with_cross(values: Mapping[str, object]) -> Mapping[str, object]:
    """Return the configuration of Llama 3.2 Vision whose language model states what its tower gives it: a vector a patch and tile, and one more a tile."""
    text, vision = values.get("text_config"), values.get("vision_config")
    if not isinstance(text, Mapping) or not isinstance(vision, Mapping):
        raise ConfigError("config.json lacks text_config or vision_config of mllama", argument="vision_config")
    sizes = Fields(vision, "vision_config.")
    patches = (sizes.int("image_size") // sizes.int("patch_size")) ** 2 + 1
    return {**values, "text_config": {**text, "cross_positions": sizes.int("max_num_tiles") * patches}}


RESHAPED: dict[str, Callable[[Mapping[str, object]], Mapping[str, object]]] = {
    "internvl_chat": _renamed,
    "llava": _with_parts,
    "llava_next": _with_parts,
    "mllama": _with_cross,
}
"""What completes or renames the parts of a configuration, by family."""


def _internvl(f: Fields, hidden: int) -> tuple[Stack, ...]:
    ratio = f.raw("downsample_ratio", default=0.5)
    if not isinstance(ratio, int | float) or ratio not in {0.5, 1}:
        message = f"config.json: downsample_ratio {ratio!r} is not described; 0.5 and 1 are"
        raise ConfigError(message, argument="downsample_ratio", value=str(ratio))
    return towers.intern_vision(f.sub("vision_config"), hidden, round(1 / ratio))


def _llava(f: Fields, hidden: int) -> tuple[Stack, ...]:
    bias, newline = f.flag("multimodal_projector_bias", True), f.text("model_type") == "llava_next"
    return towers.llava_vision(f.sub("vision_config"), hidden, bias, newline)


def _vision(tower: towers.Tower) -> Callable[[Fields, int], tuple[Stack, ...]]:
    return lambda f, hidden: tower(f.sub("vision_config"), hidden)


WRAPPERS: dict[str, tuple[str, Callable[[Fields, int], tuple[Stack, ...]] | None]] = {
    "cohere2_vision": ("cohere2", towers.cohere_vision),
    "deepseek_v41": ("deepseek_v41_text", recent_towers.deepseek_v41),
    "dots3_note": ("dots3_note_text", recent_towers.dots3),
    "exaone4_5": ("exaone4", _vision(towers.early_qwen_vision)),
    "gemma3": ("gemma3_text", _vision(towers.gemma_vision)),
    "gemma3n": ("gemma3n_text", None),
    "gemma4": ("gemma4_text", _vision(towers.gemma4_vision)),
    "gemma4_unified": ("gemma4_unified_text", towers.gemma4_embedders),
    "glm46v": ("glm4v_text", _vision(towers.glm_vision)),
    "glm4v": ("glm4v_text", _vision(towers.glm_vision)),
    "glm4v_moe": ("glm4v_moe_text", _vision(towers.glm_vision)),
    "glm5_next": ("glm5_next_text", recent_towers.glm_next),
    "hy_v4_vl": ("hy_v4_vl_text", recent_towers.hunyuan4),
    "idefics3": ("llama", towers.idefics),
    "inkling_mm_model": ("inkling_text", None),
    "internvl": ("qwen2", _internvl),
    "internvl_chat": ("", _internvl),
    "kimi_k25": ("kimi_k2", _vision(towers.moonvit)),
    "kimi_k3": ("kimi_linear", _vision(towers.moonvit)),
    "kimi_vl": ("deepseek_v3", _vision(towers.moonvit)),
    "lfm2_vl": ("lfm2", recent_towers.lfm2),
    "llama4": ("llama4_text", _vision(towers.llama4_vision)),
    "llava": ("llama", _llava),
    "llava_next": ("llama", _llava),
    "llava_onevision": ("qwen2", towers.llava_onevision),
    "minimax_m3_vl": ("minimax_m3", recent_towers.minimax_m3),
    "mistral3": ("mistral", _pixtral),
    "mistral_large4": ("mistral_large4_text", _pixtral),
    "mllama": ("mllama_text_model", recent_towers.llama_vision),
    "muse_glimmer": ("muse_glimmer_text", recent_towers.muse),
    "muse_spark": ("muse_spark_text", recent_towers.muse),
    "nemotron_h_omni": ("nemotron_h", recent_towers.radio),
    "paligemma": ("gemma", towers.paligemma),
    "qwen2_5_vl": ("qwen2", _vision(towers.early_qwen_vision)),
    "qwen2_vl": ("qwen2", _vision(towers.early_qwen_vision)),
    "qwen3_5": ("qwen3_5_text", _vision(towers.qwen_vision)),
    "qwen3_5_moe": ("qwen3_5_moe_text", _vision(towers.qwen_vision)),
    "qwen3_vl": ("qwen3_vl_text", _vision(towers.qwen_vision)),
    "qwen3_vl_moe": ("qwen3_vl_moe_text", _vision(towers.qwen_vision)),
    "qwen4_exp": ("qwen4_exp_text", _vision(towers.qwen_vision)),
    "smolvlm": ("llama", towers.idefics),
    "step3p7": ("step3p5", recent_towers.step37),
}
"""Multimodal wrappers: the family of a text model that does not state its own, empty where it must, and the tower in front of it (None where the tower is not described)."""

FAMILIES: tuple[str, ...] = tuple(sorted({*DECODERS, *ENCODERS, *WRAPPERS}))
