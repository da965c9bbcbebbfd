#include <filesystem>

#include <nlohmann/json.hpp>

#include "src/foreign/architectures.h"
#include "src/foreign/open_clip.h"
#include "tests/models/small_models.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test_data.h"
#include <tessera/io/atomic_file.h>
#include <tessera/io/safetensors.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

// The configuration of ViT-B/32, written like OpenCLIP's own files, which omit default values.
constexpr const char* kVitB32 = R"({
  "model_cfg": {"embed_dim": 512,
    "vision_cfg": {"image_size": 224, "layers": 12, "width": 768, "patch_size": 32},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 512, "heads": 8, "layers": 12}},
  "preprocess_cfg": {"mean": [0.48145466, 0.4578275, 0.40821073], "std": [0.26862954, 0.26130258, 0.27577711]}})";

// The configuration of a small model with the CLIP tokenizer.
constexpr const char* kSmall = R"({
  "model_cfg": {"embed_dim": 6, "quick_gelu": true,
    "vision_cfg": {"image_size": 16, "layers": 1, "width": 12, "head_width": 4, "patch_size": 8},
    "text_cfg": {"context_length": 16, "vocab_size": 49408, "width": 8, "heads": 2, "layers": 1}},
  "preprocess_cfg": {"size": 16, "mode": "RGB", "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5], "interpolation": "bilinear",
    "resize_mode": "squash", "fill_color": 0}})";

class OpenClipCheckpoints : public FolderTest {
 protected:
  /// Writes random weights of the small model as OpenCLIP would save them. Returns the weights.
  std::map<std::string, at::Tensor> write_weights(const std::string& name) const {
    at::manual_seed(4);
    auto weights = DualEncoder(open_clip_model(kSmall, "small").model).state_dict();
    weights["logit_scale"] = at::tensor(3.0F);
    weights["attn_mask"] = at::zeros({16, 16});
    io::save_safetensors(path(name), weights);
    return weights;
  }
  static ModelFile load(const std::string& place, const std::string& architecture = "") {
    const std::string weights = find_open_clip_weights(place);
    return load_open_clip_checkpoint(weights, open_clip_settings(weights, {.architecture = architecture}));
  }
  /// Returns a copy of kSmall that has `value` at the JSON pointer `pointer`.
  std::string changed(const std::string& pointer, const nlohmann::json& value) const {
    nlohmann::json json = nlohmann::json::parse(kSmall);
    json[nlohmann::json::json_pointer(pointer)] = value;
    return json.dump();
  }
};

TEST_F(OpenClipCheckpoints, PublishedConfigurationMatchesTheNamedArchitecture) {
  EXPECT_EQ(config::to_json(config::dump(open_clip_model(kVitB32, "x.json").model)),
            config::to_json(config::dump(architecture("ViT-B-32"))));
  nlohmann::json resnet = nlohmann::json::parse(kVitB32);
  resnet["model_cfg"]["embed_dim"] = 1024;
  resnet["model_cfg"]["vision_cfg"] = {{"image_size", 224}, {"layers", {3, 4, 6, 3}}, {"width", 64}, {"patch_size", nullptr}};
  EXPECT_EQ(config::to_json(config::dump(open_clip_model(resnet.dump(), "x.json").model)),
            config::to_json(config::dump(architecture("RN50"))));
}

TEST_F(OpenClipCheckpoints, WrittenConfigurationReadsBack) {
  for (const std::string image :
       {"{encoder: {name: vit, patch_size: 8, width: 12, layers: 2, heads: 3, pre_norm: false, norm_eps: 1.0e-6, mlp_ratio: 3.5, "
        "activation: gelu_tanh, final_norm: pooled, layer_scale_init: 0.1}, readout: gap, projection: {name: linear, embed_dim: 6}}",
        "{encoder: {name: modified_resnet, layers: [1, 2, 1, 1], width: 2}, readout: {name: attention_pool_2d, heads: 4, "
        "output_dim: 6}, projection: none}"}) {
    ModelFile file;
    file.model = resolve(config::read<ModelSettings>(config::parse_yaml(
        "image: " + image +
            "\ntext: {encoder: {name: text_transformer, vocab_size: 30, context_length: 16, width: 8, layers: 1, heads: 2, "
            "activation: " + (image.find("tanh") != std::string::npos ? "gelu_tanh" : "gelu") +
            "}, readout: {name: eos, eos_id: 7, position: ids}, projection: {name: linear, embed_dim: 6}}\n"
            "preprocessing: {image_size: 32, resize_mode: longest, interpolation: bilinear, fill_color: 9, mean: [0.1, 0.2, 0.3]}",
        "model.yaml")));
    EXPECT_EQ(config::to_json(config::dump(open_clip_model(open_clip_config(file, "m"), "m").model)),
              config::to_json(config::dump(file.model)));
  }
}

