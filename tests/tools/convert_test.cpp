#include <filesystem>
#include <unistd.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/groupvit_checkpoint.h"
#include "tests/support/program.h"
#include "tests/support/test_data.h"
#include <tessera/base/error.h>
#include <tessera/evaluation/inference.h>
#include <tessera/io/atomic_file.h>
#include <tessera/io/safetensors.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModel = R"(
image: {encoder: {name: vit, patch_size: 8, width: 12, layers: 1, heads: 3}, readout: {name: cls},
        projection: {name: linear, embed_dim: 6}}
text: {encoder: {name: text_transformer, vocab_size: 49408, context_length: 16, width: 8, layers: 1, heads: 2}, readout: {name: eos},
       projection: {name: linear, embed_dim: 6}}
preprocessing: {image_size: 16}
)";

/// A folder with an OpenCLIP file of random weights to convert.
class Convert : public ::testing::Test {
 protected:
  Convert() : folder_(fs::temp_directory_path() / concat("tessera_convert_", ::getpid())) {
    fs::create_directories(folder_);
    io::write_file(path("model.yaml"), kModel);
    at::manual_seed(1);
    DualEncoder model(resolve(config::read<ModelSettings>(config::load_yaml(path("model.yaml")))));
    io::save_safetensors(path("open_clip.safetensors"), model.state_dict());
  }
  ~Convert() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  fs::path folder_;
};

TEST_F(Convert, AConvertedOpenClipModelRepairsTextAsOpenClipDoes) {
  const Answer answer =
      answer_of("tessera-convert --from open_clip --settings " + path("model.yaml") +
                " --merges " TESSERA_SOURCE_DIR "/configs/vocabularies/clip-bpe/bpe_simple_vocab_16e6.txt.gz " +
                path("open_clip.safetensors") + " " + path("model.safetensors"));
  ASSERT_EQ(answer.code, 0) << answer.text;
  const InferenceModel run = load_for_inference(path("model.safetensors"));
  EXPECT_EQ(run.file.tokenizer.settings.find("context_length")->text(), "16");
  // "café" with its UTF-8 misread as Latin-1, and the correct "café": ftfy's repair makes the two captions equal.
  EXPECT_EQ(run.tokenizer->encode("caf\u00C3\u00A9 on the corner"), run.tokenizer->encode("caf\u00E9 on the corner"));
}

TEST_F(Convert, RefusesToOverwriteItsInputOrToWriteAnotherFileEnding) {
  const std::string input = path("open_clip.safetensors"), before = io::read_file(input);
  const std::string convert = "tessera-convert --from open_clip --settings " + path("model.yaml") + " ";
  fs::create_symlink(input, path("link.safetensors"));
  for (const std::string& output : {input, folder_.string() + "/./open_clip.safetensors", path("link.safetensors")}) {
    const Answer answer = answer_of(convert + input + " " + output);
    EXPECT_EQ(answer.code, 2);
    EXPECT_EQ(answer.text, "tessera-convert: " + output + ": is the input file itself: name another file to write\n");
  }
  EXPECT_TRUE(io::read_file(input) == before);
  const Answer ending = answer_of(convert + input + " " + path("out.pt"));
  EXPECT_EQ(ending.code, 2);
  EXPECT_EQ(ending.text, "tessera-convert: " + path("out.pt") +
                             ": the output is safetensors: name a file that ends in .safetensors\n");

  ASSERT_EQ(answer_of(convert + input + " " + path("model.safetensors")).code, 0);
  const Answer back = answer_of("tessera-convert --to open_clip " + folder_.string() + " " + path("model.safetensors"));
  EXPECT_EQ(back.code, 2);
  EXPECT_NE(back.text.find("is the input file itself"), std::string::npos) << "a folder's model: " << back.text;
}

