#include <cmath>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/training/log/advice.h"
#include "src/training/trainer.h"
#include "tests/training/tiny_run.h"
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

const double kChance = std::log(64.0);

using Rules = std::vector<AdviceRule>;

// Shows the rules steps 1 to 1000 until they warn. Returns the warning and its step, or "nothing" and 0.
std::pair<std::string, std::int64_t> watched(Rules& rules, const std::string& term,
                                             const std::function<double(std::int64_t)>& loss) {
  for (std::int64_t step = 1; step <= 1000; ++step) {
    const std::vector<std::pair<std::string, double>> terms{{"other", 100}, {term, loss(step)}};
    if (const auto lines = advise(rules, {.step = step, .terms = &terms}); !lines.empty()) return {lines.at(0), step};
  }
  return {"nothing", 0};
}

TEST(StaysAtChance, WarnsOnceIfAContrastiveLossStaysAtChance) {
  Rules watch{stays_at_chance({{"loss_i2t", kChance}}, 300, 0.0005, {"image"})};
  const auto at_chance = [](std::int64_t step) { return kChance * (step % 2 == 0 ? 0.99 : 1.0); };
  const auto [line, step] = watched(watch, "loss_i2t", at_chance);
  EXPECT_EQ(step, 300);
  EXPECT_EQ(line,
            "the loss is at chance after step 300: loss_i2t 4.14 (chance 4.16). The model does not distinguish pairs: "
            "check the learning rate (optimizer.lr 0.0005), whether captions match their images "
            "(tessera-data inspect shows some), and what is trained (parameters.frozen: image)");
  EXPECT_EQ(watched(watch, "loss_i2t", at_chance).first, "nothing");
}

TEST(StaysAtChance, WarnsOnlyIfTheLossReturnsToChance) {
  const std::map<std::string, double> levels{{"loss_i2t", kChance}};
  Rules falling{stays_at_chance(levels, 300)}, collapsing{stays_at_chance(levels, 300)}, without_level{stays_at_chance({}, 300)};
  EXPECT_EQ(watched(falling, "loss_i2t", [](std::int64_t step) { return kChance / (1 + 0.001 * step); }).first,
            "nothing");
  EXPECT_EQ(watched(without_level, "loss_i2t", [](std::int64_t) { return kChance; }).first, "nothing");
  const auto step = watched(collapsing, "loss_i2t", [](std::int64_t at) { return at < 500 ? 2 : kChance; }).second;
  EXPECT_GT(step, 500);
}

TEST(StaysAtChance, KnowsATermOfOneSourceOfAMixture) {
  Rules watch{stays_at_chance({{"loss_i2t", kChance}}, 300)};
  EXPECT_TRUE(
      contains(watched(watch, "cc3m.loss_i2t", [](std::int64_t) { return kChance; }).first, "cc3m.loss_i2t 4.16"));
}

TEST(StaysAtChance, RunThatCannotLearnWarnsInLogAndRow) {
  const TemporaryFolder folder;
  const std::string run = folder / "run";
  Trainer(tiny_config(run, {"training.steps=310", "optimizer.lr=1.0e-12", "log.every_steps=10", "log.page=false",
                            "checkpoint.every_steps=0"}),
          "none")
      .run();
  EXPECT_TRUE(contains(io::read_file(run + "/log.txt"), "the loss is at chance after step 30"));
  int told = 0;
  for (const auto& row : rows(run))
    for (const auto& line : row.value("warnings", std::vector<std::string>{})) told += line.starts_with("the loss is at chance") ? 1 : 0;
  EXPECT_EQ(told, 1);
}

// Returns a batch in which the ids of a caption are its bytes.
Batch batch_of(const std::vector<std::string>& texts) {
  Batch batch;
  const at::Tensor ids = at::zeros({std::ssize(texts), 16}, at::kLong), mask = at::zeros_like(ids, at::kBool);
  for (std::int64_t row = 0; row < std::ssize(texts); ++row) {
    mask[row][0] = true;  // position 0 is a special token
    for (std::int64_t i = 0; i < std::ssize(texts[row]); ++i) ids[row][i + 1] = static_cast<std::int64_t>(texts[row][i]), mask[row][i + 1] = true;
  }
  batch.texts["caption"] = text_input(ids, mask);
  batch.keys.resize(texts.size());
  return batch;
}

class BytesAsText : public Tokenizer {
 public:
  std::vector<std::int64_t> encode(std::string_view) const override { return {}; }
  std::string decode(const std::vector<std::int64_t>& ids) const override {
    std::string text;
    for (const std::int64_t id : ids)
      if (id != 0) text += static_cast<char>(id);
    return text;
  }
  std::int64_t vocab_size() const override { return 256; }
  std::int64_t context_length() const override { return 16; }
  std::int64_t pad_id() const override { return 0; }
  std::string name() const override { return "letters"; }
  const std::string& vocabulary_bytes() const override { return vocabulary_; }

 private:
  std::string vocabulary_;
};

std::string said_of(const std::vector<std::string>& texts, int batches = 10) {
  Rules watch{equal_captions("caption", std::make_shared<BytesAsText>())};
  std::string said;
  for (int i = 0; i < batches; ++i) {
    const Batch batch = batch_of(texts);
    for (const std::string& line : advise(watch, {.batch = &batch})) said += line;
  }
  return said;
}

