#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include <tessera/distributed/process_group.h>

namespace torch::autograd {
struct AutogradContext;
}

namespace tessera {

/// What the captions of the global batch are to its images (R of the captions' losses): a present caption is a positive
/// of its own image and a negative of the others, but for duplicates, which may be left out or be positives too. An absent
/// caption is nothing to anybody, and so is an absent image, where what stands for images are texts that may be absent.
struct CaptionRelation {
  enum class Duplicates { negative, masked, positive };

  at::Tensor present;      // bool [C, K]
  at::Tensor rows_present;  // bool [C], images that are there themselves, as rows; undefined: all
  at::Tensor image_group;  // int64 [C], equal for images of the same picture; undefined: all differ
  at::Tensor caption_ids;  // int64 [C, K], equal for the same caption; undefined: all differ
  Duplicates duplicates = Duplicates::negative;

  /// Whether any caption of the global batch is absent. On a GPU, which would have to be waited for: always.
  bool some_absent = false;

  /// Images row, row + 1, ... beside the captions of images column, column + 1, ..., by their places in the global batch.
  struct Tile {
    at::Tensor left_out;  // bool [rows, columns, K], of no relation (R = 0); undefined: none
    at::Tensor further;   // bool [rows, columns, K], positives that are other images' captions; undefined: none
  };
  Tile tile(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) const;
  /// R itself, int64 [rows, columns, K].
  at::Tensor values(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) const;
  /// The entries [n, K] of a tile's values [rows, columns, K] that are of an image and its own captions; may be empty.
  static at::Tensor own_of(const at::Tensor& values, std::int64_t row, std::int64_t column);

  /// Captions that are there and whose images are, too: bool [C, K].
  at::Tensor own_pairs() const;

  bool has_duplicates() const { return image_group.defined() || caption_ids.defined(); }
  std::int64_t images() const { return present.size(0); }
  std::int64_t captions() const { return present.size(1); }

  /// This rank's sum over the number of own pairs, of all ranks: the mean over ranks is that of the global batch.
  at::Tensor mean_over_captions(const at::Tensor& sum, const ProcessGroup& group) const;

  void save(torch::autograd::AutogradContext* ctx) const;
  static CaptionRelation saved(torch::autograd::AutogradContext* ctx);

 private:
  at::Tensor same(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) const;
};

/// The relation of all ranks' images and captions. Of this rank: present bool [B, K], and where duplicates are no negatives
/// image_group int64 [B] and caption_ids int64 [B, K], each undefined if nobody asked for it. Throws c10::Error naming
/// `objective` when they do not fit.
CaptionRelation caption_relation(const at::Tensor& present, const at::Tensor& image_group,
                                 const at::Tensor& caption_ids, const std::string& duplicates, const char* objective,
                                 const ProcessGroup& group);

}  // namespace tessera