TEST_F(Convert, APublishedFolderIsConvertedAndWrittenBackByteForByte) {
  const std::string published = test_data("foreign/siglip"), ours = path("ours.safetensors"), again = path("again");
  const Answer read = answer_of("tessera-convert " + published + " " + ours);
  ASSERT_EQ(read.code, 0) << read.text;
  EXPECT_NE(read.text.find("the tokenizer is not supported, so its files are only copied and the model cannot read texts: "), std::string::npos)
      << read.text;
  const Answer written = answer_of("tessera-convert --to transformers " + ours + " " + again);
  ASSERT_EQ(written.code, 0) << written.text;
  for (const char* name : {"/model.safetensors", "/config.json"})
    EXPECT_TRUE(io::read_file(published + name) == io::read_file(again + name)) << name;
  const Answer twice = answer_of("tessera-convert --to transformers " + ours + " " + again);
  EXPECT_EQ(twice.code, 2);
  EXPECT_EQ(twice.text, "tessera-convert: " + again + ": already exists: name a new folder to write\n");
  const Answer other = answer_of("tessera-convert --to open_clip " + published + " " + path("open_clip"));
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.text.find("tessera-convert: " + published + ": OpenCLIP has no counterpart of an image tower without a class token"), std::string::npos)
      << other.text;
  EXPECT_FALSE(fs::exists(path("open_clip")));
}

TEST_F(Convert, ATesseraModelNeedsATargetLibrary) {
  const std::string ours = path("ours.safetensors");
  ASSERT_EQ(answer_of("tessera-convert " + test_data("foreign/dinov3") + " " + ours).code, 0);
  const Answer answer = answer_of("tessera-convert " + ours + " " + path("out.safetensors"));
  EXPECT_EQ(answer.code, 2);
  EXPECT_EQ(answer.text, "tessera-convert: " + ours + ": is already a Tessera model: --to open_clip, transformers or timm "
                                                  "writes it for another library\n");
  const Answer nothing = answer_of("tessera-convert " + path("nowhere") + " " + path("out.safetensors"));
  EXPECT_EQ(nothing.code, 2);
  EXPECT_EQ(nothing.text, "tessera-convert: " + path("nowhere") + ": no such file or folder\n");
}

TEST_F(Convert, InvalidMergesAreRefusedBeforeAnythingIsWritten) {
  const Answer answer = answer_of("tessera-convert --from open_clip --settings " + path("model.yaml") + " --merges " +
                                  path("model.yaml") + " " + path("open_clip.safetensors") + " " + path("out.safetensors"));
  EXPECT_EQ(answer.code, 2);
  EXPECT_TRUE(answer.text.starts_with("tessera-convert: --merges: clip-bpe: merges: " + path("model.yaml"))) << answer.text;
  EXPECT_FALSE(fs::exists(path("out.safetensors")));
}

TEST_F(Convert, ATextFileNamedPtIsReportedWithItsFirstLine) {
  io::write_file(path("weights.pt"), "Entry not found, or access denied\n");
  const Answer answer = answer_of("tessera-convert --from open_clip --settings " + path("model.yaml") + " " +
                                  path("weights.pt") + " " + path("out.safetensors"));
  EXPECT_EQ(answer.code, 2);
  EXPECT_EQ(answer.text, "tessera-convert: " + path("weights.pt") + ": neither safetensors nor a PyTorch file: it begins "
                                                                    "with the text \"Entry not found, or access denied\"\n");
}

TEST_F(Convert, WithoutSettingsTheConfigurationNextToTheWeightsIsUsed) {
  const std::string ours = path("model.safetensors"), convert = "tessera-convert --from open_clip ";
  const std::string settings = "--settings " + path("model.yaml") + " ";
  ASSERT_EQ(answer_of(convert + settings + path("open_clip.safetensors") + " " + ours).code, 0);
  fs::create_directories(path("theirs"));
  ASSERT_EQ(answer_of("tessera-convert --to open_clip " + ours + " " + path("theirs/open_clip_model.safetensors")).code, 0);
  const Answer answer = answer_of(convert + path("theirs") + " " + path("again.safetensors"));
  ASSERT_EQ(answer.code, 0) << answer.text;
  const InferenceModel again = load_for_inference(path("again.safetensors")), first = load_for_inference(ours);
  for (const auto& [name, tensor] : first.file.weights) EXPECT_TRUE(at::equal(again.file.weights.at(name), tensor)) << name;
  EXPECT_EQ(again.tokenizer->encode("a cat"), first.tokenizer->encode("a cat")) << "CLIP's vocabulary ships";
}

