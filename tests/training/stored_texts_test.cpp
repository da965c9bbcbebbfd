// Tests runs that train only heads on stored vectors of images and texts.
#include <algorithm>
#include <set>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/data/image/encode.h"
#include "src/data/loading/evaluation_reader.h"
#include "src/data/loading/text_views.h"
#include "src/training/run/image_features.h"
#include "src/training/trainer.h"
#include "tests/training/systems.h"
#include "tests/training/tiny_run.h"
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

constexpr const char* kFrozenTexts = "token_embedding.*, positional_embedding, transformer.*, ln_final.*";

class StoredTexts : public RunTest {
 protected:
  Config frozen(const std::string& kind, const std::string& run, const std::vector<std::string>& overrides = {}) const {
    const Config images = frozen_config(kind, folder_.path(), run);
    return frozen_config(kind, folder_.path(), run,
                         with({concat("parameters.frozen=[", c10::Join(", ", images.parameters.frozen), ", ", kFrozenTexts, "]")}, overrides));
  }
  Config stored(const std::string& kind, const std::string& run, const std::vector<std::string>& overrides = {}) const {
    return frozen(kind, run, with({"data.features={folder: " + (folder_ / "features") + ", texts: true}"}, overrides));
  }
  static Weights trained_weights(const Config& config, const Resume& resume = "none") {
    Trainer trainer(config, resume);
    EXPECT_EQ(trainer.run(), Outcome::finished);
    return collect_weights(*trainer.training_run().model, *trainer.training_run().objective);
  }
  /// The settings of a run on vectors of width 6 and 5, which vector_files() writes.
  std::vector<std::string> on_vectors() const {
    return {"model.image.encoder={name: stored_images, width: 6}",
            "model.text.encoder={name: stored_texts, width: 5}",
            "model.text.readout=cls",
            "data.loader.augmentation={crop: evaluation}",
            "data.features={folder: " + (folder_ / "features") + ", texts: true, vectors: {images: " + (folder_ / "images.npy") + ", texts: " +
                (folder_ / "texts.npy") + ", captions: " + (folder_ / "captions.txt") + "}}"};
  }
  struct Files {
    std::vector<std::string> keys, texts;
    at::Tensor images, of_texts;
  };
  Files vector_files(std::int64_t left_out = 0) const {
    const Config config = tiny_config(folder_ / "source");
    EvaluationReader reader(sources().make(config.data.train, "data.train"), config.model.preprocessing, 100, 1);
    Files out;
    std::set<std::string> texts;
    for (const EvaluationSample& sample : reader.next()) {
      out.keys.push_back(sample.sample.key);
      for (const std::string& text : usable_texts(sample.sample)) texts.insert(text);
    }
    out.texts.assign(texts.begin(), texts.end());
    out.texts.resize(out.texts.size() - static_cast<std::size_t>(left_out));
    at::manual_seed(1);
    out.images = at::randn({std::ssize(out.keys), 6});
    out.of_texts = at::randn({std::ssize(out.texts), 5});
    const auto write = [&](const std::string& name, const at::Tensor& values) {
      const std::vector<float> all(values.const_data_ptr<float>(), values.const_data_ptr<float>() + values.numel());
      io::write_file(folder_ / name, encode_npy(all, values.size(0), values.size(1)));
    };
    write("images.npy", out.images);
    write("texts.npy", out.of_texts);
    io::write_file(folder_ / "images.keys.txt", c10::Join("\n", out.keys) + "\n");
    io::write_file(folder_ / "captions.txt", c10::Join("\n", out.texts) + "\n");
    return out;
  }
};

