#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <tessera/data/source.h>

namespace tessera {

/// Base class of sources that show some samples of another source.
class SourceView : public IndexedSource {
 public:
  explicit SourceView(std::shared_ptr<const IndexedSource> source) : source_(std::move(source)) {}

  std::vector<std::string> class_names() const override { return source_->class_names(); }
  std::int64_t background_class() const override { return source_->background_class(); }
  double depth_units() const override { return source_->depth_units(); }
  std::string name_of(std::int64_t index) const override { return source_->name_of(of_source(index)); }
  std::string describe_fields(const std::vector<std::string>& needed) const override {
    return source_->describe_fields(needed);
  }
  std::int64_t data_file_count() const override { return source_->data_file_count(); }
  DataFile data_file(std::int64_t index) const override { return source_->data_file(index); }

 protected:
  /// Returns the index of a sample in the other source.
  virtual std::int64_t of_source(std::int64_t index) const = 0;

  const std::shared_ptr<const IndexedSource> source_;
};

}  // namespace tessera