TEST_F(Convert, LoadingAModelWithoutVocabularySaysHowToAddOne) {
  std::string other(kModel);
  other.replace(other.find("49408"), 5, "30");
  io::write_file(path("other.yaml"), other);
  at::manual_seed(1);
  io::save_safetensors(path("other.safetensors"),
                       DualEncoder(resolve(config::read<ModelSettings>(config::load_yaml(path("other.yaml"))))).state_dict());
  ASSERT_EQ(answer_of("tessera-convert --from open_clip --settings " + path("other.yaml") + " " +
                      path("other.safetensors") + " " + path("model.safetensors"))
                .code,
            0);
  try {
    load_for_inference(path("model.safetensors"));
    FAIL();
  } catch (const UserError& error) {
    EXPECT_EQ(std::string(error.what()),
              path("model.safetensors") +
                  ": holds no vocabulary for its tokenizer clip-bpe: make it again with tessera-convert --merges FILE "
                  "(a checkpoint of the trainer always holds it)");
  }
}

constexpr const char* kSparoModel = R"(
image: {encoder: {name: vit, patch_size: 8, width: 12, layers: 1, heads: 3}, readout: {name: sparo, slots: 2, slot_width: 3, key_width: 4},
        projection: {name: none}}
text: {encoder: {name: text_transformer, vocab_size: 30, context_length: 16, width: 8, layers: 1, heads: 2},
       readout: {name: sparo, slots: 2, slot_width: 3, key_width: 4}, projection: {name: none}}
preprocessing: {image_size: 16}
)";

class ConvertSparo : public Convert {
 protected:
  ConvertSparo() {
    io::write_file(path("sparo.yaml"), kSparoModel);
    ours_.model = resolve(config::read<ModelSettings>(config::load_yaml(path("sparo.yaml"))));
    ours_.weights = DualEncoder(ours_.model).state_dict();
    save_model_file(path("ours.safetensors"), ours_);
    const Answer answer =
        answer_of("tessera-convert --to open_clip " + path("ours.safetensors") + " " + path("theirs.safetensors"));
    EXPECT_EQ(answer.code, 0) << answer.text;
    EXPECT_NE(answer.text.find("theirs.safetensors: parameters "), std::string::npos) << answer.text;
    theirs_ = io::load_safetensors(path("theirs.safetensors")).tensors;
  }
  Answer back(const std::map<std::string, at::Tensor>& tensors) const {
    io::save_safetensors(path("changed.safetensors"), tensors);
    return answer_of("tessera-convert --from open_clip --settings " + path("sparo.yaml") + " " +
                     path("changed.safetensors") + " " + path("back.safetensors"));
  }

  ModelFile ours_;
  std::map<std::string, at::Tensor> theirs_;
};

TEST_F(ConvertSparo, WritesTheLayoutOfTheReferenceCode) {
  for (const std::string prefix : {"visual.sparo.", "text_sparo."}) {
    EXPECT_TRUE(theirs_.contains(prefix + "q_emb"));
    EXPECT_TRUE(theirs_.contains(prefix + "proj.weight"));
    for (const char* part : {"weight", "bias"}) {
      ASSERT_TRUE(theirs_.contains(prefix + "v." + part));
      EXPECT_TRUE(at::equal(theirs_.at(prefix + "v." + part), theirs_.at(prefix + "k." + part)));
    }
  }
}

TEST_F(ConvertSparo, ReadsFilesWithKeysValuesOrBoth) {
  std::map<std::string, at::Tensor> keys = theirs_, values = theirs_;
  for (const std::string prefix : {"visual.sparo.", "text_sparo."}) {
    for (const std::string part : {"weight", "bias"}) {
      keys.erase(prefix + "v." + part);
      values.erase(prefix + "k." + part);
    }
  }
  for (const auto& tensors : {theirs_, keys, values}) {
    const Answer answer = back(tensors);
    ASSERT_EQ(answer.code, 0) << answer.text;
    const ModelFile again = load_model_file(path("back.safetensors"));
    for (const auto& [name, tensor] : ours_.weights) EXPECT_TRUE(at::equal(again.weights.at(name), tensor)) << name;
    EXPECT_EQ(again.weights.size(), ours_.weights.size() + 1) << "ours and the temperature";
  }
}

TEST_F(ConvertSparo, ValuesThatDifferFromKeysAreRefused) {
  theirs_.at("text_sparo.v.weight") = theirs_.at("text_sparo.v.weight") + 1;
  const Answer answer = back(theirs_);
  EXPECT_EQ(answer.code, 2);
  EXPECT_EQ(answer.text,
            "tessera-convert: " + path("changed.safetensors") +
                ": tensors text_sparo.k.weight and text_sparo.v.weight differ, but the model's values are its keys: "
                "set share_values: false\n");
}

