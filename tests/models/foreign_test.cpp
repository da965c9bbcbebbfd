#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numbers>

#include <gtest/gtest.h>
#include <ATen/ATen.h>

#include "src/foreign/foreign_model.h"
#include "src/foreign/text_tower.h"
#include "src/foreign/timm.h"
#include "src/foreign/open_clip.h"
#include "src/models/per_sample_rng.h"
#include "src/models/rotary.h"
#include "src/models/vit.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test_data.h"
#include "tests/support/test_name.h"
#include <tessera/io/atomic_file.h>
#include <tessera/io/safetensors.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

double relative_error(const at::Tensor& got, const at::Tensor& want) {
  EXPECT_EQ(got.sizes(), want.sizes());
  return ((got - want).norm() / want.norm()).item<double>();
}

/// Small models in transformers' format, with the outputs that transformers computed.
class ForeignFolder : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Families, ForeignFolder, testing::Values("clip", "siglip", "dinov2_registers", "dinov3", "clip_vision", "siglip_vision", "siglip_no_head",
                                                                 "dinov2_classifier", "dinov3_biases", "vit", "metaclip_2", "siglip2", "timm_naflex", "timm_naflex_gap"),
                         test_name<std::string>);

/// Returns images of several shapes as transformers passes them: patches [B, T, side * side * 3] with the channels last.
TowerInput naflex_input(const NamedTensors& of) {
  const at::Tensor& patches = of.at("patches");
  const auto side = static_cast<std::int64_t>(std::lround(std::sqrt(static_cast<double>(patches.size(2)) / 3)));
  TowerInput out;
  out.patches = patches.unflatten(2, {side, side, 3}).permute({0, 1, 4, 2, 3}).flatten(2);
  out.grids = of.at("grids");
  out.mask = of.at("mask");
  return out;
}

TEST_P(ForeignFolder, MatchesItsLibrary) {
  const std::string folder = test_data("foreign/" + GetParam());
  ASSERT_TRUE(is_foreign_folder(folder));
  const auto model = build_model(load_foreign_model(folder), folder);
  const NamedTensors want = io::load_safetensors(folder + "/expected.safetensors").tensors;
  const at::NoGradGuard no_grad;
  const TowerInput images = want.contains("patches") ? naflex_input(want) : image_input(want.at("pixels"));
  EXPECT_LE(relative_error(model->encode_image(images).global, want.at("image")), 1e-5);
  EXPECT_EQ(model->has_text_tower(), want.contains("text"));
  if (!model->has_text_tower()) return;
  const at::Tensor all = at::ones_like(want.at("ids"), at::kBool);
  EXPECT_LE(relative_error(model->encode_text(text_input(want.at("ids"), all)).global, want.at("text")), 1e-5);
}

TEST(ForeignPositions, AreResizedAsTheirLibraryDoes) {
  const at::NoGradGuard no_grad;
  for (const char* name : {"dinov2_registers", "dinov2_classifier"}) {
    const std::string folder = test_data(std::string("foreign/") + name);
    const NamedTensors want = io::load_safetensors(folder + "/expected.safetensors").tensors;
    const auto model = build_model(load_foreign_model(folder), folder);
    EXPECT_LE(relative_error(model->encode_image(want.at("other_pixels")).global, want.at("other_image")), 1e-5) << name;
  }
}

TEST_P(ForeignFolder, TensorsReadBackByTheSameRules) {
  const std::string folder = test_data("foreign/" + GetParam());
  const ForeignModel foreign = read_foreign_folder(folder);
  const NamedTensors theirs = load_foreign_weights(folder);
  const NamedTensors own = load_foreign_model(folder).weights;
  const RenamedTensors written = write_by_rules(foreign.rules, own);
  EXPECT_TRUE(written.left_over.empty()) << written.left_over.front();
  for (const auto& [name, tensor] : written.tensors) {
    ASSERT_TRUE(theirs.contains(name)) << name;
    EXPECT_TRUE(at::equal(tensor, theirs.at(name))) << name;
  }
  const auto left_out = [&](const std::string& name) {
    return std::ranges::any_of(foreign.left_out, [&](const PartLeftOut& part) { return name_fits(part.names, name); });
  };
  for (const auto& [name, tensor] : theirs) EXPECT_TRUE(written.tensors.contains(name) || left_out(name)) << name;
}

/// Returns the settings of the text tower in a folder next to a small image tower.
ModelSettings next_to_an_image_tower(const ForeignModel& foreign) {
  ModelSettings settings;
  settings.text = foreign.model.text;
  settings.image.encoder.settings.set("layers", config::Node::scalar("1"));
  settings.image.projection.settings.set("embed_dim", config::Node::scalar("32"));
  return settings;
}