void expect_text(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST_F(StoredTexts, TrainHeadsAsTheFrozenEncodersDo) {
  for (const auto& [name, kind] : {std::pair<std::string, std::string>("clip", "{name: clip}"), {"captions", "{name: multi_positive_clip}"}}) {
    const std::vector<std::string> captions = {"data.loader.captions={choice: all, count: 3}"};
    write_image_features(stored(kind, name + "_stored", captions));
    const Weights ours = trained_weights(stored(kind, name + "_stored", captions)),
                  theirs = trained_weights(frozen(kind, name + "_live", captions));
    expect_same_curve(folder_ / (name + "_stored"), folder_ / (name + "_live"), 1e-5, 0);
    ASSERT_EQ(ours.size(), theirs.size());
    for (const auto& [key, tensor] : theirs) EXPECT_TRUE(at::allclose(ours.at(key), tensor, 1e-3, 1e-4)) << name << ": " << key;
  }
}

TEST_F(StoredTexts, TrainWithMicroBatchesAndResumeBitForBit) {
  write_image_features(stored("{name: clip}", "whole"));
  const Weights unbroken = trained_weights(stored("{name: clip}", "whole"));
  expect_equal(trained_weights(stored("{name: clip}", "again"), folder_ / "whole/checkpoints/step_0000003"), unbroken);
  trained_weights(stored("{name: clip}", "parts", {"training.micro_batch=3"}));
  expect_same_curve(folder_ / "parts", folder_ / "whole", 1e-4, 0);
}

TEST_F(StoredTexts, MayComeFromFilesOfOtherModels) {
  const Files files = vector_files();
  const Config config = tiny_config(folder_ / "run", on_vectors());
  EXPECT_EQ(write_image_features(config).samples, 40);
  const TrainingRun run = build_training_run(config);
  const Batch batch = run.loader->next();
  for (std::int64_t i = 0; i < batch.size(); ++i) {
    const auto row = std::ranges::find(files.keys, batch.keys[static_cast<std::size_t>(i)]) - files.keys.begin();
    EXPECT_TRUE(at::equal(batch.images.at("image").encoded.pooled[i], files.images[row]));
    const at::Tensor text = batch.texts.at("caption").encoded.pooled[i];
    EXPECT_TRUE((files.of_texts == text).all(1).any().item<bool>());
  }
  trained_weights(config);
  EXPECT_LT(rows(folder_ / "run").back()["loss"].get<double>(), rows(folder_ / "run").front()["loss"].get<double>());
}

TEST_F(StoredTexts, SayWhatIsWrong) {
  const auto error = [&](const std::string& kind, const std::vector<std::string>& overrides) {
    return error_of([&] { Trainer(stored(kind, "wrong", overrides), "none"); });
  };
  expect_text(error("{name: clip}", {}), "write them with trainer --write-features");
  write_image_features(stored("{name: clip}", "writer"));
  EXPECT_EQ(error("{name: clip}", {}), "no error");
  expect_text(error("{name: filip}", {}), "filip");
  expect_text(error("{name: clip}", {"tokenizer.context_length=20"}), "tokenizer.context_length: 24 there, 20 here");
  expect_text(error("{name: clip}", {"seed=8"}), "other weights");
  expect_text(error("{name: clip}", {"parameters.frozen=[image]"}),
              "is trained, but stored vectors need a frozen encoder and read-out");
  const auto write = [&](const std::vector<std::string>& more) {
    return error_of([&] { write_image_features(tiny_config(folder_ / "wrong", with(on_vectors(), more))); });
  };
  vector_files();
  expect_text(write({"model.text.encoder.width=4"}), "texts.npy: has 5 columns, but model.text.encoder.width is 4: make them equal");
  expect_text(write({"data.features.vectors.images=null"}), "vectors of images and the encoder stored_images go together");
  expect_text(error_of([&] { tiny_config(folder_ / "x", with(on_vectors(), {"data.features.texts=false"})); }), "set texts to true");
  vector_files(/*left_out=*/1);
  expect_text(write({}), "which data.train has");
  io::write_file(folder_ / "images.keys.txt", "one\n");
  expect_text(write({}), "images.npy: has 40 rows, but there are 1 names for them");
  const Config live = tiny_config(folder_ / "live", with(on_vectors(), {"data.features=null"}));
  expect_text(error_of([&] { Trainer(live, "none").run(); }), "stands for stored vectors and cannot encode");
}

}  // namespace
}  // namespace tessera
