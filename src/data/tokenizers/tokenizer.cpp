#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <tessera/data/tokenizers/tokenizer.h>

namespace tessera {

TowerInput Tokenizer::encode_batch(const std::vector<std::string>& texts) const {
  const auto rows = static_cast<std::int64_t>(texts.size());
  const std::int64_t columns = context_length();
  TowerInput batch = text_input(at::full({rows, columns}, pad_id(), at::kLong), at::zeros({rows, columns}, at::kBool));
  batch.lengths = at::empty({rows}, at::kLong);
  auto* const lengths = batch.lengths.data_ptr<std::int64_t>();
  auto* const ids = batch.ids.data_ptr<std::int64_t>();
  auto* const mask = batch.mask.data_ptr<bool>();
  constexpr std::int64_t grain = 64;  // minimum number of captions per thread
  at::parallel_for(0, rows, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::vector<std::int64_t> encoded = encode(texts[static_cast<std::size_t>(row)]);
      std::copy(encoded.begin(), encoded.end(), ids + row * columns);
      std::fill_n(mask + row * columns, encoded.size(), true);
      lengths[row] = static_cast<std::int64_t>(encoded.size());
    }
  });
  if (pad_is_text()) {
    batch.mask.fill_(true);
    batch.lengths.fill_(columns);
  }
  return batch;
}

}  // namespace tessera
