#include <gtest/gtest.h>

#include "src/data/image/encode.h"
#include "src/training/memory/dry_run.h"
#include "src/training/memory/example_page.h"
#include "src/training/stages.h"
#include "tests/training/any_views.h"
#include "tests/training/tiny_run.h"
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

using DryRun = RunTest;

TEST_F(DryRun, CountsParametersAndBytes) {
  const DryRunReport cost = dry_run(tiny_config(folder_ / "run"));
  // The image tower: conv1 3*8*8*16, positions 5*16, class token 16, ln_pre and ln_post 2*32, one block, projection 16*8.
  const std::int64_t block = 4 * 16 + (48 * 16 + 48) + (16 * 16 + 16) + (64 * 16 + 64) + (16 * 64 + 16);
  EXPECT_EQ(cost.parameters.image, 3 * 8 * 8 * 16 + 5 * 16 + 16 + 64 + block + 16 * 8);
  EXPECT_EQ(cost.parameters.text, 64 * 16 + 24 * 16 + 32 + block + 16 * 8);
  EXPECT_EQ(cost.parameters.objective, 1);
  const std::int64_t all = cost.parameters.image + cost.parameters.text + 1;
  EXPECT_EQ(cost.memory.gradients, 4 * all);
  EXPECT_EQ(cost.memory.optimizer, 8 * all + 8) << "two moments per parameter and the step";
  EXPECT_GT(cost.memory.activations, 0);
  EXPECT_GT(cost.memory.peak, cost.memory.weights + cost.memory.optimizer + cost.memory.activations);
  EXPECT_TRUE(cost.memory.fits());
  EXPECT_GT(cost.memory.total_flops, 2 * cost.memory.forward_flops);
  EXPECT_TRUE(cost.synthetic.empty());
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run")) << "a dry run writes nothing";
}

TEST_F(DryRun, CountsTheLossOnceAndTheSecondForwardPassOfMicroBatches) {
  const DryRunReport whole = dry_run(tiny_config(folder_ / "run"));
  const DryRunReport parts = dry_run(tiny_config(folder_ / "run", {"training.micro_batch=2"}));
  EXPECT_DOUBLE_EQ(parts.memory.forward_flops, whole.memory.forward_flops);
  // With micro-batches, everything except the loss is computed a second time.
  const double loss = 2.0 * 8 * 8 * 8;  // FLOPs of the products of 8 image and 8 text embeddings of width 8
  EXPECT_DOUBLE_EQ(parts.memory.total_flops, whole.memory.total_flops + whole.memory.forward_flops - loss);
}

TEST_F(DryRun, ReportsWhereMemoryGoes) {
  const Config config = tiny_config(folder_ / "run", {"training.ema={}", "training.micro_batch=2"});
  PlanSettings settings;
  settings.ranks = 4;
  settings.available = 1000;
  const std::string text = to_text(dry_run(config, settings), config);
  for (const char* part : {"parameters",
                           "samples per step  32: batch 8 x accumulation 1 x ranks 4; the towers process 2 at a time",
                           "memory plan for each of 4 ranks, on the CPU",
                           "  weights ",
                           "  optimizer ",
                           "  averaged weights ",
                           "  gradient buckets ",
                           "  batch ",
                           "  activations ",
                           "of the towers, 2 samples",
                           "  features ",
                           "  loss ",
                           "8 x 32 pairs",
                           "  peak of a step ",
                           "  checkpoint ",
                           "of 1000 B available: does not fit",
                           "ways out",
                           "a smaller training.micro_batch (or auto)",
                           "model.image.encoder.grad_checkpointing: true; model.text.encoder.grad_checkpointing: true",
                           "a smaller data.loader.batch_size"})
    EXPECT_TRUE(contains(text, part));
}

TEST_F(DryRun, ReportsMultiplyAddsOfTheTowersAndAsPapersCountThem) {
  const Config clip = tiny_config(folder_ / "run");
  const DryRunReport plain = dry_run(clip);
  // An image costs its patch embedding, a block over 5 tokens and the projection. A text costs a block over 24 tokens and the projection.
  const auto block = [](double tokens) { return tokens * 12 * 16 * 16 + 2 * tokens * tokens * 16; };
  EXPECT_EQ(plain.memory.tower_flops / 2, 4 * 3 * 8 * 8 * 16 + block(5) + block(24) + 2 * 16 * 8);
  EXPECT_TRUE(contains(to_text(plain, clip), "\ntowers forward    0.12 M multiply-adds per sample\n"));

  const std::string sparo = "={name: sparo, slots: 4, slot_width: 4, key_width: 8}";
  const Config config = tiny_config(folder_ / "run", {"model.image.readout" + sparo, "model.text.readout" + sparo,
                                                      "model.image.projection=none", "model.text.projection=none"});
  const DryRunReport report = dry_run(config);
  const auto slots = [](double tokens) { return tokens * 4 * 8 * 16 + 2 * tokens * 4 * 8 + 4 * 8 * 4; };
  EXPECT_NEAR((report.memory.tower_flops + report.memory.avoided_flops) / 2,
              plain.memory.tower_flops / 2 - 2 * 16 * 8 + slots(5) + slots(24), 1e-6);
  EXPECT_TRUE(contains(to_text(report, config), "0.14 M multiply-adds as papers count"));
}

