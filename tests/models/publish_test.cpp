// Tests writing models in the folder formats of other libraries, and reading them back.
#include <filesystem>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "src/foreign/publish.h"
#include "src/foreign/same_model.h"
#include "src/foreign/timm.h"
#include "src/foreign/open_clip.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test_data.h"
#include "tests/support/test_name.h"
#include <tessera/io/atomic_file.h>
#include <tessera/io/safetensors.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class Publish : public FolderTest {
 protected:
  /// Copies a folder of tests/data/foreign without expected.safetensors (the original library's outputs). Returns the copy's path.
  std::string copy_of(const std::string& name) const {
    const std::string folder = path("published");
    fs::copy(test_data("foreign/" + name), folder);
    fs::remove(folder + "/expected.safetensors");
    return folder;
  }

  /// Converts the folder to a Tessera model file and returns the model read back from that file.
  ModelFile through_ours(const std::string& folder) const {
    save_model_file(path("ours.safetensors"), load_published_folder(folder));
    return load_model_file(path("ours.safetensors"));
  }

  PublishedFolder write(const ModelFile& file, const std::string& library, const std::string& name = "written") const {
    fs::remove_all(path(name));
    return write_published(file, {library, path(name), {}, "ours"});
  }
  std::string error_of(const ModelFile& file, const std::string& library) const {
    const std::string error = tessera::error_of([&] { write(file, library, "refused"); });
    EXPECT_FALSE(fs::exists(path("refused")));
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), left_) << "no temporary files are left";
    return error;
  }

  void expect_same_files(const std::string& folder, const std::string& other) const {
    std::size_t files = 0;
    for (const auto& entry : fs::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      ASSERT_TRUE(fs::exists(other + "/" + name)) << name;
      EXPECT_TRUE(io::read_file(entry.path().string()) == io::read_file(other + "/" + name)) << name;
      ++files;
    }
    EXPECT_EQ(files, static_cast<std::size_t>(std::distance(fs::directory_iterator(other), fs::directory_iterator())));
  }

  /// Expects the model in the written folder to compute the same embeddings as the model of the file.
  void expect_same_model(const ModelFile& file, const std::string& folder) const {
    const auto first = build_model(file, "first"), second = build_model(load_published_folder(folder), folder);
    const at::NoGradGuard no_grad;
    const config::Size size = file.model.preprocessing.image_size;
    at::manual_seed(3);
    const at::Tensor pixels = at::rand({2, 3, size.height, size.width});
    EXPECT_TRUE(at::allclose(second->encode_image(pixels).global, first->encode_image(pixels).global, 1e-5, 1e-6));
    if (!second->has_text_tower()) return;
    const Encoder& texts = first->text_tower().encoder();
    const at::Tensor ids = at::randint(1, 30, {2, texts.context_length()}, at::kLong);
    ids.select(1, -1).fill_(texts.vocab_size() - 1);  // the last id is CLIP's end token
    const TowerInput text = text_input(ids, at::ones_like(ids, at::kBool));
    EXPECT_TRUE(at::allclose(second->encode_text(text).global, first->encode_text(text).global, 1e-5, 1e-6));
  }

  static Json make_json(const std::string& file) { return Json::parse(io::read_file(file)); }
  static void change(const std::string& file, const std::function<void(Json&)>& how) {
    Json json = make_json(file);
    how(json);
    io::write_file(file, json.dump(2) + "\n");
  }

  std::ptrdiff_t left_ = 0;  // the number of files in the test's folder before a write; a rejected write must not change it
};

ModelFile random_model(const ModelSettings& settings) {
  at::manual_seed(1);
  ModelFile file;
  const DualEncoder model(settings);
  file.model = model.settings();
  for (const auto& [name, tensor] : model.state_dict()) {
    const bool number = tensor.is_floating_point();
    const at::Tensor moved = number ? at::rand_like(tensor) * 0.1 + tensor : tensor;
    file.weights[name] = moved.detach().clone();
  }
  return file;
}

ModelFile random_model(const std::string& yaml) {
  return random_model(resolve(config::read<ModelSettings>(config::parse_yaml(yaml, "model"))));
}

/// Tests with small folders that transformers and OpenCLIP wrote.
class RoundTrip : public Publish, public testing::WithParamInterface<std::string> {
 protected:
  std::string library() const { return GetParam().starts_with("open_clip") ? "open_clip" : GetParam().starts_with("timm") ? "timm" : "transformers"; }
};
INSTANTIATE_TEST_SUITE_P(Families, RoundTrip,
                         testing::Values("clip", "siglip", "dinov2_registers", "dinov3", "siglip2", "open_clip_bert", "open_clip_roberta", "open_clip_nllb", "open_clip_mt5",
                                         "open_clip_modern", "open_clip_modern_map", "open_clip_modern_plain", "open_clip_modernbert", "timm_naflex", "timm_naflex_gap"),
                         test_name<std::string>);

