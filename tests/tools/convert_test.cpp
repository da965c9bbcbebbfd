#include <algorithm>
#include <filesystem>
#include <regex>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/error_of.h"
#include "tests/support/groupvit_checkpoint.h"
#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test_data.h"
#include <tessera/evaluation/embedder.h>
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

/// A fixture whose folder holds an OpenCLIP file of random weights to convert.
class Convert : public FolderTest {
 protected:
  Convert() {
    write("model.yaml", kModel);
    at::manual_seed(1);
    io::save_safetensors(path("open_clip.safetensors"), DualEncoder(settings_in("model.yaml")).state_dict());
  }
  ModelSettings settings_in(const std::string& name) const {
    return resolve(config::read<ModelSettings>(config::load_yaml(path(name))));
  }
  /// Returns the command that converts the OpenCLIP file `input` to `output`, both in the test's folder. `settings` is the YAML file of the
  /// model.
  std::string from_open_clip(const std::string& settings, const std::string& input, const std::string& output) const {
    return "tessera-convert --from open_clip --settings " + path(settings) + " " + path(input) + " " + path(output);
  }
  std::string to_open_clip() const {
    return "tessera-convert --to open_clip " + path("ours.safetensors") + " " + path("theirs.safetensors");
  }
};

TEST_F(Convert, AConvertedOpenClipModelRepairsTextAsOpenClipDoes) {
  output_of(from_open_clip("model.yaml", "open_clip.safetensors", "model.safetensors") +
            " --merges " TESSERA_SOURCE_DIR "/configs/vocabularies/clip-bpe/bpe_simple_vocab_16e6.txt.gz");
  const InferenceModel run = load_for_inference(path("model.safetensors"));
  EXPECT_EQ(run.file.tokenizer.settings.find("context_length")->text(), "16");
  // The first caption holds "café" with its UTF-8 misread as Latin-1, the second holds "café". ftfy's repair makes them equal.
  EXPECT_EQ(run.tokenizer->encode("caf\u00C3\u00A9 on the corner"), run.tokenizer->encode("caf\u00E9 on the corner"));
}

TEST_F(Convert, AnImageSizeIsOneNumberOrTwo) {
  const auto converting = [&](const std::string& size) {
    return "tessera-convert --from open_clip --settings " + path("model.yaml") + " --image-size " + size + " " + path("open_clip.safetensors") +
           " " + path("model.safetensors");
  };
  for (const auto& [size, expected] : {std::pair("32", config::Size(32)), {"32,16", config::Size(32, 16)}}) {
    const std::string said = output_of(converting(size));
    EXPECT_NE(said.find("image positions: the file's 2 x 2 (images of 16 x 16 pixels)"), std::string::npos) << said;
    EXPECT_EQ(load_model_file(path("model.safetensors")).model.preprocessing.image_size, expected);
  }
  EXPECT_NE(refusal_of(converting("1,2,3")).find("--image-size: expected one number, or HEIGHT,WIDTH"), std::string::npos);
}

TEST_F(Convert, RefusesToOverwriteItsInputOrToWriteAnotherFileEnding) {
  const std::string input = path("open_clip.safetensors"), before = io::read_file(input);
  fs::create_symlink(input, path("link.safetensors"));
  for (const char* output : {"open_clip.safetensors", "./open_clip.safetensors", "link.safetensors"})
    expect_refused(from_open_clip("model.yaml", "open_clip.safetensors", output),
                   "tessera-convert: " + path(output) + ": is the input file itself: name another file to write");
  EXPECT_TRUE(io::read_file(input) == before);
  expect_refused(from_open_clip("model.yaml", "open_clip.safetensors", "out.pt"),
                 "tessera-convert: " + path("out.pt") + ": the output is safetensors: name a file that ends in .safetensors");

  output_of(from_open_clip("model.yaml", "open_clip.safetensors", "model.safetensors"));
  const std::string back = refusal_of("tessera-convert --to open_clip " + folder_.string() + " " + path("model.safetensors"));
  EXPECT_NE(back.find("is the input file itself"), std::string::npos) << "a folder's model: " << back;
  fs::copy(test_data("foreign/dinov3"), path("published"));
  expect_refused("tessera-convert " + path("published") + " " + path("published/model.safetensors"),
                 "tessera-convert: " + path("published/model.safetensors") + ": is the input file itself: name another file to write");
}

