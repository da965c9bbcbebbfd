// Expects python/tessera/plain_model.py to compute the same embeddings as the C++ code. The models together use every part that a
// model can have. One Python process checks all models.
#include <cmath>
#include <cstdlib>
#include <map>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"
#include <tessera/base/error.h>
#include <tessera/io/safetensors.h>
#include <tessera/models/model_file.h>

namespace tessera {
namespace {

constexpr std::int64_t kBatch = 3, kLength = 7, kVocabulary = 30;

struct Case {
  const char* name;
  const char* image;
  const char* text;
  const char* preprocessing = "image_size: 32";
};

constexpr const char* kVit = "name: vit, patch_size: 8, width: 12, layers: 2, heads: 3";
constexpr const char* kText =
    "name: text_transformer, vocab_size: 30, context_length: 9, width: 8, layers: 2, heads: 2";
constexpr const char* kLinear = "projection: {name: linear, embed_dim: 6}";

// VIT, TEXT and LINEAR are placeholders for the constants above.
constexpr Case kCases[] = {
    {"clip", "encoder: {VIT}, readout: cls, LINEAR", "encoder: {TEXT}, readout: {name: eos, position: ids}, LINEAR"},
    {"openai", "encoder: {VIT, activation: quick_gelu, final_norm: pooled}, readout: cls, LINEAR",
     "encoder: {TEXT, activation: quick_gelu, final_norm: pooled}, readout: eos, LINEAR"},
    {"siglip",
     "encoder: {VIT, class_token: false, pre_norm: false, activation: gelu_tanh, norm_eps: 1.0e-6, layer_scale_init: 0.1}, "
     "readout: {name: gap, output_dim: 6}, projection: none",
     "encoder: {TEXT, attention: bidirectional, layer_scale_init: 0.1}, readout: {name: max, skip_prefix: 1}, LINEAR"},
    {"sparc", "encoder: {VIT}, readout: gap, projection: {name: adaptor, embed_dim: 6}",
     "encoder: {TEXT}, readout: {name: eos, eos_id: 5}, projection: {name: adaptor, embed_dim: 6, bias: false}"},
    {"sparo",
     "encoder: {VIT}, readout: {name: sparo, slots: 4, slot_width: 3, key_width: 4, group_size: 2}, projection: none",
     "encoder: {TEXT}, readout: {name: sparo, slots: 4, slot_width: 3, key_width: 4}, projection: none"},
    {"sparo_ablations",
     "encoder: {VIT}, readout: {name: sparo, slots: 2, slot_width: 3, key_width: 4, share_values: false, value_width: 5, "
     "cross_attention: multi_head, layer_norm: slot, normalize_slots: false}, projection: none",
     "encoder: {TEXT, attention: bidirectional}, readout: {name: sparo, slots: 2, slot_width: 3, bias: false, "
     "layer_norm: full, projection: full}, projection: none"},
    {"attentional_pool",
     "encoder: {VIT, final_norm: none}, readout: {name: attentional_pool, output_dim: 6, heads: 2, queries: 3}, "
     "projection: none",
     "encoder: {TEXT, final_norm: none}, readout: {name: attentional_pool, output_dim: 8, heads: 2, queries: 2, pool: mean, "
     "project: false}, LINEAR"},
    {"linear_bottleneck",
     "encoder: {VIT}, readout: {name: linear_bottleneck, bottleneck_dim: 5, output_dim: 6}, projection: none",
     "encoder: {TEXT}, readout: {name: linear_bottleneck, pool: eos, bottleneck_dim: 5, output_dim: 6}, projection: none"},
    {"fdt",
     "encoder: {VIT, final_norm: none}, readout: {name: fdt, codes: 11, code_width: 6, temperature: 0.1}, projection: none",
     "encoder: {TEXT, final_norm: none}, readout: {name: fdt, codes: 11, code_width: 6, temperature: 0.1, "
     "masked_score: zero}, projection: none"},
    {"stair", "encoder: {VIT}, readout: {name: token_projection}, projection: none",
     "encoder: {TEXT}, readout: {name: token_projection, special_token_ids: [0, 2]}, projection: none"},
    {"resnet",
     "encoder: {name: modified_resnet, layers: [2, 1, 1, 1], width: 4}, readout: {name: attention_pool_2d, heads: 2, "
     "output_dim: 6}, projection: none",
     "encoder: {TEXT}, readout: eos, LINEAR"},
    {"pyramid",
     "encoder: {VIT, leff: {layers: 1, norm: batch, out_activation: true, class_token: skip}, regions: {width: 5, "
     "first_block: 1}}, readout: cls, LINEAR",
     "encoder: {TEXT}, readout: cls, LINEAR"},
    {"leff", "encoder: {VIT, leff: {layers: 2, conv_bias: false}}, readout: max, LINEAR",
     "encoder: {TEXT}, readout: gap, LINEAR"},
    {"groups",
     "encoder: {name: groupvit, patch_size: 8, width: 12, depths: [1, 1, 1], heads: [2, 3, 2], num_group_tokens: [5, 3, 0], "
     "num_output_groups: [4, 2]}, readout: {name: groups, output_dim: 6, num_layers: 2, inner_dim: 10, pool: before}, "
     "projection: none",
     "encoder: {name: text_group_encoder, vocab_size: 30, context_length: 9, width: 8, heads: 2, token_layers: 1, "
     "group_layers: 1, num_groups: 3}, readout: {name: groups, output_dim: 6}, projection: none"},
    {"mlp_of_open_clip",
     "encoder: {VIT}, readout: cls, projection: {name: mlp, embed_dim: 6, inner_dim: 10, norm: none, activation: gelu, bias: false}",
     "encoder: {TEXT}, readout: gap, projection: {name: mlp, embed_dim: 6, inner_dim: 7, norm: none, activation: gelu, hidden_bias: false, "
     "bias: false}"},
    {"siglip_map",
     "encoder: {VIT, class_token: false, activation: gelu_tanh, patch_bias: true}, readout: {name: map, heads: 2, mlp_hidden: 10, "
     "activation: gelu_tanh}, LINEAR",
     "encoder: {TEXT, attention: bidirectional}, readout: {name: map, heads: 2}, projection: {name: linear, embed_dim: 6, bias: true}"},
    {"dinov3",
     "encoder: {VIT, registers: 2, position_embedding: none, rotary: {base: 100, coordinates: centered, pairs: halves}, mlp: gated, "
     "activation: silu, qkv_bias: no_key, out_bias: false}, readout: cls_mean, LINEAR",
     "encoder: {TEXT, class_token: appended}, readout: cls, LINEAR"},
    {"pe_core",
     "encoder: {VIT, registers: 1, rotary: {offset: 1, order: columns_first, reference: [3, 2]}, prefix_positions: all, qkv_bias: value}, "
     "readout: {name: map, heads: 3}, LINEAR",
     "encoder: {TEXT, class_token: shifted, final_norm: pooled}, readout: cls, LINEAR"},
    {"eva",
     "encoder: {VIT, registers: 1, prefix_positions: none, qk_norm: true, attention_norm: true, mlp_norm: true, mlp_input_norm: true, "
     "block_norm: on_updates, qkv_bias: none, mlp_bias: false}, readout: gap, LINEAR",
     "encoder: {TEXT, attention: bidirectional, block_norm: after, pre_norm: true, token_types: 2, position_rows: 14, position_offset: 2, "
     "final_norm: none}, readout: cls, LINEAR"},
    {"nllb", "encoder: {VIT}, readout: cls, LINEAR",
     "encoder: {TEXT, attention: bidirectional, position_embedding: sinusoidal, position_offset: 2, embedding_scale: 3}, readout: cls, LINEAR"},
    {"modern",
     "encoder: {VIT, norm: rms, block_norm: both, attention_gate: biased, head_width: 8, key_heads: 1, rotary: {}}, readout: cls, LINEAR",
     "encoder: {TEXT, attention: bidirectional, norm: rms, position_embedding: rotary, mlp: gated, activation: silu, attention_gate: plain, "
     "qk_norm: true, qkv_bias: none, pre_norm: true}, readout: {name: map, heads: 2, attention_only: true, bias: false, qk_norm: rms}, LINEAR"},
    {"modernbert", "encoder: {VIT, norm: layer_no_bias}, readout: cls, LINEAR",
     "encoder: {TEXT, attention: bidirectional, norm: layer_no_bias, position_embedding: rotary, rotary_pairs: halves, pre_norm: true, "
     "first_norm: false, local: {blocks: [1], window: 2, rotary_base: 100}}, readout: {name: map, heads: 4, attention_only: true}, LINEAR"},
    {"gemma", "encoder: {VIT}, readout: cls, LINEAR",
     "encoder: {TEXT, norm: rms, block_norm: both, head_width: 6, key_heads: 1, score_scale: 0.3, position_embedding: rotary, "
     "local: {blocks: [0], window: 3}}, readout: gap, LINEAR"},
    {"mt5", "encoder: {VIT}, readout: cls, LINEAR",
     "encoder: {TEXT, attention: bidirectional, norm: rms, position_embedding: relative, relative_buckets: 8, relative_distance: 6, "
     "score_scale: 1, qkv_bias: none}, readout: gap, LINEAR"},
    {"groups_of_groupvit", "encoder: {VIT}, readout: cls, projection: {name: mlp, embed_dim: 6, inner_dim: 10}",
     "encoder: {name: text_group_encoder, vocab_size: 30, context_length: 9, width: 8, heads: 2, token_layers: 1, "
     "group_layers: 0, num_groups: 3, variant: groupvit, hard: false}, readout: {name: groups, output_dim: 6, "
     "pool: before}, projection: none"},
    {"convnext",
     "encoder: {name: convnext, layers: [1, 2, 1, 1], widths: [8, 12, 16, 20], kernel_sizes: [3, 5, 7, 3]}, readout: gap, LINEAR",
     "encoder: {TEXT}, readout: cls, LINEAR"},
    {"convnext_v2",
     "encoder: {name: convnext, layers: [1, 1, 1, 1], widths: [24, 8, 12, 16], stem: overlap_tiered, activation: gelu_tanh, "
     "layer_scale_init: null, response_norm: true, conv_bias: false}, readout: gap, LINEAR",
     "encoder: {TEXT}, readout: cls, LINEAR"},
    {"convnext_norm_first",
     "encoder: {name: convnext, layers: [1, 1, 1, 1], widths: [8, 8, 8, 8], stem: overlap_act, activation: silu, norm_first: true, "
     "conv_mlp: true}, readout: max, LINEAR",
     "encoder: {TEXT}, readout: cls, LINEAR"},
    {"timm_resnet",
     "encoder: {name: timm_resnet, layers: [1, 2, 1, 1], groups: 4, base_width: 16, stem: deep_tiered, stem_width: 8, "
     "mean_downsample: true}, readout: gap, LINEAR",
     "encoder: {TEXT}, readout: cls, LINEAR", "image_size: [80, 40]"},
    {"timm_resnet_basic", "encoder: {name: timm_resnet, layers: [1, 1, 1, 1], block: basic}, readout: gap, LINEAR",
     "encoder: {TEXT}, readout: cls, LINEAR"},
    {"mobileclip", "encoder: {name: vit, patch_size: 16, width: 12, layers: 2, heads: 3, stem: mobileclip}, readout: cls, LINEAR",
     "encoder: {TEXT}, readout: cls, LINEAR"},
    {"vitamin",
     "encoder: {name: vit, patch_size: 16, width: 12, layers: 2, heads: 3, stem: vitamin, stem_widths: [8, 16], class_token: false, "
     "mlp: gated, mlp_input_norm: true}, readout: gap, LINEAR",
     "encoder: {TEXT}, readout: cls, LINEAR"},
    {"own_shapes", "encoder: {VIT, registers: 1}, readout: cls, LINEAR", "encoder: {TEXT}, readout: cls, LINEAR",
     "image_size: 32, resize_mode: naflex, max_patches: 12"},
    {"own_shapes_siglip2",
     "encoder: {VIT, class_token: false, patch_bias: true, position_resampling: bicubic}, readout: {name: map, heads: 3}, LINEAR",
     "encoder: {TEXT}, readout: cls, LINEAR", "image_size: [32, 24], resize_mode: naflex, max_patches: 12"},
    {"own_shapes_rotary", "encoder: {VIT, rotary: {reference: [3, 2]}, position_embedding: none}, readout: gap, LINEAR",
     "encoder: {TEXT}, readout: cls, LINEAR", "image_size: 32, resize_mode: naflex, max_patches: 12"},
    {"own_shapes_centered", "encoder: {VIT, rotary: {coordinates: centered, pairs: halves}}, readout: cls_mean, LINEAR",
     "encoder: {TEXT}, readout: cls, LINEAR", "image_size: 32, resize_mode: naflex, max_patches: 12"},
};

std::string with_parts(std::string text) {
  for (const auto& [word, part] :
       {std::pair<std::string, std::string>{"VIT", kVit}, {"TEXT", kText}, {"LINEAR", kLinear}})
    for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word))
      text.replace(at, word.size(), part);
  return text;
}

