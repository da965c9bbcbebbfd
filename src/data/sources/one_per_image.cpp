#include "src/data/sources/one_per_image.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>

#include "src/base/printable.h"
#include "src/data/image/decode.h"
#include "src/data/sources/source_view.h"
#include <tessera/base/log.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

/// Adds the fingerprints of the images to `ids`. Images that cannot be read keep their ids.
void add_fingerprints(const IndexedSource& source, std::vector<std::uint64_t>& ids) {
  log::info(source.describe(), ": reading all images to find equal ones");
  for_each_sample(source, [&](std::int64_t index, const Sample& sample) {
    if (has_image(sample)) ids[static_cast<std::size_t>(index)] = image_fingerprint(sample);
  });
}

/// The samples of a source, sorted by image.
struct SamplesOfImages {
  std::vector<std::int64_t> samples;  // the samples of the first image, those of the second image, ...
  std::vector<std::int64_t> first;    // the place of each image's first sample in `samples`, then the number of samples

  explicit SamplesOfImages(const std::vector<std::uint64_t>& ids) : samples(ids.size()), first{0} {
    std::unordered_map<std::uint64_t, std::size_t> known;
    std::vector<std::size_t> image_of;
    for (const std::uint64_t id : ids) {
      const std::size_t images = first.size() - 1, image = id == 0 ? images : known.emplace(id, images).first->second;
      if (image == images) first.push_back(0);
      ++first[image + 1];
      image_of.push_back(image);
    }
    std::partial_sum(first.begin(), first.end(), first.begin());
    std::vector<std::int64_t> places = first;
    for (std::size_t i = 0; i < ids.size(); ++i) samples[static_cast<std::size_t>(places[image_of[i]]++)] = static_cast<std::int64_t>(i);
  }
  std::int64_t images() const { return std::ssize(first) - 1; }
};

/// Adds what further samples with the same image know to the first sample.
class MergedSample {
 public:
  explicit MergedSample(Sample first) : out_(std::move(first)) {}

  void add(Sample sample) {
    add_objects(sample);
    std::ranges::move(sample.captions, std::back_inserter(out_.captions));
    for (TextField& field : sample.texts) add_text(field);
    for (std::string Sample::*text : {&Sample::summary, &Sample::object_tags, &Sample::bad_boxes})
      if ((out_.*text).empty()) out_.*text = std::move(sample.*text);
    if (out_.regions.empty()) {
      out_.regions = std::move(sample.regions);
      out_.region_width = sample.region_width;
    }
    settle("labels", sample.label, out_.label, std::int64_t{-1});
    settle("labels", sample.class_name, out_.class_name, {});
    settle("masks", sample.mask, out_.mask, {});
    settle("depths", sample.depth, out_.depth, {});
  }

  /// The names of the values that differ between the samples.
  std::vector<std::string> different() const { return {different_.begin(), different_.end()}; }

  Sample finished() {
    if (different_.contains("labels")) {
      out_.label = -1;
      out_.class_name.clear();
    }
    if (different_.contains("masks")) out_.mask.clear();
    if (different_.contains("depths")) out_.depth.clear();
    return std::move(out_);
  }

 private:
  // Rows with the same image often repeat its objects.
  void add_objects(Sample& sample) {
    const auto is_equal = [](const ObjectAnnotation& a, const ObjectAnnotation& b) {
      return a.label == b.label && a.box == b.box && a.phrase == b.phrase && a.span == b.span && a.negatives == b.negatives;
    };
    for (ObjectAnnotation& object : sample.objects) {
      const bool in_caption = object.span[1] > object.span[0];
      if (in_caption) object.caption += std::ssize(out_.captions);
      if (in_caption || std::ranges::none_of(out_.objects, [&](const auto& known) { return is_equal(known, object); }))
        out_.objects.push_back(std::move(object));
    }
  }

  void add_text(TextField& field) {
    const auto found = std::ranges::find(out_.texts, field.name, &TextField::name);
    if (found == out_.texts.end()) return out_.texts.push_back(std::move(field));
    for (std::string& text : field.texts)
      if (!contains(found->texts, text)) found->texts.push_back(std::move(text));
    found->is_list = found->is_list || found->texts.size() > 1;
  }

