#include "src/data/loading/training_examples.h"

#include <algorithm>
#include <array>

#include "src/data/loading/sample_pass.h"
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

struct ExampleOutcome : SampleOutcome {
  TrainingExample example;
};

TrainingExample make_example(const SampleTransform& transform, const Tokenizer* tokenizer, Sample sample, std::int64_t index) {
  const auto usable = std::ranges::find_if(sample.captions, [](const auto& text) { return !strip(text).empty(); });
  const std::int64_t caption = usable == sample.captions.end() ? 0 : usable - sample.captions.begin();
  const PreparedSample prepared = transform.prepare(std::move(sample), {.index = index, .repeat = 0, .caption = caption});
  TrainingExample out{.source = {}, .key = prepared.key, .problem = prepared.bad_text};
  for (const auto& [view, texts] : prepared.texts)
    for (std::size_t k = 0; k < texts.ids.size(); ++k) {
      const std::vector<std::int64_t>& ids = texts.ids[k];
      const TextExample text{ids.empty() ? "" : tokenizer->decode(ids), std::ssize(ids), texts.cut[k]};
      if (holds_several_texts(view))
        out.several[view].push_back(text);
      else if (!ids.empty())
        out.texts[view] = text;
    }
  for (const auto& [view, image] : prepared.pixels) out.images[view] = interleaved(image);
  for (const auto& [view, boxes] : prepared.boxes)
    for (const PreparedBox& box : boxes)
      if (const auto image = out.images.find(view); box && image != out.images.end()) outline(image->second, *box);
  return out;
}

}  // namespace

std::vector<TrainingExample> training_examples(const std::shared_ptr<const Source>& source,
                                               const std::shared_ptr<const Tokenizer>& tokenizer,
                                               const Preprocessing& preprocessing, const LoaderSettings& settings,
                                               const Needs& needs, std::uint64_t seed, std::int64_t per_component) {
  const auto transform = std::make_shared<SampleTransform>(tokenizer, preprocessing, settings, needs, seed);
  check_fields(source, transform, settings);
  std::vector<TrainingExample> out;
  for (const SourceComponent& component : source->mixing().components) {
    const PassPlan plan = plan_component(source, component, per_component, settings);
    SamplePass<ExampleOutcome> pass(plan, [transform, tokenizer](Sample& sample, std::int64_t index, ExampleOutcome& read) {
      read.example = make_example(*transform, tokenizer.get(), std::move(sample), index);
    });
    for (std::int64_t i = 0; i < plan.count; ++i) {
      ExampleOutcome read = pass.next();
      if (!read.good()) read.example = {.source = {}, .key = read.key, .problem = read.bad_text};
      read.example.source = component.label;
      out.push_back(std::move(read.example));
    }
  }
  return out;
}

}  // namespace tessera