TEST_P(RoundTrip, RestoresEveryByte) {
  const std::string folder = copy_of(GetParam());
  io::write_file(folder + "/special_tokens_map.json", "{ \"odd\":   \"spacing\" }");
  write(through_ours(folder), library());
  expect_same_files(folder, path("written"));
}

TEST_P(RoundTrip, ChangedModelKeepsItsConfiguration) {
  const std::string folder = copy_of(GetParam());
  ModelFile file = through_ours(folder);
  for (auto& [name, tensor] : file.weights) tensor = tensor + 0.01;
  write(file, library());
  const std::string config = library() == "open_clip" ? "/open_clip_config.json" : "/config.json";
  EXPECT_EQ(io::read_file(path("written") + config), io::read_file(folder + config));
  expect_same_model(file, path("written"));
}

TEST_P(RoundTrip, ConfigurationMadeFromSettingsDescribesTheSameModel) {
  if (library() != "transformers") GTEST_SKIP() << "OpenCLIP: our settings have no name of an encoder at Hugging Face; timm: TimmRoundTrip has the test";
  const std::string folder = copy_of(GetParam());
  ModelFile file = through_ours(folder);
  file.published = nullptr;
  file.model.preprocessing.mean = {0.1, 0.2, 0.3};
  const PublishedFolder written = write(file, "transformers");
  EXPECT_EQ("transformers' " + make_json(path("written/config.json")).at("architectures").at(0).get<std::string>(), written.what);
  EXPECT_EQ(make_json(path("written/config.json")).at("model_type"), make_json(folder + "/config.json").at("model_type"));
  EXPECT_EQ(make_json(path("written/preprocessor_config.json")).at("image_mean").at(2), 0.3);
  expect_same_model(file, path("written"));
  // The written folder must have exactly the tensors of transformers' class.
  NamedTensors theirs = load_foreign_weights(folder);
  for (const auto& [name, tensor] : load_foreign_weights(path("written"))) {
    ASSERT_TRUE(theirs.contains(name)) << name;
    EXPECT_EQ(tensor.sizes(), theirs.at(name).sizes()) << name;
    theirs.erase(name);
  }
  EXPECT_TRUE(theirs.empty()) << theirs.begin()->first;
}

TEST_F(Publish, ImageTowerWithoutTextHasItsOwnClass) {
  ModelFile file = through_ours(copy_of("clip"));
  file.model.text.reset();
  std::erase_if(file.weights, [](const auto& item) { return !is_image_parameter(item.first); });
  EXPECT_EQ(write(file, "transformers").what, "transformers' CLIPVisionModelWithProjection");
  expect_same_model(file, path("written"));
}

TEST_F(Publish, RestoresHalfPrecisionUnlessTheModelChanged) {
  const std::string folder = copy_of("siglip");
  NamedTensors half = load_foreign_weights(folder);
  for (auto& [name, tensor] : half) tensor = tensor.to(name == "logit_scale" ? at::kBFloat16 : at::kHalf);
  io::save_safetensors(folder + "/model.safetensors", half, {{"format", "pt"}});
  change(folder + "/config.json", [](Json& json) { json["dtype"] = "float16"; });
  ModelFile file = through_ours(folder);
  write(file, "transformers");
  expect_same_files(folder, path("written"));
  file.weights.at("visual.conv1.bias").fill_(1e-9);
  write(file, "transformers");
  EXPECT_EQ(make_json(path("written/config.json")).at("dtype"), "float32");
  EXPECT_EQ(load_foreign_weights(path("written")).at("vision_model.embeddings.patch_embedding.bias").scalar_type(), at::kFloat);
}

TEST_F(Publish, RestoresShards) {
  const std::string folder = copy_of("dinov3"), index = folder + "/model.safetensors.index.json";
  NamedTensors first = load_foreign_weights(folder), second;
  for (const auto& [name, tensor] : first)
    if (name.starts_with("layer.1.")) second.emplace(name, tensor);
  Json map;
  for (const auto& [name, tensor] : first) map[name] = second.contains(name) ? "model-00002-of-00002.safetensors" : "model-00001-of-00002.safetensors";
  std::erase_if(first, [&](const auto& item) { return second.contains(item.first); });
  io::save_safetensors(folder + "/model-00001-of-00002.safetensors", first, {{"format", "pt"}});
  io::save_safetensors(folder + "/model-00002-of-00002.safetensors", second, {{"format", "pt"}});
  io::write_file(index, Json{{"metadata", {{"total_size", 1}}}, {"weight_map", map}}.dump());
  fs::remove(folder + "/model.safetensors");
  ModelFile file = through_ours(folder);
  write(file, "transformers");
  expect_same_files(folder, path("written"));
  file.published = nullptr;
  write(file, "transformers");
  EXPECT_TRUE(fs::exists(path("written/model.safetensors")));
  EXPECT_FALSE(fs::exists(path("written/model.safetensors.index.json")));
}

