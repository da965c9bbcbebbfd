#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "src/data/loading/evaluation_reader.h"
#include <tessera/distributed/process_group.h>
#include <tessera/preprocessing.h>

namespace tessera {

/// A rank's share of the images of an evaluation batch. Every rank reads and decodes its part of the batch, and in the background of the next
/// one. All methods are collective, and all ranks must pass the same indices.
class RankImages {
 public:
  RankImages(ProcessGroup group, std::int64_t threads) : group_(std::move(group)), threads_(threads) {}

  /// Reads the images of the samples `now`, ascending, and begins to read those of `next`. `name` identifies the source. Returns an entry
  /// for each of `now`, which says whether the image is bad; with `collect`, the entries of rank 0 also have pixels, masks and depths.
  /// Throws UserError if a rank cannot read the source.
  std::vector<ImageShare::Image> read(const std::shared_ptr<const Source>& source, const std::string& name,
                                      const Preprocessing& preprocessing, const std::vector<std::int64_t>& now,
                                      const std::vector<std::int64_t>& next, bool collect);

  /// The part of some images that a rank embeds. All ranks embed equally many.
  struct Part {
    std::vector<at::Tensor> pixels;  // uint8 [3, h, w]
    at::Tensor rows;                 // int64 [N]: for each of the images, its row when the parts of all ranks stand one after the other
  };
  /// Returns this rank's part of the images of samples that read() returned as good. indices: any order.
  Part part_of(const std::vector<std::int64_t>& indices) const;

 private:
  /// Returns the part of the indices that a rank reads.
  std::vector<std::int64_t> share_of(const std::vector<std::int64_t>& indices, int rank) const;
  /// Returns how many indices that is, except for the last ranks, which read fewer.
  std::int64_t share_size(std::int64_t count) const { return (count + group_.size() - 1) / group_.size(); }
  void gather_errors(std::vector<ImageShare::Image>& all) const;
  void gather_content(std::vector<ImageShare::Image>& all) const;

  ProcessGroup group_;
  std::int64_t threads_;
  Preprocessing preprocessing_;
  std::vector<std::int64_t> indices_;  // of the batch that was read
  std::vector<ImageShare::Image> own_;  // this rank's share of them
  std::string ahead_name_;             // the source that ahead_ reads
  std::unique_ptr<ImageShare> ahead_;  // this rank's share of the next batch
};

}  // namespace tessera
