#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera {

/// The words of each image of a batch, each word once: SuperCLIP's soft targets and counts are made of them.
struct WordBags {
  at::Tensor ids;   // int64 [B, n], ascending; in [0, V) where `used`
  at::Tensor used;  // bool [B, n], the places that hold a word of the bag
  std::int64_t vocab_size = 0;
};

/// The bag of an image is the set of the ids at the real positions of all its captions, without `ignored_ids`.
/// ids   int64 [B, L] or [B, K, L]; in [0, vocab_size) at real positions, anything elsewhere
/// mask  bool alike, true = real; undefined: all are
/// Throws c10::Error for an id that is out of range: named on the CPU, on a GPU a device-side assertion.
WordBags word_bags(const at::Tensor& ids, const at::Tensor& mask, std::int64_t vocab_size,
                   const std::vector<std::int64_t>& ignored_ids);

/// int64 [V + 1]: how many bags hold each word, and behind them how many bags there are, empty ones too. What ranks and
/// micro-batches count adds up.
at::Tensor count_words(const WordBags& bags);

/// float64 [B, n]: each word's share of its image's target (WordBags::ids), 0 at unused places. A word weighs
///   w_v = log((caption_count + 1) / (document_count[v] + 1)),
/// exactly 0 where every image has it; without idf 1. The weights of a bag are divided by their sum, and stay 0 where
/// that is 0. document_count [V] and caption_count []: int64.
at::Tensor word_weights(const WordBags& bags, const at::Tensor& document_count, const at::Tensor& caption_count,
                        bool idf);

}  // namespace tessera
