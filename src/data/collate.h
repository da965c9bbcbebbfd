#pragma once

#include <memory>
#include <vector>

#include "src/data/prepare.h"
#include <tessera/batch.h>
#include <tessera/data/tokenizer.h>
#include <tessera/preprocessing.h>

namespace tessera {

/// Makes a batch of prepared samples: one copy of each into the batch's tensors. Thread-safe.
class Collator {
 public:
  /// image_sizes: one per image view, in the order of Needs::image_views.
  Collator(std::shared_ptr<const Tokenizer> tokenizer, std::vector<config::Size> image_sizes, const Needs& needs)
      : tokenizer_(std::move(tokenizer)), image_sizes_(std::move(image_sizes)), needs_(needs) {}

  /// Takes the samples' keys. Throws UserError: region features of two widths.
  Batch collate(std::vector<PreparedSample>& samples) const;

 private:
  void collate_images(const std::vector<PreparedSample>& samples, Batch& batch) const;
  void collate_ids(const std::vector<PreparedSample>& samples, Batch& batch) const;
  TextBatch collate_texts(const std::vector<PreparedSample>& samples, std::size_t view) const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<config::Size> image_sizes_;
  Needs needs_;
};

}  // namespace tessera