TEST_F(Convert, APublishedFolderNeedsNoFurtherDescription) {
  const std::string published = test_data("foreign/dinov3");
  expect_refused("tessera-convert --merges " + path("model.yaml") + " " + published + " " + path("out.safetensors"),
                 "tessera-convert: " + published +
                     ": describes its own model and tokenizer: leave out --from, --architecture, --settings and --vocab");
}

TEST_F(Convert, AWeightsFileNextToANamedTokenizerDoesNotGetClips) {
  const std::string weights = test_data("foreign/open_clip_bert/open_clip_model.safetensors");
  const std::string printed = output_of("tessera-convert " + weights + " " + path("out.safetensors"));
  EXPECT_NE(printed.find("the model cannot read texts, because its tokenizer was not read: "), std::string::npos) << printed;
  EXPECT_EQ(load_model_file(path("out.safetensors")).tokenizer.name, "");
}

TEST_F(Convert, APublishedFolderIsConvertedAndWrittenBackByteForByte) {
  const std::string published = test_data("foreign/siglip"), ours = path("ours.safetensors"), again = path("again");
  const std::string read = output_of("tessera-convert " + published + " " + ours);
  EXPECT_NE(read.find("the model cannot read texts, because its tokenizer was not read: "), std::string::npos) << read;
  const std::string back = "tessera-convert --to transformers " + ours + " " + again;
  output_of(back);
  for (const char* name : {"/model.safetensors", "/config.json"})
    EXPECT_TRUE(io::read_file(published + name) == io::read_file(again + name)) << name;
  expect_refused(back, "tessera-convert: " + again + ": already exists: name a new folder to write");
  const std::string other = refusal_of("tessera-convert --to open_clip " + published + " " + path("open_clip"));
  EXPECT_NE(other.find("tessera-convert: " + published + ": OpenCLIP has no counterpart of an image tower without a class token"), std::string::npos)
      << other;
  EXPECT_FALSE(fs::exists(path("open_clip")));
}

TEST_F(Convert, ATesseraModelNeedsATargetLibrary) {
  const std::string ours = path("ours.safetensors");
  output_of("tessera-convert " + test_data("foreign/dinov3") + " " + ours);
  expect_refused("tessera-convert " + ours + " " + path("out.safetensors"),
                 "tessera-convert: " + ours + ": is already a Tessera model: --to open_clip, transformers or timm writes it for "
                 "another library");
  expect_refused("tessera-convert " + path("nowhere") + " " + path("out.safetensors"),
                 "tessera-convert: " + path("nowhere") + ": no such file or folder");
}

TEST_F(Convert, InvalidMergesAreRefusedBeforeAnythingIsWritten) {
  const std::string text =
      refusal_of(from_open_clip("model.yaml", "open_clip.safetensors", "out.safetensors") + " --merges " + path("model.yaml"));
  EXPECT_TRUE(text.starts_with("tessera-convert: clip-bpe: merges: " + path("model.yaml"))) << text;
  EXPECT_FALSE(fs::exists(path("out.safetensors")));
}

TEST_F(Convert, ATextFileNamedPtIsReportedWithItsFirstLine) {
  write("weights.pt", "Entry not found, or access denied\n");
  expect_refused(from_open_clip("model.yaml", "weights.pt", "out.safetensors"),
                 "tessera-convert: " + path("weights.pt") + ": neither safetensors nor a PyTorch file: it begins with the text "
                 "\"Entry not found, or access denied\"");
}

