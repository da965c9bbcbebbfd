#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <tessera/batch.h>
#include <tessera/data/tokenizers/tokenizer.h>

namespace tessera {

/// How often the texts of a batch are the same.
struct CaptionCounts {
  std::int64_t texts = 0;          // that samples have
  std::int64_t commonest = 0;      // samples that share the text that most have
  std::int64_t commonest_row = 0;  // one of these
  double least_loss = 0;           // of a contrast that knows each text's pictures but cannot tell equal texts apart
};

/// ids must be on the CPU; rows that are padded alike are compared as they are.
CaptionCounts count_captions(const TowerInput& texts);

/// Says, once, that most pairs of the first batches cannot be told apart, for their captions are the same.
class CaptionWatch {
 public:
  /// view: the text view to look at; tokenizer: shows what the text is.
  CaptionWatch(std::string view, std::shared_ptr<const Tokenizer> tokenizer)
      : view_(std::move(view)), tokenizer_(std::move(tokenizer)) {}

  /// Looks at a batch on the CPU; one line when it is the third of which a quarter has one caption, or in which equal
  /// captions keep a contrast above half of chance.
  std::optional<std::string> note(const Batch& batch);

 private:
  std::string line(const TowerInput& texts, const CaptionCounts& counts) const;

  std::string view_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  int batches_ = 0, bad_ = 0;
};

}  // namespace tessera
