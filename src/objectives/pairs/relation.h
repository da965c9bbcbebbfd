#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include <tessera/distributed/process_group.h>

namespace tessera {

/// For inspection. Returns the label of each pair of an image and a caption in the losses on several captions per image: 1 for a positive
/// pair, -1 for a negative pair, 0 if the caption is ignored because it is absent or a masked duplicate.
/// present      [B, K]    bool
/// image_ids    [B]       int64, equal for equal images; undefined if all images differ
/// caption_ids  [B, K]    int64, equal for equal captions; undefined if all captions differ
/// duplicates             "negative", "masked" or "positive"
/// returns      [B, B K]  int64, the captions of image j in columns j K, ..., j K + K - 1
at::Tensor caption_labels(const at::Tensor& present, const at::Tensor& image_ids, const at::Tensor& caption_ids,
                          const std::string& duplicates);

/// The relation R between the C images (rows) and the texts (columns) of the global batch, with K texts per image; for plain pairs, K is 1.
/// R is 1 for positives, -1 for negatives, 0 for ignored entries. A present text is a positive of its own image and a negative of all
/// others. Duplicates can instead be left out or count as positives. Absent texts and the rows of absent images are ignored. The rows can
/// also be other texts or crops instead of images.
struct PairRelation {
  enum class Duplicates { negative, masked, positive };

  at::Tensor present;       // bool [C, K], true for present texts
  at::Tensor rows_present;  // bool [C], true for present rows; undefined if all are present
  at::Tensor image_group;   // int64 [C], equal for equal images; undefined if all differ
  at::Tensor text_group;    // int64 [C, K], equal for equal texts; undefined if all differ
  at::Tensor own_group,
      own_present;  // text_group and present of the rows' own texts, of which the columns may be only the first
  Duplicates duplicates = Duplicates::negative;
  double smoothing =
      0;  // InfoNCE only, K = 1: a pair has the target 1 - smoothing; its negatives share the rest equally

  /// True if any text of the global batch is absent. Always true on a GPU for texts that may be absent, because the check would cost a
  /// synchronization.
  bool some_absent = false;

  /// Returns the relation of plain pairs, of which only those that are true in `present`, bool [C], are in the batch.
  static PairRelation of_pairs(const at::Tensor& present);

  /// The relation of `rows` rows and the texts number `slot` of `columns` images.
  struct Tile {
    /// bool [rows or 1, columns or 1], true for entries that losses ignore (R is 0); undefined if there are none.
    at::Tensor left_out;
    at::Tensor further;  // bool [rows, columns], true for other images' texts that are positives; undefined if there are none
  };
  /// The first row is image `row`, and the first column belongs to image `column`. Both numbers are positions in the global batch.
  Tile tile(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns, std::int64_t slot) const;
  /// Returns R itself for `rows` rows and all texts, int64 [rows, C, K].
  at::Tensor values(std::int64_t row, std::int64_t rows) const;

  /// Returns bool [C, K], true where a text and its row are both present.
  at::Tensor own_pairs() const;
  /// Returns this rank's part of own_pairs(), bool [B, K].
  at::Tensor own_pairs(const ProcessGroup& group) const;

  bool has_duplicates() const { return image_group.defined() || text_group.defined(); }
  bool has_further() const { return duplicates == Duplicates::positive && has_duplicates(); }
  std::int64_t images() const { return present.size(0); }
  std::int64_t texts() const { return present.size(1); }

  /// Turns a sum over this rank's pairs, to which absent pairs contribute 0, into a mean over the true entries of own_pairs(). With several
  /// ranks it divides by their mean number per rank, so that the mean of the results over ranks is the mean over the global batch.
  at::Tensor mean_of(const at::Tensor& sum, const ProcessGroup& group) const;
};

/// Returns the number that `name` (negative, masked or positive) stands for.
PairRelation::Duplicates duplicates_named(const std::string& name);

/// Gathers the groups of all ranks' images, int64 [B], and texts, int64 [B] or [B, K], into a relation whose `present` is set. Both may
/// be undefined; they are not used if duplicates are negatives. Groups that all differ are dropped, except on a GPU, where the check
/// would cost more than it saves. Throws c10::Error naming `objective` if a shape or type is wrong.
void add_duplicates(PairRelation& relation, PairRelation::Duplicates duplicates, const at::Tensor& image_group,
                    const at::Tensor& text_group, const char* objective, const ProcessGroup& group);

}  // namespace tessera