constexpr const char* kGroupVitModel = R"(
image: {encoder: {name: groupvit, patch_size: 4, width: 12, depths: [1, 1], heads: [2, 2], num_group_tokens: [3, 0],
                  num_output_groups: [2]},
        readout: {name: groups, output_dim: 6, num_layers: 2, inner_dim: 10, pool: before}, projection: {name: none}}
text: {encoder: {name: text_transformer, vocab_size: 49408, context_length: 16, width: 8, layers: 1, heads: 2},
       readout: {name: eos}, projection: {name: mlp, embed_dim: 6, inner_dim: 10}}
preprocessing: {image_size: 16}
)";

TEST_F(Convert, ReadsACheckpointOfTheGroupVitAuthors) {
  io::write_file(path("groupvit.yaml"), kGroupVitModel);
  const DualEncoder model(resolve(config::read<ModelSettings>(config::load_yaml(path("groupvit.yaml")))));
  io::save_safetensors(path("theirs.safetensors"), as_groupvit_wrote(model));
  const std::string convert = "tessera-convert --from groupvit --settings " + path("groupvit.yaml") + " ";
  const Answer answer = answer_of(convert + path("theirs.safetensors") + " " + path("ours.safetensors"));
  ASSERT_EQ(answer.code, 0) << answer.text;
  const ModelFile ours = load_model_file(path("ours.safetensors"));
  for (const auto& [name, tensor] : model.state_dict()) EXPECT_TRUE(at::equal(ours.weights.at(name), tensor)) << name;
  EXPECT_EQ(ours.tokenizer.name, "clip-bpe");

  const Answer wrong = answer_of(convert + path("open_clip.safetensors") + " " + path("ours.safetensors"));
  EXPECT_EQ(wrong.code, 2);
  EXPECT_NE(wrong.text.find("is not one of GroupViT's"), std::string::npos) << wrong.text;
  const Answer back =
      answer_of("tessera-convert --to open_clip " + path("ours.safetensors") + " " + path("back.safetensors"));
  EXPECT_EQ(back.code, 2);
  EXPECT_NE(back.text.find("OpenCLIP has no counterpart of "), std::string::npos) << back.text;
}

constexpr const char* kStairModel = R"(
image: {encoder: {name: vit, patch_size: 8, width: 12, layers: 1, heads: 3, final_norm: tokens},
        readout: {name: token_projection}, projection: {name: none}}
text: {encoder: {name: text_transformer, vocab_size: 30, context_length: 16, width: 8, layers: 1, heads: 2, final_norm: tokens},
       readout: {name: token_projection}, projection: {name: none}}
preprocessing: {image_size: 16}
)";

TEST_F(Convert, AModelWithTokenProjectionIsRefused) {
  io::write_file(path("stair.yaml"), kStairModel);
  ModelFile file;
  file.model = resolve(config::read<ModelSettings>(config::load_yaml(path("stair.yaml"))));
  file.weights = DualEncoder(file.model).state_dict();
  save_model_file(path("ours.safetensors"), file);
  const Answer answer =
      answer_of("tessera-convert --to open_clip " + path("ours.safetensors") + " " + path("theirs.safetensors"));
  EXPECT_EQ(answer.code, 2);
  EXPECT_EQ(answer.text, "tessera-convert: " + path("ours.safetensors") +
                             ": OpenCLIP has no counterpart of the image read-out token_projection: read this model "
                             "with python/tessera/plain_model.py, in plain PyTorch\n");
  EXPECT_FALSE(fs::exists(path("theirs.safetensors")));
  EXPECT_FALSE(fs::exists(path("open_clip_config.json")));
}

// Writes models with and without the parts that PyramidCLIP adds to the image encoder, and compares their embeddings.
class ConvertPyramid : public Convert {
 protected:
  static constexpr const char* kText =
      "text: {encoder: {name: text_transformer, vocab_size: 30, context_length: 16, width: 8, layers: 1, heads: 2}, "
      "readout: {name: eos}, projection: {name: linear, embed_dim: 6}}\npreprocessing: {image_size: 32}\n";

