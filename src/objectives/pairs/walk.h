#pragma once

#include <functional>
#include <optional>

#include <ATen/core/Tensor.h>

#include "src/objectives/pairs/relation.h"
#include "src/objectives/pairs/tiles.h"
#include <tessera/distributed/process_group.h>

namespace tessera {

/// Images, and K texts for each image. A loss is computed on the cosines [C, C, K] of all ranks' C images and texts, of which only a few
/// tiles are in memory at a time, forward and backward, so memory grows with B D and B K D, never with B C K.
struct PairSet {
  at::Tensor images;  // [B, D], this rank's, of unit length (or 0)
  /// Of unit length, and 0 where absent: [B, K, D], this rank's texts, which travel around the ranks; or [C, K, D], the texts of all ranks
  /// (from gather_rows), of which nothing but a few numbers per text travels.
  at::Tensor texts;
  PairRelation relation;
  std::optional<std::int64_t> chunk;  // images per tile; null: a number that suits the device
  ProcessGroup group;

  bool gathered() const { return texts.size(0) != images.size(0); }
  /// Returns this rank's texts, [B, K, D].
  at::Tensor own_texts() const {
    return gathered() ? texts.narrow(0, group.rank() * images.size(0), images.size(0)) : texts;
  }
};

/// A tile: some of this rank's images (rows), and for each of some images the text number `slot` (columns).
struct PairTile : Tile {
  std::int64_t slot;
  bool own;               // true: the texts are this rank's, so the diagonal of the whole matrix pairs images with their own texts
  at::Tensor images;      // [rows, D]
  at::Tensor texts;       // [columns, D]
  at::Tensor numbers;     // [columns, n], see PairWalk::visit
  at::Tensor sums;        // [columns, m], this worker's sums per text
  at::Tensor left_out, further;  // see PairRelation::Tile

  at::Tensor number(std::int64_t index) const { return numbers.select(1, index).contiguous(); }
  /// Returns this tile's part of a number per row and slot [B, K], or per row [B, 1], as [rows, 1].
  at::Tensor of_rows(const at::Tensor& values) const {
    return rows_of(values).narrow(1, values.size(1) == 1 ? 0 : slot, 1);
  }
  /// Returns the entries of `values` [rows, columns] that pair images with their own texts; may be empty.
  at::Tensor own_of(const at::Tensor& values) const {
    return own ? diagonal_of(values) : values.flatten().narrow(0, 0, 0);
  }
};

/// Sums per text that all images contribute to: `total` [.., K, m] starts at a neutral value, which `clear` writes, and `merge` adds the sums
/// `parts` [workers, columns, m] of several workers to `total` [columns, m].
struct TextSums {
  at::Tensor total;
  void (*merge)(const at::Tensor& total, const at::Tensor& parts);
  void (*clear)(const at::Tensor& sums);

  /// Returns plain sums, which start at 0.
  static TextSums plain(const at::Tensor& zeros) {
    return {zeros, [](const at::Tensor& total, const at::Tensor& parts) { total.add_(parts.sum(0)); },
            [](const at::Tensor& sums) { sums.zero_(); }};
  }
};

/// Walks over the tiles of pairs: the one place that multiplies images with texts, passes texts around the ranks, and adds up gradients. A
/// loss gives a value (visit) and its derivative (gradients) for the logits of one tile.
class PairWalk {
 public:
  /// The logits are scale (1/temperature) times the cosines, plus `bias`, which may be undefined.
  PairWalk(PairSet pairs, at::Tensor scale, at::Tensor bias);

  std::int64_t batch() const { return pairs_.images.size(0); }
  std::int64_t workers() const { return tiles_.workers(); }
  /// Returns the cosines of this rank's images with their own texts, [B, K].
  at::Tensor own_cosines() const;
  /// Returns the logits of cosines, which it overwrites.
  at::Tensor logits(const at::Tensor& cosines) const;

  using Visit = std::function<void(const PairTile& tile, const at::Tensor& cosines)>;
  /// Calls visit(tile, cosines [rows, columns]) once for each tile, on several threads; it may overwrite the cosines. `numbers` [B, K, n], n
  /// numbers for each of this rank's texts, arrive with the texts. Returns the complete sums of this rank's texts. `numbers` and
  /// `sums.total` may be undefined. If sums.total is [C, K, m], the sums stay on the rank that adds them.
  at::Tensor visit(const at::Tensor& numbers, const TextSums& sums, const Visit& visit) const;

  /// A loss sees the logits from one or two sides, each relative to other numbers. Below, side 0 is the loss of images, and side 1 that of
  /// texts, whose part of the gradient of `scale` goes home with the texts.
  struct Slopes {
    std::int64_t sides;
    /// Returns what is subtracted from a tile's cosines, [rows, 1] or [columns]; undefined: nothing.
    std::function<at::Tensor(std::int64_t side, const PairTile& tile)> origin;
    /// Returns d loss / d logit of a tile's logits [rows, columns], which it may overwrite.
    std::function<at::Tensor(std::int64_t side, const PairTile& tile, const at::Tensor& logits)> of;
    /// [B, K], subtracted from the derivatives of the images' own logits, but not counted in the gradient of `scale`; may be undefined.
    at::Tensor own_pull;
  };
  struct Gradients {
    at::Tensor images, texts, scale, bias;
  };
  /// Returns the gradients of a loss. `numbers` are those of visit().
  Gradients gradients(const at::Tensor& numbers, const Slopes& slopes) const;

 private:
  PairSet pairs_;
  at::Tensor scale_, bias_;
  Tiles tiles_;
};

}  // namespace tessera