TEST(TextTowerAlone, ReadsTheOlderNamesOfNorms) {
  const std::string folder = test_data("foreign/bert");
  const ForeignModel foreign = read_foreign_folder(folder);
  const NamedTensors own = DualEncoder(next_to_an_image_tower(foreign)).state_dict(), theirs = load_foreign_weights(folder);
  NamedTensors older;
  for (const auto& [name, tensor] : theirs) {
    const std::size_t norm = name.find("LayerNorm.");
    const std::string end = name.ends_with("weight") ? "LayerNorm.gamma" : "LayerNorm.beta";
    older[norm == std::string::npos ? name : name.substr(0, norm) + end] = tensor;
  }
  const NamedTensors want = own_tensors(foreign, theirs, own, folder), got = own_tensors(foreign, older, own, folder);
  EXPECT_EQ(got.size(), want.size());
  for (const auto& [name, tensor] : want) EXPECT_TRUE(got.contains(name) && at::equal(got.at(name), tensor)) << name;
}

TEST(Naflex, ProcessorAndPositionsOfSiglip2AreRead) {
  const ForeignModel foreign = read_foreign_folder(test_data("foreign/siglip2"));
  const Preprocessing& p = foreign.model.preprocessing;
  EXPECT_EQ(p.resize_mode, "naflex");
  EXPECT_EQ(p.interpolation, "bilinear");
  EXPECT_EQ(p.max_patches, 24);
  EXPECT_EQ(p.patch_size, config::Size(4));
  EXPECT_EQ(p.image_size, config::Size(16)) << "the learned positions";
  EXPECT_EQ(foreign.model.image.encoder.settings.find("position_resampling")->text(), "bilinear");
}

TEST(Naflex, ImagesOfTimmHaveAsManyPatchesAsItsSquareImage) {
  const ForeignModel foreign = read_foreign_folder(test_data("foreign/timm_naflex"));
  const Preprocessing& p = foreign.model.preprocessing;
  EXPECT_EQ(p.resize_mode, "naflex");
  EXPECT_EQ(p.max_patches, 96 * 96);
  EXPECT_EQ(p.image_size, config::Size(64)) << "the learned positions, 16 rows and columns of patches of 4";
  const ForeignModel gap = read_foreign_folder(test_data("foreign/timm_naflex_gap"));
  EXPECT_EQ(gap.model.image.encoder.settings.find("position_resampling")->text(), "antialiased");
  EXPECT_NE(error_of([] { timm_tower("naflexvit_base_patch16_par_gap", {nlohmann::json::object(), "c.json"}, {}, "c.json"); }).find("resized in another way"),
            std::string::npos);
  const nlohmann::json of_open_clip = {{"model_cfg", {{"embed_dim", 768}, {"text_cfg", nlohmann::json::object()},
                                                     {"vision_cfg", {{"timm_model_name", "naflexvit_base_patch16_siglip"}, {"image_size", 256}}}}}};
  EXPECT_NE(error_of([&] { open_clip_model(of_open_clip.dump(), "c.json"); }).find("c.json: timm's NaFlex models are read only from timm's folders"), std::string::npos);
}

class TextTowerOf : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Families, TextTowerOf, testing::Values("bert", "modernbert", "mt5", "gemma"), test_name<std::string>);

TEST_P(TextTowerOf, MatchesItsLibraryNextToAnotherImageTower) {
  const std::string folder = test_data("foreign/" + GetParam());
  const ForeignModel foreign = read_foreign_folder(folder);
  EXPECT_FALSE(foreign.image_tower);
  EXPECT_NE(error_of([&] { load_foreign_model(folder); }).find(folder + ": contains only a text tower: set it as model.text.from"), std::string::npos);
  DualEncoder model(next_to_an_image_tower(foreign));
  NamedTensors own = model.state_dict();
  std::erase_if(own, [](const auto& item) { return is_image_parameter(item.first); });
  NamedTensors tensors = own_tensors(foreign, load_foreign_weights(folder), own, folder);
  for (const auto& [name, tensor] : model.state_dict()) tensors.emplace(name, tensor);
  model.load_state(tensors, folder);
  model.eval();
  const at::NoGradGuard no_grad;
  const NamedTensors want = io::load_safetensors(folder + "/expected.safetensors").tensors;
  const at::Tensor mask = want.contains("mask") ? want.at("mask") : at::ones_like(want.at("ids"), at::kBool);
  EXPECT_LE(relative_error(model.encode_text(text_input(want.at("ids"), mask)).global, want.at("text")), 1e-5);
}

TEST_P(TextTowerOf, TensorsReadBackByTheSameRules) {
  const std::string folder = test_data("foreign/" + GetParam());
  const ForeignModel foreign = read_foreign_folder(folder);
  const NamedTensors theirs = load_foreign_weights(folder);
  const NamedTensors written = write_by_rules(foreign.rules, own_tensors(foreign, theirs, DualEncoder(next_to_an_image_tower(foreign)).state_dict(), folder)).tensors;
  for (const auto& [name, tensor] : theirs) {
    const bool left_out = std::ranges::any_of(foreign.left_out, [&](const PartLeftOut& part) { return name_fits(part.names, name); });
    ASSERT_TRUE(written.contains(name) || left_out || name == "shared.weight") << name;
    if (!written.contains(name)) continue;
    EXPECT_TRUE(at::allclose(written.at(name), tensor, 0, 1e-6)) << name;  // Gemma's norms add 1
  }
}

