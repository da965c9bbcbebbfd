// Tests which weights a run starts from, and which of its weights it trains.
#include <cmath>
#include <filesystem>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/foreign/foreign_model.h"
#include "src/training/config/published_towers.h"
#include "src/training/trainer.h"
#include "tests/support/test_data.h"
#include "tests/training/tiny_run.h"
#include <tessera/io/atomic_file.h>
#include <tessera/io/safetensors.h>

namespace tessera {
namespace {

TEST(RanksGpu, FollowsTheLocalRankOrIsTheOnlyVisibleOne) {
  EXPECT_EQ(gpu_of(/*local_rank=*/3, /*visible=*/8), 3);
  EXPECT_EQ(gpu_of(3, 1), 0);
  EXPECT_EQ(
      error_of([] { gpu_of(2, 2); }),
      "local rank 2 has no GPU: this process sees 2: start as many processes as GPUs, or set training.device to cpu");
}

/// YAML texts that replace model.image and model.text of tiny_yaml. An empty text keeps the original.
struct TowersOfTest {
  std::string image{}, text{};
};

class StartOfTraining : public RunTest {
 protected:
  Config published_config(const std::string& name, const TowersOfTest& towers, const std::vector<std::string>& overrides) {
    const std::string run = folder_ / name;
    register_test_modules();
    config::Node tree = config::parse_yaml(tiny_yaml(), "tiny.yaml"), model = *tree.find("model");
    if (!towers.image.empty()) model.set("image", config::parse_yaml(towers.image, "tiny.yaml"));
    if (!towers.text.empty()) model.set("text", config::parse_yaml(towers.text, "tiny.yaml"));
    tree.set("model", model);
    config::apply_override(tree, "run.folder=" + run);
    for (const std::string& each : overrides) config::apply_override(tree, each);
    return resolve_config(tree, "tiny");
  }
  // Returns an override with a tokenizer of nine tokens.
  std::string small_tokenizer(std::int64_t context_length) const {
    io::write_file(folder_ / "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nred\nblue\ngreen\n");
    return concat("tokenizer={name: wordpiece, vocab: ", folder_ / "vocab.txt", ", context_length: ", context_length, "}");
  }
  // Trains a run to its end. Returns its folder.
  std::string train_published(const std::string& name, const TowersOfTest& towers, const std::vector<std::string>& overrides) {
    EXPECT_EQ(Trainer(published_config(name, towers, overrides), "none").run(), Outcome::finished);
    return folder_ / name;
  }
};

TEST_F(StartOfTraining, FrozenTowerStaysBitForBitWhileTheOtherLearns) {
  const std::vector<std::string> locked{"parameters.frozen=[image]"};
  const Weights before = fresh("before", locked), after = checkpoint_of(train("run", locked)).model.weights;
  for (const auto& [name, tensor] : after)
    EXPECT_EQ(at::equal(tensor, before.at(name)), name.starts_with("visual.")) << name;
}

TEST_F(StartOfTraining, LoadsAnImageTowerFromAPublishedFolder) {
  const std::string published = test_data("foreign/dinov3");
  const std::string run = train_published("run", {.image = "{from: " + published + ", readout: cls_mean, projection: {name: linear, embed_dim: 8}}"},
                                          {"model.preprocessing.image_size=32", "parameters.frozen=[image]"});
  const Weights after = checkpoint_of(run).model.weights, theirs = load_foreign_model(published).weights;
  EXPECT_EQ(after.at("visual.proj").sizes(), at::IntArrayRef({64, 8})) << "the class token and the mean, concatenated";
  for (const auto& [name, tensor] : theirs) EXPECT_TRUE(at::equal(after.at(name), tensor)) << name;
  const auto carried = checkpoint_of(run).model.published;
  ASSERT_NE(carried, nullptr);
  EXPECT_EQ(carried->library, "transformers");
  EXPECT_EQ(carried->files.at("config.json"), io::read_file(published + "/config.json"));
  EXPECT_TRUE(carried->tensors.contains("embeddings.mask_token")) << "our encoder has no such tensor";
  const Config config = load_config(run + "/config.yaml");
  EXPECT_EQ(config.start.image->name, published);
  EXPECT_EQ(config.model.preprocessing.mean[0], 0.485) << "the folder defines how images are normalized";
}

TEST_F(StartOfTraining, PublishedTowerCanBeFrozenOrDecayedByDepth) {
  const std::string published = test_data("foreign/dinov3");
  const TowersOfTest towers{.image = "{from: " + published + ", readout: cls_mean, projection: {name: linear, embed_dim: 8}}"};
  const std::string frozen = "parameters.frozen=[visual.conv1.*, visual.*_embedding, visual.transformer.resblocks.0.*]";
  const Weights theirs = load_foreign_model(published).weights;
  for (const std::string& settings : {frozen, std::string("parameters.layer_decay={image: 1.0e-6}")}) {
    const bool is_frozen = settings == frozen;
    const Weights after = checkpoint_of(train_published(is_frozen ? "frozen" : "decay", towers, {settings})).model.weights;
    for (const auto& [name, tensor] : theirs) {
      const bool early = name.starts_with("visual.conv1") || name.ends_with("_embedding") || name.find("resblocks.0") != std::string::npos;
      const double moved = (after.at(name) - tensor).abs().max().item<double>();
      if (early) {
        EXPECT_LE(moved, is_frozen ? 0 : 1e-7) << name;
      } else if (is_frozen || name.starts_with("visual.ln_post")) {
        EXPECT_GT(moved, 1e-4) << name;
      }
    }
  }
}

TEST_F(StartOfTraining, ResizesThePositionsOfAPublishedTower) {
  const std::string published = test_data("foreign/siglip");
  const std::string run = train_published("run", {.image = "{from: " + published + ", projection: {name: linear, embed_dim: 8}}"},
                                          {"model.preprocessing.image_size=32", "data.train.image_size=32"});
  EXPECT_EQ(load_foreign_model(published).weights.at("visual.positional_embedding").size(0), 4);
  EXPECT_EQ(checkpoint_of(run).model.weights.at("visual.positional_embedding").sizes(), at::IntArrayRef({16, 32}));
}

TEST_F(StartOfTraining, TakesTheTemperatureIfBothTowersComeFromTheFolder) {
  const std::string from = "{from: " + test_data("foreign/siglip") + "}";
  const Weights theirs = load_foreign_model(test_data("foreign/siglip")).weights;
  const std::string tokenizer = small_tokenizer(8);
  const auto fresh_temperature = [&](const TowersOfTest& towers) {
    const Config config = published_config("fresh", towers, {"objective={name: siglip}", tokenizer});
    const Trainer trainer(config, "none");
    const auto weights = collect_weights(*trainer.training_run().model, *trainer.training_run().objective);
    return std::pair{weights.at("logit_scale").item<double>(), weights.at("logit_bias").item<double>()};
  };
  const auto both = fresh_temperature({.image = from, .text = from});
  EXPECT_EQ(both.first, theirs.at("logit_scale").item<double>());
  EXPECT_EQ(both.second, theirs.at("logit_bias").item<double>());
  const auto one = fresh_temperature({.image = "{from: " + test_data("foreign/siglip") + ", projection: {name: linear, embed_dim: 8}}"});
  EXPECT_NEAR(one.first, std::log(10.0), 1e-6);
  EXPECT_EQ(one.second, -10);
}

TEST_F(StartOfTraining, LoadsATextTowerFromAFolderWithoutAnImageTower) {
  const std::string published = test_data("foreign/bert"), linear = ", projection: {name: linear, embed_dim: 8}}";
  const at::Tensor table = load_foreign_weights(published).at("embeddings.word_embeddings.weight");
  for (const std::string& image : {std::string(), "{from: " + test_data("foreign/dinov3") + linear}) {
    const Trainer trainer(published_config("run", {.image = image, .text = "{from: " + published + linear}, {small_tokenizer(12)}), "none");
    EXPECT_TRUE(at::equal(trainer.training_run().model->state_dict().at("token_embedding.weight"), table));
    const auto carried = trainer.training_run().published;
    ASSERT_NE(carried, nullptr);
    EXPECT_EQ(carried->library, "") << "no folder describes the whole model";
    EXPECT_EQ(carried->files.at("config.json"), io::read_file(published + "/config.json"));
  }
}

TEST_F(StartOfTraining, ResumedRunKeepsThePublishedParts) {
  const std::string earlier = train("earlier", {}), start = folder_ / "start.safetensors";
  Checkpoint given = checkpoint_of(earlier);
  given.model.published = std::make_shared<PublishedParts>(PublishedParts{"open_clip", {{"a.json", "{}"}}, {}, {{"decoder", at::ones({2})}}, {}});
  save_model_file(start, given.model);
  const std::vector<std::string> settings{"start.weights=" + start};
  const std::string whole = train("whole", settings), resumed = train("resumed", settings, whole + "/checkpoints/step_0000003");
  for (const std::string& run : {whole, resumed}) {
    const auto carried = checkpoint_of(run).model.published;
    ASSERT_NE(carried, nullptr) << run;
    EXPECT_EQ(carried->files.at("a.json"), "{}");
    EXPECT_TRUE(at::equal(carried->tensors.at("decoder"), at::ones({2})));
  }
}

TEST_F(StartOfTraining, RejectsAFolderWithoutTheTower) {
  const auto with = [&](const std::string& override) { return error_of([&] { tiny_config(folder_ / "run", {override}); }); };
  EXPECT_TRUE(contains(with("model.text={from: " + test_data("foreign/dinov3") + "}"), "has no text tower"));
  EXPECT_TRUE(contains(with("model.image={from: " + test_data("images") + "}"), "is not a published model"));
  EXPECT_TRUE(contains(with("model.image={from: nowhere}"), "nowhere"));
}

TEST_F(StartOfTraining, FrozenResnetKeepsItsStatistics) {
  const std::vector<std::string> locked{
      "parameters.frozen=[image]", "model.preprocessing.image_size=32",
      "model.image={encoder: {name: modified_resnet, width: 8, layers: [1, 1, 1, 1]}, readout: {name: "
      "attention_pool_2d, heads: 4}, projection: {name: none}}",
      "model.text.projection.embed_dim=1024"};
  const auto statistics_move = [&](std::vector<std::string> overrides, const std::string& name) {
    overrides.insert(overrides.end(), {"training.steps=1", "schedule.warmup_steps=0"});
    const Weights before = fresh(name + "_before", overrides);
    Trainer trainer(tiny_config(folder_ / name, overrides), "none");
    trainer.run();
    for (const auto& [key, tensor] : trainer.training_run().model->state_dict())
      if (key == "visual.bn1.running_mean") return !at::equal(tensor, before.at(key));
    return false;
  };
  EXPECT_FALSE(statistics_move(locked, "locked"));
  EXPECT_TRUE(statistics_move({locked.begin() + 1, locked.end()}, "free"));
}

TEST_F(StartOfTraining, LoadsAnOpenClipFile) {
  const Weights given = fresh("given", {"seed=9"});
  Weights theirs = given;
  theirs["attn_mask"] = at::zeros({3, 3});  // entries that OpenAI's files have
  theirs["input_resolution"] = at::full({}, 16, at::kLong);
  io::save_safetensors(folder_ / "theirs.safetensors", theirs);
  const Weights begun = fresh("begun", {"start.weights=" + (folder_ / "theirs.safetensors")});
  for (const auto& [name, tensor] : given) EXPECT_TRUE(at::equal(begun.at(name), tensor)) << name;
}

TEST_F(StartOfTraining, LoadsAnEarlierRunWholeOrInParts) {
  const std::string earlier = train("earlier", {});
  const Weights given = checkpoint_of(earlier).model.weights;
  const Weights all = fresh("all", {"seed=9", "start.weights=" + earlier});
  expect_equal(all, given);
  const Weights random = fresh("random", {"seed=9"});
  const Weights image = fresh("image", {"seed=9", "start={weights: " + earlier + ", parts: [image]}"});
  for (const auto& [name, tensor] : image)
    EXPECT_TRUE(at::equal(tensor, (name.starts_with("visual.") ? given : random).at(name))) << name;
}

TEST_F(StartOfTraining, TakesATemperatureThatIsAVectorOfOneNumber) {
  const std::string start = folder_ / "start.safetensors";
  Checkpoint given = checkpoint_of(train("earlier", {}));
  given.model.weights.at("logit_scale") = at::tensor({1.25F});
  save_model_file(start, given.model);
  EXPECT_EQ(fresh("run", {"start.weights=" + start}).at("logit_scale").item<double>(), 1.25);
}

/// Tests what a run says about the weights that it starts from.
class WordsAtTheStart : public StartOfTraining {
 protected:
  // Returns the warnings of a run with these settings.
  std::vector<std::string> warnings(const std::vector<std::string>& overrides) {
    const Config config = tiny_config(folder_ / "run", overrides);
    run_ = build_training_run(config);
    return load_initial_weights(run_, config);
  }
  double logit_scale() const { return objective_state(*run_.objective).at("logit_scale").item<double>(); }
  // Writes the final model of a run of tiny_yaml, after a change.
  std::string earlier(const std::function<void(ModelFile&)>& change) {
    ModelFile file = checkpoint_of(train("earlier", {})).model;
    change(file);
    save_model_file(folder_ / "start.safetensors", file);
    return folder_ / "start.safetensors";
  }

