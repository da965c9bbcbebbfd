#include "src/data/loading/collate.h"

#include <algorithm>
#include <cstring>

#include <ATen/ATen.h>

#include <tessera/base/error.h>

namespace tessera {
Batch Collator::collate(std::vector<PreparedSample>& samples) const {
  const auto count = static_cast<std::int64_t>(samples.size());
  Batch batch;
  if (!needs_.image_views.empty()) collate_images(samples, batch);
  for (std::size_t view = 0; view < needs_.texts.size(); ++view)
    batch.texts[needs_.texts[view]] = collate_texts(samples, view);
  if (needs_.regions) collate_regions(samples, batch);
  batch.labels = make({count}, at::kLong);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    batch.labels.data_ptr<std::int64_t>()[i] = samples[i].label;
    batch.keys.push_back(std::move(samples[i].key));
  }
  if (needs_.duplicates) collate_ids(samples, batch);
  return batch;
}

void Collator::collate_images(const std::vector<PreparedSample>& samples, Batch& batch) const {
  for (std::size_t view = 0; view < needs_.image_views.size(); ++view) {
    const config::Size& size = image_sizes_[view];
    at::Tensor images = make({static_cast<std::int64_t>(samples.size()), 3, size.height, size.width}, at::kByte);
    std::uint8_t* out = images.data_ptr<std::uint8_t>();
    for (const PreparedSample& sample : samples) {
      const std::vector<std::uint8_t>& pixels = sample.pixels[view];
      std::memcpy(out, pixels.data(), pixels.size());
      out += pixels.size();
    }
    batch.images[needs_.image_views[view]] = std::move(images);
  }
}

void Collator::collate_regions(const std::vector<PreparedSample>& samples, Batch& batch) const {
  std::int64_t most = 0;
  const std::int64_t width = samples[0].region_width;
  for (const PreparedSample& sample : samples) {
    if (sample.region_width != width)
      user_error("region features of sample ", sample.key, " are ", sample.region_width, " wide, those of ",
                 samples[0].key, " ", width);
    most = std::max(most, static_cast<std::int64_t>(sample.regions.size()) / width);
  }
  const auto count = static_cast<std::int64_t>(samples.size());
  batch.regions = make({count, most, width}, at::kFloat).zero_();
  batch.region_mask = make({count, most}, at::kBool).zero_();
  for (std::int64_t i = 0; i < count; ++i) {
    const std::vector<float>& values = samples[static_cast<std::size_t>(i)].regions;
    std::copy(values.begin(), values.end(), batch.regions.data_ptr<float>() + i * most * width);
    std::fill_n(batch.region_mask.data_ptr<bool>() + i * most, static_cast<std::int64_t>(values.size()) / width, true);
  }
}

void Collator::collate_ids(const std::vector<PreparedSample>& samples, Batch& batch) const {
  const auto collated = [&](std::int64_t PreparedSample::*id) {
    at::Tensor out = make({static_cast<std::int64_t>(samples.size())}, at::kLong);
    for (std::size_t i = 0; i < samples.size(); ++i) out.data_ptr<std::int64_t>()[i] = samples[i].*id;
    return out;
  };
  if (!needs_.image_views.empty()) batch.image_group = collated(&PreparedSample::image_group);
  if (!needs_.texts.empty()) batch.caption_group = collated(&PreparedSample::caption_group);
}

TextBatch Collator::collate_texts(const std::vector<PreparedSample>& samples, std::size_t view) const {
  const auto count = static_cast<std::int64_t>(samples.size());
  const std::int64_t length = tokenizer_->context_length();
  TextBatch out{make({count, length}, at::kLong), make({count, length}, at::kBool)};
  auto* ids = out.ids.data_ptr<std::int64_t>();
  auto* mask = out.mask.data_ptr<bool>();
  std::fill_n(ids, count * length, tokenizer_->pad_id());
  std::fill_n(mask, count * length, false);
  for (const PreparedSample& sample : samples) {
    const std::vector<std::int64_t>& tokens = sample.ids[view];
    TORCH_CHECK(static_cast<std::int64_t>(tokens.size()) <= length, "the tokenizer gave ", tokens.size(),
                " ids, more than its context of ", length);
    std::copy(tokens.begin(), tokens.end(), ids);
    std::fill_n(mask, tokens.size(), true);
    ids += length;
    mask += length;
  }
  return out;
}

at::Tensor Collator::make(at::IntArrayRef sizes, at::ScalarType type) const {
  return at::empty(sizes, at::TensorOptions().dtype(type).pinned_memory(pinned_));
}

std::int64_t bytes_of(const Batch& batch) {
  std::int64_t total = 0;
  const auto add = [&](const at::Tensor& tensor) {
    if (tensor.defined()) total += static_cast<std::int64_t>(tensor.nbytes());
  };
  for (const auto& [name, images] : batch.images) add(images);
  for (const auto& [name, text] : batch.texts) {
    add(text.ids);
    add(text.mask);
  }
  for (const at::Tensor& tensor : {batch.regions, batch.region_mask, batch.labels, batch.image_group, batch.caption_group})
    add(tensor);
  return total;
}

}  // namespace tessera