/// Tests arguments for timm's create_model. They change the settings that our table of timm's models lists.
TEST(TimmArguments, ChangeTheRowLikeTimm) {
  const auto tower = [](const std::string& name, const nlohmann::json& arguments) {
    return timm_tower(name, {arguments, "c.json", "model_args."}, {}, "c.json").tower;
  };
  const auto setting = [](const TowerSettings& of, const char* key) { return of.encoder.settings.find(key)->text(); };
  const TowerSettings narrow = tower("vit_tiny_patch16_224", {{"embed_dim", 96}, {"num_heads", 4}, {"mlp_ratio", 3}, {"reg_tokens", 2}, {"init_values", 0.1}, {"qkv_bias", false}});
  EXPECT_EQ(setting(narrow, "width"), "96");
  EXPECT_EQ(setting(narrow, "mlp_hidden"), "288");
  EXPECT_EQ(setting(narrow, "registers"), "2");
  EXPECT_EQ(setting(narrow, "prefix_positions"), "all");
  EXPECT_EQ(setting(narrow, "qkv_bias"), "none");
  EXPECT_EQ(setting(tower("vit_tiny_patch16_224", {{"reg_tokens", 2}, {"no_embed_class", true}}), "prefix_positions"), "none");
  EXPECT_EQ(setting(tower("eva02_tiny_patch14_224", {{"embed_dim", 96}, {"num_heads", 3}}), "mlp_hidden"), "256");
  EXPECT_EQ(tower("vit_tiny_patch16_224", {{"class_token", false}, {"global_pool", "map"}}).encoder.name, "vit");
  EXPECT_NE(error_of([&] { tower("vit_tiny_patch16_224", {{"mlp_layer", "SwiGLU"}}); })
                .find("c.json: model_args.mlp_layer is \"SwiGLU\", which is an argument of timm's that is not read here"),
            std::string::npos);
  EXPECT_NE(error_of([&] { tower("eva02_tiny_patch14_224", {{"mlp_ratio", 3}}); }).find("model_args.mlp_ratio is 3, which is read only for plain MLPs"),
            std::string::npos);
}

/// Small OpenCLIP models whose text encoders come from transformers.
class OpenClipTextTower : public testing::TestWithParam<std::string> {
 protected:
  OpenClipTextTower() : folder_(test_data("foreign/open_clip_" + GetParam())), foreign_(open_clip_model(io::read_file(config()), config())) {}
  std::string config() const { return folder_ + "/open_clip_config.json"; }
  std::string weights() const { return folder_ + "/open_clip_model.safetensors"; }

  std::string folder_;
  ForeignModel foreign_;
};
INSTANTIATE_TEST_SUITE_P(Encoders, OpenClipTextTower, testing::Values("bert", "roberta", "nllb", "mt5", "modern", "modern_map", "modern_plain", "modernbert"), test_name<std::string>);

TEST_P(OpenClipTextTower, MatchesOpenClipWithAndWithoutPadding) {
  const NamedTensors want = io::load_safetensors(folder_ + "/expected.safetensors").tensors;
  const at::NoGradGuard no_grad;
  for (const char* skip : {"true", "false"}) {
    ModelSettings settings = foreign_.model;
    settings.text->encoder.settings.set("skip_padding", config::Node::scalar(skip));
    const auto model = build_model(from_open_clip(weights(), settings), weights());
    EXPECT_LE(relative_error(model->encode_image(want.at("pixels")).global, want.at("image")), 1e-5);
    EXPECT_LE(relative_error(model->encode_text(text_input(want.at("ids"), want.at("mask"))).global, want.at("text")), 1e-5);
  }
}

/// Returns the error for a model_cfg with this text_cfg. The model's folder does not exist.
std::string text_tower_error(const nlohmann::json& text) {
  const nlohmann::json config = {{"model_cfg", {{"embed_dim", 24}, {"vision_cfg", {{"image_size", 16}, {"patch_size", 8}}}, {"text_cfg", text}}}};
  return error_of([&] { open_clip_model(config.dump(), "nowhere/c.json"); });
}

