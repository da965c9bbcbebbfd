#include <cmath>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/training/log/caption_watch.h"
#include "src/training/log/chance_watch.h"
#include "src/training/run/slow_precision.h"
#include "src/training/trainer.h"
#include "tests/training/tiny_run.h"
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

const double kChance = std::log(64.0);

// Calls the watch at steps 1 to 1000 until it warns. Returns the warning and its step, or "nothing" and 0.
std::pair<std::string, std::int64_t> watched(ChanceWatch& watch, const std::string& term,
                                             const std::function<double(std::int64_t)>& loss) {
  for (std::int64_t step = 1; step <= 1000; ++step)
    if (const auto line = watch.note(step, {{"other", 100}, {term, loss(step)}})) return {*line, step};
  return {"nothing", 0};
}

TEST(ChanceWatch, WarnsOnceIfAContrastiveLossStaysAtChance) {
  ChanceWatch watch({{"loss_i2t", kChance}}, 300, {0.0005, {"image"}});
  const auto at_chance = [](std::int64_t step) { return kChance * (step % 2 == 0 ? 0.99 : 1.0); };
  const auto [line, step] = watched(watch, "loss_i2t", at_chance);
  EXPECT_EQ(step, 300);
  EXPECT_EQ(line,
            "the loss is at chance after step 300: loss_i2t 4.14 (chance 4.16). The model does not distinguish pairs: "
            "check the learning rate (optimizer.lr 0.0005), whether captions match their images "
            "(tessera-data inspect shows some), and what is trained (parameters.frozen: image)");
  EXPECT_EQ(watched(watch, "loss_i2t", at_chance).first, "nothing");
}

TEST(ChanceWatch, WarnsOnlyIfTheLossReturnsToChance) {
  const std::map<std::string, double> levels{{"loss_i2t", kChance}};
  ChanceWatch falling(levels, 300, {}), collapsing(levels, 300, {}), without_level({}, 300, {});
  EXPECT_EQ(watched(falling, "loss_i2t", [](std::int64_t step) { return kChance / (1 + 0.001 * step); }).first,
            "nothing");
  EXPECT_EQ(watched(without_level, "loss_i2t", [](std::int64_t) { return kChance; }).first, "nothing");
  const auto step = watched(collapsing, "loss_i2t", [](std::int64_t at) { return at < 500 ? 2 : kChance; }).second;
  EXPECT_GT(step, 500);
}

TEST(ChanceWatch, KnowsATermOfOneSourceOfAMixture) {
  ChanceWatch watch({{"loss_i2t", kChance}}, 300, {});
  EXPECT_TRUE(
      contains(watched(watch, "cc3m.loss_i2t", [](std::int64_t) { return kChance; }).first, "cc3m.loss_i2t 4.16"));
}

TEST(ChanceWatch, RunThatCannotLearnWarnsInLogAndRow) {
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
  CaptionWatch watch("caption", std::make_shared<BytesAsText>());
  std::string said;
  for (int i = 0; i < batches; ++i)
    if (const auto line = watch.note(batch_of(texts))) said += *line;
  return said;
}

TEST(CaptionWatch, CountsEqualCaptions) {
  const CaptionCounts counts = count_captions(batch_of({"a", "b", "a", "a"}).texts["caption"]);
  EXPECT_EQ(counts.texts, 4);
  EXPECT_EQ(counts.commonest, 3);
  EXPECT_NEAR(counts.least_loss, 0.75 * std::log(3.0), 1e-12);
}

TEST(CaptionWatch, WarnsOnceAboutManyEqualOrEmptyCaptions) {
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

TEST(CaptionWatch, WarnsAboutAFewClassNamesAsCaptions) {
  EXPECT_NE(said_of({"a", "b", "c", "d", "e", "a", "b", "c", "d", "e", "a", "b", "c", "d", "e",
                     "a", "b", "c", "d", "e", "a", "b", "c", "d", "e", "a", "b", "c", "d", "e"}),
            "")
      << "equal captions limit what can be learned";
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