TEST_F(Publish, RestoresPositionsOfAnotherSizeUntilTheyAreTrained) {
  const std::string folder = copy_of("dinov2_registers");
  io::write_file(folder + "/preprocessor_config.json", R"({"size": {"height": 42, "width": 42}, "image_mean": [0.5, 0.5, 0.5]})");
  ModelFile file = through_ours(folder);
  EXPECT_EQ(file.weights.at("visual.positional_embedding").size(0), 1 + 9) << "positions are resampled when read";
  write(file, "transformers");
  expect_same_files(folder, path("written"));
  file.weights.at("visual.conv1.bias").add_(1);
  write(file, "transformers");
  EXPECT_EQ(io::read_file(path("written/config.json")), io::read_file(folder + "/config.json")) << "the positions did not change";
  file.weights.at("visual.positional_embedding").add_(1);
  write(file, "transformers");
  EXPECT_EQ(make_json(path("written/config.json")).at("image_size"), 42);
  EXPECT_EQ(load_foreign_weights(path("written")).at("embeddings.position_embeddings").size(1), 1 + 9);
  EXPECT_TRUE(load_foreign_weights(path("written")).contains("embeddings.mask_token"));
  expect_same_model(file, path("written"));
}

TEST_F(Publish, WritesPositionsOfAChosenSizeForTransformers) {
  const std::string folder = copy_of("clip");
  const ModelFile file = load_published_folder(folder, {.image_size = config::Size(24)});
  const std::int64_t positions = file.weights.at("visual.positional_embedding").size(0);
  ASSERT_NE(load_foreign_weights(folder).at("vision_model.embeddings.position_embedding.weight").size(0), positions);
  write(file, "transformers");
  EXPECT_EQ(make_json(path("written/config.json")).at("vision_config").at("image_size"), 24);
  EXPECT_EQ(load_foreign_weights(path("written")).at("vision_model.embeddings.position_embedding.weight").size(0), positions);
  expect_same_model(file, path("written"));
}

constexpr const char* kCoca = R"({"model_cfg": {"embed_dim": 24, "multimodal_cfg": {"context_length": 9, "vocab_size": 40, "width": 16, "heads": 2, "layers": 1},
  "vision_cfg": {"image_size": 16, "patch_size": 8, "width": 16, "layers": 1, "head_width": 8, "attentional_pool": true, "attn_pooler_queries": 4, "attn_pooler_heads": 2},
  "text_cfg": {"context_length": 8, "vocab_size": 40, "width": 16, "heads": 2, "layers": 1, "embed_cls": true}, "custom_text": true},
  "preprocess_cfg": {"size": 16}})";

TEST_F(Publish, KeepsTheDecoderOfCocaAfterTraining) {
  const std::string folder = path("published");
  io::write_file(folder + "/open_clip_config.json", kCoca);
  const ForeignModel foreign = open_clip_model(kCoca, folder + "/open_clip_config.json");
  NamedTensors own = random_model(foreign.model).weights;
  own["logit_scale"] = at::scalar_tensor(2.0);
  NamedTensors theirs = write_by_rules(foreign.rules, own).tensors;
  theirs["text_decoder.resblocks.0.ln_1.weight"] = at::rand({16});
  io::save_safetensors(folder + "/open_clip_model.safetensors", theirs);
  ModelFile file = through_ours(folder);
  EXPECT_FALSE(file.weights.contains("published.tensor.text_decoder.resblocks.0.ln_1.weight"));
  write(file, "open_clip");
  expect_same_files(folder, path("written"));
  file.weights.at("visual.conv1.weight").add_(1);
  file.model.preprocessing.interpolation = "bilinear";
  write(file, "open_clip");
  const NamedTensors trained = load_weights(path("written/open_clip_model.safetensors"));
  EXPECT_TRUE(at::equal(trained.at("text_decoder.resblocks.0.ln_1.weight"), theirs.at("text_decoder.resblocks.0.ln_1.weight")));
  EXPECT_TRUE(at::equal(trained.at("visual.conv1.weight"), file.weights.at("visual.conv1.weight")));
  const Json config = make_json(path("written/open_clip_config.json"));
  EXPECT_EQ(config.at("preprocess_cfg").at("interpolation"), "bilinear");
  EXPECT_EQ(config.at("model_cfg").at("multimodal_cfg").at("layers"), 1);
}

/// Tests with timm's towers; ViTs are shortened to one block.
class TimmRoundTrip : public Publish, public testing::WithParamInterface<std::string> {};
INSTANTIATE_TEST_SUITE_P(Names, TimmRoundTrip,
                         testing::Values("vit_tiny_patch16_224", "eva02_tiny_patch14_224", "vit_pe_core_tiny_patch16_384", "deit3_small_patch16_224",
                                         "vit_tiny_patch16_dinov3_qkvb", "vit_small_patch14_reg4_dinov2", "convnext_atto", "resnet18", "naflexvit_base_patch16_siglip",
                                         "naflexvit_so150m2_patch16_reg1_gap"),
                         test_name<std::string>);