TEST(OpenClipTextTowers, AreKnownByNameOrByAConfigurationInTheFolder) {
  EXPECT_EQ(text_tower_error({{"hf_model_name", "xlm-roberta-base"}}), "no error");
  EXPECT_NE(text_tower_error({{"hf_model_name", "somebody/some-encoder"}})
                .find("nowhere/c.json: model_cfg.text_cfg.hf_model_name is somebody/some-encoder, whose settings are not known here (Alibaba-NLP/gte-modernbert-base"),
            std::string::npos);
  EXPECT_EQ(text_tower_error({{"hf_model_name", "google/mt5-base"}}), "no error");
  EXPECT_EQ(text_tower_error({{"hf_model_name", "answerdotai/ModernBERT-base"}, {"hf_model_config", {{"max_position_embeddings", 256}}}}), "no error");
}

TEST(OpenClipTextTowers, ErrorsNameWhatHasNoCounterpart) {
  const auto error = [](const char* key, const char* value) { return text_tower_error({{"hf_model_name", "roberta-base"}, {key, value}}); };
  EXPECT_NE(error("hf_pooler_type", "cls_pooler").find("the pooler cls_pooler of the text tower has no counterpart in our models, which have no dense layer"), std::string::npos);
  EXPECT_NE(error("hf_pooler_type", "max_pooler").find("the pooler max_pooler"), std::string::npos);
  EXPECT_NE(error("hf_proj_type", "conv").find("hf_proj_type"), std::string::npos);
  EXPECT_EQ(error("hf_proj_type", "linear"), "no error");
  const auto other = [](const char* key, const char* value) {
    nlohmann::json config = {{"model_type", "bert"}};
    config[key] = value;
    return error_of([&] { text_tower({config, "f/config.json"}, {"", "linear", 8, 8}); });
  };
  EXPECT_EQ(other("model_type", "gpt2").find("f/config.json: model_type is \"gpt2\", which is not a supported text encoder: bert"), 0);
  const auto of_family = [](const nlohmann::json& config) { return error_of([&] { text_tower({config, "f/config.json"}, {"", "linear", 8, 8}); }); };
  EXPECT_EQ(of_family({{"model_type", "gemma3_text"}, {"attn_logit_softcapping", 50.0}}).find("f/config.json: attn_logit_softcapping is 50.0"), 0);
  EXPECT_EQ(of_family({{"model_type", "modernbert"}, {"layer_types", {"chunked_attention"}}}).find("f/config.json: layer_types is [\"chunked_attention\"]"), 0);
  EXPECT_EQ(of_family({{"model_type", "mt5"}, {"feed_forward_proj", "gated-relu"}}).find("f/config.json: feed_forward_proj is \"gated-relu\""), 0);
  const auto modern = [](const char* key, const nlohmann::json& value) {
    nlohmann::json config = {{"text_arch", "modern"}, {"pool_type", "eos"}, {"eos_id", 1}};
    config[key] = value;
    return text_tower_error(config);
  };
  EXPECT_EQ(modern("qk_norm", true), "no error");
  EXPECT_NE(modern("value_residual", true).find("model_cfg.text_cfg.value_residual is true"), std::string::npos);
  EXPECT_NE(modern("pool_type", "last").find("last is not a pool of text_arch modern"), std::string::npos) << modern("pool_type", "last");
  EXPECT_NE(text_tower_error({{"qk_norm", true}}).find("qk_norm: is read only with text_arch: modern"), std::string::npos) << text_tower_error({{"qk_norm", true}});
  EXPECT_EQ(other("position_embedding_type", "relative_key").find("f/config.json: position_embedding_type is \"relative_key\""), 0);
}

TEST(OpenClipTextTowers, KeepTheSettingsOfTheTokenizer) {
  const nlohmann::json text = {{"hf_tokenizer_name", "bert-base-uncased"}, {"tokenizer_kwargs", {{"clean", "canonicalize"}, {"strip_sep_token", true}}}};
  const nlohmann::json config = {{"model_cfg", {{"embed_dim", 24}, {"vision_cfg", {{"image_size", 16}, {"patch_size", 8}}}, {"text_cfg", text}}}};
  const ForeignModel model = open_clip_model(config.dump(), "c.json");
  EXPECT_TRUE(model.tokenizer_in_folder);
  EXPECT_TRUE(model.separator_is_padding);
  EXPECT_EQ(model.cleanup, "canonicalize");
}

TEST(OpenClipTextTowers, TowerThatAttendsToPaddingTreatsItAsText) {
  const auto pad_is_text = [](const char* attention) {
    TowerSettings text;
    text.encoder = {"text_transformer"};
    text.encoder.settings.set("attention", config::Node::scalar(attention));
    return clip_tokenizer(text).settings.find("pad_is_text") != nullptr;
  };
  EXPECT_TRUE(pad_is_text("bidirectional"));
  EXPECT_FALSE(pad_is_text("causal"));
}

/// A fixture with a copy of a published folder, which tests may damage.
class BrokenFolder : public FolderTest {
 protected:
  BrokenFolder() { fs::copy(test_data("foreign/dinov3"), folder_); }
  std::string error() const {
    return error_of([&] { build_model(load_foreign_model(folder_.string()), folder_.string()); });
  }
  void change_config(const std::string& key, const nlohmann::json& value) const {
    nlohmann::json config = nlohmann::json::parse(io::read_file(path("config.json")));
    config[key] = value;
    io::write_file(path("config.json"), config.dump());
  }
};

