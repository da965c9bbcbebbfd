#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera {

/// The words of each image of a batch, each word once. SuperCLIP's soft targets and counts are computed from them.
struct WordBags {
  at::Tensor ids;   // int64 [B, n], ascending per row; in [0, V) where `used` is true
  at::Tensor used;  // bool [B, n], true for entries that hold a word of the image
  std::int64_t vocab_size = 0;
};

/// Returns for each image the set of token ids at the real positions of all its captions, without `ignored_ids`.
/// ids   int64 [B, L] or [B, K, L]; in [0, vocab_size) at real positions, anything elsewhere
/// mask  bool, same shape, true for real positions; undefined if all are real
/// Throws c10::Error if an id is out of range: on the CPU the error names the id, on a GPU a device-side assertion fails.
WordBags word_bags(const at::Tensor& ids, const at::Tensor& mask, std::int64_t vocab_size,
                   const std::vector<std::int64_t>& ignored_ids);

/// Returns counts, int64 [V + 1]: the number of bags that hold each word, followed by the number of all bags, including empty ones.
/// The counts of several ranks and micro-batches can be added up.
at::Tensor count_words(const WordBags& bags);

/// Returns each word's share of its image's target, float64 [B, n] in the order of WordBags::ids; 0 at unused entries. A word's
/// weight is
///   w_v = log((caption_count + 1) / (document_count[v] + 1)),
/// which is exactly 0 for a word that every image has. If `idf` is false, every weight is 1. The weights of a bag are divided by their sum;
/// if the sum is 0, they stay 0. document_count [V] and caption_count [] are int64.
at::Tensor word_weights(const WordBags& bags, const at::Tensor& document_count, const at::Tensor& caption_count,
                        bool idf);

}  // namespace tessera
