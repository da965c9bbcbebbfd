#pragma once

#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "src/training/trainer.h"
#include "tests/support/contains.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"
#include <tessera/objectives/objective.h>
#include <tessera/training/config/config.h>

namespace tessera {

/// Registers modules for tests, as a user's code would: the tokenizer `test_letters`, whose ids are the bytes of a text, and five
/// objectives, which are means over samples and use no negatives. `test_distance` is the squared distance between an image's embedding and
/// its text's. `test_not_finite` is the same distance, but in the steps that its settings select, it adds the logarithm of a negative
/// number. `test_observed` is the same distance, and calls step_observer() before each loss. `test_teacher` compares the image features
/// with a teacher's. `test_extras` needs an extra from each tower and one from the data.
void register_test_modules();

/// Returns the function that `test_observed` calls before each loss in this process. It may be empty.
std::function<void(const StepContext&)>& step_observer();

/// Returns `overrides`, followed by `more`.
inline std::vector<std::string> with(std::vector<std::string> overrides, const std::vector<std::string>& more) {
  overrides.insert(overrides.end(), more.begin(), more.end());
  return overrides;
}

/// Returns the YAML of a run that takes a few seconds, on data of the source `shapes`. `objective` is the name of the run's objective.
std::string tiny_yaml(const std::string& objective = "clip");

/// Returns the resolved configuration of tiny_yaml with overrides; the run folder is `folder`.
Config tiny_config(const std::string& folder, const std::vector<std::string>& overrides = {},
                   const std::string& objective = "clip");

/// Returns the overrides for a case of a parameterized test. `test_case` is an objective, optionally followed by " with " and the name of a
/// set of settings, as in "{name: flair} with captions". The names are `captions` (several per image), `crops and captions`, `own shapes`
/// (images keep their aspect ratio), `boxes` (with hard negatives), `averages` (accumulated batches and averaged weights), `lion`, `muon` and
/// `rounded moments` (other optimizers), `groups` (towers
/// that group their tokens), and `dinov3`, `siglip` and `eva02` (towers of these published models).
std::vector<std::string> overrides_of(const std::string& test_case);

/// Returns whether a case of overrides_of() needs all patches of an image and therefore cannot use patch dropout.
inline bool needs_all_patches(const std::string& test_case) {
  return test_case.ends_with("own shapes") || test_case.ends_with("boxes");
}

/// Parses each line of a file as JSON.
std::vector<nlohmann::json> json_lines(const std::string& path);

using Weights = std::map<std::string, at::Tensor>;

/// Expects the same names and bit-for-bit equal tensors.
inline void expect_equal(const Weights& a, const Weights& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) EXPECT_TRUE(b.contains(name) && at::equal(tensor, b.at(name))) << name;
}

/// Returns the weights of a trainer's run and, with the prefix "teacher.", those of its teacher.
Weights end_of(const Trainer& trainer);

/// Returns the checkpoint that the run in the folder `run` saved after `step` updates.
inline Checkpoint checkpoint_of(const std::string& run, std::int64_t step = 6) {
  return load_checkpoint(run + "/checkpoints/" + step_folder_name(step));
}

/// Returns the rows of metrics.jsonl in the folder `run`.
inline std::vector<nlohmann::json> rows(const std::string& run) {
  return json_lines(run + "/metrics.jsonl");
}

/// Expects two runs to have the same steps, losses and gradient norms. Losses and gradient norms may differ by tolerance * (1 + value).
/// Gradient norms are compared only in the first rows; `gradients` is the number of these rows.
void expect_same_curve(const std::string& ours, const std::string& theirs, double tolerance,
                       std::size_t gradients = std::numeric_limits<std::size_t>::max());

/// A fixture for tests with several runs in one folder.
class RunTest : public ::testing::Test {
 protected:
  /// Trains a run of tiny_config to its end. Returns the run's folder.
  std::string train(const std::string& name, const std::vector<std::string>& overrides = {}, const Resume& resume = "none",
                    const std::string& objective = "clip") const;
  /// Returns a run's weights before its first step.
  Weights fresh(const std::string& name, const std::vector<std::string>& overrides) const;

  TemporaryFolder folder_;
};

}  // namespace tessera