/// Returns a model with random values in every tensor, because a tensor of zeros or ones could hide a mistake.
ModelFile random_model(const Case& each) {
  ModelFile file;
  file.model = resolve(config::read<ModelSettings>(
      config::parse_yaml(concat("image: {", with_parts(each.image), "}\ntext: {", with_parts(each.text),
                                "}\npreprocessing: {", each.preprocessing, "}\n"),
                         each.name)));
  for (const auto& [name, tensor] : DualEncoder(file.model).state_dict())
    file.weights[name] =
        tensor.is_floating_point() ? at::rand_like(tensor) * 0.6 - (name.ends_with("_var") ? -0.5 : 0.2) : tensor;
  return file;
}

/// Returns images of the model's size, or the patches of images with several shapes, whose padding is NaN.
TowerInput random_images(const Preprocessing& preprocessing) {
  const config::Size size = preprocessing.image_size;
  if (!keeps_shapes(preprocessing)) return image_input(at::randn({kBatch, 3, size.height, size.width}));
  TowerInput out;
  out.grids = at::tensor({4, 3, 2, 5, 1, 1}, at::kLong).view({kBatch, 2});
  out.mask = at::arange(preprocessing.max_patches).unsqueeze(0).lt(out.grids.prod(1, /*keepdim=*/true));
  out.patches = at::randn({kBatch, preprocessing.max_patches, 3 * 8 * 8}).masked_fill(out.mask.logical_not().unsqueeze(2), NAN);
  return out;
}