  template <class Value>
  void settle(const char* name, Value& value, Value& known, const Value& none) {
    if (value == none) return;
    if (known == none)
      known = std::move(value);
    else if (known != value)
      different_.insert(name);
  }

  Sample out_;
  std::set<std::string> different_;
};

class OnePerImage : public SourceView {
 public:
  OnePerImage(std::shared_ptr<const IndexedSource> source, SamplesOfImages samples)
      : SourceView(std::move(source)), samples_(std::move(samples)) {}

  std::int64_t size() const override { return samples_.images(); }

  Sample get(std::int64_t index) const override {
    std::optional<MergedSample> merged;
    for_each_row(index, [&](std::int64_t row) {
      if (Sample sample = source_->get(row); merged)
        merged->add(std::move(sample));
      else
        merged.emplace(std::move(sample));
    });
    Sample out = merged->finished();
    if (const std::vector<std::string> different = merged->different(); !different.empty())
      warn_once(concat("the rows of the image ", printable(out.key), " have different ", join_names(different),
                       ": such images count as images without"),
                reported_different_);
    return out;
  }

  std::vector<std::string> captions(std::int64_t index) const override {
    std::vector<std::string> out;
    for_each_row(index, [&](std::int64_t row) { std::ranges::move(source_->captions(row), std::back_inserter(out)); });
    return out;
  }

  std::int64_t bad_rows() const override {
    const std::lock_guard lock(mutex_);
    return std::ssize(bad_rows_);
  }

  bool lacks_caption(std::int64_t index) const override {
    return std::ranges::all_of(samples_of(index), [&](std::int64_t sample) { return source_->lacks_caption(sample); });
  }

  // The same as without grouping, so that a sample that several tasks read is reported once.
  std::string describe() const override { return source_->describe(); }

 private:
  // Calls read(row) for the rows of an image. Bad rows are left out; if all rows are bad, throws the error of the first one.
  template <class Read>
  void for_each_row(std::int64_t index, const Read& read) const {
    std::optional<SampleError> first;
    std::vector<std::int64_t> bad;
    for (const std::int64_t row : samples_of(index)) {
      try {
        read(row);
      } catch (const SampleError& error) {
        bad.push_back(row);
        if (!first) first = error;
      }
    }
    if (std::ssize(bad) == std::ssize(samples_of(index))) throw *first;
    if (bad.empty()) return;
    std::unique_lock lock(mutex_);
    bad_rows_.insert(bad.begin(), bad.end());
    lock.unlock();
    warn_once(concat("a row of an image with other rows is bad and left out (", first->reason(), ": ", first->what(),
                     "); further ones are only counted"),
              reported_bad_);
  }

  // Each task makes its own object for the same data, so that what the log says is also remembered outside of the object.
  void warn_once(const std::string& text, std::atomic<bool>& reported_here) const {
    if (reported_here.exchange(true)) return;
    static std::mutex mutex;
    static std::set<std::string> reported;
    const std::string line = concat(source_->describe(), ": ", text);
    const std::lock_guard lock(mutex);
    if (reported.insert(line).second) log::warning(line);
  }

  std::span<const std::int64_t> samples_of(std::int64_t index) const {
    const auto image = static_cast<std::size_t>(index);
    const std::int64_t begin = samples_.first.at(image), end = samples_.first.at(image + 1);
    return std::span(samples_.samples).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
  }
  std::int64_t of_source(std::int64_t index) const override { return samples_of(index).front(); }

  const SamplesOfImages samples_;
  mutable std::atomic<bool> reported_different_ = false, reported_bad_ = false;
  mutable std::mutex mutex_;
  mutable std::set<std::int64_t> bad_rows_;
};

}  // namespace

std::shared_ptr<const Source> one_sample_per_image(const std::shared_ptr<const Source>& source, bool equal_bytes) {
  std::vector<std::uint64_t> ids = source->image_ids();
  if (equal_bytes) {
    ids.resize(static_cast<std::size_t>(source->size()));
    add_fingerprints(indexed(*source), ids);
  }
  SamplesOfImages samples(ids);
  if (samples.images() == std::ssize(ids)) return source;
  return std::make_shared<OnePerImage>(indexed(source), std::move(samples));
}

}  // namespace tessera