TEST(EqualCaptions, WarnsOnceAboutManyEqualOrEmptyCaptions) {
  const std::vector<std::string> different{"a", "b", "c", "d", "e", "f", "g", "h"};
  EXPECT_EQ(said_of(different), "");
  std::vector<std::string> same = different;
  same[1] = same[2] = same[3] = "a dog";
  EXPECT_EQ(said_of(same, 2), "") << "a few batches may have equal captions by chance";
  EXPECT_EQ(said_of(same),
            "captions: 3 of the 8 of a batch are \"a dog\". Pairs with equal captions cannot be distinguished: a contrast "
            "cannot fall below 0.41, and chance is 2.08. Check what data.train uses as captions, or set the "
            "objective's mask_duplicates");
  same[1] = same[2] = same[3] = "";
  EXPECT_TRUE(said_of(same).starts_with("captions: 3 of the 8 of a batch are empty."));
}

TEST(EqualCaptions, WarnsAboutAFewClassNamesAsCaptions) {
  EXPECT_NE(said_of({"a", "b", "c", "d", "e", "a", "b", "c", "d", "e", "a", "b", "c", "d", "e",
                     "a", "b", "c", "d", "e", "a", "b", "c", "d", "e", "a", "b", "c", "d", "e"}),
            "")
      << "equal captions limit what can be learned";
}

using Cuts = std::map<std::string, TextCuts>;

TEST(CutReport, NamesTheCutShareOfEachView) {
  const Cuts seen = {{"caption", {100, 0, 900, 0}}, {"captions", {800, 200, 10'000, 1'230}}};
  const CutReport first = report_cuts(0, 77, {}, seen);
  EXPECT_EQ(first.lines, (std::vector<std::string>{"epoch 0: the tokenizer's context of 77 cut off 12.3% of the tokens of captions, out "
                                                   "of 25.0% of its texts"}));
  ASSERT_EQ(first.shares.size(), 2u) << "the view that lost nothing is not reported";
  EXPECT_EQ(first.shares[0].first, "tokens.captions");
  EXPECT_NEAR(first.shares[0].second, 0.123, 1e-12);
  EXPECT_EQ(first.shares[1].first, "texts.captions");
  EXPECT_NEAR(first.shares[1].second, 0.25, 1e-12);
  Cuts more = seen;
  more["captions"] += {800, 1, 10'000, 5};
  EXPECT_EQ(report_cuts(1, 77, seen, more).lines.at(0),
            "epoch 1: the tokenizer's context of 77 cut off less than 0.1% of the tokens of captions, out of 0.1% of its "
            "texts");
  EXPECT_TRUE(report_cuts(2, 77, more, more).lines.empty());
}

TEST(CutsMuch, WarnsEarlyAndOnce) {
  Rules watch{cuts_much(20)};
  LoaderStatistics loader;
  loader.cuts = {{"caption", {10, 10, 3000, 2940}}, {"summary", {10, 1, 100, 5}}};
  std::vector<std::string> said;
  for (int step = 0; step < 100; ++step)
    for (std::string& line : advise(watch, {.loader = &loader})) said.push_back(std::move(line));
  EXPECT_EQ(said, (std::vector<std::string>{"the tokenizer's context of 20 cuts off 98.0% of the tokens of caption: set a larger "
                                            "tokenizer.context_length, or shorten the texts"}));
}

std::string said_of_data(Rules& rules, const DataWindow& data, double now) {
  const std::vector<std::string> lines = advise(rules, {.data = data, .now = now});
  return lines.empty() ? "" : lines.at(0);
}

TEST(WaitsForData, NamesTheRemedyWhenDecodersAreTheBottleneck) {
  Rules watch{waits_for_data(2, 16)};
  EXPECT_EQ(said_of_data(watch, {6, 3, 11, 11}, 6), "") << "too short to judge";
  EXPECT_EQ(said_of_data(watch, {6, 3, 12, 12}, 12),
            "data: training waits for data 50% of the time; the 2 decoding threads are decoding without pause: raise "
            "data.loader.threads (16 cores here), or store smaller images");
  EXPECT_EQ(said_of_data(watch, {20, 10, 40, 40}, 32), "") << "reported a moment ago";
  EXPECT_NE(said_of_data(watch, {20, 10, 40, 40}, 700), "") << "reported long ago";
}

TEST(WaitsForData, DistinguishesSlowFilesFromIdleThreads) {
  const auto said = [](std::int64_t threads, std::int64_t cores, const DataWindow& data) {
    Rules watch{waits_for_data(threads, cores)};
    return said_of_data(watch, data, 0);
  };
  EXPECT_TRUE(contains(said(4, 16, {20, 8, 76, 8}), "only 11% of that is computing, the rest is waiting for files"));
  EXPECT_TRUE(contains(said(4, 16, {20, 8, 8, 8}), "are busy only 10% of the time"));
  EXPECT_TRUE(contains(said(4, 4, {20, 8, 78, 78}), "give the job more cores"));
  EXPECT_EQ(said(4, 16, {20, 3, 76, 76}), "") << "15% is not much";
}

TEST(SlowPrecision, IsReportedWithItsFactor) {
  EXPECT_EQ(slow_precision_text("bf16", 1.1), std::nullopt);
  EXPECT_EQ(
      slow_precision_text("bf16", 3.14).value_or(""),
      "training.precision is bf16, and matrix products take 3.1 times as long as in float32 on this CPU: set "
      "it to float32");
  EXPECT_TRUE(contains(slow_precision_text("fp16", 42).value_or(""), " 42 times"));
  EXPECT_EQ(slow_precision(at::kCPU, "float32"), std::nullopt);
  EXPECT_EQ(slow_precision(at::Device(at::kCUDA, 0), "bf16"), std::nullopt);
}

}  // namespace
}  // namespace tessera