  TrainingRun run_;
};

TEST_F(WordsAtTheStart, NameTheSettingsThatDifferFromThoseOfTheWeights) {
  const std::string start = earlier([](ModelFile&) {}), weights = "start.weights=" + start;
  EXPECT_EQ(warnings({weights}), std::vector<std::string>{});
  const std::vector<std::string> other = {weights, "model.image.encoder.activation=quick_gelu", "model.image.encoder.drop_path=0.1",
                                          "model.preprocessing.mean=[0.5, 0.5, 0.5]", "model.text.readout.name=max"};
  const std::string line = start + ": the run has other settings than its weights: model.image.encoder.activation is quick_gelu instead of gelu";
  EXPECT_EQ(warnings(other), std::vector{line + ", model.text.readout.name is max instead of gap and model.preprocessing.mean is [0.5,0.5,0.5] "
                                                "instead of [0.48145466,0.4578275,0.40821073]"});
  EXPECT_EQ(warnings(with(other, {"start.parts=[text]"})),
            std::vector{start + ": the run has other settings than its weights: model.text.readout.name is max instead of gap"});
  EXPECT_EQ(warnings({weights, "tokenizer.context_length=20"}),
            std::vector{start + ": the run has other settings than its weights: tokenizer.context_length is 20 instead of 24"});
}

TEST_F(WordsAtTheStart, CompareTheRunWithTheConfigurationNextToOpenClipsWeights) {
  const std::vector<std::string> towers = {"model.text.encoder.attention=causal", "model.text.readout={name: eos, position: ids}"};
  std::filesystem::create_directories(folder_ / "theirs");
  const std::string start = folder_ / "theirs/w.safetensors";
  io::save_safetensors(start, fresh("given", towers));
  io::write_file(folder_ / "theirs/open_clip_config.json", R"({"model_cfg": {"embed_dim": 8, "quick_gelu": true,
    "vision_cfg": {"image_size": 16, "layers": 1, "width": 16, "head_width": 8, "patch_size": 8},
    "text_cfg": {"context_length": 24, "vocab_size": 64, "width": 16, "heads": 2, "layers": 1}},
    "preprocess_cfg": {"interpolation": "bilinear"}})");
  EXPECT_EQ(warnings(with(towers, {"start.weights=" + start})),
            std::vector{start + ": the run has other settings than its weights: model.image.encoder.activation is gelu instead of quick_gelu, "
                                "model.text.encoder.activation is gelu instead of quick_gelu, model.preprocessing.interpolation is bicubic "
                                "instead of bilinear and tokenizer.name is test_letters instead of clip-bpe"});
}