TEST_F(BrokenFolder, NamesAMissingShard) {
  io::write_file(path("model.safetensors.index.json"), R"({"weight_map": {"norm.weight": "model-00002-of-00002.safetensors"}})");
  EXPECT_EQ(error(), path("model.safetensors.index.json") +
                         ": names the file model-00002-of-00002.safetensors, which is not in the folder: fetch the whole model again");
}

TEST_F(BrokenFolder, NamesAnUnknownActivation) {
  change_config("hidden_act", "swish_2");
  EXPECT_EQ(error(), path("config.json") + ": hidden_act is \"swish_2\", which is not an activation that our models have");
}

TEST_F(BrokenFolder, NamesAnUnknownFamily) {
  change_config("model_type", "blip");
  EXPECT_NE(error().find("model_type is \"blip\", which is not a supported family: bert, clip, clip_text_model"), std::string::npos);
}

TEST_F(BrokenFolder, NamesAValueOfTheWrongType) {
  change_config("num_hidden_layers", "two");
  EXPECT_EQ(error(), path("config.json") + ": num_hidden_layers is \"two\", which has another type than its library writes");
}

TEST_F(BrokenFolder, NamesAWrongShapeAndAnExtraTensor) {
  NamedTensors tensors = load_foreign_weights(folder_.string());
  tensors["norm.weight"] = at::ones({5});
  io::save_safetensors(path("model.safetensors"), tensors);
  EXPECT_NE(error().find("tensor visual.ln_post.weight is [5], but the model's settings make it [32]"), std::string::npos) << error();
  tensors["norm.weight"] = at::ones({32});
  tensors["head.extra"] = at::ones({1});
  io::save_safetensors(path("model.safetensors"), tensors);
  EXPECT_NE(error().find("tensor head.extra [1] is left over"), std::string::npos) << error();
}

TEST_F(BrokenFolder, ReadsPyTorchShardsAndNamesAMissingOne) {
  const std::string index = path("pytorch_model.bin.index.json"), first = path("pytorch_model-00001-of-00002.bin");
  fs::rename(path("model.safetensors"), first);
  nlohmann::json map;
  for (const auto& [name, tensor] : io::load_safetensors(first).tensors) map[name] = "pytorch_model-00001-of-00002.bin";
  io::write_file(index, nlohmann::json{{"weight_map", map}}.dump());
  EXPECT_EQ(error(), "no error");
  map["norm.weight"] = "pytorch_model-00002-of-00002.bin";
  io::write_file(index, nlohmann::json{{"weight_map", map}}.dump());
  EXPECT_EQ(error(), index + ": names the file pytorch_model-00002-of-00002.bin, which is not in the folder: fetch the whole model again");
  map["norm.weight"] = 2;
  io::write_file(index, nlohmann::json{{"weight_map", map}}.dump());
  EXPECT_EQ(error(), index + ": weight_map.norm.weight is 2, which has another type than its library writes");
}

TEST_F(BrokenFolder, NamesATensorThatNoShardHolds) {
  io::write_file(path("model.safetensors.index.json"), R"({"weight_map": {"norm.width": "model.safetensors"}})");
  fs::rename(path("model.safetensors"), path("model-1.safetensors"));
  io::write_file(path("model.safetensors.index.json"), R"({"weight_map": {"norm.width": "model-1.safetensors"}})");
  EXPECT_EQ(error(), path("model.safetensors.index.json") + ": says that \"model-1.safetensors\" holds tensor norm.width, but it does not");
}

TEST_F(BrokenFolder, ShardsOfAWrappedModelAreRead) {
  NamedTensors halves[2];
  nlohmann::json map;
  for (const auto& [name, tensor] : io::load_safetensors(path("model.safetensors")).tensors) {
    const std::size_t half = name < "layer" ? 0 : 1;
    halves[half]["_orig_mod.module." + name] = tensor;
    map["_orig_mod.module." + name] = half == 0 ? "a.safetensors" : "b.safetensors";
  }
  io::save_safetensors(path("a.safetensors"), halves[0]);
  io::save_safetensors(path("b.safetensors"), halves[1]);
  io::write_file(path("model.safetensors.index.json"), nlohmann::json{{"weight_map", map}}.dump());
  EXPECT_EQ(error(), "no error");
}

TEST_F(BrokenFolder, NamesATruncatedFile) {
  const std::string whole = io::read_file(path("model.safetensors"));
  io::write_file(path("model.safetensors"), whole.substr(0, whole.size() - 100));
  EXPECT_EQ(error().find(path("model.safetensors") + ": tensor "), 0) << error();
  EXPECT_NE(error().find("(truncated file?)"), std::string::npos) << error();
}