  ModelSettings settings(const std::string& name, const std::string& encoder, const std::string& rest) const {
    io::write_file(path(name), "image: {encoder: {" + encoder + "}, " + rest + "}\n" + kText);
    return resolve(config::read<ModelSettings>(config::load_yaml(path(name))));
  }
  Answer to_open_clip(const ModelSettings& settings) {
    ours_.model = settings;
    at::manual_seed(2);
    ours_.weights = DualEncoder(settings).state_dict();
    ours_.weights["logit_scale"] = at::zeros({});
    save_model_file(path("ours.safetensors"), ours_);
    return answer_of("tessera-convert --to open_clip " + path("ours.safetensors") + " " + path("theirs.safetensors"));
  }
  // Expects the converted file, read back as a plain model, to produce the same image embeddings as ours.
  void expect_plain_model_agrees(const std::string& settings) {
    const Answer answer = answer_of("tessera-convert --from open_clip --settings " + path(settings) + " " +
                                    path("theirs.safetensors") + " " + path("plain.safetensors"));
    ASSERT_EQ(answer.code, 0) << answer.text;
    const at::NoGradGuard guard;
    const at::Tensor pixels = at::rand({2, 3, 32, 32});
    const auto embedding = [&](const ModelFile& file) {
      return build_model(file, "file")->encode_image(pixels).global;
    };
    EXPECT_TRUE(at::equal(embedding(load_model_file(path("plain.safetensors"))), embedding(ours_)));
  }

  ModelFile ours_;
};

TEST_F(ConvertPyramid, RegionWeightsAreLeftOutAndImageEmbeddingsAreUnchanged) {
  const std::string vit = "name: vit, patch_size: 8, width: 12, layers: 2, heads: 3";
  const std::string resnet = "name: modified_resnet, layers: [1, 1, 1, 1], width: 2";
  const std::string linear = "readout: {name: cls}, projection: {name: linear, embed_dim: 6}";
  const std::string pool = "readout: {name: attention_pool_2d, heads: 2, output_dim: 6}, projection: {name: none}";
  settings("plain_vit.yaml", vit, linear);
  Answer answer = to_open_clip(settings("vit.yaml", vit + ", regions: {width: 5, first_block: 1}", linear));
  ASSERT_EQ(answer.code, 0) << answer.text;
  EXPECT_NE(answer.text.find("left out because OpenCLIP's models take no region features: visual.roi_class_embedding and "
                             "visual.roi_proj.weight\n"),
            std::string::npos)
      << answer.text;
  expect_plain_model_agrees("plain_vit.yaml");

  settings("plain_resnet.yaml", resnet, pool);
  answer = to_open_clip(settings("resnet.yaml", resnet + ", regions: {width: 5, class_token: mean}", pool));
  ASSERT_EQ(answer.code, 0) << answer.text;
  EXPECT_NE(answer.text.find("visual.ln_pre.bias, visual.ln_pre.weight and visual.roi_proj.weight\n"),
            std::string::npos)
      << answer.text;
  expect_plain_model_agrees("plain_resnet.yaml");
}

class ConvertForOpenClip : public ConvertPyramid {
 protected:
  nlohmann::json configuration() const { return nlohmann::json::parse(io::read_file(path("open_clip_config.json"))); }
  // Expects the weights to survive the round trip through OpenCLIP's file.
  void expect_same_weights(const std::string& settings) const {
    const Answer answer = answer_of("tessera-convert --from open_clip --settings " + path(settings) + " " +
                                    path("theirs.safetensors") + " " + path("again.safetensors"));
    ASSERT_EQ(answer.code, 0) << answer.text;
    const auto again = load_model_file(path("again.safetensors")).weights;
    EXPECT_EQ(again.size(), ours_.weights.size());
    for (const auto& [name, tensor] : ours_.weights) EXPECT_TRUE(at::equal(again.at(name), tensor)) << name;
  }
};

