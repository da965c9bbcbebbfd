#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include <tessera/distributed/process_group.h>

namespace torch::autograd {
struct AutogradContext;
}

namespace tessera {

/// The relation R between the images (rows) and the captions of the global batch: 1 for positives, -1 for negatives, 0 for ignored pairs. A
/// present caption is a positive of its own image and a negative of all others. Duplicates can instead be left out or count as positives.
/// Absent captions are ignored. The rows can also be texts instead of images; the rows of absent texts are ignored, too.
struct CaptionRelation {
  enum class Duplicates { negative, masked, positive };

  at::Tensor present;      // bool [C, K], true for present captions
  at::Tensor rows_present;  // bool [C], true for present rows; undefined if all are present
  at::Tensor image_group;  // int64 [C], equal for equal images; undefined if all differ
  at::Tensor caption_ids;  // int64 [C, K], equal for equal captions; undefined if all differ
  at::Tensor own_ids, own_present;  // caption_ids and present of the rows' own captions, of which the columns may be only the first
  Duplicates duplicates = Duplicates::negative;

  /// True if any caption of the global batch is absent. Always true on a GPU, because the check would cost a synchronization.
  bool some_absent = false;

  /// A tile of the relation. Its first row is image `row`, and its first column holds the K captions of image `column`. Both numbers are
  /// positions in the global batch.
  struct Tile {
    at::Tensor left_out;  // bool [rows, columns, K], true for pairs that the losses ignore (R is 0); undefined if there are none
    at::Tensor further;   // bool [rows, columns, K], true for other images' captions that are positives; undefined if there are none
  };
  Tile tile(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) const;
  /// Returns R itself, int64 [rows, columns, K].
  at::Tensor values(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) const;
  /// Returns the entries of a tile's `values` [rows, columns, K] that pair images with their own captions. The result [n, K] is empty if
  /// the tile has no such pairs.
  static at::Tensor own_of(const at::Tensor& values, std::int64_t row, std::int64_t column);

  /// Returns bool [C, K], true where a caption and its image are both present.
  at::Tensor own_pairs() const;

  bool has_duplicates() const { return image_group.defined() || caption_ids.defined(); }
  std::int64_t images() const { return present.size(0); }
  std::int64_t captions() const { return present.size(1); }

  /// Scales this rank's sum such that the mean of the results over ranks is (sum over all ranks) / (number of true entries in own_pairs()).
  at::Tensor mean_over_captions(const at::Tensor& sum, const ProcessGroup& group) const;

  void save(torch::autograd::AutogradContext* ctx) const;
  static CaptionRelation saved(torch::autograd::AutogradContext* ctx);

 private:
  at::Tensor same(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) const;
};

/// Returns the relation of all ranks' images and captions. The arguments describe this rank's images and captions. present is bool [B, K].
/// image_group, int64 [B], and caption_ids, int64 [B, K], may be undefined; they are not used if duplicates are negatives. Throws
/// c10::Error naming `objective` if shapes or types are wrong.
CaptionRelation caption_relation(const at::Tensor& present, const at::Tensor& image_group,
                                 const at::Tensor& caption_ids, const std::string& duplicates, const char* objective,
                                 const ProcessGroup& group);

}  // namespace tessera