TEST_F(Convert, WithoutSettingsTheConfigurationNextToTheWeightsIsUsed) {
  const std::string ours = path("model.safetensors");
  output_of(from_open_clip("model.yaml", "open_clip.safetensors", "model.safetensors"));
  fs::create_directories(path("theirs"));
  output_of("tessera-convert --to open_clip " + ours + " " + path("theirs/open_clip_model.safetensors"));
  output_of("tessera-convert --from open_clip " + path("theirs") + " " + path("again.safetensors"));
  const InferenceModel again = load_for_inference(path("again.safetensors")), first = load_for_inference(ours);
  for (const auto& [name, tensor] : first.file.weights) EXPECT_TRUE(at::equal(again.file.weights.at(name), tensor)) << name;
  EXPECT_EQ(again.tokenizer->encode("a cat"), first.tokenizer->encode("a cat")) << "CLIP's vocabulary ships";
}

/// Converts weights that were fine-tuned in PyTorch, with the configuration of their run.
class ConvertOfRun : public Convert {
 protected:
  static std::string indented(const std::string& yaml) { return std::regex_replace(yaml, std::regex("\n"), "\n  "); }
  static config::ModuleSettings tokenizer_of(const std::string& yaml) {
    return config::Value<config::ModuleSettings>::read(config::parse_yaml(yaml, ""), "", {});
  }
  /// Writes run.yaml, the configuration of a run with this tokenizer, and weights.safetensors, weights of its model.
  std::shared_ptr<Tokenizer> write_run(const std::string& tokenizer) const {
    auto made = tokenizers().make(tokenizer_of(tokenizer), "", {});
    std::string model(kModel);
    model.replace(model.find("49408"), 5, std::to_string(made->vocab_size()));
    write("small.yaml", model);
    write("run.yaml", "data: {train: {name: shapes}}\nobjective: clip\noptimizer: adamw\ntraining: {steps: 1}\ntokenizer: " + tokenizer +
                          "\nmodel:" + indented(model));
    at::manual_seed(2);
    io::save_safetensors(path("weights.safetensors"), DualEncoder(settings_in("small.yaml")).state_dict());
    return made;
  }
  std::string converting(const std::string& options, const std::string& input = "weights.safetensors") const {
    return "tessera-convert " + options + " " + path(input) + " " + path("model.safetensors");
  }
  void expect_tokenizer(const Tokenizer& wanted, const std::string& file) const {
    const InferenceModel model = load_for_inference(path(file));
    EXPECT_EQ(model.file.vocabulary, wanted.vocabulary_bytes());
    EXPECT_EQ(model.tokenizer->encode("a red circle"), wanted.encode("a red circle"));
    for (const auto& [name, tensor] : io::load_safetensors(path("weights.safetensors")).tensors)
      EXPECT_TRUE(at::equal(model.file.weights.at(name), tensor)) << name;
  }
};
const std::string kShapes = "{name: sentencepiece, model: configs/vocabularies/shapes.model, context_length: 16}";
class ConvertOfRunWith : public ConvertOfRun, public testing::WithParamInterface<std::string> {};
INSTANTIATE_TEST_SUITE_P(Tokenizers, ConvertOfRunWith,
                         testing::Values("{name: clip-bpe, context_length: 16}", kShapes,
                                         "{name: wordpiece, vocab: configs/vocabularies/shapes-wordpiece/vocab.txt, context_length: 16}",
                                         "{name: tokenizer_json, model: " TESSERA_SOURCE_DIR
                                         "/tests/data/foreign/tokenizers/gemma.json, context_length: 16}"));

