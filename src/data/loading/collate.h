#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/data/loading/sample_transform.h"
#include <tessera/batch.h>
#include <tessera/data/features/feature_folder.h>
#include <tessera/data/tokenizers/tokenizer.h>
#include <tessera/preprocessing.h>

namespace tessera {

/// Makes a batch of prepared samples: one copy of each into the batch's tensors. A view that a sample lacks is a row of
/// zeros (texts: of padding) whose mask is false, and so is an absent one of several texts or boxes. Thread-safe.
class Collator {
 public:
  /// image_sizes: of each view of pixels.
  Collator(std::shared_ptr<const Tokenizer> tokenizer, std::map<std::string, config::Size> image_sizes,
           const Needs& needs, const LoaderTarget& target)
      : tokenizer_(std::move(tokenizer)),
        image_sizes_(std::move(image_sizes)),
        needs_(needs),
        pinned_(target.pinned),
        whole_texts_(target.whole_texts),
        features_(target.features) {}

  /// Takes the samples' keys. The tensors lie in page-locked memory with the target's `pinned`; with its `features` the
  /// views of pixels hold these, all of them the same tensors. Throws c10::Error: region features of
  /// two widths.
  Batch collate(std::vector<PreparedSample>& samples) const;

 private:
  at::Tensor collate_pixels(const std::vector<PreparedSample>& samples, const std::string& view) const;
  EncodedPictures collate_features(const std::vector<PreparedSample>& samples) const;
  at::Tensor collate_presence(const std::vector<PreparedSample>& samples, const std::string& view) const;
  TowerInput collate_regions(const std::vector<PreparedSample>& samples) const;
  std::int64_t text_length(const std::vector<PreparedSample>& samples) const;
  TowerInput collate_text(const std::vector<PreparedSample>& samples, const std::string& view,
                          std::int64_t length) const;
  TowerInput collate_several(const std::vector<PreparedSample>& samples, const std::string& view,
                             std::int64_t length) const;
  Boxes collate_boxes(const std::vector<PreparedSample>& samples, const std::string& view) const;
  TowerInput collate_rows(const std::vector<const std::vector<std::int64_t>*>& rows, std::int64_t length) const;
  at::Tensor collate_captions_group(const std::vector<PreparedSample>& samples) const;
  at::Tensor collate_numbers(const std::vector<PreparedSample>& samples, std::int64_t PreparedSample::*number) const;
  at::Tensor make(at::IntArrayRef sizes, at::ScalarType type) const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::map<std::string, config::Size> image_sizes_;
  Needs needs_;
  bool pinned_, whole_texts_;
  std::shared_ptr<const FeatureFolder> features_;  // null: pixels
};

}  // namespace tessera
