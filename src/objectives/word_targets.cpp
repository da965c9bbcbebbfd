#include <ATen/ATen.h>

#include "src/objectives/word_targets.h"

namespace tessera {
namespace {

void check_range(const at::Tensor& words, const at::Tensor& real, std::int64_t vocab_size) {
  const at::Tensor bad = real & (words.lt(0) | words.ge(vocab_size));
  if (!words.is_cpu())  // the message does not name the bad id, because reading the id would need a synchronization
    at::_assert_async(bad.any().logical_not(), "superclip: a caption holds an id that is not in the vocabulary");
  else if (bad.any().item<bool>())
    TORCH_CHECK(false, "superclip: a caption holds the id ", words.masked_select(bad)[0].item<std::int64_t>(),
                ", but the vocabulary is 0..", vocab_size - 1);
}

}  // namespace

WordBags word_bags(const at::Tensor& ids, const at::Tensor& mask, std::int64_t vocab_size,
                   const std::vector<std::int64_t>& ignored_ids) {
  const at::NoGradGuard no_grad;
  TORCH_CHECK((ids.dim() == 2 || ids.dim() == 3) && ids.scalar_type() == at::kLong,
              "superclip: text_ids must be int64 [B, L] or [B, K, L], got ", ids.scalar_type(), " ", ids.sizes());
  TORCH_CHECK(!mask.defined() || (mask.sizes() == ids.sizes() && mask.scalar_type() == at::kBool),
              "superclip: text_mask must be bool ", ids.sizes(), " as text_ids is, got ", mask.scalar_type(), " ",
              mask.sizes());
  const at::Tensor words = ids.flatten(1);
  at::Tensor real = mask.defined() ? mask.flatten(1) : at::ones_like(words, at::kBool);
  check_range(words, real, vocab_size);
  for (const std::int64_t ignored : ignored_ids) real = real & words.ne(ignored);
  // Replaces padding and ignored ids by the id vocab_size, which sorts last. Also appends this id once to each row.
  const at::Tensor none = at::full({words.size(0), 1}, vocab_size, words.options());
  const at::Tensor sorted = std::get<0>(at::cat({words.masked_fill(~real, vocab_size), none}, 1).sort(1));
  const at::Tensor again = sorted.slice(1, 1) == sorted.slice(1, 0, -1);
  const at::Tensor first = at::cat({at::ones_like(none, at::kBool), ~again}, 1);
  return {sorted, first & sorted.lt(vocab_size), vocab_size};
}

at::Tensor count_words(const WordBags& bags) {
  const at::NoGradGuard no_grad;
  const at::Tensor words = bags.ids.masked_fill(~bags.used, bags.vocab_size).flatten();
  at::Tensor counts = at::zeros({bags.vocab_size + 1}, words.options());
  counts.scatter_add_(0, words, at::ones_like(words));
  counts[bags.vocab_size].fill_(bags.ids.size(0));
  return counts;
}

at::Tensor word_weights(const WordBags& bags, const at::Tensor& document_count, const at::Tensor& caption_count,
                        bool idf) {
  const at::NoGradGuard no_grad;
  at::Tensor weights = bags.used.to(at::kDouble);
  if (idf) {
    const at::Tensor others = (caption_count - document_count).to(at::kDouble);  // number of images without the word, exact in int64
    const at::Tensor of_words = (others / (document_count + 1).to(at::kDouble)).log1p();
    weights = weights * of_words.index({bags.ids.clamp_max(bags.vocab_size - 1)});
  }
  const at::Tensor sum = weights.sum(1, /*keepdim=*/true);
  return weights / sum.masked_fill(sum == 0, 1);
}

}  // namespace tessera