TEST_P(ConvertOfRunWith, KeepsTheRunsTokenizer) {
  const auto tokenizer = write_run(GetParam());
  output_of(converting("--settings " + path("run.yaml")));
  expect_tokenizer(*tokenizer, "model.safetensors");
  output_of("tessera-convert --settings " + path("model.safetensors") + " " + path("weights.safetensors") + " " + path("again.safetensors"));
  expect_tokenizer(*tokenizer, "again.safetensors");

  fs::create_directories(path("moved/checkpoints/step_1"));
  fs::copy(path("model.safetensors"), path("moved/checkpoints/step_1"));
  write("moved/checkpoints/latest", "step_1\n");
  write("moved/config.yaml", std::regex_replace(io::read_file(path("run.yaml")), std::regex("(merges|vocab|model): [^,]*,"), "$1: /gone,"));
  for (const char* settings : {"moved", "moved/config.yaml"}) {
    output_of("tessera-convert --settings " + path(settings) + " " + path("weights.safetensors") + " " + path("again.safetensors"));
    expect_tokenizer(*tokenizer, "again.safetensors");
  }
}

TEST_F(ConvertOfRun, RefusesAVocabularyThatTheTextTowerCannotRead) {
  write_run(kShapes);
  const std::string settings = "--settings " + path("small.yaml"), advice =
      ": give the tokenizer and the vocabulary that the model was trained with (--settings RUN has both)";
  const std::string clip = TESSERA_SOURCE_DIR "/configs/vocabularies/clip-bpe/bpe_simple_vocab_16e6.txt.gz";
  expect_refused(converting(settings + " --vocab " + clip),
                 "tessera-convert: the tokenizer clip-bpe has 49408 tokens, but the text tower's vocab_size is 120" + advice);
  write("long.yaml", "tokenizer: {name: sentencepiece, model: configs/vocabularies/shapes.model, context_length: 17}\nmodel:" +
                         indented(io::read_file(path("small.yaml"))));
  expect_refused(converting("--settings " + path("long.yaml")),
                 "tessera-convert: the tokenizer sentencepiece has 17 tokens in its longest text, but the text tower's context_length is 16" + advice);
  EXPECT_FALSE(fs::exists(path("model.safetensors")));
}

TEST_F(ConvertOfRun, AMissingVocabularyIsAnErrorWithAWayOut) {
  const auto tokenizer = write_run(kShapes);
  write("moved.yaml", std::regex_replace(io::read_file(path("run.yaml")), std::regex("configs/vocabularies"), "gone"));
  const std::string text = refusal_of(converting("--settings " + path("moved.yaml")));
  EXPECT_TRUE(text.starts_with("tessera-convert: " + path("moved.yaml") + ":5: tokenizer.model: gone/shapes.model: no such file or folder")) << text;
  EXPECT_NE(text.find("; --vocab FILE names the vocabulary, and --settings RUN takes it from the run's last checkpoint"), std::string::npos) << text;
  output_of(converting("--settings " + path("moved.yaml") + " --vocab configs/vocabularies/shapes.model"));
  expect_tokenizer(*tokenizer, "model.safetensors");
}

TEST_F(ConvertOfRun, LoadingAModelWithoutTokenizerOrVocabularySaysHowToAddIt) {
  const auto tokenizer = write_run(kShapes);
  const std::string said = output_of(converting("--settings " + path("small.yaml")));
  EXPECT_NE(said.find("no tokenizer, because the text tower's vocabulary is not CLIP's: --settings RUN also reads a run's tokenizer"),
            std::string::npos)
      << said;
  const std::string file = path("model.safetensors");
  EXPECT_EQ(error_of([&] { load_for_inference(file); }),
            file + ": has a text tower but no tokenizer: tessera-convert --settings RUN " + file +
                " NEW.safetensors adds that of the run that the weights come from");
  output_of("tessera-convert --settings " + path("run.yaml") + " " + file + " " + path("new.safetensors"));
  expect_tokenizer(*tokenizer, "new.safetensors");

  ModelFile without = load_model_file(path("new.safetensors"));
  without.tokenizer = tokenizer_of("{name: sentencepiece, context_length: 16}");
  without.vocabulary.clear();
  save_model_file(file, without);
  EXPECT_EQ(error_of([&] { load_for_inference(file); }),
            file + ": holds no vocabulary for its tokenizer sentencepiece: tessera-convert --vocab FILE " + file +
                " NEW.safetensors adds it, or --settings RUN with the run that the weights come from");
  output_of("tessera-convert --vocab configs/vocabularies/shapes.model " + file + " " + path("newer.safetensors"));
  expect_tokenizer(*tokenizer, "newer.safetensors");
}