TEST_F(ConvertForOpenClip, WritesTheConfigurationOfAVitNextToIt) {
  const Answer answer = to_open_clip(settings(
      "vit.yaml", "name: vit, patch_size: 8, width: 12, layers: 2, heads: 3, pre_norm: false, norm_eps: 1.0e-6",
      "readout: gap, projection: {name: linear, embed_dim: 6}"));
  ASSERT_EQ(answer.code, 0) << answer.text;
  EXPECT_NE(answer.text.find("'local-dir:" + folder_.string() + "'"), std::string::npos) << answer.text;
  const auto json = configuration();
  EXPECT_EQ(json.at("model_cfg"), nlohmann::json::parse(R"({
    "embed_dim": 6, "quick_gelu": false,
    "vision_cfg": {"image_size": 32, "patch_size": 8, "layers": 2, "width": 12, "head_width": 4, "no_ln_pre": true,
                   "norm_kwargs": {"eps": 1e-6}, "pool_type": "avg"},
    "text_cfg": {"context_length": 16, "vocab_size": 30, "layers": 1, "width": 8, "heads": 2}})"));
  EXPECT_EQ(json.at("preprocess_cfg").at("size"), 32);
  EXPECT_EQ(json.at("preprocess_cfg").at("interpolation"), "bicubic");
  EXPECT_EQ(json.at("preprocess_cfg").at("resize_mode"), "shortest");
  EXPECT_EQ(json.at("preprocess_cfg").at("mean").size(), 3U);
  expect_same_weights("vit.yaml");
}

TEST_F(ConvertForOpenClip, WritesTheConfigurationOfAResnetNextToIt) {
  const Answer answer = to_open_clip(
      settings("resnet.yaml", "name: modified_resnet, layers: [1, 2, 1, 1], width: 2",
               "readout: {name: attention_pool_2d, heads: 4, output_dim: 6}, projection: none"));
  ASSERT_EQ(answer.code, 0) << answer.text;
  EXPECT_EQ(configuration().at("model_cfg").at("vision_cfg"), nlohmann::json::parse(R"({
    "image_size": 32, "layers": [1, 2, 1, 1], "width": 2, "patch_size": null, "head_width": 16})"));
  expect_same_weights("resnet.yaml");
}

TEST_F(ConvertForOpenClip, DifferentActivationsInTheTowersAreRefused) {
  const std::string linear = "readout: cls, projection: {name: linear, embed_dim: 6}";
  const Answer answer = to_open_clip(
      settings("mixed.yaml", "name: vit, patch_size: 8, width: 12, layers: 1, heads: 3, activation: quick_gelu", linear));
  EXPECT_EQ(answer.code, 2);
  EXPECT_NE(answer.text.find("OpenCLIP has no counterpart of quick_gelu in only one tower: read this model with "
                             "python/tessera/plain_model.py"),
            std::string::npos)
      << answer.text;
}

TEST_F(Convert, ACheckpointOfOpenClipsTrainerReproducesItsEmbeddings) {
  io::write_file(path("tiny.yaml"), R"(
image: {encoder: {name: vit, patch_size: 8, width: 12, layers: 1, heads: 3}, readout: cls, projection: {name: linear, embed_dim: 6}}
text: {encoder: {name: text_transformer, vocab_size: 30, context_length: 8, width: 8, layers: 1, heads: 2},
       readout: {name: eos, position: ids}, projection: {name: linear, embed_dim: 6}}
preprocessing: {image_size: 16}
)");
  const Answer answer = answer_of("tessera-convert --from open_clip --settings " + path("tiny.yaml") + " " +
                                  test_data("pytorch/open_clip_train.pt") + " " + path("tiny.safetensors"));
  ASSERT_EQ(answer.code, 0) << answer.text;
  const auto model = build_model(load_model_file(path("tiny.safetensors")), "tiny");
  // make_open_clip_train.py stored the inputs and OpenCLIP's embeddings of them.
  const auto theirs = io::load_safetensors(test_data("pytorch/open_clip_train.safetensors")).tensors;
  const at::NoGradGuard guard;
  TowerInput text;
  text.ids = theirs.at("ids");
  EXPECT_TRUE(at::allclose(model->encode_image(theirs.at("pixels")).global, theirs.at("image"), 1e-4, 1e-5));
  EXPECT_TRUE(at::allclose(model->encode_text(text).global, theirs.at("text"), 1e-4, 1e-5));
}

TEST_F(ConvertPyramid, AModelWithLeffIsRefused) {
  const Answer answer =
      to_open_clip(settings("leff.yaml", "name: vit, patch_size: 8, width: 12, layers: 2, heads: 3, leff: {layers: 1}",
                            "readout: {name: cls}, projection: {name: linear, embed_dim: 6}"));
  EXPECT_EQ(answer.code, 2);
  EXPECT_NE(answer.text.find("OpenCLIP has no counterpart of visual.transformer.resblocks.0.mlp.dwconv.bias"),
            std::string::npos)
      << answer.text;
}

}  // namespace
}  // namespace tessera
