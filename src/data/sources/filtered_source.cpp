#include "src/data/sources/filtered_source.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "src/data/formats/json_values.h"
#include "src/data/formats/row_filter.h"
#include "src/data/sources/source_view.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/data/stream.h>

namespace tessera {
namespace {

FilterVerdict judge_sample(const RowFilter& filter, const Sample& sample) {
  return filter.judge(sample.fields.empty() ? nlohmann::json(nullptr) : parse_python_json(sample.fields));
}

// Judges the samples of any source. Samples that must be read and cannot be pass, so that they are counted as bad later.
std::vector<FilterVerdict> judge_all(const IndexedSource& source, const RowFilter& filter) {
  if (const auto* fields = dynamic_cast<const FieldSource*>(&source)) return fields->judge(filter);
  std::vector<FilterVerdict> out(static_cast<std::size_t>(source.size()));
  for_each_sample(source,
                  [&](std::int64_t index, const Sample& sample) { out[static_cast<std::size_t>(index)] = judge_sample(filter, sample); });
  return out;
}

[[noreturn]] void refuse_empty(const Source& source, const RowFilter& filter, const FilterCounts& counts) {
  const std::string nowhere = counts.field_of_none();
  user_error(source.describe(), ": ", counts.describe(filter),
             nowhere.empty() ? "" : concat("; no sample has the side field ", nowhere, ", or none has it of that type"));
}

class FilteredSource : public SourceView {
 public:
  FilteredSource(std::shared_ptr<const IndexedSource> source, const RowFilter& filter) : SourceView(std::move(source)) {
    const std::vector<FilterVerdict> verdicts = judge_all(*source_, filter);
    FilterCounts counts(filter.fields());
    for (std::size_t i = 0; i < verdicts.size(); ++i) {
      counts.add(verdicts[i]);
      if (verdicts[i].kind == FilterVerdict::passes) indices_.push_back(static_cast<std::int64_t>(i));
    }
    if (indices_.empty()) refuse_empty(*source_, filter, counts);
    described_ = concat(source_->describe(), ", of which ", counts.describe(filter));
  }

  std::int64_t size() const override { return std::ssize(indices_); }
  std::string describe() const override { return described_; }

  std::vector<std::uint64_t> image_ids() const override {
    const std::vector<std::uint64_t> all = source_->image_ids();
    std::vector<std::uint64_t> out;
    for (const std::int64_t index : indices_)
      if (!all.empty()) out.push_back(all.at(static_cast<std::size_t>(index)));
    return out;
  }

  // Returns the source's group_starts() with indices that count only the samples that pass. Groups without such samples are left out.
  std::vector<std::int64_t> group_starts() const override {
    std::vector<std::int64_t> out;
    for (const std::int64_t start : source_->group_starts()) {
      const std::int64_t place = std::ranges::lower_bound(indices_, start) - indices_.begin();
      if (out.empty() || place > out.back()) out.push_back(place);
    }
    return out;
  }
  std::int64_t open_groups() const override { return source_->open_groups(); }

 private:
  std::int64_t of_source(std::int64_t index) const override { return indices_.at(static_cast<std::size_t>(index)); }

  std::vector<std::int64_t> indices_;  // indices, in the source, of the samples that pass
  std::string described_;
};

/// Drops the samples that do not pass the filter. A sample's position in the stream is the number of passing samples before it.
class FilteringStream : public SampleStream {
 public:
  FilteringStream(std::unique_ptr<SampleStream> stream, std::shared_ptr<const RowFilter> filter, std::int64_t longest_row)
      : stream_(std::move(stream)), filter_(std::move(filter)), longest_row_(longest_row) {}

  std::function<Sample()> next() override {
    for (std::int64_t left_out = 0; left_out <= longest_row_; ++left_out) {
      std::function<Sample()> make = stream_->next();
      try {
        auto sample = std::make_shared<Sample>(make());
        if (judge_sample(*filter_, *sample).kind == FilterVerdict::passes) return [sample] { return std::move(*sample); };
      } catch (const SampleError& error) {
        return [error]() -> Sample { throw error; };
      }
    }
    user_error(filter_->described(), ": ", with_thousands(longest_row_), " samples of a stream in a row do not pass");
  }

 private:
  const std::unique_ptr<SampleStream> stream_;
  const std::shared_ptr<const RowFilter> filter_;
  const std::int64_t longest_row_;
};

class FilteredStreamSource : public StreamSource {
 public:
  FilteredStreamSource(std::shared_ptr<const StreamSource> source, std::shared_ptr<const RowFilter> filter,
                       std::optional<std::int64_t> samples)
      : source_(std::move(source)), filter_(std::move(filter)) {
    size_ = samples ? *samples : counted();
    described_ = concat(source_->describe(), ", of which ", samples ? concat("those are used that pass ", filter_->described()) : passing_);
  }

  std::int64_t size() const override { return size_; }
  std::int64_t files() const override { return source_->files(); }
  std::vector<std::string> class_names() const override { return source_->class_names(); }
  std::int64_t background_class() const override { return source_->background_class(); }
  double depth_units() const override { return source_->depth_units(); }
  std::string describe() const override { return described_; }
  std::string describe_order() const override { return source_->describe_order(); }
  std::string describe_fields(const std::vector<std::string>& needed) const override { return source_->describe_fields(needed); }
  std::int64_t data_file_count() const override { return source_->data_file_count(); }
  DataFile data_file(std::int64_t index) const override { return source_->data_file(index); }
  std::unique_ptr<SampleStream> open(const StreamStart& start) const override {
    // The stream gives up when no sample has passed for a hundred epochs' worth of samples. The limit is so high because some of a rank's
    // files may have no samples that pass.
    return std::make_unique<FilteringStream>(source_->open(start), filter_, 100 * std::max<std::int64_t>(1000, source_->size()));
  }

 private:
  std::int64_t counted() {
    log::info(source_->describe(), ": counting the samples that pass, which reads everything once; set stream.samples to avoid it");
    FilterCounts counts(filter_->fields());
    const auto stream = source_->open({.shuffle = false});
    for (std::int64_t i = 0; i < source_->size(); ++i) {
      try {
        counts.add(judge_sample(*filter_, stream->next()()));
      } catch (const SampleError&) {
        counts.add({});  // an unreadable sample counts as passing the filter; it is counted as bad later
      }
    }
    if (counts.passing() == 0) refuse_empty(*source_, *filter_, counts);
    passing_ = counts.describe(*filter_);
    return counts.passing();
  }

  const std::shared_ptr<const StreamSource> source_;
  const std::shared_ptr<const RowFilter> filter_;
  std::int64_t size_ = 0;
  std::string passing_, described_;
};

}  // namespace

std::shared_ptr<Source> filtered(std::shared_ptr<Source> source, const FilterSettings& settings,
                                 std::optional<std::int64_t> stream_samples) {
  if (!settings.filter && !settings.filter_ids) return source;
  if (settings.filter_ids) config::require(*settings.filter_ids);
  const auto filter = std::make_shared<const RowFilter>(
      settings.filter, settings.filter_ids ? std::optional<std::string>(*settings.filter_ids) : std::nullopt, settings.id_field);
  const SourceKind kind = source->kind();
  if (const auto* stream = std::get_if<const StreamSource*>(&kind))
    return std::make_shared<FilteredStreamSource>(std::shared_ptr<const StreamSource>(source, *stream), filter, stream_samples);
  return std::make_shared<FilteredSource>(indexed(std::shared_ptr<const Source>(source)), *filter);
}

}  // namespace tessera
