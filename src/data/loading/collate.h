#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/data/features/feature_folder.h"
#include "src/data/features/taught_folder.h"
#include "src/data/loading/sample_transform.h"
#include <tessera/batch.h>
#include <tessera/data/tokenizers/tokenizer.h>
#include <tessera/preprocessing.h>

namespace tessera {

/// Makes a batch from prepared samples by copying each sample once into the batch's tensors. If a sample lacks a view, or one of several
/// texts or boxes, the batch has a row of zeros in its place (a row of padding for texts), and the mask of this row is false. Thread-safe.
class Collator {
 public:
  /// `image_sizes` has the size of each pixel view. `patch_size` is set if images keep their shapes.
  Collator(std::shared_ptr<const Tokenizer> tokenizer, std::map<std::string, config::Size> image_sizes,
           std::optional<config::Size> patch_size, const Needs& needs, const LoaderTarget& target)
      : tokenizer_(std::move(tokenizer)),
        image_sizes_(std::move(image_sizes)),
        patch_size_(patch_size),
        needs_(needs),
        pinned_(target.pinned),
        whole_texts_(target.whole_texts),
        features_(target.features),
        text_features_(target.text_features),
        teachers_(target.teachers) {}

  /// Moves the keys out of the samples. If LoaderTarget::pinned is set, the tensors are in page-locked memory. If LoaderTarget::features is
  /// set, all pixel views share the same feature tensors. Throws c10::Error if region features differ in width.
  Batch collate(std::vector<PreparedSample>& samples) const;

 private:
  at::Tensor collate_pixels(const std::vector<PreparedSample>& samples, const std::string& view) const;
  TowerInput collate_patches(const std::vector<PreparedSample>& samples, const std::string& view, config::Size patch) const;
  EncodedImages collate_features(const std::vector<PreparedSample>& samples) const;
  at::Tensor collate_stored(const std::vector<PreparedSample>& samples, const FeatureManifest& manifest, std::int64_t texts,
                            const std::function<const std::vector<std::uint8_t>&(const PreparedSample&)>& stored) const;
  at::Tensor collate_presence(const std::vector<PreparedSample>& samples, const std::string& view) const;
  TowerInput collate_regions(const std::vector<PreparedSample>& samples) const;
  std::int64_t text_length(const std::vector<PreparedSample>& samples) const;
  TowerInput collate_texts(const std::vector<PreparedSample>& samples, const std::string& view, std::int64_t length) const;
  Boxes collate_boxes(const std::vector<PreparedSample>& samples, const std::string& view) const;
  TowerInput collate_rows(const std::vector<const std::vector<std::int64_t>*>& rows, std::int64_t length) const;
  at::Tensor collate_extra(const std::vector<PreparedSample>& samples, const std::string& name, const at::Tensor& example) const;
  at::Tensor collate_numbers(const std::vector<PreparedSample>& samples, std::int64_t PreparedSample::*number) const;
  template <class Values>
  at::Tensor rows(const std::vector<PreparedSample>& samples, at::IntArrayRef shape, at::ScalarType type, const Values& values) const;
  at::Tensor make(at::IntArrayRef sizes, at::ScalarType type) const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::map<std::string, config::Size> image_sizes_;
  std::optional<config::Size> patch_size_;  // null: all images of a view have the same size
  Needs needs_;
  bool pinned_, whole_texts_;
  std::shared_ptr<const FeatureFolder> features_;  // stored features that batches contain instead of pixels; null: batches contain pixels
  std::shared_ptr<const FeatureFolder> text_features_;  // stored vectors of texts; null: batches have none
  std::shared_ptr<const TaughtFolder> teachers_;   // stored embeddings of teachers; null: batches have none
};

}  // namespace tessera