TEST_P(TimmRoundTrip, FindsANameForTheSettingsThatReadsBackTheSame) {
  const bool vit = !GetParam().starts_with("convnext") && !GetParam().starts_with("resnet");
  Json arguments = Json::object();
  if (vit) arguments["depth"] = 1;
  ModelSettings settings;
  settings.text.reset();
  const TimmTower timm = timm_tower(GetParam(), {arguments, "test"}, {}, "test");
  settings.image = timm.tower;
  settings.preprocessing.image_size = config::Value<config::Size>::read(*settings.image.encoder.settings.find("image_size"), "", {});
  settings.preprocessing.resize_mode = timm.preprocessing.resize_mode == "naflex" ? "naflex" : "squash";
  const ModelFile file = random_model(resolve(settings));
  write(file, "timm");
  const Json config = make_json(path("written/config.json"));
  EXPECT_EQ(config.at("num_classes"), 0);
  EXPECT_EQ(config.value("model_args", Json::object()).value("depth", 0), vit ? 1 : 0);
  expect_same_model(file, path("written"));
  fs::rename(path("written"), path("published"));
  write(through_ours(path("published")), "timm");
  expect_same_files(path("published"), path("written"));
}

TEST_F(Publish, WritesOnlyTheImageTowerForTimm) {
  ModelSettings settings = random_model(resolve({})).model;
  settings.image.encoder = timm_tower("vit_tiny_patch16_224", {Json{{"depth", 1}}, "test"}, {}, "test").tower.encoder;
  settings.text->encoder.settings.set("layers", config::Node::scalar("1"));
  const ModelFile file = random_model(resolve(settings));
  const PublishedFolder written = write(file, "timm");
  ASSERT_EQ(written.notes.size(), 1U);
  EXPECT_EQ(written.notes[0], "left out because timm's models are image towers: the text tower and the image projection");
  EXPECT_FALSE(read_published_folder(path("written")).model.text);
}

TEST_F(Publish, WritesATimmDinov2ForTransformers) {
  ModelSettings settings;
  settings.text.reset();
  settings.image = timm_tower("vit_small_patch14_reg4_dinov2", {Json{{"depth", 1}, {"img_size", 28}}, "test"}, {}, "test").tower;
  settings.preprocessing.image_size = 28;
  const ModelFile file = random_model(resolve(settings));
  left_ = 0;
  // In models with registers, the class token has a position embedding in transformers but not in timm.
  EXPECT_EQ(error_of(file, "transformers"),
            "ours: transformers has no class for this model: its model.image.encoder.prefix_positions is \"none\", not \"class_token\" as in "
            "transformers' Dinov2WithRegistersModel");
  settings.image = timm_tower("vit_small_patch14_dinov2", {Json{{"depth", 1}, {"img_size", 28}}, "test"}, {}, "test").tower;
  const ModelFile plain = random_model(resolve(settings));
  EXPECT_EQ(write(plain, "transformers").what, "transformers' Dinov2Model");
  expect_same_model(plain, path("written"));
}

constexpr const char* kOurs = R"(
image: {encoder: {name: vit, patch_size: 8, width: 16, layers: 2, heads: 2, activation: quick_gelu}, readout: {name: cls},
        projection: {name: linear, embed_dim: 12}}
text: {encoder: {name: text_transformer, vocab_size: 49408, context_length: 9, width: 8, layers: 1, heads: 2, activation: quick_gelu},
       readout: {name: eos}, projection: {name: linear, embed_dim: 12}}
preprocessing: {image_size: 32}
)";

TEST_F(Publish, WritesAModelTrainedHereForTransformersAndOpenClip) {
  ModelFile file = random_model(kOurs);
  file.weights["logit_scale"] = at::scalar_tensor(3.5);
  file.weights["objective.queue"] = at::rand({2});
  file.tokenizer = clip_tokenizer(*file.model.text);
  const PublishedFolder folder = write(file, "transformers");
  EXPECT_EQ(folder.what, "transformers' CLIPModel");
  EXPECT_EQ(folder.notes, (std::vector<std::string>{"left out because only training uses them: 1 tensor, objective.queue",
                                                    "its tokenizer clip-bpe is not part of it: pass the ids of the tokenizer that it was "
                                                    "trained with to transformers"}));
  const Json config = make_json(path("written/config.json"));
  EXPECT_EQ(config.at("text_config").at("eos_token_id"), 49407);
  EXPECT_EQ(config.at("vision_config").at("hidden_act"), "quick_gelu");
  EXPECT_EQ(load_foreign_weights(path("written")).at("logit_scale").item<double>(), 3.5);
  write(file, "open_clip", "open_clip");
  EXPECT_EQ(make_json(path("open_clip/open_clip_config.json")).at("model_cfg").at("quick_gelu"), true);
  expect_same_model(file, path("open_clip"));
}

