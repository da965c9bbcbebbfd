#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include <tessera/distributed/process_group.h>

namespace torch::autograd {
struct AutogradContext;
}

namespace tessera {

/// The relation R of the captions of the global batch to its images: 1 positive, -1 negative, 0 ignored. A present caption is a
/// positive of its own image and a negative of the others, except duplicates, which may be left out or be positives too. Absent
/// captions are ignored, and so are absent rows (rows can be texts in place of images, and texts may be absent).
struct CaptionRelation {
  enum class Duplicates { negative, masked, positive };

  at::Tensor present;      // bool [C, K]
  at::Tensor rows_present;  // bool [C], rows that are present; undefined: all
  at::Tensor image_group;  // int64 [C], equal for equal images; undefined: all differ
  at::Tensor caption_ids;  // int64 [C, K], equal for equal captions; undefined: all differ
  Duplicates duplicates = Duplicates::negative;

  /// True if any caption of the global batch is absent. Always true on a GPU, where the check would cost a synchronization.
  bool some_absent = false;

  /// The relation of images row, row + 1, ... to the captions of images column, column + 1, ... of the global batch.
  struct Tile {
    at::Tensor left_out;  // bool [rows, columns, K], ignored (R = 0); undefined: none
    at::Tensor further;   // bool [rows, columns, K], positives that are other images' captions; undefined: none
  };
  Tile tile(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) const;
  /// Returns R itself, int64 [rows, columns, K].
  at::Tensor values(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) const;
  /// Returns the entries [n, K] of a tile's values [rows, columns, K] for images with their own captions; may be empty.
  static at::Tensor own_of(const at::Tensor& values, std::int64_t row, std::int64_t column);

  /// Returns which captions are present together with their image: bool [C, K].
  at::Tensor own_pairs() const;

  bool has_duplicates() const { return image_group.defined() || caption_ids.defined(); }
  std::int64_t images() const { return present.size(0); }
  std::int64_t captions() const { return present.size(1); }

  /// Scales this rank's sum so that the mean over ranks is the sum over all ranks divided by the number of own_pairs().
  at::Tensor mean_over_captions(const at::Tensor& sum, const ProcessGroup& group) const;

  void save(torch::autograd::AutogradContext* ctx) const;
  static CaptionRelation saved(torch::autograd::AutogradContext* ctx);

 private:
  at::Tensor same(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) const;
};

/// Returns the relation of all ranks' images and captions. Inputs of this rank: present bool [B, K], and, unless duplicates are
/// negatives, image_group int64 [B] and caption_ids int64 [B, K], each undefined if unknown. Throws c10::Error naming `objective`
/// if shapes or types are wrong.
CaptionRelation caption_relation(const at::Tensor& present, const at::Tensor& image_group,
                                 const at::Tensor& caption_ids, const std::string& duplicates, const char* objective,
                                 const ProcessGroup& group);

}  // namespace tessera