TEST_F(OpenClipCheckpoints, FolderHoldsEverythingThatInferenceNeeds) {
  const auto weights = write_weights("open_clip_model.safetensors");
  io::write_file(path("open_clip_config.json"), kSmall);
  for (const std::string& place : {folder_.string(), path("open_clip_model.safetensors")}) {
    EXPECT_TRUE(is_open_clip_checkpoint(place));
    const ModelFile file = load(place);
    EXPECT_EQ(file.model.preprocessing.resize_mode, "squash");
    EXPECT_EQ(file.model.preprocessing.mean[0], 0.5);
    EXPECT_EQ(file.tokenizer.settings.find("context_length")->text(), "16");
    EXPECT_FALSE(file.vocabulary.empty());
    EXPECT_EQ(file.weights.at("logit_scale").item<float>(), 3.0F);
    EXPECT_EQ(file.weights.size(), weights.size() - 1) << "all tensors except the mask";
    const at::Tensor pixels = random_pixels(2);
    DualEncoder model(open_clip_model(kSmall, "small").model);
    model.load_state(file.weights, "file");
    model.eval();
    EXPECT_TRUE(at::equal(build_model(file, "file")->encode_image(pixels).global, model.encode_image(pixels).global));
  }
}

TEST_F(OpenClipCheckpoints, RecognizesPyTorchFilesByContentAndOursBySettings) {
  fs::copy_file(test_data("pytorch/open_clip_train.pt"), path("epoch_1.pt"));
  EXPECT_TRUE(is_open_clip_checkpoint(path("epoch_1.pt")));
  EXPECT_FALSE(is_open_clip_checkpoint(folder_.string())) << "nothing marks the folder as OpenCLIP";
  io::write_file(path("open_clip_config.json"), kSmall);
  EXPECT_TRUE(is_open_clip_checkpoint(folder_.string()));
  EXPECT_EQ(find_open_clip_weights(folder_.string()), path("epoch_1.pt"));

  ModelFile ours;
  ours.model = open_clip_model(kSmall, "small").model;
  ours.weights = DualEncoder(ours.model).state_dict();
  save_model_file(path("model.safetensors"), ours);
  EXPECT_FALSE(is_open_clip_checkpoint(path("model.safetensors")));
  EXPECT_FALSE(is_open_clip_checkpoint(folder_.string())) << "a run of ours that was also written for OpenCLIP";
  EXPECT_FALSE(is_open_clip_checkpoint(path("missing")));
}

TEST_F(OpenClipCheckpoints, AsksForTheArchitectureWithoutAConfiguration) {
  write_weights("weights.safetensors");
  EXPECT_EQ(error_of([&] { load(path("weights.safetensors")); }),
            path("weights.safetensors") +
                ": weights without our settings, and no open_clip_config.json beside them: say which of OpenCLIP's models "
                "they are, --architecture ViT-B-32 (tessera-convert --list shows the names), or put its configuration there; for weights "
                "of a Tessera run, tessera-convert --settings RUN " + path("weights.safetensors") + " OUT.safetensors adds the run's settings");
  EXPECT_NE(error_of([&] { load(path("weights.safetensors"), "ViT-B-31"); }).find("ViT-B-32"),
            std::string::npos);
}