TEST_F(ConvertOfRun, AnIdOutsideTheTokenTableIsReportedBeforeTheTextTowerReadsIt) {
  write_run(kShapes);
  output_of(converting("--settings " + path("run.yaml")));
  ModelFile other = load_model_file(path("model.safetensors"));
  other.tokenizer = tokenizer_of("{name: clip-bpe, context_length: 16}");
  other.vocabulary = tokenizers().make(other.tokenizer, "", {})->vocabulary_bytes();
  save_model_file(path("other.safetensors"), other);
  const InferenceModel loaded = load_for_inference(path("other.safetensors"));
  EXPECT_EQ(error_of([&] { DualEncoderEmbedder(loaded.model, loaded.tokenizer).encode_texts({"a cat"}, {}); }),
            "the tokenizer clip-bpe has the id 49407, but the text tower's token table has only 120 rows: the checkpoint was made with another "
            "model's vocabulary; convert its weights again with tessera-convert --settings RUN");
}

TEST_F(Convert, AnObjectivesTensorsAreKept) {
  auto tensors = io::load_safetensors(path("open_clip.safetensors")).tensors;
  tensors["objective.decoder.weight"] = at::ones({2});
  tensors["logit_scale"] = at::full({}, 2.0);
  io::save_safetensors(path("more.safetensors"), tensors);
  output_of(from_open_clip("model.yaml", "more.safetensors", "model.safetensors"));
  const auto kept = load_model_file(path("model.safetensors")).weights;
  EXPECT_TRUE(kept.contains("objective.decoder.weight"));
  EXPECT_EQ(kept.at("logit_scale").item<double>(), 2);
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
    write("sparo.yaml", kSparoModel);
    ours_.model = settings_in("sparo.yaml");
    ours_.weights = DualEncoder(ours_.model).state_dict();
    save_model_file(path("ours.safetensors"), ours_);
    const std::string text = output_of(to_open_clip());
    EXPECT_NE(text.find("theirs.safetensors: parameters "), std::string::npos) << text;
    theirs_ = io::load_safetensors(path("theirs.safetensors")).tensors;
  }
  /// Writes a file with these tensors. Returns the command that converts it.
  std::string back(const std::map<std::string, at::Tensor>& tensors) const {
    io::save_safetensors(path("changed.safetensors"), tensors);
    return from_open_clip("sparo.yaml", "changed.safetensors", "back.safetensors");
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
    output_of(back(tensors));
    const ModelFile again = load_model_file(path("back.safetensors"));
    for (const auto& [name, tensor] : ours_.weights) EXPECT_TRUE(at::equal(again.weights.at(name), tensor)) << name;
    EXPECT_EQ(again.weights.size(), ours_.weights.size() + 1) << "ours and the temperature";
  }
}

TEST_F(ConvertSparo, ValuesThatDifferFromKeysAreRefused) {
  theirs_.at("text_sparo.v.weight") = theirs_.at("text_sparo.v.weight") + 1;
  expect_refused(back(theirs_),
                 "tessera-convert: " + path("changed.safetensors") +
                     ": tensors text_sparo.k.weight and text_sparo.v.weight differ, but the model's values are its keys: "
                     "set share_values: false");
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
  write("groupvit.yaml", kGroupVitModel);
  const DualEncoder model(settings_in("groupvit.yaml"));
  io::save_safetensors(path("theirs.safetensors"), as_groupvit_wrote(model));
  const std::string convert = "tessera-convert --from groupvit --settings " + path("groupvit.yaml") + " ";
  output_of(convert + path("theirs.safetensors") + " " + path("ours.safetensors"));
  const ModelFile ours = load_model_file(path("ours.safetensors"));
  for (const auto& [name, tensor] : model.state_dict()) EXPECT_TRUE(at::equal(ours.weights.at(name), tensor)) << name;
  EXPECT_EQ(ours.tokenizer.name, "clip-bpe");
  const std::string wrong = refusal_of(convert + path("open_clip.safetensors") + " " + path("ours.safetensors"));
  EXPECT_NE(wrong.find("is not one of GroupViT's"), std::string::npos) << wrong;
  EXPECT_NE(refusal_of(to_open_clip()).find("OpenCLIP has no counterpart of "), std::string::npos);
}

