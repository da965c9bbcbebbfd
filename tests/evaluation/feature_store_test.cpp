#include <filesystem>
#include <fstream>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/evaluation/feature_store.h"
#include "tests/evaluation/color_embedder.h"
#include "tests/evaluation/task_case.h"
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

/// Embeds images as their mean colors and texts by some of their letters. Counts the images and texts that it embeds.
class CountingEmbedder final : public test::FixedEmbedder {
 public:
  CountingEmbedder() : FixedEmbedder(32) {}
  using Embedder::encode_images;
  TowerFeatures encode_images(const TowerInput& input, const ViewNeeds&) const override {
    const at::Tensor& pixels = input.pixels;
    images += pixels.size(0);
    TowerFeatures out;
    out.global = pixels.to(at::kFloat).mean({2, 3});
    return out;
  }
  TowerFeatures encode_texts(const std::vector<std::string>& given, const ViewNeeds&) const override {
    texts_seen += std::ssize(given);
    TowerFeatures out;
    out.global = at::empty({std::ssize(given), 3});
    for (std::int64_t i = 0; i < std::ssize(given); ++i)
      for (std::int64_t d = 0; d < 3; ++d) {
        const std::string& text = given[static_cast<std::size_t>(i)];
        out.global[i][d] = text.empty() ? 1.0F : static_cast<float>(text[(7 * d + 9) % text.size()]);
      }
    if (broken) out.global[0][0] = NAN;
    return out;
  }
  TowerFeatures classes(const TowerFeatures& prompts, std::int64_t per_class) const override {
    TowerFeatures out;
    out.global = prompts.global.unflatten(0, {-1, per_class}).mean(1);
    return out;
  }
  at::Tensor similarity(const TowerFeatures& pictures, const TowerFeatures& texts) const override {
    return at::cosine_similarity(pictures.global.unsqueeze(1), texts.global.unsqueeze(0), 2);
  }
  bool compares_by_cosine() const override { return true; }

  mutable std::int64_t images = 0, texts_seen = 0;
  bool broken = false;
};

class FeatureStores : public FolderTest {
 protected:
  FeatureStores() {
    context_.batch_size = 5;
    context_.source = shapes("test", 12);
    context_.train_source = shapes("train", 30);
  }

  static std::shared_ptr<const Source> shapes(const std::string& split, int size) {
    return sources().make(task_of(concat("{name: shapes, split: ", split, ", size: ", size, "}")), "source");
  }
  TaskResult run(const std::string& task, const Embedder& embedder) const { return run_task(task_of(task), embedder, context_); }
  /// Returns the path of the only file with image features.
  std::string images_file() const {
    for (const auto& entry : fs::recursive_directory_iterator(folder_))
      if (entry.path().filename().string().starts_with("pictures-")) return entry.path().string();
    return "";
  }

  EvaluationContext context_;
  CountingEmbedder model_;
};

constexpr const char* kTasks[] = {"zero_shot", "retrieval", "{name: knn, k: 3}", "{name: linear_probe, l2: 0.1}"};

TEST_F(FeatureStores, TasksShareOnePassOverTheImages) {
  FeatureStore store("", "");
  std::int64_t all = 0;
  const CachedEmbedder cached(model_, store);
  for (const char* task : kTasks) {
    const TaskResult plain = run(task, model_);
    model_.images = 0;
    EXPECT_EQ(run(task, cached).metrics, plain.metrics) << task;
    all += model_.images;
  }
  EXPECT_EQ(all, 12 + 30);
}

TEST_F(FeatureStores, AnotherEvaluationReadsThemBack) {
  std::map<std::string, std::vector<std::pair<std::string, double>>> first;
  {
    FeatureStore store(folder_.string(), "model");
    for (const char* task : kTasks) first[task] = run(task, CachedEmbedder(model_, store)).metrics;
    store.save();
  }
  EXPECT_EQ(model_.images, 12 + 30);
  model_.images = model_.texts_seen = 0;
  FeatureStore store(folder_.string(), "model");
  for (const bool with_images : {false, true}) {
    context_.images = with_images;
    for (const char* task : kTasks) EXPECT_EQ(run(task, CachedEmbedder(model_, store)).metrics, first.at(task)) << task;
  }
  EXPECT_EQ(model_.images, 0);
  EXPECT_EQ(model_.texts_seen, 0);
}

TEST_F(FeatureStores, AddNewSamplesAndSeparateModelsAndDataSets) {
  const auto measure = [&](const std::string& model, int samples = -1) {
    FeatureStore store(folder_.string(), model);
    model_.images = 0;
    run(concat("{name: zero_shot, max_samples: ", samples, "}"), CachedEmbedder(model_, store));
    store.save();
    return model_.images;
  };
  EXPECT_EQ(measure("a", 5), 5);
  EXPECT_EQ(measure("a"), 7);
  EXPECT_EQ(measure("a"), 0);
  EXPECT_EQ(measure("b"), 12);
  context_.source = shapes("test", 15);
  EXPECT_EQ(measure("a"), 15) << "another data set has its own file";
  EXPECT_EQ(measure("a"), 0);
}

TEST_F(FeatureStores, RecomputeADamagedFileWithAWarning) {
  const auto measure = [&] {
    FeatureStore store(folder_.string(), "model");
    model_.images = 0;
    testing::internal::CaptureStderr();
    const auto metrics = run("zero_shot", CachedEmbedder(model_, store)).metrics;
    store.save();
    return std::pair(metrics, testing::internal::GetCapturedStderr());
  };
  const auto whole = measure().first;
  const std::string file = images_file(), content = io::read_file(file);
  std::string changed = content;
  changed.back() = static_cast<char>(changed.back() ^ 1);
  for (const std::string& damaged : {changed, content.substr(0, content.size() / 2), std::string("no file of ours"), std::string()}) {
    std::ofstream(file, std::ios::binary) << damaged;
    const auto [metrics, lines] = measure();
    EXPECT_EQ(metrics, whole);
    EXPECT_EQ(model_.images, 12);
    EXPECT_TRUE(contains(lines, "--features-cache: computing embeddings again: " + file));
    EXPECT_EQ(io::read_file(file), content) << "the file is repaired";
  }
}

TEST_F(FeatureStores, ReportNonFiniteFeaturesAndDoNotKeepThem) {
  FeatureStore store(folder_.string(), "model");
  model_.broken = true;
  const CachedEmbedder cached(model_, store);
  for (int i = 0; i < 2; ++i) {
    const std::string error = error_of([&] { run("retrieval", cached); });
    EXPECT_TRUE(contains(error, "the model's embedding of the text \""));
  }
  EXPECT_EQ(store.texts().size(), 0);
}

TEST_F(FeatureStores, RejectAFolderThatCannotBeCreated) {
  EXPECT_THROW(FeatureStore(write("file", "x"), "model"), UserError);
}

}  // namespace
}  // namespace tessera