TEST_F(Publish, WritesOpenClipsModernTextTower) {
  ModelFile file = random_model(
      "{image: {encoder: {name: vit, patch_size: 8, width: 12, layers: 1, heads: 3, activation: gelu}, readout: cls, projection: {name: linear, embed_dim: 6}},"
      " text: {encoder: {name: text_transformer, context_length: 8, vocab_size: 49408, width: 16, layers: 2, heads: 2, norm: rms, norm_eps: 1e-6, mlp: gated,"
      " mlp_hidden: 21, activation: silu, position_embedding: rotary, qkv_bias: none, out_bias: false, mlp_bias: false, attention_gate: biased, qk_norm: true,"
      " block_norm: both}, readout: {name: eos, position: mask}, projection: {name: linear, embed_dim: 6}}, preprocessing: {image_size: 16}}");
  file.tokenizer = clip_tokenizer(*file.model.text);
  write(file, "open_clip");
  const Json text = make_json(path("written/open_clip_config.json")).at("model_cfg").at("text_cfg");
  EXPECT_EQ(text.at("text_arch"), "modern");
  EXPECT_EQ(text.at("eos_id"), 49407);
  expect_same_model(file, path("written"));
  file.model.text->encoder.settings.set("rotary_pairs", config::Node::scalar("halves"));
  left_ = std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
  EXPECT_NE(error_of(file, "open_clip").find("OpenCLIP has no counterpart of rotary pairs of halves"), std::string::npos) << error_of(file, "open_clip");
}

TEST_F(Publish, WritesANaflexModelTrainedHereForTransformers) {
  ModelFile file = random_model(
      "{image: {encoder: {name: vit, patch_size: 8, width: 12, layers: 1, heads: 3, activation: gelu_tanh, class_token: false, pre_norm: false, patch_bias: true,"
      " norm_eps: 1e-6, position_resampling: bilinear}, readout: {name: map, heads: 3, mlp_hidden: 48, activation: gelu_tanh}, projection: none},"
      " text: {encoder: {name: text_transformer, context_length: 8, vocab_size: 40, width: 12, layers: 1, heads: 3, attention: bidirectional,"
      " activation: gelu_tanh, norm_eps: 1e-6}, readout: eos, projection: {name: linear, embed_dim: 12, bias: true}},"
      " preprocessing: {resize_mode: naflex, interpolation: bilinear, image_size: 32, max_patches: 20, mean: [0.5, 0.5, 0.5], std: [0.5, 0.5, 0.5]}}");
  file.tokenizer = {"sentencepiece", config::parse_yaml("{pad_is_text: true}", "test")};
  EXPECT_EQ(write(file, "transformers").what, "transformers' Siglip2Model");
  EXPECT_EQ(make_json(path("written/config.json")).at("vision_config").at("num_patches"), 16);
  EXPECT_EQ(make_json(path("written/preprocessor_config.json")).at("max_num_patches"), 20);
  expect_same_model(file, path("written"));
  file.model.image.encoder.settings.set("position_resampling", config::Node::scalar("antialiased"));
  left_ = std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
  EXPECT_NE(error_of(file, "transformers").find("position_resampling is \"antialiased\", not \"bilinear\""), std::string::npos) << error_of(file, "transformers");
}

/// Returns a model whose text tower is the encoder in a folder of tests/data/foreign, next to a small image tower.
ModelFile next_to_an_image_tower(const std::string& name) {
  const std::string folder = test_data("foreign/" + name);
  const ForeignModel foreign = read_foreign_folder(folder);
  ModelSettings settings = config::read<ModelSettings>(config::parse_yaml(
      "{image: {encoder: {name: vit, patch_size: 8, width: 32, layers: 1, heads: 2}, readout: cls, projection: none}, preprocessing: {image_size: 16}}", "model"));
  settings.text = foreign.model.text;
  ModelFile file = random_model(resolve(settings));
  for (const auto& [tensor, value] : own_tensors(foreign, load_foreign_weights(folder), file.weights, folder)) file.weights[tensor] = value;
  return file;
}

