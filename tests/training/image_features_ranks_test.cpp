// Tests training on cached image features over ranks. Only run_ranks may compute in this process; see its comment.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/distributed/ranks.h"
#include "tests/training/image_features_run.h"
#include "tests/training/tiny_run.h"
#include <tessera/training/run/image_features.h>
#include <tessera/training/trainer.h>

namespace tessera {
namespace {

TEST(ImageFeaturesOverRanks, TrainsTheSameOnOneAndTwoRanks) {
  TemporaryFolder folder;
  const auto train_on = [&](int ranks) {
    Config config = cached_config("{name: sparc}", folder.path(), concat("run", ranks));
    config.data.loader.batch_size = 8 / ranks;
    const auto ends = run_ranks(ranks, [&](const ProcessGroup& group) {
      if (ranks == 1) write_image_features(config);
      Trainer trainer(config, "none", group);
      trainer.run();
      return weights_of(*trainer.training_run().model, *trainer.training_run().objective);
    });
    return ends.empty() ? Tensors() : ends[0];
  };
  const Tensors one = train_on(1), two = train_on(2);
  ASSERT_FALSE(one.empty() || two.empty());
  const auto ours = rows(folder / "run1"), theirs = rows(folder / "run2");
  ASSERT_EQ(ours.size(), theirs.size());
  for (std::size_t i = 0; i < ours.size(); ++i)
    EXPECT_NEAR(theirs[i]["loss"].get<double>(), ours[i]["loss"].get<double>(), 1e-4) << "step " << i + 1;
  for (const auto& [name, tensor] : one) EXPECT_TRUE(at::allclose(tensor, two.at(name), 1e-3, 1e-3)) << name;
}

TEST(ImageFeaturesOverRanks, OtherEncoderWeightsStopEveryRank) {
  TemporaryFolder folder;
  const auto ends = run_ranks(2, [&](const ProcessGroup& group) {
    Config config = cached_config("{name: clip}", folder.path(), "run", {"data.loader.batch_size=4"});
    if (group.first()) write_image_features(config);
    at::Tensor written = at::zeros({1});
    group.all_reduce(written);
    config.seed = 4;
    const std::string error = error_of([&] { Trainer(config, "none", group); });
    const char* expected = group.first() ? "of an image encoder with other weights" : "checking the image features";
    return Tensors{{"told", at::full({1}, error.find(expected) != std::string::npos, at::kBool)}};
  });
  ASSERT_EQ(ends.size(), 2u);
  for (const Tensors& end : ends) EXPECT_TRUE(end.at("told").item<bool>());
}

}  // namespace
}  // namespace tessera