// Writes models with and without the parts that PyramidCLIP adds to the image encoder, and compares their embeddings.
class ConvertPyramid : public Convert {
 protected:
  static constexpr const char* kText =
      "encoder: {name: text_transformer, vocab_size: 30, context_length: 16, width: 8, layers: 1, heads: 2}, "
      "readout: {name: eos}, projection: {name: linear, embed_dim: 6}";

  ModelSettings settings(const std::string& name, const std::string& image, const std::string& text = kText) const {
    write(name, "image: {" + image + "}\ntext: {" + text + "}\npreprocessing: {image_size: 32}\n");
    return settings_in(name);
  }
  /// Writes a random model with these settings. Returns the command that converts it for OpenCLIP.
  std::string converting(const ModelSettings& settings) {
    ours_.model = settings;
    at::manual_seed(2);
    ours_.weights = DualEncoder(settings).state_dict();
    ours_.weights["logit_scale"] = at::zeros({});
    save_model_file(path("ours.safetensors"), ours_);
    return to_open_clip();
  }
  // Reads OpenCLIP's file as a plain model. Expects that model to compute the same image embeddings as the PyramidCLIP model.
  void expect_plain_model_agrees(const std::string& settings) {
    output_of(from_open_clip(settings, "theirs.safetensors", "plain.safetensors"));
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
  const std::string vit = "encoder: {name: vit, patch_size: 8, width: 12, layers: 2, heads: 3";
  const std::string resnet = "encoder: {name: modified_resnet, layers: [1, 1, 1, 1], width: 2";
  const std::string linear = "}, readout: {name: cls}, projection: {name: linear, embed_dim: 6}";
  const std::string pool = "}, readout: {name: attention_pool_2d, heads: 2, output_dim: 6}, projection: {name: none}";
  settings("plain_vit.yaml", vit + linear);
  std::string text = output_of(converting(settings("vit.yaml", vit + ", regions: {width: 5, first_block: 1}" + linear)));
  EXPECT_NE(text.find("left out because OpenCLIP's models take no region features: visual.roi_class_embedding and "
                      "visual.roi_proj.weight\n"),
            std::string::npos)
      << text;
  expect_plain_model_agrees("plain_vit.yaml");

  settings("plain_resnet.yaml", resnet + pool);
  text = output_of(converting(settings("resnet.yaml", resnet + ", regions: {width: 5, class_token: mean}" + pool)));
  EXPECT_NE(text.find("visual.ln_pre.bias, visual.ln_pre.weight and visual.roi_proj.weight\n"), std::string::npos) << text;
  expect_plain_model_agrees("plain_resnet.yaml");
}

class ConvertForOpenClip : public ConvertPyramid {
 protected:
  nlohmann::json configuration() const { return nlohmann::json::parse(io::read_file(path("open_clip_config.json"))); }
  // Expects the same weights after converting the model to OpenCLIP's file and back.
  void expect_same_weights(const std::string& settings) const {
    output_of(from_open_clip(settings, "theirs.safetensors", "again.safetensors"));
    const auto again = load_model_file(path("again.safetensors")).weights;
    EXPECT_EQ(again.size(), ours_.weights.size());
    for (const auto& [name, tensor] : ours_.weights) EXPECT_TRUE(at::equal(again.at(name), tensor)) << name;
  }
};

TEST_F(ConvertForOpenClip, WritesTheConfigurationOfAVitNextToIt) {
  const std::string text = output_of(converting(settings(
      "vit.yaml", "encoder: {name: vit, patch_size: 8, width: 12, layers: 2, heads: 3, pre_norm: false, norm_eps: 1.0e-6}, "
                  "readout: gap, projection: {name: linear, embed_dim: 6}")));
  EXPECT_NE(text.find("'local-dir:" + folder_.string() + "'"), std::string::npos) << text;
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
  output_of(converting(settings("resnet.yaml", "encoder: {name: modified_resnet, layers: [1, 2, 1, 1], width: 2}, "
                                               "readout: {name: attention_pool_2d, heads: 4, output_dim: 6}, projection: none")));
  EXPECT_EQ(configuration().at("model_cfg").at("vision_cfg"), nlohmann::json::parse(R"({
    "image_size": 32, "layers": [1, 2, 1, 1], "width": 2, "patch_size": null, "head_width": 16})"));
  expect_same_weights("resnet.yaml");
}

TEST_F(ConvertPyramid, AModelWithoutACounterpartIsRefused) {
  const std::string vit = "encoder: {name: vit, patch_size: 8, width: 12, layers: 1, heads: 3, ";
  const std::string linear = "readout: cls, projection: {name: linear, embed_dim: 6}";
  const std::string tokens = "readout: {name: token_projection}, projection: {name: none}";
  const std::string text =
      "encoder: {name: text_transformer, vocab_size: 30, context_length: 16, width: 8, layers: 1, heads: 2, final_norm: tokens}, ";
  const std::string advice = ": read this model with python/tessera/plain_model.py, in plain PyTorch\n";
  for (const auto& [model, part] : {
           std::pair(settings("a.yaml", vit + "final_norm: tokens}, " + tokens, text + tokens),
                     "the image read-out token_projection" + advice),
           std::pair(settings("a.yaml", vit + "activation: quick_gelu}, " + linear), "quick_gelu in only one tower" + advice),
           std::pair(settings("a.yaml", vit + "leff: {layers: 1}}, " + linear),
                     std::string("visual.transformer.resblocks.0.mlp.dwconv.bias")),
       }) {
    const std::string refusal = refusal_of(converting(model));
    EXPECT_TRUE(refusal.starts_with("tessera-convert: " + path("ours.safetensors") + ": OpenCLIP has no counterpart of " + part))
        << refusal;
    EXPECT_EQ(std::count(refusal.begin(), refusal.end(), '\n'), 1) << refusal;
    EXPECT_FALSE(fs::exists(path("theirs.safetensors")));
    EXPECT_FALSE(fs::exists(path("open_clip_config.json")));
  }
}

TEST_F(Convert, ACheckpointOfOpenClipsTrainerReproducesItsEmbeddings) {
  write("tiny.yaml", R"(
image: {encoder: {name: vit, patch_size: 8, width: 12, layers: 1, heads: 3}, readout: cls, projection: {name: linear, embed_dim: 6}}
text: {encoder: {name: text_transformer, vocab_size: 30, context_length: 8, width: 8, layers: 1, heads: 2},
       readout: {name: eos, position: ids}, projection: {name: linear, embed_dim: 6}}
preprocessing: {image_size: 16}
)");
  output_of("tessera-convert --from open_clip --settings " + path("tiny.yaml") + " " + test_data("pytorch/open_clip_train.pt") + " " +
            path("tiny.safetensors"));
  const auto model = build_model(load_model_file(path("tiny.safetensors")), "tiny");
  // tests/data/pytorch/make_open_clip_train.py stored the inputs and the embeddings that OpenCLIP computes from them.
  const auto theirs = io::load_safetensors(test_data("pytorch/open_clip_train.safetensors")).tensors;
  const at::NoGradGuard guard;
  TowerInput text;
  text.ids = theirs.at("ids");
  EXPECT_TRUE(at::allclose(model->encode_image(theirs.at("pixels")).global, theirs.at("image"), 1e-4, 1e-5));
  EXPECT_TRUE(at::allclose(model->encode_text(text).global, theirs.at("text"), 1e-4, 1e-5));
}

}  // namespace
}  // namespace tessera