TEST_F(BrokenFolder, DoesNotReadAPickleThatRunsCode) {
  fs::remove(path("model.safetensors"));
  fs::copy(test_data("pytorch/runs_code.pt"), path("pytorch_model.bin"));
  EXPECT_EQ(error().find(path("pytorch_model.bin") + ": its pickle calls posix.system"), 0) << error();
}

TEST_F(BrokenFolder, NamesAConfigurationThatIsNotAnObject) {
  io::write_file(path("config.json"), "[1, 2");
  EXPECT_EQ(error(), path("config.json") + ": is not a JSON object: the file is damaged, or not a configuration");
}

TEST_F(BrokenFolder, ReportsMissingWeights) {
  fs::remove(path("model.safetensors"));
  EXPECT_NE(error().find("holds no weights: expected model.safetensors"), std::string::npos);
}

TEST(TensorRules, JoinAndSplitInBothDirections) {
  const std::vector<TensorRule> rules = {{{"b.*.q", "b.*.kv"}, {"r.*.qkv"}, TensorChange::same, {1, 2}},
                                         {{"b.*.up"}, {"r.*.gate", "r.*.fc"}},
                                         {{"head"}, {"proj"}, TensorChange::transposed},
                                         {{"cls"}, {"cls"}, TensorChange::two_ahead},
                                         {{"rest.**"}, {"own.**"}}};
  const NamedTensors own = {{"r.0.qkv", at::randn({6, 2})}, {"r.0.gate", at::randn({3, 2})}, {"r.0.fc", at::randn({3, 2})},
                            {"proj", at::randn({4, 5})},    {"cls", at::randn({4})},         {"own.a.b", at::randn({2})}};
  const RenamedTensors theirs = write_by_rules(rules, own);
  EXPECT_TRUE(theirs.left_over.empty());
  EXPECT_EQ(theirs.tensors.at("b.0.q").size(0), 2);
  EXPECT_EQ(theirs.tensors.at("b.0.up").size(0), 6);
  EXPECT_EQ(theirs.tensors.at("head").size(0), 5);
  EXPECT_EQ(theirs.tensors.at("cls").dim(), 3);
  const RenamedTensors back = read_by_rules(rules, theirs.tensors, own, "file");
  EXPECT_TRUE(back.left_over.empty());
  ASSERT_EQ(back.tensors.size(), own.size());
  for (const auto& [name, tensor] : own) EXPECT_TRUE(at::equal(back.tensors.at(name), tensor)) << name;
}

/// A fixture for a DINOv3 folder with additional entries in preprocessor_config.json.
class PreprocessorConfig : public BrokenFolder {
 protected:
  Preprocessing read(const nlohmann::json& entries) const {
    nlohmann::json whole = {{"size", {{"shortest_edge", 32}}}, {"crop_size", {{"height", 32}, {"width", 32}}}};
    whole.update(entries);
    io::write_file(path("preprocessor_config.json"), whole.dump());
    return read_foreign_folder(folder_.string()).model.preprocessing;
  }
};

TEST_F(PreprocessorConfig, RejectsUnsupportedEntriesByName) {
  const std::vector<std::pair<nlohmann::json, std::string>> cases = {
      {{{"resample", 1}}, "resample is 1, which is neither bilinear (2) nor bicubic (3); 0 is nearest, 1 Lanczos"},
      {{{"resample", 0}}, "resample is 0"},
      {{{"do_resize", false}}, "do_resize is false"},
      {{{"do_rescale", false}}, "do_rescale is false"},
      {{{"do_pad", true}}, "do_pad is true"},
      {{{"size", {{"longest_edge", 40}}}}, "size is {\"longest_edge\":40}"},
      {{{"size", {{"shortest_edge", 20}}}}, "crop_size is {\"height\":32,\"width\":32}, which is larger"}};
  for (const auto& [entries, want] : cases) {
    const std::string got = error_of([&] { read(entries); });
    EXPECT_NE(got.find("preprocessor_config.json: " + want), std::string::npos) << got;
  }
}

TEST_F(PreprocessorConfig, DeterminesSizesAndNormalization) {
  for (const std::int64_t resized : {32, 33, 37, 50, 61}) {
    const Preprocessing cropped = read({{"size", {{"shortest_edge", resized}}}});
    EXPECT_EQ(cropped.image_size, config::Size(32));
    EXPECT_EQ(static_cast<std::int64_t>(std::floor(32 / cropped.crop_pct)), resized);
  }
  const Preprocessing raw = read({{"do_normalize", false}, {"rescale_factor", 1.0}});
  EXPECT_NEAR(raw.std[0], 1.0 / 255, 1e-9);
  EXPECT_NEAR(raw.mean[0], 0.0, 1e-9);
  const Preprocessing halves = read({{"image_mean", {0.5, 0.5, 0.5}}, {"rescale_factor", 1.0 / 127.5}, {"image_std", {1.0, 1.0, 1.0}}});
  EXPECT_NEAR(halves.mean[0], 0.25, 1e-9);
  EXPECT_NEAR(halves.std[0], 0.5, 1e-9);
}

