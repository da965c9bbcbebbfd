#pragma once

#include <memory>
#include <vector>

#include "src/data/loading/sample_transform.h"
#include <tessera/batch.h>
#include <tessera/data/tokenizers/tokenizer.h>
#include <tessera/preprocessing.h>

namespace tessera {

/// Makes a batch of prepared samples: one copy of each into the batch's tensors. Thread-safe.
class Collator {
 public:
  /// image_sizes: one per image view, in the order of Needs::image_views.
  Collator(std::shared_ptr<const Tokenizer> tokenizer, std::vector<config::Size> image_sizes, const Needs& needs,
           bool pinned)
      : tokenizer_(std::move(tokenizer)), image_sizes_(std::move(image_sizes)), needs_(needs), pinned_(pinned) {}

  /// Takes the samples' keys. The tensors lie in page-locked memory with `pinned`. Throws UserError: region features of
  /// two widths.
  Batch collate(std::vector<PreparedSample>& samples) const;

 private:
  void collate_images(const std::vector<PreparedSample>& samples, Batch& batch) const;
  void collate_ids(const std::vector<PreparedSample>& samples, Batch& batch) const;
  void collate_regions(const std::vector<PreparedSample>& samples, Batch& batch) const;
  at::Tensor make(at::IntArrayRef sizes, at::ScalarType type) const;
  TextBatch collate_texts(const std::vector<PreparedSample>& samples, std::size_t view) const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<config::Size> image_sizes_;
  Needs needs_;
  bool pinned_;
};

/// Of all its tensors.
std::int64_t bytes_of(const Batch& batch);

}  // namespace tessera
