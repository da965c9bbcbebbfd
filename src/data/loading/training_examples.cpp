#include "src/data/loading/training_examples.h"

#include <algorithm>
#include <array>

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

// Draws a red line along the borders of a box. The box is left, top, right and bottom as shares of the image's size.
void outline(Image& image, const std::array<float, 4>& box) {
  const auto place = [](float share, std::int64_t side) {
    return std::min(static_cast<std::int64_t>(share * static_cast<float>(side)), side - 1);
  };
  const std::int64_t left = place(box[0], image.width), right = place(box[2], image.width),
                     top = place(box[1], image.height), bottom = place(box[3], image.height);
  for (std::int64_t y = top; y <= bottom; ++y)
    for (std::int64_t x = left; x <= right; x += y == top || y == bottom ? 1 : std::max<std::int64_t>(1, right - left))
      std::ranges::copy(std::array<std::uint8_t, 3>{255, 0, 0}, image.pixels.begin() + 3 * (y * image.width + x));
}

class Examples {
 public:
  Examples(const std::shared_ptr<const Source>& source, const std::shared_ptr<const Tokenizer>& tokenizer,
           const Preprocessing& preprocessing, const LoaderSettings& settings, const Needs& needs, std::uint64_t seed)
      : tokenizer_(tokenizer),
        transform_(std::make_shared<SampleTransform>(tokenizer, preprocessing, settings, needs, seed)) {
    check_fields(source, transform_, settings);
  }

  TrainingExample make(Sample sample, std::int64_t index) const {
    const auto usable = std::ranges::find_if(sample.captions, [](const auto& text) { return !strip(text).empty(); });
    const std::int64_t caption = usable == sample.captions.end() ? 0 : usable - sample.captions.begin();
    const PreparedSample prepared = transform_->prepare(sample, {.index = index, .repeat = 0, .caption = caption});
    TrainingExample out{.source = {}, .key = prepared.key, .problem = prepared.bad_text};
    for (const auto& [view, texts] : prepared.texts)
      for (std::size_t k = 0; k < texts.ids.size(); ++k) {
        const std::vector<std::int64_t>& ids = texts.ids[k];
        const TextExample text{ids.empty() ? "" : tokenizer_->decode(ids), std::ssize(ids), texts.cut[k]};
        if (holds_several_texts(view))
          out.several[view].push_back(text);
        else if (!ids.empty())
          out.texts[view] = text;
      }
    for (const auto& [view, image] : prepared.pixels) out.pictures[view] = interleaved(image);
    for (const auto& [view, boxes] : prepared.boxes)
      for (const PreparedBox& box : boxes)
        if (const auto picture = out.pictures.find(view); box && picture != out.pictures.end())
          outline(picture->second, *box);
    return out;
  }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<SampleTransform> transform_;
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