TEST_F(OpenClipCheckpoints, ErrorsNameWhatHasNoCounterpart) {
  const auto refused = [&](const std::string& pointer, const nlohmann::json& value) {
    return error_of([&] { open_clip_model(changed(pointer, value), "c.json").model; });
  };
  EXPECT_NE(refused("/model_cfg/vision_cfg/timm_model_name", "vit_hugo").find("c.json: no timm architecture named vit_hugo"),
            std::string::npos);
  EXPECT_EQ(refused("/model_cfg/text_cfg/use_pad_mask", true),
            "c.json: model_cfg.text_cfg.use_pad_mask is true: our models have no counterpart of it "
            "(docs/pretrained.md lists what is read)");
  EXPECT_NE(refused("/model_cfg/vision_cfg/attentional_pool", "parallel").find("attentional_pool is parallel"), std::string::npos);
  EXPECT_EQ(refused("/model_cfg/vision_cfg/attentional_pool", false), "no error");
  const nlohmann::json mean = {{"image_size", 16}, {"attentional_pool", true}, {"pool_type", "avg"}};
  EXPECT_EQ(refused("/model_cfg/vision_cfg", mean),
            "c.json: model_cfg.vision_cfg.pool_type is avg: our attentional pool has only tok, its first query");
  EXPECT_EQ(refused("/model_cfg/text_cfg/output_tokens", true), "no error");
  EXPECT_NE(refused("/model_cfg/vision_cfg/pool_type", "map").find("model_cfg.vision_cfg.pool_type"), std::string::npos);
  EXPECT_NE(refused("/model_cfg/vision_cfg/widht", 3).find("model_cfg.vision_cfg.widht: unknown key: did you mean width?"),
            std::string::npos)
      << refused("/model_cfg/vision_cfg/widht", 3);
  EXPECT_NE(refused("/model_cfg/vision_cfg/width", "wide").find("model_cfg.vision_cfg.width"), std::string::npos);
  EXPECT_EQ(error_of([] { open_clip_model("[1]", "c.json").model; }),
            "c.json: not OpenCLIP's configuration: expected a JSON object with model_cfg");
}

TEST_F(OpenClipCheckpoints, RejectsAnotherVocabularyThanClips) {
  write_weights("weights.safetensors");
  io::write_file(path("open_clip_config.json"), changed("/model_cfg/text_cfg/vocab_size", 32000));
  EXPECT_EQ(error_of([&] { load(folder_.string()); }),
            path("weights.safetensors") +
                ": no tokenizer is known for it: its text tower has no room for CLIP's 49408 byte pairs");
}

TEST_F(OpenClipCheckpoints, ANamedTokenizerIsNotReplacedByClips) {
  write_weights("weights.safetensors");
  io::write_file(path("open_clip_config.json"), changed("/model_cfg/text_cfg/hf_tokenizer_name", "google/mt5-base"));
  EXPECT_EQ(load(folder_.string()).tokenizer.name, "");
  EXPECT_EQ(load(folder_.string()).vocabulary, "");
  EXPECT_TRUE(open_clip_settings("weights.pt", {.architecture = "ViT-L-14-worldwide"}).tokenizer_in_folder);
}

TEST_F(OpenClipCheckpoints, ArchitecturesNameTheTensorsOfTheirTowers) {
  const at::Tensor norm = at::rand({4}), table = at::rand({5, 4});
  io::save_safetensors(path("epoch_1.safetensors"), {{"visual.trunk.norm.weight", norm}, {"text.token_embedding.weight", table}});
  const ForeignModel siglip = open_clip_settings(path("epoch_1.safetensors"), {.architecture = "ViT-B-16-SigLIP"});
  const NamedTensors own = {{"visual.ln_post.weight", norm}, {"token_embedding.weight", table}};
  const NamedTensors ours = open_clip_tensors(path("epoch_1.safetensors"), own, siglip);
  ASSERT_EQ(ours.size(), 2U);
  EXPECT_TRUE(at::equal(ours.at("visual.ln_post.weight"), norm));
  EXPECT_TRUE(at::equal(ours.at("token_embedding.weight"), table));
}