TEST_F(Publish, WritesATextTowerOfGemmaAlone) {
  ModelFile file = next_to_an_image_tower("gemma");
  // As in a run whose towers come from two folders.
  file.published = std::make_shared<PublishedParts>(PublishedParts{"", {{"tokenizer.json", "{}"}, {"config.json", "{}"}}, {}, {}, {}});
  left_ = 0;
  EXPECT_NE(error_of(file, "transformers").find("transformers has no class for this model"), std::string::npos);
  PublishRequest request{"transformers", path("written"), {}, "ours", FolderTowers::text};
  const PublishedFolder written = write_published(file, request);
  EXPECT_EQ(written.what, "transformers' Gemma3TextModel");
  EXPECT_EQ(written.notes, (std::vector<std::string>{"left out because one tower is written: the image tower"}));
  EXPECT_EQ(io::read_file(path("written/tokenizer.json")), "{}");
  // The keys have fewer heads than the queries, and the norms are stored minus 1.
  const NamedTensors theirs = load_foreign_weights(test_data("foreign/gemma")), ours = load_foreign_weights(path("written"));
  EXPECT_EQ(ours.size(), theirs.size());
  for (const auto& [name, tensor] : theirs) EXPECT_TRUE(ours.contains(name) && at::allclose(ours.at(name), tensor, 0, 6e-8)) << name;
  const Json config = make_json(path("written/config.json")), published = make_json(test_data("foreign/gemma/config.json"));
  for (const char* key : {"hidden_size", "num_key_value_heads", "head_dim", "query_pre_attn_scalar", "sliding_window", "layer_types", "rope_parameters",
                          "use_bidirectional_attention", "hidden_activation", "rms_norm_eps", "attention_bias", "vocab_size", "architectures", "model_type"})
    EXPECT_EQ(config.at(key), published.at(key)) << key;

  // A causal tower that was trained with another length of texts and a projection.
  file.model.text->encoder.settings.set("attention", config::Node::scalar("causal"));
  file.model.text->encoder.settings.set("context_length", config::Node::scalar("9"));
  file.model.text->projection = {"linear", config::parse_yaml("{embed_dim: 32}", "test")};
  file.weights["text_projection"] = at::rand({32, 32});
  for (auto& [name, tensor] : file.weights)
    if (tensor.is_floating_point()) tensor = tensor * 0.3;  // these numbers lose a bit if 1 is subtracted
  request.folder = path("causal");
  EXPECT_EQ(write_published(file, request).notes,
            (std::vector<std::string>{"left out because one tower is written: the image tower",
                                      "left out because transformers has no class for the tower with it: the text projection"}));
  EXPECT_EQ(make_json(path("causal/config.json")).at("sliding_window"), 4) << "a causal window counts the token itself";
  file.model.text->encoder.settings.set("qk_norm", config::Node::scalar("false"));
  request.folder = path("refused");
  EXPECT_NE(tessera::error_of([&] { write_published(file, request); }).find("qk_norm is "), std::string::npos);
}

TEST_F(Publish, WritesEachTowerOfClipAlone) {
  const ModelFile file = through_ours(copy_of("clip"));
  const NamedTensors both = load_foreign_weights(path("published"));
  PublishRequest request{"transformers", path("image"), {}, "ours", FolderTowers::image};
  EXPECT_EQ(write_published(file, request).what, "transformers' CLIPVisionModelWithProjection");
  EXPECT_FALSE(read_published_folder(path("image")).model.text);
  request = {"transformers", path("text"), {{"tokenizer.json", "{}"}}, "ours", FolderTowers::text};
  EXPECT_EQ(write_published(file, request).what, "transformers' CLIPTextModelWithProjection");
  EXPECT_FALSE(read_published_folder(path("text")).image_tower);
  for (const std::string folder : {"image", "text"}) {
    const NamedTensors one = load_foreign_weights(path(folder));
    EXPECT_GT(one.size(), 10U);
    for (const auto& [name, tensor] : one) {
      const std::string whole = both.contains(name) ? name : (folder == "image" ? "vision_model." : "text_model.") + name;
      ASSERT_TRUE(both.contains(whole)) << name;
      EXPECT_TRUE(at::equal(tensor, both.at(whole))) << name;
    }
  }
  request = {"transformers", path("none"), {}, "ours", FolderTowers::text};
  const std::string image_only = tessera::error_of([&] { write_published(load_published_folder(path("image")), request); });
  EXPECT_EQ(image_only, "ours: has no text tower");
}

TEST_F(Publish, ConvertsClipFromTransformersToOpenClip) {
  const ModelFile file = through_ours(copy_of("clip"));
  write(file, "open_clip");
  const NamedTensors want = io::load_safetensors(test_data("foreign/clip/expected.safetensors")).tensors;
  const auto model = build_model(load_published_folder(path("written")), "written");
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(at::allclose(model->encode_image(want.at("pixels")).global, want.at("image"), 1e-4, 1e-5));
  const TowerInput text = text_input(want.at("ids"), at::ones_like(want.at("ids"), at::kBool));
  EXPECT_TRUE(at::allclose(model->encode_text(text).global, want.at("text"), 1e-4, 1e-5));
}

TEST_F(Publish, WritesOpenClipsOwnVitAlthoughTimmHasTheSame) {
  const ModelFile file = random_model(R"(
image: {encoder: {name: vit, patch_size: 16, width: 256, layers: 10, heads: 4}, readout: cls, projection: {name: linear, embed_dim: 8}}
text: {encoder: {name: text_transformer, vocab_size: 40, context_length: 9, width: 8, layers: 1, heads: 2}, readout: {name: eos, position: ids},
       projection: {name: linear, embed_dim: 8}}
preprocessing: {image_size: 32}
)");
  EXPECT_EQ(write(file, "open_clip").what, "OpenCLIP's model with its own image tower");  // timm's is vit_xsmall_patch16_clip_224
  EXPECT_FALSE(make_json(path("written/open_clip_config.json")).at("model_cfg").at("vision_cfg").contains("timm_model_name"));
  const NamedTensors weights = load_weights(path("written/open_clip_model.safetensors"));
  for (const char* name : {"visual.class_embedding", "visual.proj", "transformer.resblocks.0.ln_1.weight", "logit_scale"})
    EXPECT_TRUE(weights.contains(name)) << name;
  expect_same_model(file, path("written"));
}

