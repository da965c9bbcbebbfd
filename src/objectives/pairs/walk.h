#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>

#include "src/objectives/pairs/relation.h"
#include "src/ops/thread_pool.h"
#include <tessera/distributed/process_group.h>
#include <tessera/ops/numeric.h>

namespace tessera {

/// A part of a matrix. The whole matrix is never in memory.
struct Tile {
  std::int64_t row, rows, column, columns;
  std::int64_t worker;  // index of the worker that processes the tile; workers run at the same time

  at::Tensor rows_of(const at::Tensor& tensor) const { return tensor.narrow(0, row, rows); }
  /// `tensor` has one row for each column of the matrix. Returns the rows for the tile's columns.
  at::Tensor columns_of(const at::Tensor& tensor) const { return tensor.narrow(0, column, columns); }
  /// Returns this worker's part of a tensor [workers, width, ...] that accumulates values per column.
  at::Tensor part_of(const at::Tensor& tensor) const { return tensor.select(0, worker).narrow(0, 0, columns); }
  /// Returns the part of the whole matrix's diagonal that is inside this tile's `values` [rows, columns]; may be empty.
  at::Tensor diagonal_of(const at::Tensor& values) const {
    const std::int64_t offset = row - column;
    return offset < columns && -offset < rows ? values.diagonal(offset) : values.flatten().narrow(0, 0, 0);
  }
};

/// Iterates over a matrix [rows, columns] in tiles of `chunk` rows. On a CPU, a tile has as many columns as fit into the cache, and
/// each thread processes its own tiles, because operators on one tile are too small to parallelize. On other devices a tile has all
/// columns.
class Tiles {
 public:
  Tiles(std::int64_t rows, std::int64_t columns, std::int64_t chunk, bool cpu)
      : rows_(rows), columns_(columns), chunk_(chunk) {
    constexpr std::int64_t kElements = 1 << 18, kLeast = 256, kMost = 4096;
    width_ = cpu ? std::min(columns, std::clamp(kElements / chunk, kLeast, kMost)) : columns;
    const std::int64_t tiles = (rows + chunk - 1) / chunk;
    workers_ = cpu ? std::min<std::int64_t>(pool_threads(), tiles) : 1;
  }

  std::int64_t workers() const { return workers_; }
  std::int64_t width() const { return width_; }

  /// Calls body(tile) for all tiles, without recording gradients. The body may write only to rows_of() and part_of() of the tile. When all
  /// tiles of a block of columns are done, merge(column, count) must add up the parts of all workers.
  template <class Body, class Merge>
  void walk(Body&& body, Merge&& merge) const {
    for (std::int64_t column = 0; column < columns_; column += width_) {
      const std::int64_t count = std::min(width_, columns_ - column);
      const auto work = [&](int worker) {
        const at::NoGradGuard no_grad;  // grad mode is per thread
        const NoAutocast no_autocast;
        for (std::int64_t row = worker * chunk_; row < rows_; row += workers_ * chunk_)
          body(Tile{row, std::min(chunk_, rows_ - row), column, count, worker});
      };
      if (workers_ == 1)
        work(0);
      else
        run_on_pool(static_cast<int>(workers_), work);
      merge(column, count);
    }
  }

 private:
  std::int64_t rows_, columns_, chunk_, width_, workers_;
};

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
  /// Embeddings of the same images, [B, E], and texts, [B, K, E] or [C, K, E] as `texts`, from teachers, for losses with soft targets. They
  /// get no gradient. Undefined: none.
  at::Tensor taught_images{}, taught_texts{};

  bool gathered() const { return texts.size(0) != images.size(0); }
  /// Returns this rank's texts, [B, K, D].
  at::Tensor own_texts() const {
    return gathered() ? texts.narrow(0, group.rank() * images.size(0), images.size(0)) : texts;
  }
};

/// Numbers for the images of this rank, [B, G, n] with G = K or 1, and for its texts, [B, K, n]; undefined if there are none.
struct PairNumbers {
  at::Tensor images, texts;
};

/// A tile: some of this rank's images (rows), and for each of some images the text number `slot` (columns). A loss sees its logits from one
/// or two sides: side 0 is the loss of the images, side 1 that of the texts.
struct PairTile : Tile {
  std::int64_t slot;
  bool own;  // true: the texts are this rank's, so the diagonal of the whole matrix pairs images with their own texts
  at::Tensor images;             // [rows, D]
  at::Tensor texts;              // [columns, D]
  at::Tensor left_out, further;  // see PairRelation::Tile
  at::Tensor numbers[2];         // [rows, 1, n], [n, columns]
  at::Tensor sums[2];            // [rows, m], [columns, m]
  at::Tensor taught_images, taught_texts;  // [rows, E], [columns, E], the teachers' embeddings; undefined: none

