#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "src/base/in_threads.h"
#include <tessera/data/source.h>

namespace tessera {

/// Base class of sources that show some samples of another source.
class SourceView : public IndexedSource {
 public:
  explicit SourceView(std::shared_ptr<const IndexedSource> source) : source_(std::move(source)) {}

  Sample get(std::int64_t index) const override { return source_->get(of_source(index)); }
  std::vector<std::string> captions(std::int64_t index) const override { return source_->captions(of_source(index)); }
  std::int64_t caption_count(std::int64_t index) const override { return source_->caption_count(of_source(index)); }
  bool lacks_caption(std::int64_t index) const override { return source_->lacks_caption(of_source(index)); }
  std::vector<std::string> class_names() const override { return source_->class_names(); }
  std::int64_t background_class() const override { return source_->background_class(); }
  double depth_units() const override { return source_->depth_units(); }
  std::string name_of(std::int64_t index) const override { return source_->name_of(of_source(index)); }
  std::string describe_fields(const std::vector<std::string>& needed) const override { return source_->describe_fields(needed); }
  std::int64_t read_ahead() const override { return source_->read_ahead() > 0 ? 1 + source_->read_ahead() * size() / source_->size() : 0; }
  void will_read(std::int64_t index) const override { source_->will_read(of_source(index)); }
  std::int64_t data_file_count() const override { return source_->data_file_count(); }
  DataFile data_file(std::int64_t index) const override { return source_->data_file(index); }

 protected:
  /// Returns the index of a sample in the other source.
  virtual std::int64_t of_source(std::int64_t index) const = 0;

  const std::shared_ptr<const IndexedSource> source_;
};

/// Reads all samples in threads, and calls visit(index, sample) for those that can be read.
template <class Visit>
void for_each_sample(const IndexedSource& source, const Visit& visit) {
  constexpr std::int64_t at_once = 1024;  // samples per task
  const auto pieces = static_cast<std::size_t>((source.size() + at_once - 1) / at_once);
  for_each_in_threads(pieces, std::max(1U, std::thread::hardware_concurrency()), [&](std::size_t piece) {
    const std::int64_t begin = static_cast<std::int64_t>(piece) * at_once;
    for (std::int64_t i = begin; i < std::min(begin + at_once, source.size()); ++i) {
      try {
        source.will_read(i);
        visit(i, source.get(i));
      } catch (const SampleError&) {
        continue;
      }
    }
  });
}

}  // namespace tessera