TEST_F(PreprocessorConfig, IsFirstLookedForInTheProcessorOfTransformers5) {
  io::write_file(path("processor_config.json"),
                 R"({"image_processor": {"size": {"height": 48, "width": 64}, "image_mean": [0.1, 0.2, 0.3]}})");
  const Preprocessing inside = read({{"image_mean", {0.5, 0.5, 0.5}}});
  EXPECT_EQ(inside.image_size, config::Size(48, 64));
  EXPECT_EQ(inside.mean[1], 0.2);
  io::write_file(path("processor_config.json"), R"({"image_processor": {"resample": 1}})");
  EXPECT_NE(error_of([&] { read({{"resample", 2}}); }).find("processor_config.json: image_processor.resample is 1"), std::string::npos);
  io::write_file(path("processor_config.json"), R"({"processor_class": "CLIPProcessor"})");
  EXPECT_EQ(read({{"image_mean", {0.5, 0.5, 0.5}}}).mean[1], 0.5);
}

TEST(Preprocessing, IsThatOfTheFamilyIfAFolderHasNone) {
  const auto of = [](const char* name) { return read_foreign_folder(test_data(std::string("foreign/") + name)).model.preprocessing; };
  EXPECT_EQ(of("siglip").resize_mode, "squash");
  EXPECT_EQ(of("siglip").interpolation, "bicubic");
  EXPECT_EQ(of("vit").interpolation, "bilinear");
  EXPECT_EQ(of("clip").resize_mode, "shortest");
}

TEST(TimmTable, BuildsAModelFromItsRowOrRejectsItWithAReason) {
  const ForeignConfig none(nlohmann::json::object(), "arguments");
  const TimmTower tower = timm_tower("vit_small_patch16_dinov3", none, {}, "c.json");
  EXPECT_EQ(tower.tower.encoder.name, "vit");
  EXPECT_EQ(tower.tower.encoder.settings.find("registers")->text(), "4");
  EXPECT_EQ(tower.tower.readout.name, "gap");
  EXPECT_EQ(timm_tower("convnext_atto", none, {}, "c.json").tower.encoder.name, "convnext");
  EXPECT_EQ(timm_tower("resnet50", none, {}, "c.json").tower.encoder.name, "timm_resnet");
  EXPECT_NE(error_of([&] { timm_tower("vit_relpos_small_patch16_224", none, {}, "c.json"); })
                .find("c.json: timm's vit_relpos_small_patch16_224 is not read: our models lack"),
            std::string::npos);
  EXPECT_NE(error_of([&] { timm_tower("vit_hugo", none, {}, "c.json"); }).find("no timm architecture named vit_hugo"),
            std::string::npos);
}

/// Tests both ways of pairing the channels that are rotated together.
class RotaryPairs : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Pairs, RotaryPairs, testing::Values("neighbors", "halves"), test_name<std::string>);

TEST_P(RotaryPairs, ScoresDependOnlyOnTheDifferenceOfPositions) {
  at::manual_seed(1);
  RotarySettings settings;
  settings.pairs = GetParam();
  const std::int64_t heads = 2, width = 16;
  const Rotation rotation = rotation_of_grid(settings, {3, 4}, width / heads, 1, at::kCPU);
  const at::Tensor one = at::randn({1, 1, width}, at::kDouble), other = at::randn({1, 1, width}, at::kDouble);
  const at::Tensor q = rotated(one.expand({1, 13, width}), heads, rotation), k = rotated(other.expand({1, 13, width}), heads, rotation);
  EXPECT_TRUE(at::equal(q.select(1, 0), one.select(1, 0))) << "the class token is not rotated";
  const at::Tensor scores = at::matmul(q.slice(1, 1), k.slice(1, 1).mT())[0].view({3, 4, 3, 4});
  EXPECT_TRUE(at::allclose(scores[0][0][1][2], scores[1][1][2][3], 1e-5, 1e-5));
  EXPECT_FALSE(at::allclose(scores[0][0][1][2], scores[0][0][2][1], 1e-5, 1e-5));
  EXPECT_NEAR((q.norm() - one.expand({1, 13, width}).norm()).item<double>(), 0, 1e-5) << "a rotation keeps lengths";
}

TEST(Rotary, ReferenceGridStretchesOtherGrids) {
  RotarySettings settings;
  settings.reference = config::Size(4);
  const Rotation fine = rotation_of_grid(settings, {8, 8}, 8, 0, at::kCPU);
  settings.reference.reset();
  const Rotation coarse = rotation_of_grid(settings, {4, 4}, 8, 0, at::kCPU);
  const auto at_place = [](const Rotation& r, std::int64_t side, std::int64_t row, std::int64_t column) {
    return r.sine[row * side + column];
  };
  EXPECT_TRUE(at::allclose(at_place(fine, 8, 2, 6), at_place(coarse, 4, 1, 3)));
}

