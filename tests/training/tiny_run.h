#pragma once

#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <unistd.h>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <tessera/base/error.h>
#include <tessera/objectives/objective.h>
#include <tessera/training/config/config.h>

namespace tessera {

/// A new folder, removed when the object is destroyed.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Registers modules for tests, as a user's code would: the tokenizer `test_letters` (the bytes of a text) and objectives,
/// which are all means over the samples without negatives: `test_distance`, `test_not_finite` (adds the logarithm of a
/// negative number from one step until another), `test_observed` (calls step_observer() before each loss) and `test_teacher`
/// (compares the image features with a teacher's).
void register_test_modules();

/// The function that `test_observed` calls before each loss in this process; if it is empty, none is called.
std::function<void(const StepContext&)>& step_observer();

/// Returns the YAML of a run on shapes that takes a few seconds; `objective` is a name.
std::string tiny_yaml(const std::string& objective = "clip");

/// Resolves tiny_yaml with overrides; the run folder is `folder`.
Config tiny_config(const std::string& folder, const std::vector<std::string>& overrides = {},
                   const std::string& objective = "clip");

/// Returns the overrides of a case of a parameterized test: an objective, optionally followed by " with " and the name of
/// more settings, as in "{name: flair} with captions". The names are: captions (several per image), crops and captions,
/// own shapes (images keep their shapes), boxes (with hard negatives), and the towers that another library publishes
/// (dinov3, siglip, eva02).
std::vector<std::string> overrides_of(const std::string& test_case);

/// Returns whether such a case needs all patches of an image, so that none can be dropped.
inline bool needs_all_patches(const std::string& test_case) {
  return test_case.ends_with("own shapes") || test_case.ends_with("boxes");
}

/// Parses each line of a file as JSON.
std::vector<nlohmann::json> json_lines(const std::string& path);

using Weights = std::map<std::string, at::Tensor>;

/// Expects the same names with bit-for-bit equal tensors.
inline void expect_equal(const Weights& a, const Weights& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) EXPECT_TRUE(b.contains(name) && at::equal(tensor, b.at(name))) << name;
}

/// Returns the rows of metrics.jsonl in the folder `run`.
inline std::vector<nlohmann::json> rows(const std::string& run) {
  return json_lines(run + "/metrics.jsonl");
}

/// Expects two runs to have the same steps, losses and gradient norms, within tolerance * (1 + value). Only the first
/// `gradients` rows are compared in their gradient norms.
void expect_same_curve(const std::string& ours, const std::string& theirs, double tolerance,
                       std::size_t gradients = std::numeric_limits<std::size_t>::max());

/// Returns the message of the UserError that `body` throws, or "no error".
std::string error_of(const std::function<void()>& body);

}  // namespace tessera