TEST_F(DryRun, CountsASharedTokenTableOnce) {
  const DryRunReport plain = dry_run(tiny_config(folder_ / "run"));
  const DryRunReport report = dry_run(
      tiny_config(folder_ / "run", {"model.image.readout=token_projection", "model.text.readout=token_projection",
                                    "model.image.projection=none", "model.text.projection=none"}));
  const std::int64_t head = (16 + 1) * 16 + 2 * 16 + 64,
                     projection = 16 * 8;  // `head` has a dense layer, a norm, and a bias for each of the 64 rows of the token table
  EXPECT_EQ(report.parameters.image, plain.parameters.image - projection + head);
  EXPECT_EQ(report.parameters.text, plain.parameters.text - projection + head);
  const double activations = (4 + 24) * (16 * 16 + 16 * 64);  // the heads' multiply-adds for 4 patches and 24 text tokens
  EXPECT_EQ(report.memory.tower_flops / 2, plain.memory.tower_flops / 2 - 2 * projection + activations);
}

// Returns the planned numbers that do not depend on the samples' content.
std::vector<double> foretold(const DryRunReport& report) {
  const MemoryPlan& plan = report.memory;
  return {static_cast<double>(report.parameters.image),
          static_cast<double>(report.parameters.text),
          static_cast<double>(plan.data),
          static_cast<double>(plan.peak),
          plan.forward_flops,
          plan.total_flops};
}

TEST_F(DryRun, UsesAndReportsSyntheticSamplesWithoutData) {
  const Config real = tiny_config(folder_ / "run"),
               missing = tiny_config(folder_ / "run", {"data.train={name: webdataset, path: no/such.tar}"});
  const DryRunReport report = dry_run(missing);
  EXPECT_EQ(report.synthetic,
            "image 16 x 16, caption of 24 tokens out of 64, for --set: data.train.path: no/such.tar: no such file in " +
                std::filesystem::current_path().string());
  EXPECT_TRUE(contains(to_text(report, missing), "\nsynthetic samples image 16 x 16, "));
  EXPECT_EQ(foretold(report), foretold(dry_run(real)));
}

TEST_F(DryRun, WarnsAboutUnlikelySettings) {
  const Config one = tiny_config(folder_ / "run", {"data.loader.batch_size=1"});
  const DryRunReport report = dry_run(one);
  ASSERT_EQ(report.warnings.size(), 1u);
  EXPECT_TRUE(to_text(report, one).ends_with(
      "\nwarning: data.loader.batch_size is 1: the objective clip compares a pair with the others of its batch, but there "
      "are none: use a larger batch\n"));
  const Config part = tiny_config(folder_ / "run", {"schedule.warmup_steps=31", "schedule.part=[0.8, 1.0]",
                                                    "parameters.groups=[{match: [logit_scale], frozen_steps: 40}]"});
  EXPECT_TRUE(contains(to_text(dry_run(part), part),
                       "warning: parameters.groups.0.frozen_steps is 40 and schedule.warmup_steps is 31, but the whole schedule of "
                       "schedule.part has only 30 steps: the warm-up is cut to this length"));
  const Config many = tiny_config(folder_ / "run", {"training.steps=1000000000000", "checkpoint.every_steps=1", "checkpoint.keep_every=1"});
  EXPECT_TRUE(contains(to_text(dry_run(many), many), "and the run keeps up to 1000000000000 (checkpoint.keep_last 2)"));
  const Config eight = tiny_config(folder_ / "run");
  EXPECT_FALSE(contains(to_text(dry_run(eight), eight), "warning: "));
}

TEST_F(DryRun, WarnsThatARunWouldStopForBadSamples) {
  io::write_file(folder_ / "good.png", encode_png({16, 16, std::vector<std::uint8_t>(16 * 16 * 3, 90)}));
  std::string table = "filepath\ttitle\n";
  for (int i = 0; i < 160; ++i) table += i % 3 == 0 ? "missing.png\ta cat\n" : "good.png\ta cat\n";
  io::write_file(folder_ / "table.csv", table);
  const std::string train = "data.train={name: csv, path: " + folder_ / "table.csv" + "}";
  const auto warnings = [&](const std::string& share) {
    const Config config = tiny_config(folder_ / "run", {train, "data.loader.max_bad_share=" + share});
    return to_text(dry_run(config), config);
  };
  const std::string told = warnings("0.1");
  EXPECT_TRUE(contains(told, "\nwarning: a run would stop: "));
  EXPECT_TRUE(contains(told, "more than max_bad_share 0.1 allows (data.loader.max_bad_share: 0.5 allows more"));
  EXPECT_FALSE(contains(warnings("0.6"), "would stop"));
}