TEST_F(Publish, WritesSiglipTextTowerAndTimmTowerForOpenClip) {
  ModelFile small = random_model(R"(
image: {encoder: {name: convnext, layers: [2, 2, 6, 2], widths: [40, 80, 160, 320], conv_mlp: true, norm_eps: 1.0e-6}, readout: gap, projection: {name: linear, embed_dim: 12}}
text: {encoder: {name: text_transformer, vocab_size: 40, context_length: 9, width: 8, layers: 1, heads: 2, attention: bidirectional, norm_eps: 1.0e-6,
       activation: gelu_tanh}, readout: {name: eos}, projection: {name: linear, embed_dim: 12, bias: true}}
preprocessing: {image_size: 64, resize_mode: squash, mean: [0.5, 0.5, 0.5], std: [0.5, 0.5, 0.5]}
)");
  small.tokenizer = {"tokenizer_json"};
  for (const auto& [key, value] : {std::pair{"pad_is_text", "true"}, {"context_length", "9"}, {"cleanup", "canonicalize"}})
    small.tokenizer.settings.set(key, config::Node::scalar(value));
  EXPECT_EQ(write(small, "open_clip").what, "OpenCLIP's model with convnext_atto");
  const Json text = make_json(path("written/open_clip_config.json")).at("model_cfg").at("text_cfg");
  EXPECT_EQ(text.at("pool_type"), "last");
  EXPECT_EQ(text.at("tokenizer_kwargs").at("clean"), "canonicalize");
  EXPECT_TRUE(load_weights(path("written/open_clip_model.safetensors")).contains("text.text_projection.weight"));
  expect_same_model(small, path("written"));
  small.tokenizer.settings.set("pad_is_text", config::Node::scalar("false"));
  left_ = 1;
  EXPECT_EQ(error_of(small, "open_clip"), "ours: OpenCLIP has no counterpart of bidirectional attention that leaves out a text's padding: read "
                                          "this model with python/tessera/plain_model.py, in plain PyTorch");
}

TEST_F(Publish, NamesTheSettingThatALibraryDoesNotSupport) {
  const auto changed = [&](const char* from, const char* to) {
    std::string yaml = kOurs;
    yaml.replace(yaml.find(from), std::string_view(from).size(), to);
    return error_of(random_model(yaml), "transformers");
  };
  EXPECT_EQ(changed("name: cls}", "name: gap}"),
            "ours: transformers has no class for this model: its model.image.readout is gap, not cls as in transformers' CLIPModel");
  EXPECT_EQ(changed("patch_size: 8,", "patch_size: 8, mlp: gated,"),
            "ours: transformers has no class for this model: its model.image.encoder.mlp is \"gated\", not \"plain\" as in transformers' CLIPModel");
  EXPECT_EQ(changed("image_size: 32", "image_size: 32, resize_mode: longest"),
            "ours: transformers has no class for this model: its model.preprocessing.resize_mode is \"longest\", not \"squash\" as in transformers' "
            "CLIPModel (1 more differ)");
  EXPECT_EQ(changed("patch_size: 8,", "patch_size: 8, leff: {layers: 1},").find("its model.image.encoder.leff"), 48U);
  std::string with_leff = kOurs;
  with_leff.replace(with_leff.find("patch_size: 8,"), std::string_view("patch_size: 8,").size(), "patch_size: 8, leff: {layers: 1},");
  const std::string timm = error_of(random_model(with_leff), "timm");
  EXPECT_TRUE(timm.starts_with("ours: timm has no class for this model: its model.image.encoder.leff")) << timm;
}

TEST_F(Publish, WritesTowersOfAnyWidthAndPatchSizeForTimm) {
  write(random_model(kOurs), "timm");
  const ForeignModel read = read_foreign_folder(path("written"));
  const Json arguments = make_json(path("written/config.json")).at("model_args");
  EXPECT_TRUE(arguments.contains("embed_dim") && arguments.contains("num_heads")) << arguments;
  EXPECT_EQ(read.model.image.encoder.settings.find("width")->text(), "16");
}

TEST_F(Publish, AcceptsASlashAfterTheFoldersName) {
  write(random_model(kOurs), "timm", "slash/");
  EXPECT_TRUE(fs::exists(path("slash/config.json")));
}

TEST_F(Publish, WritesPreprocessingWhereTransformersReadsIt) {
  const std::string folder = copy_of("siglip");
  io::write_file(folder + "/processor_config.json",
                 R"({"image_processor": {"size": {"height": 16, "width": 16}}, "processor_class": "SiglipProcessor"})");
  ModelFile file = through_ours(folder);
  file.model.preprocessing.mean = {0.1, 0.2, 0.3};
  write(file, "transformers");
  EXPECT_EQ(make_json(path("written/processor_config.json")).at("image_processor").at("image_mean").at(2), 0.3);
  EXPECT_EQ(make_json(path("written/processor_config.json")).at("processor_class"), "SiglipProcessor");
}