TEST_F(OpenClipCheckpoints, AreReadFromTheMemberOfAnotherModule) {
  for (const char* member : {"model.", "model.module.", "net._orig_mod.", "clip_model."}) {
    const std::string prefix = member;
    io::save_safetensors(path("wrapped.safetensors"), {{prefix + "visual.proj", at::ones({2})}, {prefix + "logit_scale", at::ones({})}});
    EXPECT_TRUE(load_weights(path("wrapped.safetensors")).contains("visual.proj")) << member;
  }
}

/// A folder of a run of open_clip_train, RUN/checkpoints/epoch_1.safetensors with RUN/params.txt.
class OpenClipRuns : public OpenClipCheckpoints {
 protected:
  OpenClipRuns() {
    std::filesystem::create_directories(path("run/checkpoints"));
    write_weights("run/checkpoints/epoch_1.safetensors");
  }
  void write_params(const std::string& more) const {
    io::write_file(path("run/params.txt"), "batch_size: 8\n" + more + "siglip: True\n");
  }
  std::string weights() const { return path("run/checkpoints/epoch_1.safetensors"); }
  static std::string setting(const config::ModuleSettings& module, const char* key) { return module.settings.find(key)->text(); }
  std::string said(const std::function<void()>& action) const {
    testing::internal::CaptureStderr();
    action();
    return testing::internal::GetCapturedStderr();
  }
};

TEST_F(OpenClipRuns, AreReadAsTheirParametersSay) {
  write_params(
      "model: ViT-S-32-alt\nforce_image_size: [64]\nforce_quick_gelu: True\nforce_context_length: 24\nimage_mean: [0.5]\n"
      "image_std: (0.1, 0.2, 0.3)\nimage_interpolation: bilinear\nimage_resize_mode: squash\npretrained: \n");
  for (const char* name : {"", "ViT-S-32-alt"}) {
    const ModelSettings model = open_clip_settings(weights(), {.architecture = name}).model;
    EXPECT_EQ(model.preprocessing.image_size, config::Size(64));
    EXPECT_EQ(setting(model.image.encoder, "width"), "384");
    EXPECT_EQ(setting(model.image.encoder, "activation"), "quick_gelu");
    EXPECT_EQ(setting(model.text->encoder, "activation"), "quick_gelu");
    EXPECT_EQ(setting(model.text->encoder, "context_length"), "24");
    EXPECT_EQ(model.preprocessing.mean, (std::array<double, 3>{0.5, 0.5, 0.5}));
    EXPECT_EQ(model.preprocessing.std, (std::array<double, 3>{0.1, 0.2, 0.3}));
    EXPECT_EQ(model.preprocessing.interpolation, "bilinear");
    EXPECT_EQ(model.preprocessing.resize_mode, "squash");
  }
  EXPECT_EQ(open_clip_settings(weights(), {.image_size = config::Size(96)}).model.preprocessing.image_size, config::Size(96));
}

TEST_F(OpenClipRuns, APretrainedTagDecidesThePreprocessing) {
  write_params("model: ViT-B-16-SigLIP\npretrained: webli\n");
  const Preprocessing preprocessing = open_clip_settings(weights()).model.preprocessing;
  EXPECT_EQ(preprocessing.mean[0], 0.5);
  EXPECT_EQ(preprocessing.resize_mode, "squash");
}

TEST_F(OpenClipRuns, APretrainedTagIsFoundInTheSpellingsThatOpenClipAccepts) {
  for (const char* tag : {"laion2b_s32b_b82k", "laion2B-s32B-b82K"}) {
    write_params("model: ViT-L-14\npretrained: " + std::string(tag) + "\n");
    EXPECT_EQ(open_clip_settings(weights()).model.preprocessing.mean[0], 0.5) << tag;
  }
}

TEST_F(OpenClipRuns, AreFoundBehindALinkToTheWeights) {
  write_params("model: ViT-S-32-alt\nforce_quick_gelu: True\n");
  io::write_file(weights(), "");
  std::filesystem::create_symlink(weights(), path("linked.pt"));
  EXPECT_EQ(setting(open_clip_settings(path("linked.pt")).model.image.encoder, "activation"), "quick_gelu");
}