TEST_F(DryRun, ReportsTheTextLengthBehindItsFlops) {
  const Config config = tiny_config(folder_ / "run", {"tokenizer.context_length=8"});
  EXPECT_TRUE(contains(to_text(dry_run(config), config), "; with texts of 8 tokens)"));
}

TEST_F(DryRun, PlansEveryKindOfView) {
  const std::string shards = write_shards_with_holes(folder_ / "shards", 48);
  const DryRunReport real = dry_run(any_views_config(folder_ / "run", shards)),
                     missing = dry_run(any_views_config(folder_ / "run", "no/such.tar"));
  EXPECT_TRUE(missing.synthetic.starts_with(
      "image 16 x 16, local 8 x 8, caption of 24 tokens out of 64, summary of 24 tokens out of 64, for "))
      << missing.synthetic;
  EXPECT_TRUE(contains(missing.synthetic, "no/such.tar: no such file"));
  EXPECT_EQ(real.memory.average, real.memory.weights) << "the teacher is an averaged copy";
  EXPECT_GT(missing.memory.data, 8 * (3 * 16 * 16 + 3 * 8 * 8 + 36 * 2052 * 4));
  EXPECT_GT(real.memory.total_flops, 2 * real.memory.forward_flops);
}

TEST_F(DryRun, WithoutVocabularyTheEncoderKeepsItsOwnSizes) {
  const std::string config = folder_ / "run.yaml";
  io::write_file(config, tiny_yaml() + "run: {folder: " + folder_ / "run" + "}\n");
  const std::vector<std::string> missing = {
      "tokenizer={name: sentencepiece, model: no/such.model, context_length: 24}"};
  register_test_modules();
  EXPECT_TRUE(contains(error_of([&] { load_stages(config, missing); }), "no/such.model"));
  const Config read = load_stages(config, missing, /*without_vocabulary=*/true).front().config;
  const DryRunReport report = dry_run(read);
  EXPECT_TRUE(contains(report.synthetic,
                       "caption of 24 tokens out of 49,408, for --set: tokenizer.model: no/such.model: no such file"));
}

TEST_F(DryRun, ShowsEveryCaptionAndMarksAbsentAndCutOnes) {
  TrainingExample example;
  example.key = "a";
  example.several["captions"] = {{"a red circle", 8, true}, {"a star", 4, false}, {}};
  const std::string text = to_text({example});
  EXPECT_EQ(text,
            "  a  captions 1 of 3, 8 tokens, cut: \"a red circle\"\n"
            "  a  captions 2 of 3, 4 tokens: \"a star\"\n"
            "  a  captions 3 of 3, absent: the sample has no text for it\n");
  const std::string page = example_page({example}, "t", "d", "");
  for (const char* part : {"captions 1 of 3, 8 tokens, cut", "captions 3 of 3, absent"})
    EXPECT_TRUE(contains(page, part));
}

TEST_F(DryRun, ShowsCaptionsAsReadAndMarksCutOnes) {
  const Config config = tiny_config(folder_ / "run", {"tokenizer.context_length=8"});
  const DryRunReport report = dry_run(config);
  ASSERT_EQ(report.examples.size(), 12u);
  for (const TrainingExample& example : report.examples) {
    EXPECT_EQ(example.texts.at("caption").tokens, 8) << "captions of shapes are longer than eight tokens";
    EXPECT_TRUE(example.texts.at("caption").cut);
    EXPECT_EQ(example.images.at("image").height, 16);
  }
  const std::string text = to_text(report, config);
  EXPECT_TRUE(contains(text, "caption, 8 tokens, cut: "));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run"));
  const std::string page = example_page(report.examples, "tiny", report.data, numbers_text(report, config));
  for (const char* fact : {"FLOPs per sample", "parameters  ", "[\"Version\",", "[\"Command\","})
    EXPECT_TRUE(contains(page, fact));
  EXPECT_TRUE(contains(page, "data:image/png;base64,"));
  EXPECT_TRUE(contains(page, "8 tokens, cut"));
}

TEST_F(DryRun, ShowsSomeSamplesOfEachSourceOfAMixture) {
  const Config config = tiny_config(
      folder_ / "run",
      {"data.train={name: mixture, mode: concat, sources: [{label: large, source: {name: shapes, size: 40, image_size: "
       "16}}, {label: small, source: {name: shapes, size: 9, image_size: 16}}]}"});
  std::map<std::string, int> counts;
  const DryRunReport report = dry_run(config);
  for (const TrainingExample& example : report.examples) ++counts[example.source];
  EXPECT_EQ(counts, (std::map<std::string, int>{{"large", 6}, {"small", 6}}));
  EXPECT_TRUE(contains(to_text(report, config), "small"));
}

}  // namespace
}  // namespace tessera