  /// Returns a number of the given side, which broadcasts over the tile's logits [rows, columns].
  at::Tensor number(int side, std::int64_t index) const {
    return side == 0 ? numbers[0].select(2, index) : numbers[1].select(0, index);
  }
  /// Returns the entries of `values` [rows, columns] that pair images with their own texts; may be empty.
  at::Tensor own_of(const at::Tensor& values) const {
    return own ? diagonal_of(values) : values.flatten().narrow(0, 0, 0);
  }
};

/// Sums over the logits of each image and of each text. `total` starts at a neutral value, which `clear` writes; total.texts is
/// [C, K, m] if the sums are to stay on the rank that adds them. `merge` adds the sums of several workers, [workers, columns, m], to those
/// of texts, [columns, m].
struct PairSums {
  PairNumbers total;
  void (*merge)(const at::Tensor& total, const at::Tensor& parts);
  void (*clear)(const at::Tensor& sums);

  /// Returns plain sums, which start at 0.
  static PairSums plain(const PairNumbers& zeros) {
    return {zeros, [](const at::Tensor& total, const at::Tensor& parts) { total.add_(parts.sum(0)); },
            [](const at::Tensor& sums) { sums.zero_(); }};
  }
};

/// What the backward pass needs of a loss.
struct PairSlopes {
  PairNumbers numbers;
  /// Returns d loss / d logit of the logits [rows, columns] of one side, which it may overwrite.
  std::function<at::Tensor(const PairTile& tile, int side, const at::Tensor& logits)> of;
  at::Tensor own_pull;    // [B, K], subtracted from the derivatives of the images' own logits; may be undefined
  at::Tensor of_scale;    // the part of the gradient of `scale` that comes from own_pull; may be undefined
  at::Tensor of_further;  // the gradient of the loss's input `further`; may be undefined
};

/// Walks over the tiles of pairs: the one place that multiplies images with texts, passes texts around the ranks, and adds up gradients.
/// A side's logits are scale (1/temperature) times the cosines, plus a bias, which may be undefined. Number 0 of a side, if it has numbers,
/// is subtracted from the cosines first.
class PairWalk {
 public:
  PairWalk(PairSet pairs, at::Tensor scale, at::Tensor bias);

  std::int64_t batch() const { return pairs_.images.size(0); }
  std::int64_t workers() const { return tiles_.workers(); }
  const PairSet& pairs() const { return pairs_; }
  /// Returns the logits of cosines from which number 0 has been subtracted.
  at::Tensor logits_of(const at::Tensor& relative) const;

  using Visit = std::function<void(const PairTile& tile, int side, const at::Tensor& logits)>;
  /// Calls visit(tile, side, logits [rows, columns]) for the sides of each tile, on several threads; it may overwrite the logits. There are
  /// two sides if there are numbers, otherwise one. Adds to sums.total.images, and returns the complete sums of this rank's texts.
  at::Tensor visit(const PairNumbers& numbers, const PairSums& sums, const Visit& visit) const;

  struct Gradients {
    at::Tensor images, texts, scale, bias;
  };
  Gradients gradients(const PairSlopes& slopes) const;

 private:
  using OnTile = std::function<void(const PairTile& tile, const at::Tensor& cosines)>;
  at::Tensor walk(const PairNumbers& numbers, const PairSums& sums, const OnTile& on_tile) const;

  PairSet pairs_;
  at::Tensor scale_, bias_;
  Tiles tiles_;
};

/// A loss on pairs, for tiled_losses().
struct PairLoss : torch::CustomClassHolder {
  PairSet pairs;  // set by tiled_losses(), without the embeddings that get gradients
  bool float32_products = false;  // true: products are computed without TF32, whatever training.tf32 says

  /// Returns the losses, scalars, and keeps what slopes() needs.
  virtual std::vector<at::Tensor> losses(const PairWalk& walk, const std::optional<at::Tensor>& further) = 0;
  /// Returns what the backward pass needs, for the gradients of the losses.
  virtual PairSlopes slopes(const PairWalk& walk, const std::vector<at::Tensor>& gradients) const = 0;
};

/// Computes losses in tiles, with gradients of images, texts, scale, bias and `further`, another input of the loss; the last two may be
/// undefined. Second derivatives are not supported.
std::vector<at::Tensor> tiled_losses(c10::intrusive_ptr<PairLoss> loss, const PairSet& pairs, const at::Tensor& scale,
                                     const at::Tensor& bias = {}, const at::Tensor& further = {});

}  // namespace tessera