/// Returns DINOv3's settings with all three random augmentations.
RotarySettings augmented_rotary() {
  RotarySettings settings;
  settings.coordinates = "centered";
  settings.base = 100;
  settings.shift = 0.5;
  settings.jitter = 1.2;
  settings.rescale = 2.0;
  return settings;
}

TEST(Rotary, DrawsPerImageAndTheSameInAnyChunk) {
  const RotarySettings settings = augmented_rotary();
  const at::Tensor keys = row_keys(7, 0, 1, 6);
  const auto sine = [&](std::int64_t first, std::int64_t count) {
    const RowRngScope keyed(keys.narrow(0, first, count));
    return drawn_rotation_of_grid(settings, {3, 4}, 8, 1, at::kCPU, count).sine;
  };
  const at::Tensor whole = sine(0, 6);
  EXPECT_EQ(whole.sizes(), at::IntArrayRef({6, 12, 4}));
  EXPECT_TRUE(at::equal(whole, at::cat({sine(0, 2), sine(2, 4)})));
  EXPECT_FALSE(at::allclose(whole[0], whole[1]));
}

// With heads of width 4 there is one frequency per axis, and the angle is 2 pi times the coordinate. So the test can compute the random
// numbers from the angles.
TEST(Rotary, ShiftsThenScalesTheCoordinatesLikeDinoV3) {
  RotarySettings settings = augmented_rotary();
  settings.shift = 0.05;  // keeps the angle of the center patch well below half a turn, where angles become ambiguous
  settings.jitter = 1.1;
  settings.rescale = 1.2;
  constexpr std::int64_t kRows = 4000;
  const RowRngScope keyed(row_keys(3, 0, 1, kRows));
  const Rotation drawn = drawn_rotation_of_grid(settings, {3, 3}, 4, 0, at::kCPU, kRows);  // the coordinates are -2/3, 0 and 2/3
  const at::Tensor places = at::atan2(drawn.sine, drawn.cosine) / (2 * std::numbers::pi);  // [B, 9, (row, column)]
  const at::Tensor moved = places.select(1, 4);                                            // index 4 is the center patch, at shift * factor
  // The outer coordinates may pass half a turn, so their distance from the center is taken modulo one turn.
  const at::Tensor factor = (places.select(1, 8) - moved).remainder(1.0) * 1.5;  // [B, 2]
  const at::Tensor shift = moved / factor, logs = factor.log();
  EXPECT_NEAR(shift.abs().max().item<double>(), 0.05, 1e-3);
  EXPECT_NEAR(shift.mean().item<double>(), 0, 2e-3);
  EXPECT_NEAR(shift.std().item<double>(), 0.05 / std::sqrt(3.0), 1e-3);
  const at::Tensor common = logs.mean(1), own = logs.select(1, 0) - logs.select(1, 1);
  EXPECT_NEAR(logs.mean().item<double>(), 0, 1e-2);
  EXPECT_LE(logs.abs().max().item<double>(), std::log(1.1 * 1.2) + 1e-4);
  EXPECT_NEAR(own.std().item<double>(), std::sqrt(2.0 / 3.0) * std::log(1.1), 3e-3) << "each axis has its own jitter";
  EXPECT_NEAR(common.std().item<double>(), std::sqrt(std::pow(std::log(1.2), 2) / 3 + std::pow(std::log(1.1), 2) / 6), 3e-3)
      << "both axes share one rescale";
}

TEST(Rotary, AugmentsOnlyATrainedEncoderInTraining) {
  at::manual_seed(1);
  VitSettings settings;
  settings.image_size = 32;
  settings.patch_size = 8;
  settings.width = 16;
  settings.layers = 1;
  settings.heads = 2;
  settings.rotary = augmented_rotary();
  Vit vit(settings);
  const at::Tensor pixels = at::randn({2, 3, 32, 32});
  const at::NoGradGuard no_grad;
  const auto tokens = [&](std::uint64_t seed) {
    const RowRngScope keyed(row_keys(seed, 0, 1, 2));
    return vit.encode(image_input(pixels)).tokens;
  };
  EXPECT_FALSE(at::allclose(tokens(1), tokens(2)));
  EXPECT_TRUE(at::equal(tokens(1), tokens(1)));
  const at::Tensor augmented = tokens(1);
  vit.eval();
  const at::Tensor plain = tokens(1);
  EXPECT_FALSE(at::allclose(augmented, plain));
  vit.train();
  for (const at::Tensor& parameter : vit.parameters()) at::Tensor(parameter).set_requires_grad(false);
  EXPECT_TRUE(at::equal(tokens(2), plain));
}

}  // namespace
}  // namespace tessera
