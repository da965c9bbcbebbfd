#include "src/data/loading/collate.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>

#include <ATen/ATen.h>

#include "src/data/image/patches.h"

namespace tessera {

// Makes a tensor with a row of the given shape for each sample. A row holds values(sample), which is a span, followed by zeros.
template <class Values>
at::Tensor Collator::rows(const std::vector<PreparedSample>& samples, at::IntArrayRef shape, at::ScalarType type, const Values& values) const {
  std::vector<std::int64_t> sizes = shape.vec();
  sizes.insert(sizes.begin(), std::ssize(samples));
  at::Tensor out = make(sizes, type);
  auto* to = static_cast<std::byte*>(out.data_ptr());
  const std::size_t bytes = out.nbytes() / samples.size();
  for (const PreparedSample& sample : samples) {
    const std::span<const std::byte> row = std::as_bytes(values(sample));
    if (!row.empty()) std::memcpy(to, row.data(), row.size());
    std::memset(to + row.size(), 0, bytes - row.size());
    to += bytes;
  }
  return out;
}

Batch Collator::collate(std::vector<PreparedSample>& samples) const {
  Batch batch;
  EncodedImages encoded;  // shared by all pixel views
  for (const auto& [view, wanted] : needs_.images) {
    TowerInput& input = batch.images[view];
    if (wanted.regions) {
      input = collate_regions(samples);
      continue;
    }
    if (patch_size_) {
      input = collate_patches(samples, view, *patch_size_);
    } else {
      if (features_ && !encoded.defined()) encoded = collate_features(samples);
      input.encoded = encoded;
      if (!features_) input.pixels = collate_pixels(samples, view);
      if (wanted.optional) input.mask = collate_presence(samples, view);
    }
    if (wanted.boxes) input.boxes = collate_boxes(samples, view);
    if (wanted.taught > 0 && teachers_)
      input.taught = collate_stored(samples, teachers_->manifest(), 0, [&](const auto& sample) -> const auto& { return sample.taught.at(view); });
  }
  const std::int64_t length = needs_.texts.empty() ? 0 : text_length(samples);
  for (const auto& [view, wanted] : needs_.texts)
    batch.texts[view] = collate_texts(samples, view, length);
  for (const auto& [name, wanted] : needs_.texts) {
    const std::string& view = name;
    const std::int64_t texts = holds_several_texts(view) ? batch.texts[view].ids.size(1) : 0;
    if (wanted.taught > 0 && teachers_)
      batch.texts[view].taught =
          collate_stored(samples, teachers_->manifest(), texts, [&](const auto& sample) -> const auto& { return sample.taught.at(view); });
    if (text_features_)
      batch.texts[view].encoded.pooled = collate_stored(samples, text_features_->manifest(), texts,
                                                        [&](const auto& sample) -> const auto& { return sample.text_features.at(view); });
  }
  batch.labels = collate_numbers(samples, &PreparedSample::label);
  if (needs_.duplicates && !needs_.images.empty())
    batch.duplicates.image_group = collate_numbers(samples, &PreparedSample::image_group);
  if (needs_.duplicates && !compared_text(needs_).empty())
    batch.duplicates.caption_group = collate_numbers(samples, &PreparedSample::caption_group);
  if (needs_.duplicates && needs_.texts.contains(kCaptions))
    batch.duplicates.captions_group = rows(samples, {std::ssize(samples.front().captions_group)}, at::kLong,
                                           [](const PreparedSample& sample) { return std::span(sample.captions_group); });
  for (const auto& [name, extra] : needs_.extras) batch.extras[name] = collate_extra(samples, name, extra.example);
  for (PreparedSample& sample : samples) batch.keys.push_back(std::move(sample.key));
  return batch;
}

at::Tensor Collator::collate_pixels(const std::vector<PreparedSample>& samples, const std::string& view) const {
  const config::Size& size = image_sizes_.at(view);
  return rows(samples, {3, size.height, size.width}, at::kByte, [&](const PreparedSample& sample) {
    const auto found = sample.pixels.find(view);
    return found == sample.pixels.end() ? std::span<const std::uint8_t>() : std::span(found->second.planes);
  });
}

// Pads to the largest number of patches in the batch.
TowerInput Collator::collate_patches(const std::vector<PreparedSample>& samples, const std::string& view,
                                     config::Size patch) const {
  const std::int64_t count = std::ssize(samples), values = 3 * patch.height * patch.width;
  TowerInput out;
  out.grids = at::zeros({count, 2}, at::kLong);
  auto* grid = out.grids.data_ptr<std::int64_t>();
  std::int64_t most = 1;
  for (const PreparedSample& sample : samples) {
    if (const auto found = sample.pixels.find(view); found != sample.pixels.end()) {
      grid[0] = found->second.size.height / patch.height;
      grid[1] = found->second.size.width / patch.width;
    }
    most = std::max(most, grid[0] * grid[1]);
    grid += 2;
  }
  out.patches = make({count, most, values}, at::kByte);
  out.mask = make({count, most}, at::kBool);
  auto* to = out.patches.data_ptr<std::uint8_t>();
  auto* mask = out.mask.data_ptr<bool>();
  for (const PreparedSample& sample : samples) {
    std::int64_t patches = 0;
    if (const auto found = sample.pixels.find(view); found != sample.pixels.end()) {
      const ViewImage& image = found->second;
      patches = std::ssize(image.planes) / values;
      write_patches(image.planes.data(), image.size, patch, to);
    }
    std::memset(to + patches * values, 0, static_cast<std::size_t>((most - patches) * values));
    std::fill_n(std::fill_n(mask, patches, true), most - patches, false);
    to += most * values;
    mask += most;
  }
  return out;
}

EncodedImages Collator::collate_features(const std::vector<PreparedSample>& samples) const {
  const at::ScalarType type = features_->manifest().scalar_type();
  std::map<std::string, at::Tensor> tensors;
  std::size_t offset = 0;  // byte offset into a sample's features
  for (const FeatureTensor& each : features_->manifest().tensors) {
    const std::size_t bytes = static_cast<std::size_t>(each.numel()) * c10::elementSize(type);
    tensors[each.name] = rows(samples, each.shape, type, [&](const PreparedSample& sample) {
      const std::span<const std::uint8_t> all = sample.features;
      return all.empty() ? all : all.subspan(offset, bytes);
    });
    offset += bytes;
  }
  return {tensors["tokens"], tensors["class_token"], tensors["attention"], tensors[kPooledTensor]};
}

// Returns rows of the only tensor of a folder, [B, E], or [B, texts, E] if `texts` is not 0.
at::Tensor Collator::collate_stored(const std::vector<PreparedSample>& samples, const FeatureManifest& manifest, std::int64_t texts,
                                    const std::function<const std::vector<std::uint8_t>&(const PreparedSample&)>& stored) const {
  std::vector<std::int64_t> shape = manifest.tensors.front().shape;
  if (texts > 0) shape.insert(shape.begin(), texts);
  return rows(samples, shape, manifest.scalar_type(), [&](const PreparedSample& sample) { return std::span(stored(sample)); });
}

at::Tensor Collator::collate_presence(const std::vector<PreparedSample>& samples, const std::string& view) const {
  at::Tensor out = make({static_cast<std::int64_t>(samples.size()), 1}, at::kBool);
  for (std::size_t i = 0; i < samples.size(); ++i)
    out.data_ptr<bool>()[i] = samples[i].pixels.contains(view) || !samples[i].features.empty();
  return out;
}

TowerInput Collator::collate_regions(const std::vector<PreparedSample>& samples) const {
  std::int64_t most = 1;
  const PreparedSample* first = nullptr;  // the first sample with regions
  for (const PreparedSample& sample : samples) {
    if (sample.regions.empty()) continue;
    if (first == nullptr) first = &sample;
    TORCH_CHECK(sample.region_width == first->region_width, "region features of sample ", sample.key, " are ",
                sample.region_width, " wide, those of ", first->key, " ", first->region_width);
    most = std::max(most, static_cast<std::int64_t>(sample.regions.size()) / sample.region_width);
  }
  const std::int64_t width = first != nullptr ? first->region_width : 0;
  TowerInput out;
  out.regions = rows(samples, {most, width}, at::kFloat, [](const PreparedSample& sample) { return std::span(sample.regions); });
  out.mask = make({std::ssize(samples), most}, at::kBool).zero_();
  for (std::int64_t i = 0; i < std::ssize(samples); ++i)
    if (const std::int64_t values = std::ssize(samples[static_cast<std::size_t>(i)].regions); values > 0)
      std::fill_n(out.mask.data_ptr<bool>() + i * most, values / width, true);
  return out;
}

// Returns the common length of all text views: the number of tokens in the longest text of any view.
std::int64_t Collator::text_length(const std::vector<PreparedSample>& samples) const {
  const std::int64_t most = tokenizer_->context_length();
  if (whole_texts_ || tokenizer_->pad_is_text()) return most;
  std::int64_t longest = 1;
  for (const PreparedSample& sample : samples)
    for (const auto& [view, texts] : sample.texts)
      for (const auto& ids : texts.ids) longest = std::max(longest, std::ssize(ids));
  TORCH_CHECK(longest <= most, "the tokenizer returned ", longest, " ids, more than its context of ", most);
  return longest;
}

TowerInput Collator::collate_texts(const std::vector<PreparedSample>& samples, const std::string& view, std::int64_t length) const {
  const std::size_t each = samples.front().texts.at(view).ids.size();
  std::vector<const std::vector<std::int64_t>*> rows;
  for (const PreparedSample& sample : samples) {
    const PreparedTexts& texts = sample.texts.at(view);
    TORCH_CHECK(texts.ids.size() == each, "sample ", sample.key, " has ", texts.ids.size(), " texts of the view ", view,
                ", others ", each);
    for (const auto& ids : texts.ids) rows.push_back(ids.empty() ? nullptr : &ids);
  }
  TowerInput out = collate_rows(rows, length);
  if (!holds_several_texts(view)) return out;
  for (at::Tensor* tensor : {&out.ids, &out.mask, &out.lengths})
    *tensor = tensor->unflatten(0, {std::ssize(samples), static_cast<std::int64_t>(each)});
  return out;
}

Boxes Collator::collate_boxes(const std::vector<PreparedSample>& samples, const std::string& view) const {
  const std::int64_t each = std::ssize(samples.front().boxes.at(view));
  Boxes out{make({std::ssize(samples), each, 4}, at::kFloat), make({std::ssize(samples), each}, at::kBool)};
  auto* corners = out.corners.data_ptr<float>();
  auto* mask = out.mask.data_ptr<bool>();
  for (const PreparedSample& sample : samples)
    for (const PreparedBox& box : sample.boxes.at(view)) {
      corners = std::ranges::copy(box.value_or(std::array<float, 4>{}), corners).out;
      *mask++ = box.has_value();
    }
  return out;
}

// Makes one row of text for each list of ids. A null pointer stands for a missing text.
TowerInput Collator::collate_rows(const std::vector<const std::vector<std::int64_t>*>& rows,
                                  std::int64_t length) const {
  const std::int64_t count = std::ssize(rows);
  TowerInput out = text_input(make({count, length}, at::kLong), make({count, length}, at::kBool));
  out.lengths = at::zeros({count}, at::kLong);
  auto* ids = out.ids.data_ptr<std::int64_t>();
  auto* mask = out.mask.data_ptr<bool>();
  auto* tokens = out.lengths.data_ptr<std::int64_t>();
  std::fill_n(ids, count * length, tokenizer_->pad_id());
  std::fill_n(mask, count * length, false);
  for (const std::vector<std::int64_t>* row : rows) {
    if (row != nullptr) {
      *tokens = std::ssize(*row);
      TORCH_CHECK(*tokens <= length, "the tokenizer returned ", *tokens, " ids, more than its context of ", length);
      std::ranges::copy(*row, ids);
      if (tokenizer_->pad_is_text()) *tokens = length;
      std::fill_n(mask, *tokens, true);
    }
    ids += length;
    mask += length;
    ++tokens;
  }
  return out;
}

at::Tensor Collator::collate_extra(const std::vector<PreparedSample>& samples, const std::string& name, const at::Tensor& example) const {
  std::vector<std::int64_t> sizes = example.sizes().vec();
  sizes.insert(sizes.begin(), std::ssize(samples));
  at::Tensor out = make(sizes, example.scalar_type());
  for (std::int64_t i = 0; i < out.size(0); ++i) out[i].copy_(samples[static_cast<std::size_t>(i)].extras.at(name));
  return out;
}

at::Tensor Collator::collate_numbers(const std::vector<PreparedSample>& samples, std::int64_t PreparedSample::*number) const {
  return rows(samples, {}, at::kLong, [&](const PreparedSample& sample) { return std::span(&(sample.*number), 1); });
}

at::Tensor Collator::make(at::IntArrayRef sizes, at::ScalarType type) const {
  return at::empty(sizes, at::TensorOptions().dtype(type).pinned_memory(pinned_));
}

}  // namespace tessera
