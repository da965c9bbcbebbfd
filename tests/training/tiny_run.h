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

/// A folder of the test's own, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// Adds what only tests need to the registries, as a user's own code would: tokenizer `test_letters` (a text's bytes),
/// and objectives, all means over the samples without negatives: `test_distance`, `test_not_finite` (the logarithm of a
/// negative number from one step on, until another), `test_observed` (tells step_observer() of each loss) and
/// `test_teacher` (compares the pictures' features with a teacher's).
void register_test_modules();

/// Called by `test_observed` before each loss, in this process; empty: not.
std::function<void(const StepContext&)>& step_observer();

/// YAML of a run of a few seconds on shapes; `objective` is its name.
std::string tiny_yaml(const std::string& objective = "clip");

/// tiny_yaml with overrides, resolved; the run's folder is `folder`.
Config tiny_config(const std::string& folder, const std::vector<std::string>& overrides = {},
                   const std::string& objective = "clip");

/// The overrides of a case of a parameterized test: an objective, and where "with" follows, several captions per image
/// ("{name: flair} with captions") images of their own shapes (own shapes), boxes and hard
/// negatives (boxes), or towers as another library
/// publishes them (dinov3, siglip, eva02).
std::vector<std::string> overrides_of(const std::string& test_case);

/// Whether such a case looks at all patches of an image, so that none can be dropped.
inline bool needs_all_patches(const std::string& test_case) {
  return test_case.ends_with("own shapes") || test_case.ends_with("boxes");
}

/// A JSON value of each line of a file.
std::vector<nlohmann::json> json_lines(const std::string& path);

using Weights = std::map<std::string, at::Tensor>;

/// Expects the same names, and the same bits behind each.
inline void expect_equal(const Weights& a, const Weights& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) EXPECT_TRUE(b.contains(name) && at::equal(tensor, b.at(name))) << name;
}

/// The rows of a run's metrics.jsonl.
inline std::vector<nlohmann::json> rows(const std::string& run) {
  return json_lines(run + "/metrics.jsonl");
}

/// Expects the rows of two runs to have the same steps, losses and gradient norms, within tolerance * (1 + value);
/// gradient norms of the first `gradients` rows alone.
void expect_same_curve(const std::string& ours, const std::string& theirs, double tolerance,
                       std::size_t gradients = std::numeric_limits<std::size_t>::max());

/// The text of the UserError that `body` throws, or "no error".
std::string error_of(const std::function<void()>& body);

}  // namespace tessera
