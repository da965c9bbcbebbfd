#include <algorithm>
#include <mutex>
#include <set>

#include <nlohmann/json.hpp>

#include "src/base/dump_utf8.h"
#include "src/base/printable.h"
#include "src/data/formats/column_file.h"
#include "src/data/formats/data_files.h"
#include "src/data/sources/benchmarks.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

using Json = nlohmann::json;
using Names = std::vector<std::string>;

const Names kTexts = {"cue", "candidates", "associations"};
const Names kImages = {"candidate_images"};

class Winogavil final : public IndexedSource {
 public:
  explicit Winogavil(const WinogavilSettings& settings) : paths_(expand_paths(settings.path, ".parquet")) {
    for (std::size_t file = 0; file < paths_.size(); ++file) {
      files_.push_back(open_columns(paths_[file]));
      for (const Names* names : {&kTexts, &kImages})
        for (const std::string& name : *names)
          if (!find_column(files_[file]->columns, name))
            user_error(paths_[file], ": has no column ", name, "; its columns are ", column_names(files_[file]->columns));
      for (std::int64_t group = 0; group < std::ssize(files_[file]->group_rows); ++group) read_texts(file, group);
    }
  }

  std::int64_t size() const override { return std::ssize(candidates_); }
  std::string describe() const override {
    return concat("winogavil ", first_and_more(paths_, "files"), ", ", with_thousands(std::ssize(instances_)), " instances, ",
                  with_thousands(size()), " candidates");
  }
  std::int64_t data_file_count() const override { return std::ssize(paths_); }
  DataFile data_file(std::int64_t index) const override { return data_file_at(paths_.at(static_cast<std::size_t>(index))); }

  Sample get(std::int64_t index) const override {
    const Candidate& candidate = candidates_.at(static_cast<std::size_t>(index));
    const Instance& instance = instances_.at(candidate.instance);
    Sample sample;
    sample.key = concat(instance.cue, "/", candidate.instance, "/", candidate.name);
    sample.fields = dump_utf8(Json{{"instance", candidate.instance},
                                   {"cue", instance.cue},
                                   {"candidate", candidate.name},
                                   {"candidates", instance.candidates},
                                   {"associated", instance.associations.contains(candidate.name)}});
    return read_keyed(sample.key, [&] {
      const Json images = images_of(instance);
      const Json& image = images.at(candidate.place);
      const Json bytes = image.is_object() ? image.value("bytes", Json()) : image;
      if (!bytes.is_string() || bytes.get_ref<const std::string&>().empty())
        throw SampleError("no_image", concat(place(instance), ": candidate ", printable(candidate.name), " has no image bytes"));
      sample.encoded = bytes.get<std::string>();
      return std::move(sample);
    });
  }

 private:
  struct Instance {
    std::size_t file = 0;
    std::int64_t group = 0, row = 0, row_of_file = 0;  // indices of the row in its row group and in its file
    std::string cue;
    std::set<std::string> associations;
    std::int64_t candidates = 0;
  };
  struct Candidate {
    std::size_t instance = 0, place = 0;  // indices of its instance, and among the instance's candidates
    std::string name;
  };

  std::string place(const Instance& instance) const { return concat(paths_[instance.file], ": row ", instance.row_of_file); }

  void read_texts(std::size_t file, std::int64_t group) {
    const auto columns = files_[file]->read(group, kTexts);
    std::int64_t before = 0;
    for (std::int64_t i = 0; i < group; ++i) before += files_[file]->group_rows[static_cast<std::size_t>(i)];
    for (std::int64_t row = 0; row < columns->rows(); ++row) {
      Instance instance{.file = file,
                        .group = group,
                        .row = row,
                        .row_of_file = before + row,
                        .cue = {},
                        .associations = {},
                        .candidates = {}};
      const Json cue = columns->json(0, row), names = columns->json(1, row), right = columns->json(2, row);
      const auto are_texts = [](const Json& list) {
        return list.is_array() && std::ranges::all_of(list, [](const Json& each) { return each.is_string(); });
      };
      if (!cue.is_string() || cue.get_ref<const std::string&>().empty() || !are_texts(names) || !are_texts(right))
        user_error(place(instance), ": expected a text as `cue`, and lists of texts as `candidates` and `associations`");
      instance.cue = cue.get<std::string>();
      instance.associations = right.get<std::set<std::string>>();
      instance.candidates = std::ssize(names);
      for (std::size_t i = 0; i < names.size(); ++i) candidates_.push_back({instances_.size(), i, names[i].get<std::string>()});
      instances_.push_back(std::move(instance));
    }
  }

  /// Returns the images of an instance. Keeps those of the last one, and its row group, because the candidates are read in order.
  Json images_of(const Instance& instance) const {
    const std::lock_guard lock(mutex_);
    if (last_ == &instance) return images_;
    if (group_ == nullptr || last_ == nullptr || last_->file != instance.file || last_->group != instance.group)
      group_ = files_[instance.file]->read(instance.group, kImages);
    images_ = group_->json(0, instance.row);
    last_ = &instance;
    if (!images_.is_array() || std::ssize(images_) != instance.candidates)
      user_error(place(instance), ": has ", images_.size(), " candidate_images for ", instance.candidates, " candidates");
    return images_;
  }

  Names paths_;
  std::vector<std::shared_ptr<const ColumnFile>> files_;
  std::vector<Instance> instances_;
  std::vector<Candidate> candidates_;
  mutable std::mutex mutex_;
  mutable const Instance* last_ = nullptr;
  mutable std::shared_ptr<const ColumnGroup> group_;
  mutable Json images_;
};

}  // namespace

std::shared_ptr<IndexedSource> make_winogavil(const WinogavilSettings& settings) {
  return std::make_shared<Winogavil>(settings);
}

}  // namespace tessera
