#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <tessera/config/registry.h>

namespace tessera {

/// A list of texts in settings, given either directly or as the path of a file with one text per line. Empty lines and lines that begin
/// with # are skipped. A relative path is resolved against the folder of the file that names it, then against the working folder. The file
/// is read together with the settings, so a resolved configuration contains the texts themselves.
struct TextList {
  std::vector<std::string> items;
  TextList() = default;
  TextList(std::initializer_list<std::string> list) : items(list) {}
  bool operator==(const TextList&) const = default;
};

namespace config {
template <>
struct Value<TextList> {
  static TextList read(const Node& node, const std::string& path, const TextList&);
  static Node dump(const TextList& value) { return Value<std::vector<std::string>>::dump(value.items); }
  static std::string type() { return "list of string, or a file"; }
};
}  // namespace config

/// The prompt of the tasks that classify images, unless their settings name others.
inline constexpr const char* kUsualPrompt = "a photo of a {}.";

/// Returns the problem with the templates, such as `templates: template 2 ("a photo") has no {}`; nothing if there is none.
std::optional<config::Problem> check_templates(const TextList& templates);
/// Returns the problem with a list of values k, nothing if there is none.
std::optional<config::Problem> check_topk(const std::vector<std::int64_t>& topk);

/// The data settings that every task has.
struct TaskData {
  std::optional<config::ModuleSettings> source;
  std::int64_t max_samples = -1;
  bool group_equal_images = false;  // only for tasks with equal_images_field()
};

template <class Visitor>
void data_fields(Visitor& v, TaskData& s) {
  v("source", s.source, "data set to measure, such as {name: shapes, split: test}; null: the run's validation data");
  v("max_samples", s.max_samples, "use only the first N samples; -1: all", config::at_least(-1));
}

/// The setting of tasks that compare images with each other, or texts with all images.
template <class Visitor>
void equal_images_field(Visitor& v, TaskData& s) {
  v("group_equal_images", s.group_equal_images,
    "count samples whose images have equal bytes as one image with all their captions, for which all images are read once more; false: "
    "only samples that name the same file");
}

/// The data of a task that learns from one set of samples and is measured on another.
struct TrainTestData {
  std::optional<config::ModuleSettings> train;
  std::optional<config::ModuleSettings> source;
  std::int64_t max_train_samples = -1;
  std::int64_t max_samples = -1;
};

/// `train_help` is the help text of `train`, which says what the training data is for.
template <class Visitor>
void train_test_fields(Visitor& v, TrainTestData& s, const char* train_help) {
  v("train", s.train, train_help);
  v("source", s.source, "data set to test on; null: the run's validation data");
  v("max_train_samples", s.max_train_samples, "train on only the first N samples; -1: all", config::at_least(-1));
  v("max_samples", s.max_samples, "test on only the first N samples; -1: all", config::at_least(-1));
}

}  // namespace tessera
