#include <ATen/ATen.h>

#include "src/measure/synthetic_batch.h"

namespace tessera {
namespace {

constexpr std::int64_t kTexts = 8;     // texts per image in a view with several texts
constexpr std::int64_t kRegions = 36;  // regions per image, as in bottom-up attention (Anderson et al. 2018)

// Returns random images of this size as sequences of patches.
TowerInput random_patches(std::int64_t count, config::Size size, config::Size patch, const at::TensorOptions& numbers) {
  const std::int64_t rows = size.height / patch.height, columns = size.width / patch.width;
  TowerInput out;
  out.patches = at::randint(256, {count, rows * columns, 3 * patch.height * patch.width}, numbers.dtype(at::kByte));
  out.mask = at::ones({count, rows * columns}, numbers.dtype(at::kBool));
  out.grids = at::tensor({rows, columns}, at::kLong).expand({count, 2}).contiguous();
  return out;
}

}  // namespace

Batch synthetic_batch(const DualEncoder& model, const Needs& needs, std::int64_t size, const at::Device& device,
                      const std::map<std::string, config::Size>& image_sizes,
                      const std::map<std::string, std::int64_t>& texts) {
  const auto texts_of = [&](const std::string& view) {
    const auto found = texts.find(view);
    return found == texts.end() ? kTexts : found->second;
  };
  const at::TensorOptions numbers = at::TensorOptions(device).dtype(at::kLong);
  Batch batch;
  for (const auto& [name, view] : needs.images) {
    const auto found = image_sizes.find(name);
    const Preprocessing& preprocessing = model.settings().preprocessing;
    const config::Size size_of_view = found != image_sizes.end() ? found->second : preprocessing.image_size;
    TowerInput& input = batch.images[name];
    if (view.regions)
      input.regions =
          at::randn({size, kRegions, model.image_tower().encoder().region_width()}, numbers.dtype(at::kFloat));
    else if (keeps_shapes(preprocessing))
      input = random_patches(size, size_of_view, *preprocessing.patch_size, numbers);
    else
      input.pixels = at::randint(256, {size, 3, size_of_view.height, size_of_view.width}, numbers.dtype(at::kByte));
    if (view.taught > 0) input.taught = at::randn({size, view.taught}, numbers.dtype(at::kFloat));
    if (view.boxes) {
      const std::int64_t boxes = texts_of(kPhrases);
      const at::Tensor first = 0.5 * at::rand({size, boxes, 2}, numbers.dtype(at::kFloat));
      input.boxes = {at::cat({first, first + 0.5}, 2), at::ones({size, boxes}, numbers.dtype(at::kBool))};
    }
  }
  for (const auto& [name, view] : needs.texts) {
    const Encoder& encoder = model.text_tower().encoder();
    const std::int64_t length = encoder.context_length();
    std::vector<std::int64_t> rows = {size};
    if (holds_several_texts(name)) rows.push_back(texts_of(name));
    std::vector<std::int64_t> shape = rows, taught = rows;
    shape.push_back(length);
    taught.push_back(view.taught);
    batch.texts[name] = text_input(at::randint(encoder.vocab_size(), shape, numbers),
                                   at::ones(shape, numbers.dtype(at::kBool)));
    batch.texts[name].lengths = at::full(rows, length, at::kLong);
    if (view.taught > 0) batch.texts[name].taught = at::randn(taught, numbers.dtype(at::kFloat));
  }
  batch.labels = at::full({size}, -1, numbers);
  if (needs.duplicates) batch.duplicates = {at::arange(size, numbers), at::arange(size, numbers)};
  if (needs.duplicates && needs.texts.contains(kCaptions))
    batch.duplicates.captions_group = at::arange(size * texts_of(kCaptions), numbers).view({size, texts_of(kCaptions)});
  batch.extras = example_extras(needs, size, device);
  batch.keys.assign(static_cast<std::size_t>(size), "synthetic");
  return batch;
}

void shorten_texts(TowerInput& view, const std::vector<std::int64_t>& lengths) {
  TORCH_CHECK(view.ids.defined() && std::ssize(lengths) == view.ids.size(0), "shorten_texts: ", lengths.size(),
              " lengths do not fit the view");
  view.lengths = at::tensor(lengths, at::kLong);
  const std::int64_t longest = view.lengths.numel() > 0 ? view.lengths.max().item<std::int64_t>() : 0;
  if (view.ids.dim() == 3) view.lengths = view.lengths.unsqueeze(1).repeat({1, view.ids.size(1)});
  view.ids = view.ids.slice(-1, 0, longest).contiguous();
  view.mask = (at::arange(longest) < view.lengths.unsqueeze(-1)).to(view.ids.device());
}

}  // namespace tessera