void write_case(const std::string& folder, const Case& each) {
  at::manual_seed(7);
  const ModelFile file = random_model(each);
  const auto model = build_model(file, each.name);
  TowerInput texts;
  texts.ids = at::randint(3, kVocabulary, {kBatch, kLength}, at::kLong);
  texts.ids.select(1, 2).fill_(5);
  texts.mask = at::arange(kLength).unsqueeze(0).lt(at::tensor({7, 4, 3}).unsqueeze(1));
  const TowerInput images = random_images(model->settings().preprocessing);
  save_model_file(folder + "/" + each.name + ".safetensors", file);
  std::map<std::string, at::Tensor> check = {{"ids", texts.ids},
                                             {"mask", texts.mask},
                                             {"image_embeddings", model->encode_image(images).global},
                                             {"text_embeddings", model->encode_text(texts).global}};
  if (images.pixels.defined())
    check["pixels"] = images.pixels;
  else
    check.insert({{"pixels", images.patches.unflatten(2, {3, 64}).transpose(2, 3).flatten(2).contiguous()},  // colors last
                  {"patches_mask", images.mask},
                  {"grids", images.grids}});
  io::save_safetensors(folder + "/" + each.name + ".check", check);
}

using PythonModel = FolderTest;

TEST_F(PythonModel, ComputesTheSameEmbeddings) {
  const std::string python = TESSERA_TEST_PYTHON;
  if (std::system((python + " -c 'import torch' >/dev/null 2>&1").c_str()) != 0)
    GTEST_SKIP() << "no Python with PyTorch";
  const at::NoGradGuard guard;
  std::string command = python + " -B " TESSERA_SOURCE_DIR "/python/tessera/plain_model.py --tolerance 1e-5 --check";
  for (const Case& each : kCases) {
    write_case(folder_.string(), each);
    for (const char* ending : {".safetensors", ".check"}) command += " " + path(each.name) + ending;
  }
  const Answer answer = answer_of_shell(command);
  EXPECT_EQ(answer.code, 0) << answer.text;
  EXPECT_EQ(std::count(answer.text.begin(), answer.text.end(), '\n'), 2 * std::ssize(kCases)) << answer.text;
}

}  // namespace
}  // namespace tessera
