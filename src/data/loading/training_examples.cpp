#include <tessera/data/loading/training_examples.h>

#include <algorithm>

#include "src/data/loading/sample_reader.h"
#include "src/data/loading/sample_transform.h"
#include <tessera/base/text.h>

namespace tessera {
namespace {

Image interleaved(const ViewImage& view) {
  Image out;
  out.height = view.size.height;
  out.width = view.size.width;
  const std::size_t area = view.planes.size() / 3;
  for (std::size_t i = 0; i < area; ++i)
    for (std::size_t color = 0; color < 3; ++color) out.pixels.push_back(view.planes[color * area + i]);
  return out;
}

class Examples {
 public:
  Examples(const std::shared_ptr<const Source>& source, const std::shared_ptr<const Tokenizer>& tokenizer,
           const Preprocessing& preprocessing, const LoaderSettings& settings, const Needs& needs, std::uint64_t seed)
      : tokenizer_(tokenizer),
        transform_(source, tokenizer, preprocessing, settings, needs, seed) {}

  TrainingExample make(Sample sample, std::int64_t index) const {
    const auto usable = std::ranges::find_if(sample.captions, [](const auto& text) { return !strip(text).empty(); });
    const std::int64_t caption = usable == sample.captions.end() ? 0 : usable - sample.captions.begin();
    const PreparedSample prepared = transform_.prepare(sample, {.index = index, .repeat = 0, .caption = caption});
    TrainingExample out{.source = {}, .key = prepared.key, .problem = prepared.bad_text};
    for (const auto& [view, ids] : prepared.ids)
      out.texts[view] = {tokenizer_->decode(ids), std::ssize(ids), prepared.cuts.at(view).cut_texts > 0};
    for (std::size_t k = 0; k < prepared.captions.size(); ++k) {
      const std::vector<std::int64_t>& ids = prepared.captions[k];
      out.captions.push_back({ids.empty() ? "" : tokenizer_->decode(ids), std::ssize(ids), prepared.captions_cut[k]});
    }
    for (const auto& [view, image] : prepared.pixels) out.pictures[view] = interleaved(image);
    return out;
  }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  SampleTransform transform_;
};

}  // namespace

std::vector<TrainingExample> training_examples(const std::shared_ptr<const Source>& source,
                                               const std::shared_ptr<const Tokenizer>& tokenizer,
                                               const Preprocessing& preprocessing, const LoaderSettings& settings,
                                               const Needs& needs, std::uint64_t seed, std::int64_t per_component) {
  const Examples examples(source, tokenizer, preprocessing, settings, needs, seed);
  const bool is_stream = std::holds_alternative<const StreamSource*>(source->kind());
  std::vector<TrainingExample> out;
  for (const SourceComponent& component : source->mixing().components) {
    const std::int64_t count = std::min(per_component, component.size);
    const auto reader = make_ordered_reader(source, settings);
    const ReaderStop stop(reader);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t index = component.first + (is_stream ? i : i * component.size / count);
      try {
        out.push_back(examples.make(reader->read_in_order(i, index), index));
      } catch (const SampleError& error) {
        out.push_back({.source = {}, .key = error.key(), .problem = error.what()});
      }
      out.back().source = component.label;
    }
  }
  return out;
}

}  // namespace tessera
