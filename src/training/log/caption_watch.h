#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <tessera/batch.h>
#include <tessera/data/tokenizers/tokenizer.h>

namespace tessera {

/// How often texts repeat within a batch.
struct CaptionCounts {
  std::int64_t texts = 0;          // number of texts
  std::int64_t commonest = 0;      // number of samples that have the most common text
  std::int64_t commonest_row = 0;  // the row of a sample that has the most common text
  double least_loss = 0;  // the lowest contrastive loss that is possible if equal texts cannot be distinguished
};

/// Counts how often the texts of a batch repeat. The ids must be on the CPU; the comparison includes padding.
CaptionCounts count_captions(const TowerInput& texts);

/// Warns once if many pairs of the first batches cannot be distinguished because their captions are equal.
class CaptionWatch {
 public:
  /// `view` is the text view to check; `tokenizer` decodes the repeated text for the warning.
  CaptionWatch(std::string view, std::shared_ptr<const Tokenizer> tokenizer)
      : view_(std::move(view)), tokenizer_(std::move(tokenizer)) {}

  /// Checks a batch on the CPU. A batch counts as bad if at least a quarter of its samples have the same caption, or if a contrastive loss
  /// cannot fall below half of its chance level because of equal captions. Returns a warning at the third bad batch.
  std::optional<std::string> note(const Batch& batch);

 private:
  std::string line(const TowerInput& texts, const CaptionCounts& counts) const;

  std::string view_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  int batches_ = 0, bad_ = 0;
};

}  // namespace tessera