TEST_F(WordsAtTheStart, NameATemperatureThatTheWeightsLack) {
  const std::string start = earlier([](ModelFile& file) { file.weights.erase("logit_scale"); });
  EXPECT_EQ(warnings({"start.weights=" + start}), std::vector{start + ": has no logit_scale, which starts with the objective's 2.65926"});
  EXPECT_EQ(warnings({"start={weights: " + start + ", parts: [image]}"}), std::vector<std::string>{});
}

TEST_F(WordsAtTheStart, ATemperatureOutOfBoundsStartsAtTheBound) {
  const std::string start = earlier([](ModelFile& file) { file.weights["logit_scale"] = at::tensor(100.0F); });
  EXPECT_EQ(warnings({"start.weights=" + start}),
            std::vector{start + ": logit_scale 100 is the factor, not its logarithm: the run starts with 4.60517"});
  EXPECT_NEAR(logit_scale(), std::log(100.0), 1e-6);
  EXPECT_EQ(warnings({"start.weights=" + start, "parameters.frozen=[logit_scale]"}), std::vector<std::string>{});
  EXPECT_EQ(logit_scale(), 100) << "frozen parameters have no bounds";
}

TEST_F(WordsAtTheStart, AStoredFactorStartsWithItsLogarithm) {
  const std::string start = earlier([](ModelFile& file) { file.weights["logit_scale"] = at::tensor(14.2857F); });
  EXPECT_EQ(warnings({"start.weights=" + start}),
            std::vector{start + ": logit_scale 14.2857 is the factor, not its logarithm: the run starts with 2.65926"});
  EXPECT_NEAR(logit_scale(), std::log(14.2857), 1e-5);
}

TEST_F(WordsAtTheStart, AStateDictOfSeveralIsChosenBySetting) {
  const std::string states = test_data("pytorch/states.pt");
  EXPECT_TRUE(contains(error_of([&] { warnings({"start={weights: " + states + ", state: ema}"}); }), "has no state dict ema; it has model_ema"));
  const std::string start = earlier([](ModelFile&) {});
  EXPECT_EQ(error_of([&] { warnings({"start={weights: " + start + ", state: ema}"}); }),
            "start.state is ema, but " + start + " has only one set of weights: leave it out");
}

TEST_F(StartOfTraining, SettingsOfATokenizerWithoutANameChangeTheFoldersTokenizer) {
  const std::string folder = folder_ / "clip";
  std::filesystem::copy(test_data("foreign/clip"), folder);
  std::filesystem::copy_file(test_data("foreign/tokenizers/clip.json"), folder + "/tokenizer.json");
  const std::string text = "model: {text: {from: " + folder + "}}\n";
  const auto tokenizer = [&](const std::string& more) {
    return *with_published_towers(config::parse_yaml(text + more, "run.yaml")).find("tokenizer");
  };
  const config::Node of_folder = tokenizer(""), longer = tokenizer("tokenizer: {context_length: 9}");
  ASSERT_NE(longer.find("name"), nullptr);
  EXPECT_EQ(longer.find("name")->text(), of_folder.find("name")->text());
  EXPECT_EQ(longer.find("model")->text(), folder + "/tokenizer.json");
  EXPECT_EQ(longer.find("context_length")->text(), "9");
  EXPECT_EQ(tokenizer("tokenizer: {name: wordpiece, vocab: v.txt}").find("model"), nullptr) << "replaces the folder's";
}

TEST_F(StartOfTraining, ReportsMistakes) {
  EXPECT_EQ(error_of([&] { tiny_config(folder_ / "a", {"start.parts=[image]"}); }),
            "--set: start.parts: needs start.weights: the file to take them from");
  const std::string earlier = train("earlier", {});
  const std::string file = earlier + "/checkpoints/step_0000006/model.safetensors";
  EXPECT_EQ(error_of([&] { fresh("b", {"start={weights: " + earlier + ", parts: [visuell.*]}"}); }),
            file + ": holds none of the parts that start.parts names");
  EXPECT_EQ(error_of([&] { tiny_config(folder_ / "c", {"evaluation.weights=ema"}); }),
            "--set: evaluation.weights: is ema, but nothing is averaged: set training.ema");
  EXPECT_EQ(error_of([&] { fresh("d", {"evaluation.weights=teacher"}); }),
            "evaluation.weights is teacher, but the objective clip has none: set it to model");
}

TEST_F(StartOfTraining, SavesAveragedWeightsAsAModelAndResumesThemBitForBit) {
  const std::vector<std::string> averaged{"training.ema={decay: 0.5, warmup: false}"};
  const std::string whole = train("whole", averaged);
  const Checkpoint a = checkpoint_of(whole), b = checkpoint_of(train("broken", averaged, whole + "/checkpoints/step_0000003"));
  ASSERT_EQ(a.ema.size(), a.model.weights.size());
  expect_equal(a.ema, b.ema);
  EXPECT_FALSE(at::equal(a.ema.at("visual.conv1.weight"), a.model.weights.at("visual.conv1.weight")));
  const ModelFile file = load_model_file(whole + "/checkpoints/step_0000006/ema.safetensors");
  EXPECT_TRUE(at::equal(file.weights.at("visual.conv1.weight"), a.ema.at("visual.conv1.weight")));
}

}  // namespace
}  // namespace tessera
