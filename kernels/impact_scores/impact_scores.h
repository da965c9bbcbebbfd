#pragma once

#include <cstdint>

namespace tessera::kernels {

/// The number of bytes that must be readable after a bitmap's last impact.
constexpr std::int64_t kImpactPadding = 64;

/// Functions that compute the scores of a window of documents. Scores are integers, so that any order of addition gives
/// the same result. A document's number within the window is below 65,536. `scores` has one element for each document
/// of the window, padded to a multiple of 16. The caller must keep weights so small that no sum exceeds 2^32 - 1.
///
/// A term's postings have one of two forms. A list has the numbers of the documents, strictly increasing, and an impact
/// for each document. A bitmap has one bit for each document of the window, 64 per word, lowest bit first. Its impacts
/// are those of the set bits, in order, and kImpactPadding bytes after them must be readable.
struct ImpactScoreKernels {
  /// Computes scores[documents[i]] += impacts[i] * weight. In the 8-bit functions, weight is below 2^15.
  void (*add_list_8)(const std::uint16_t* documents, const std::uint8_t* impacts, std::int64_t count,
                     std::uint32_t weight, std::uint32_t* scores);
  void (*add_list_16)(const std::uint16_t* documents, const std::uint16_t* impacts, std::int64_t count,
                      std::uint32_t weight, std::uint32_t* scores);
  /// Does for a bitmap of `words` words what add_list_8() or add_list_16() does for a list. `scores` has 64 elements for each word.
  void (*add_bitmap_8)(const std::uint64_t* bits, std::int64_t words, const std::uint8_t* impacts, std::uint32_t weight,
                       std::uint32_t* scores);
  void (*add_bitmap_16)(const std::uint64_t* bits, std::int64_t words, const std::uint16_t* impacts,
                        std::uint32_t weight, std::uint32_t* scores);
  /// Returns how many of the first `count` scores are >= `least`. `count` is a multiple of 16.
  std::int64_t (*count_at_least)(const std::uint32_t* scores, std::int64_t count, std::uint32_t least);
  /// Finds the scores >= `least` among the first `count`. Writes these scores to `taken` and the indices of their documents to `documents`,
  /// in order. Then sets all `count` scores to 0. Returns the number of scores found. `count` is a multiple of 16, and `least` is >= 1.
  std::int64_t (*take_at_least)(std::uint32_t* scores, std::int64_t count, std::uint32_t least,
                                std::uint16_t* documents, std::uint32_t* taken);
};

/// Returns the kernels for the best instruction set of this machine (cpu/instruction_set.h).
const ImpactScoreKernels& impact_score_kernels();

extern const ImpactScoreKernels kPortableImpactScores;
#if defined(TESSERA_X86_KERNELS)
extern const ImpactScoreKernels kAvx2ImpactScores;
extern const ImpactScoreKernels kAvx512ImpactScores;
#endif

}  // namespace tessera::kernels