TEST_F(Publish, LeavesOutTheTokenOfHiddenPatches) {
  std::string yaml = kOurs;
  yaml.insert(yaml.find("patch_size"), "mask_token: true, ");
  const ModelFile file = random_model(yaml);
  ASSERT_TRUE(file.weights.contains("visual.mask_token"));
  write(file, "open_clip");
  EXPECT_FALSE(load_weights(path("written/open_clip_model.safetensors")).contains("visual.mask_token"));
  write_open_clip_file(file, "ours", path("alone.safetensors"));
  EXPECT_FALSE(load_weights(path("alone.safetensors")).contains("visual.mask_token"));
}

TEST_F(Publish, RefusesAnAttentionalPoolThatOpenClipComputesDifferently) {
  for (const char* option : {"pool: mean", "project: false"}) {
    std::string yaml = kOurs;
    const std::string plain = "readout: {name: cls},\n        projection: {name: linear, embed_dim: 12}";
    const std::string pool = "readout: {name: attentional_pool, output_dim: 12, heads: 2, queries: 3, ";
    yaml.replace(yaml.find(plain), plain.size(), concat(pool, option, "}, projection: none"));
    yaml.insert(yaml.find("patch_size"), "final_norm: none, ");
    const ModelFile file = random_model(yaml);
    EXPECT_EQ(tessera::error_of([&] { write_open_clip_file(file, "ours", path("alone.safetensors")); }),
              "ours: OpenCLIP has no counterpart of an attentional pool that does not project its first query: read this model with "
              "python/tessera/plain_model.py, in plain PyTorch");
  }
}

TEST_F(Publish, DoesNotOverwriteAnExistingFolder) {
  const ModelFile file = random_model(kOurs);
  io::write_file(path("there/mine.txt"), "mine");
  left_ = 1;
  EXPECT_EQ(tessera::error_of([&] { write_published(file, {"transformers", path("there"), {}, "ours"}); }),
            path("there") + ": already exists: name a new folder to write");
  EXPECT_EQ(io::read_file(path("there/mine.txt")), "mine");
}

TEST(SameModel, IgnoresSettingsThatOnlyAffectTraining) {
  const ModelSettings plain = resolve({});
  ModelSettings trained = plain;
  for (const auto& [key, value] : {std::pair{"patch_dropout", "0.5"}, {"drop_path", "0.1"}, {"grad_checkpointing", "true"},
                                 {"mask_token", "true"}, {"mlp_hidden", "3072"}})
    trained.image.encoder.settings.set(key, config::Node::scalar(value));
  trained.text->encoder.settings.set("kept_positions", config::Node::scalar("20"));
  EXPECT_TRUE(differences(plain, trained).empty()) << differences(plain, trained).front();
  trained.image.encoder.settings.set("heads", config::Node::scalar("6"));
  EXPECT_EQ(differences(plain, trained), std::vector<std::string>{"model.image.encoder.heads is 12, not 6"});
}

/// Archives in OpenAI's format, with the outputs that open_clip computes after reading them.
class OpenAiArchive : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Towers, OpenAiArchive, testing::Values("vit", "resnet"), test_name<std::string>);

TEST_P(OpenAiArchive, ShapesDetermineTheArchitecture) {
  const std::string archive = test_data("foreign/openai/" + GetParam() + ".pt");
  ASSERT_TRUE(is_open_clip_checkpoint(archive));
  const ForeignModel settings = open_clip_settings(archive);
  const auto model = build_model(from_open_clip(archive, settings), archive);
  const NamedTensors want = io::load_safetensors(test_data("foreign/openai/" + GetParam() + ".safetensors")).tensors;
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(at::allclose(model->encode_image(want.at("pixels")).global, want.at("image"), 1e-4, 1e-5));
  const TowerInput text = text_input(want.at("ids"), at::ones_like(want.at("ids"), at::kBool));
  EXPECT_TRUE(at::allclose(model->encode_text(text).global, want.at("text"), 1e-4, 1e-5));
}

TEST(OpenAiArchives, NameATensorOfAnotherShape) {
  NamedTensors tensors = load_weights(test_data("foreign/openai/vit.pt"));
  tensors["visual.positional_embedding"] = at::zeros({4, 64});
  const auto error = [&] { return error_of([&] { (void)openai_model(tensors, "a.pt"); }); };
  EXPECT_EQ(error(), "a.pt: tensor visual.positional_embedding has 4 positions, but expected a square number plus one");
  tensors.erase("visual.conv1.weight");
  EXPECT_EQ(error(), "a.pt: is not one of OpenAI's CLIP models: tensor visual.conv1.weight is missing");
  tensors.erase("input_resolution");
  EXPECT_EQ(error(), "no error") << "the file is not OpenAI's";
}

}  // namespace
}  // namespace tessera