TEST_F(OpenClipRuns, AConfigurationBesideTheWeightsThatContradictsThemIsNamed) {
  write_params("model: ViT-S-32-alt\n");
  io::write_file(path("run/checkpoints/open_clip_config.json"), changed("/model_cfg/quick_gelu", true));
  const std::string line = said([&] { open_clip_settings(weights()); });
  EXPECT_NE(line.find(weights() + ": open_clip_config.json next to the file is used, but contradicts " + path("run/params.txt") + ": "),
            std::string::npos)
      << line;
}

TEST_F(OpenClipRuns, AnArchitectureThatContradictsThemIsNamed) {
  write_params("model: ViT-S-32-alt\nimage_mean: [0.5]\n");
  const std::string line = said([&] { open_clip_settings(weights(), {.architecture = "ViT-S-32-alt-quickgelu"}); });
  EXPECT_NE(line.find(weights() +
                      ": --architecture ViT-S-32-alt-quickgelu contradicts the settings that come with the weights, which are used if the "
                      "option is left out: model.image.encoder.activation is quick_gelu instead of gelu, model.text.encoder.activation is "
                      "quick_gelu instead of gelu and model.preprocessing.mean is [0.48145466,"),
            std::string::npos)
      << line;
  io::write_file(path("run/checkpoints/open_clip_config.json"), changed("/model_cfg/quick_gelu", true));
  EXPECT_NE(said([&] { open_clip_settings(weights(), {.architecture = "ViT-B-32"}); }).find("activation is gelu instead of quick_gelu"),
            std::string::npos);
}

TEST_F(OpenClipRuns, ErrorsNameTheParametersFileAndOtherFilesOfThisNameAreIgnored) {
  write_params("model: my-model\n");
  EXPECT_EQ(error_of([&] { open_clip_settings(weights()); }).find(path("run/params.txt") + ": no architecture named my-model"), 0U);
  EXPECT_EQ(said([&] { open_clip_settings(weights(), {.architecture = "ViT-B-32"}); }), "");
  for (const char* other : {"lr = 3\n", "model: resnet50\nlr: 3\n"}) {
    io::write_file(path("run/params.txt"), other);
    EXPECT_NE(error_of([&] { open_clip_settings(weights()); }).find("weights without our settings"), std::string::npos) << other;
  }
}

TEST_F(OpenClipRuns, AreReadWithAByteOrderMarkAndWithoutFlags) {
  io::write_file(path("run/params.txt"), "\xEF\xBB\xBFmodel: ViT-S-32-alt-quickgelu\r\n");
  EXPECT_EQ(setting(open_clip_settings(weights()).model.image.encoder, "activation"), "quick_gelu");
}

TEST_F(OpenClipRuns, PositionsOfAnotherSizeThanTheModelsAreReported) {
  std::filesystem::create_directories(path("small"));
  io::write_file(path("small/open_clip_config.json"), kSmall);
  write_params("model: local-dir:" + path("small") + "\nforce_image_size: 32\n");
  const std::string line = said([&] { from_open_clip(weights(), open_clip_settings(weights())); });
  EXPECT_NE(line.find(weights() + ": image positions: the file's 2 x 2 (images of 16 x 16 pixels) are resampled to 4 x 4"),
            std::string::npos)
      << line;
}

TEST_F(OpenClipCheckpoints, RejectsFoldersWithNoneOrSeveralWeights) {
  io::write_file(path("open_clip_config.json"), kSmall);
  EXPECT_EQ(error_of([&] { find_open_clip_weights(folder_.string()); }),
            folder_.string() + ": holds no weights: expected open_clip_model.safetensors or a PyTorch file");
  write_weights("a.safetensors");
  write_weights("b.safetensors");
  EXPECT_NE(error_of([&] { find_open_clip_weights(folder_.string()); }).find("holds several weight files"), std::string::npos);
  io::save_safetensors(path("a.safetensors"), {{"vision_model.embeddings.class_embedding", at::zeros({4})}});
  EXPECT_NE(error_of([&] { load(path("a.safetensors")); }).find("holds Hugging Face's CLIPModel"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera
