#include <filesystem>
#include <map>

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include "src/io/tar.h"
#include "src/training/config/resume_rules.h"
#include "src/training/log/advice.h"
#include "src/training/stages.h"
#include "tests/support/test_data.h"
#include "tests/training/tiny_run.h"
#include <tessera/data/source.h>
#include <tessera/io/atomic_file.h>
#include <tessera/training/config/config.h>

namespace tessera {
namespace {

std::string error_with(const std::vector<std::string>& overrides) {
  return error_of([&] { tiny_config("runs/x", overrides); });
}

std::string error_in(std::string yaml, const std::string& from, const std::string& to) {
  register_test_modules();
  const std::size_t at = yaml.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  yaml.replace(at, from.size(), to);
  return error_of([&] { resolve_config(config::parse_yaml(yaml, "tiny.yaml"), "tiny"); });
}

TEST(TrainingConfig, UnknownKeysNameFileLineAndTheNearestKey) {
  EXPECT_EQ(error_in(tiny_yaml(), "steps: 6", "step: 6"),
            "tiny.yaml:20: training.step: unknown key: did you mean steps?");
  EXPECT_EQ(error_in(tiny_yaml(), "patch_size: 8", "patchsize: 8"),
            "tiny.yaml:10: model.image.encoder.patchsize: unknown key: did you mean patch_size?");
  EXPECT_EQ(error_with({"optimizer.weightdecay=0.1"}),
            "--set: optimizer.weightdecay: unknown key: did you mean weight_decay?");
}

TEST(TrainingConfig, UnknownModulesNameTheNearest) {
  EXPECT_EQ(error_in(tiny_yaml(), "name: adamw", "name: adamv"),
            "tiny.yaml:18: optimizer: unknown optimizer adamv: did you mean adamw?");
  EXPECT_EQ(error_with({"objective=clipp"}), "--set: objective: unknown objective clipp: did you mean clip?");
}

TEST(TrainingConfig, WrongTypesSayWhatIsExpected) {
  EXPECT_EQ(error_in(tiny_yaml(), "steps: 6", "steps: many"),
            "tiny.yaml:20: training.steps: expected a whole number, got \"many\"");
  EXPECT_EQ(error_in(tiny_yaml(), "batch_size: 8", "batch_size: 0"),
            "tiny.yaml:5: data.loader.batch_size: expected at least 1, got 0");
  EXPECT_EQ(error_with({"training.precision=fp8"}),
            "--set: training.precision: expected one of float32, bf16 and fp16, got \"fp8\"");
}

TEST(TrainingConfig, RejectsImpossibleCombinationsBeforeBuildingAnything) {
  EXPECT_EQ(error_with({"training.cuda_graph=true", "training.micro_batch=2"}),
            "--set: training.cuda_graph: is true, and training.micro_batch is set: GradCache cannot be recorded; set only "
            "one of the two");
  EXPECT_EQ(error_with({"model.text.projection.embed_dim=16"}),
            "--set: model.text.projection.embed_dim: is 16, but "
            "model.image.projection.embed_dim is "
            "8: both towers share one space");
  EXPECT_EQ(error_with({"model.image.encoder.image_size=32"}),
            "tiny.yaml:8: model.preprocessing.image_size: is 16x16, but model.image.encoder.image_size is 32x32: leave "
            "one of them "
            "out");
  const std::string odd_patch = error_with({"model.image.encoder.patch_size=5"});
  EXPECT_TRUE(odd_patch.starts_with("tiny.yaml:8: model.preprocessing.image_size: 16 x 16 is not a multiple of patch_size 5 x 5"))
      << odd_patch << ": names the key that the configuration sets";
  EXPECT_EQ(error_with({"model.text.encoder.context_length=5"}),
            "--set: model.text.encoder.context_length: is 5, but "
            "tokenizer.context_length is 24: "
            "leave it out to follow the tokenizer");
  EXPECT_EQ(error_with({"evaluation.tasks=[{name: zero_shot}]", "data.validation=null"}),
            "--set: evaluation.tasks[0].source: missing, and there is no data.validation as a default: "
            "set one of the two");
}

TEST(TrainingConfig, NamesMissingPartsWithAnExample) {
  EXPECT_EQ(error_of([] { resolve_config(config::parse_yaml("seed: 1", "a.yaml"), "a"); }),
            "a.yaml:1: data: missing: for example data: {train: {name: shapes}}");
  EXPECT_TRUE(error_of([] { load_config("no/such/file.yaml"); }).starts_with("no/such/file.yaml: no such configuration file"));
}

TEST(TrainingConfig, TextEncoderFollowsTheTokenizerAndImageSizesFollowEachOther) {
  const Config c = tiny_config("runs/x");
  EXPECT_EQ(c.model.text->encoder.settings.find("vocab_size")->text(), "64");
  EXPECT_EQ(c.model.text->encoder.settings.find("context_length")->text(), "24");
  EXPECT_EQ(c.model.image.encoder.settings.find("image_size")->text(), "16");
  EXPECT_EQ(tiny_config("runs/x", {"model.text.encoder.vocab_size=null"})
                .model.text->encoder.settings.find("vocab_size")
                ->text(),
            "64");
}

TEST(TrainingConfig, OverridesWinAndAnotherModuleDropsTheOldSettings) {
  const Config c = tiny_config("runs/x", {"optimizer.lr=0.5", "training.steps=9"});
  EXPECT_EQ(c.training.steps, 9);
  EXPECT_EQ(c.optimizer.settings.find("lr")->text(), "0.5");
  EXPECT_EQ(tiny_config("runs/x", {"optimizer.name=lamb"}).optimizer.settings.find("lr")->text(), "0.001");
}

TEST(TrainingConfig, LaterOverridesAddToAPlainName) {
  const Config c = tiny_config("runs/x", {"optimizer=lamb", "optimizer.lr=0.25", "objective=siglip"});
  EXPECT_EQ(c.optimizer.name, "lamb");
  EXPECT_EQ(c.optimizer.settings.find("lr")->text(), "0.25");
  EXPECT_EQ(c.objective.name, "siglip");
}

TEST(TrainingConfig, ModuleWithoutANameIsTheDefaultOne) {
  std::string yaml = tiny_yaml();
  yaml.replace(yaml.find("name: adamw, "), std::string("name: adamw, ").size(), "");
  register_test_modules();
  EXPECT_EQ(resolve_config(config::parse_yaml(yaml, "tiny.yaml"), "tiny").optimizer.name, "adamw");
}

TEST(TrainingConfig, SuggestsTheFullNameOfAMisplacedKey) {
  EXPECT_EQ(error_with({"lr=0.1"}), "--set: lr: unknown key: did you mean optimizer.lr?");
  EXPECT_EQ(error_with({"learning_rate=0.1"}), "--set: learning_rate: unknown key: did you mean optimizer.lr?");
  EXPECT_EQ(error_with({"optimizer.learning_rate=1"}), "--set: optimizer.learning_rate: unknown key: did you mean lr?");
  EXPECT_EQ(error_with({"steps=3"}), "--set: steps: unknown key: did you mean training.steps?");
  EXPECT_TRUE(contains(error_with({"batch_size=3"}), "did you mean data.loader.batch_size"));
  EXPECT_TRUE(contains(error_with({"training.precision=bfloat16"}), "did you mean bf16?"));
  EXPECT_TRUE(contains(error_with({"training.device=gpu"}), "did you mean cuda?"));
}

TEST(TrainingConfig, MisspeltKeyIsReportedBeforeAMissingVocabulary) {
  const std::vector<std::string> overrides = {"tokenizer={name: clip-bpe, merges: no/such.txt}",
                                              "model.text.encoder.vocab_size=null"};
  std::vector<std::string> misspelt = overrides;
  misspelt.emplace_back("objective.local_wait=1");
  EXPECT_TRUE(contains(error_with(misspelt), "objective.local_wait: unknown key"));
  EXPECT_EQ(error_with(overrides).find("--set: tokenizer.merges: no/such.txt: no such file or folder in "), 0U)
      << error_with(overrides);
  EXPECT_EQ(error_with({"tokenizer={name: wordpiece}", "model.text.encoder.vocab_size=null"})
                .find("--set: tokenizer.vocab: wordpiece: vocab is not set: give the path of a vocab.txt"),
            0U);
}

TEST(TrainingConfig, RunFileReadsTheSameInAnyFolder) {
  const TemporaryFolder folder;
  for (const char* name : {"here", "elsewhere"}) std::filesystem::create_directories(folder / name);
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder / "here");
  io::write_file("start.safetensors", "x");
  Config c = tiny_config("runs/x", {"start.weights=start.safetensors", "checkpoint.copy_to=copies"});
  io::write_file(folder / "config.yaml", to_yaml_anywhere(c));
  std::filesystem::current_path(folder / "elsewhere");
  const Config again = load_config(folder / "config.yaml");
  std::filesystem::current_path(before);
  EXPECT_EQ(again.run.folder, folder / "here/runs/x");
  EXPECT_EQ(again.start.weights->name, folder / "here/start.safetensors");
  EXPECT_EQ(again.checkpoint.copy_to, folder / "here/copies");
}

TEST(TrainingConfig, RunWhoseNameIsNotUtf8IsRefusedBeforeItStarts) {
  Config c = tiny_config("runs/x", {});
  c.run.name = "z\xFCrich";
  EXPECT_EQ(error_of([&] { to_yaml_anywhere(c); }), "run.name: z\uFFFDrich is not UTF-8: rename the folder or the file");
}

TEST(TrainingConfig, RunFileKeepsTextThatLooksLikeAVariable) {
  const TemporaryFolder folder;
  const Config c = tiny_config("runs/x", {"run.name=a ${b}"});
  io::write_file(folder / "config.yaml", to_yaml(c));
  EXPECT_EQ(load_config(folder / "config.yaml").run.name, c.run.name);
}

TEST(TrainingConfig, PrintedConfigurationLoadsBackIdentical) {
  const TemporaryFolder folder;
  const Config c =
      tiny_config("runs/x", {"evaluation.tasks=[{name: zero_shot, templates: ['a {}: \"x\"', 'null {}']}]"});
  const std::string text = to_yaml(c);
  io::write_file(folder / "printed.yaml", text);
  const Config again = load_config(folder / "printed.yaml");
  EXPECT_EQ(to_yaml(again), text);
}

// Loads a shipped configuration. If it needs a tokenizer file that is built from captions, replaces its tokenizer.
std::vector<Stage> shipped_stages(const std::string& name, std::vector<std::string> overrides = {}) {
  try {
    return load_stages(name, overrides);
  } catch (const UserError&) {
    overrides.push_back("tokenizer={name: wordpiece, vocab: " TESSERA_SOURCE_DIR "/configs/vocabularies/shapes-wordpiece/vocab.txt}");
    return load_stages(name, overrides);
  }
}

/// Writes the files of published models, from which some configurations start, into the working folder.
void write_published_folders() {
  namespace fs = std::filesystem;
  const std::string tokenizers = test_data("foreign/tokenizers/");
  for (const std::string folder : {"downloads/siglip2-base-patch16-224", "runs/small/siglip2"}) {
    fs::create_directories(folder);
    fs::copy(test_data("foreign/siglip"), folder);
    fs::copy(tokenizers + "gemma.json", folder + "/tokenizer.json");
  }
  for (const std::string folder : {"downloads/dinov3-vitb16", "runs/small/dinov3"}) {
    fs::create_directories(folder);
    fs::copy(test_data("foreign/dinov3"), folder);
  }
  fs::create_directories("downloads/PE-Core-B-16");
  io::write_file("downloads/PE-Core-B-16/open_clip_config.json",
                 R"({"model_cfg": {"embed_dim": 1024, "custom_text": true,
                                   "vision_cfg": {"image_size": 224, "timm_model_name": "vit_pe_core_base_patch16_224", "timm_proj": null},
                                   "text_cfg": {"context_length": 32, "vocab_size": 49408, "width": 1024, "heads": 16, "layers": 24}},
                     "preprocess_cfg": {"size": [224, 224], "interpolation": "bilinear", "resize_mode": "squash"}})");
}

TEST(TrainingConfig, EveryShippedConfigurationIsValidFromAnyWorkingFolder) {
  const TemporaryFolder elsewhere;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(elsewhere.path());
  write_published_folders();
  std::size_t checked = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(TESSERA_SOURCE_DIR "/configs")) {
    const std::string folder = entry.path().parent_path().filename().string();
    if (entry.path().extension() != ".yaml" || folder == "parts" || folder == "suites") continue;
    const std::string name = folder + "_" + entry.path().stem().string();
    for (const auto& [stage, config, follows, overruled, moved] : shipped_stages(name)) {
      EXPECT_EQ(config.run.name, stage.empty() ? name : name + "/" + stage);
      EXPECT_EQ(longer_than_run(config).value_or(""), "") << name;
    }
    shipped_stages(name, {"training.steps=3"});
    ++checked;
  }
  std::filesystem::current_path(before);
  EXPECT_GE(checked, 100u);
}

TEST(TrainingConfig, RecipesReadTheTextsThatTheirHeadersName) {
  const TemporaryFolder folder;
  io::TarWriter tar(folder / "a.tar");
  tar.add("a.png", "not decoded here");
  tar.add("a.txt", "a dog");
  tar.add("a.json", R"({"caption": "a dog", "long_caption": "a brown dog in a park", "summary": "a dog outdoors"})");
  tar.finish();
  const auto sample_of = [&](const std::string& name) {
    const Config config = load_stages(name, {concat("data.train.path=", folder / "a.tar")}).front().config;
    return indexed(sources().make(config.data.train, "data.train"))->get(0);
  };
  EXPECT_EQ(sample_of("fgclip_vitb16").captions, (std::vector<std::string>{"a dog", "a brown dog in a park"}));
  EXPECT_EQ(sample_of("tips_vitb14").summary, "a dog outdoors");
}

TEST(TrainingConfig, ARecipeIsTheSameRunByItsNameAndByItsFile) {
  const Config by_name = load_config("pyramidclip_ablation"), by_place = load_config("pyramidclip/ablation.yaml");
  const Config by_file = load_config(TESSERA_SOURCE_DIR "/configs/pyramidclip/ablation.yaml");
  EXPECT_EQ(by_file.run.folder, "runs/pyramidclip_ablation");
  EXPECT_EQ(to_yaml(by_place), to_yaml(by_name));
  EXPECT_EQ(to_yaml(by_file), to_yaml(by_name));
}

TEST(TrainingConfig, SparoRecipesHaveThePapersSizesAndALearningRateForTheirData) {
  const std::map<std::string, std::pair<std::int64_t, double>> expected = {{"sparo_laion400m_vitb32", {150'908'545, 5e-4}},
                                                                           {"sparo_cc15m_rn50_d32", {97'197'473, 1e-3}}};
  for (const auto& [name, values] : expected) {
    const auto [size, rate] = values;
    const Config config = load_config(name);
    std::int64_t numbers = 1;  // the temperature is one parameter
    for (const at::Tensor& parameter : DualEncoder(config.model).parameters()) numbers += parameter.numel();
    EXPECT_EQ(numbers, size) << name;
    EXPECT_EQ(std::stod(config.optimizer.settings.find("lr")->text()), rate) << name;
  }
}

// The expected values are from Gao et al. 2022, Table 1 and appendix A.2.
TEST(TrainingConfig, PyramidClipRecipesMatchThePaper) {
  for (const std::string tower : {"rn50", "vitb32", "vitb16"}) {
    const Config small = load_config("pyramidclip_15m_" + tower), large = load_config("pyramidclip_143m_" + tower);
    EXPECT_EQ(small.objective.name, "pyramidclip");
    EXPECT_EQ(small.data.loader.batch_size, 4096);
    EXPECT_EQ(large.data.loader.batch_size, 8192);
    EXPECT_EQ(std::stod(small.optimizer.settings.find("lr")->text()), 2e-3);
    EXPECT_EQ(std::stod(large.optimizer.settings.find("lr")->text()), 5e-4);
    for (const Config& config : {small, large})
      EXPECT_EQ(std::stod(config.optimizer.settings.find("betas")->items()[1].text()), tower == "rn50" ? 0.999 : 0.98);
    EXPECT_EQ(small.data.train.name, "webdataset");
    EXPECT_EQ(large.data.train.name, "mixture");
    EXPECT_EQ(large.data.train.settings.find("mode")->text(), "sequential");
    EXPECT_EQ(large.data.train.settings.find("sources")->items().size(), 6u);
    EXPECT_EQ(large.data.train.settings.find("path"), nullptr);
  }
}

// The expected values are from Chen et al. 2023, sections 3 and 4.2.
TEST(TrainingConfig, StairHasThePapersStages) {
  const std::vector<Stage> stages = shipped_stages("stair_vitb16");
  ASSERT_EQ(stages.size(), 3u);
  const auto text_of = [](const config::ModuleSettings& module, const char* key) {
    return module.settings.find(key)->text();
  };
  std::vector<std::int64_t> steps;
  for (const Stage& stage : stages) {
    const Config& config = stage.config;
    steps.push_back(config.training.steps);
    EXPECT_EQ(text_of(config.objective, "text_token_mask"), stage.name == "masked_text" ? "true" : "false");
    EXPECT_EQ(config.parameters.frozen.empty(), stage.name != "frozen_image");
    EXPECT_EQ(config.optimizer.name, "lamb");
    EXPECT_EQ(std::stod(text_of(config.optimizer, "lr")), stage.name == "joint" ? 1e-4 : 1e-3);
    EXPECT_EQ(std::stod(text_of(config.optimizer, "weight_decay")), 0.01);
    EXPECT_EQ(config.schedule.schedule, "linear");
    EXPECT_EQ(config.schedule.warmup_steps, 10000);
    EXPECT_EQ(config.data.loader.batch_size, 16384);
    EXPECT_EQ(text_of(config.model.text->encoder, "context_length"), "76");
    EXPECT_EQ(text_of(config.model.text->encoder, "vocab_size"), "30522");
  }
  EXPECT_EQ(steps, (std::vector<std::int64_t>{300'000, 300'000, 600'000}));
  const Config single = shipped_stages("stair_single_vitb16").front().config;
  EXPECT_EQ(single.training.steps, 600'000);
  EXPECT_FALSE(contains(to_yaml(single), "stages"));
  EXPECT_EQ(shipped_stages("stair_clip_vitb16").front().config.objective.name, "clip");
}

// The expected values are from section 4.1 of the text group transformer paper.
TEST(TrainingConfig, TextGroupHasThePapersSizesAndABaselineOfAboutTheSameSize) {
  const auto text_parameters = [](const Config& config) {
    std::int64_t numbers = 0;
    DualEncoder model(config.model);
    for (const auto& [name, tensor] : model.text_tower().state_dict())
      if (name != "token_embedding.weight") numbers += tensor.numel();
    return static_cast<double>(numbers);
  };
  const Config ours = load_config("text_group_cc3m"), baseline = load_config("text_group_baseline_cc3m");
  EXPECT_NEAR(text_parameters(ours) / text_parameters(baseline), 1, 0.05);
  for (const Config& config : {ours, baseline}) {
    EXPECT_EQ(config.data.loader.batch_size, 4096);
    EXPECT_EQ(config.optimizer.settings.find("lr")->text(), "0.0016");
    EXPECT_NEAR(static_cast<double>(config.schedule.warmup_steps) / static_cast<double>(config.training.steps),
                2.0 / 25, 1e-4);
    EXPECT_EQ(config.objective.settings.find("temperature")->text(), "0.07");
    EXPECT_FALSE(config.parameters.frozen.empty());
    EXPECT_EQ(config.start.parts, config.parameters.frozen);
  }
  EXPECT_TRUE(load_config("text_group_trained_cc3m").parameters.frozen.empty());
}

TEST(TrainingConfig, BaselinesDifferFromSparcOnlyInTheirObjective) {
  for (const std::string setting : {"shapes_", "_vitb16", "_vitb32", "_vitl14"}) {
    const auto config_of = [&](const std::string& objective) {
      return shipped_stages(setting.back() == '_' ? setting + objective : objective + setting).front().config;
    };
    const config::Node sparc = config::dump(config_of("sparc"));
    for (const std::string objective : {"clip", "filip", "clip_filip", "pacl", "gloria", "mgca"}) {
      for (const Change& change : changes(sparc, config::dump(config_of(objective)))) {
        if (change.key.starts_with("run.")) continue;
        const std::string difference = change.text();
        // GLoRIA trains with a quarter of the batch for four times the steps.
        const bool smaller_batch =
            objective == "gloria" && (difference.starts_with("data.loader.batch_size: 16384 there, 4096 here") ||
                                      difference.starts_with("training.steps: "));
        // FILIP and PACL use only tokens. Their configurations omit the head of the image embedding, because it would stay untrained.
        const bool tokens_only = objective == "filip" || objective == "pacl";
        const bool mean_head = tokens_only && difference.starts_with("model.image.projection.global_head: ");
        EXPECT_TRUE(difference.starts_with("objective.") || smaller_batch || mean_head)
            << objective << setting << ": " << difference;
      }
    }
  }
}

}  // namespace
}  // namespace tessera
