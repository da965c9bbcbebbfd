#include <algorithm>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "src/base/dump_utf8.h"
#include "src/distributed/agreement.h"
#include "src/evaluation/rank_images.h"
#include <tessera/base/error.h>

namespace tessera {

std::vector<std::int64_t> RankImages::share_of(const std::vector<std::int64_t>& indices, int rank) const {
  const std::int64_t count = std::ssize(indices), each = (count + group_.size() - 1) / group_.size();
  const std::int64_t begin = std::min(rank * each, count), end = std::min(begin + each, count);
  return {indices.begin() + begin, indices.begin() + end};
}

std::vector<BadImage> RankImages::read(const std::shared_ptr<const Source>& source, const std::string& name,
                                       const Preprocessing& preprocessing, const std::vector<std::int64_t>& now,
                                       const std::vector<std::int64_t>& next) {
  preprocessing_ = preprocessing;
  indices_ = now;
  pixels_.clear();
  std::vector<BadImage> bad;
  run_on_all_ranks(group_, "reading images", [&] {
    const auto begin = [&](const std::vector<std::int64_t>& batch) {
      return std::make_unique<ImageShare>(source, preprocessing, share_of(batch, group_.rank()), threads_);
    };
    std::unique_ptr<ImageShare> share = std::move(ahead_);
    if (share == nullptr || ahead_name_ != name || share->indices() != share_of(now, group_.rank())) share = begin(now);
    const std::vector<ImageShare::Image> images = share->take();
    ahead_ = begin(next);
    ahead_name_ = name;
    for (std::size_t i = 0; i < images.size(); ++i) {
      pixels_.push_back(images[i].pixels);
      if (!images[i].pixels.defined()) bad.push_back({share->indices()[i], images[i].bad_reason, images[i].text});
    }
  });
  return gather(std::move(bad));
}

std::vector<BadImage> RankImages::gather(std::vector<BadImage> own) const {
  const at::Tensor counts = group_.all_gather(at::full({1}, std::ssize(own), at::kLong));
  std::vector<BadImage> all;
  for (int rank = 0; rank < group_.size(); ++rank) {
    if (counts[rank].item<std::int64_t>() == 0) continue;
    auto list = nlohmann::json::array();
    if (rank == group_.rank())
      for (const BadImage& each : own) list.push_back({each.index, each.reason, each.text});
    for (const auto& each : nlohmann::json::parse(group_.broadcast_text(dump_utf8(list), rank)))
      all.push_back({each.at(0), each.at(1), each.at(2)});
  }
  return all;
}

RankImages::Part RankImages::part_of(const std::vector<std::int64_t>& indices) const {
  std::vector<std::vector<std::size_t>> wanted(static_cast<std::size_t>(group_.size()));  // for each rank, positions in `indices`
  for (int rank = 0; rank < group_.size(); ++rank) {
    const std::vector<std::int64_t> share = share_of(indices_, rank);
    for (std::size_t i = 0; i < indices.size(); ++i)
      if (std::ranges::binary_search(share, indices[i])) wanted[static_cast<std::size_t>(rank)].push_back(i);
  }
  const std::size_t most = std::ranges::max_element(wanted, {}, [](const auto& list) { return list.size(); })->size();
  std::vector<std::int64_t> rows(indices.size());
  for (std::size_t rank = 0; rank < wanted.size(); ++rank)
    for (std::size_t i = 0; i < wanted[rank].size(); ++i) rows[wanted[rank][i]] = static_cast<std::int64_t>(rank * most + i);
  Part part{.pixels = {}, .rows = at::tensor(rows, at::kLong)};
  const std::vector<std::int64_t> own = share_of(indices_, group_.rank());
  for (const std::size_t i : wanted[static_cast<std::size_t>(group_.rank())]) {
    const auto at = std::ranges::lower_bound(own, indices[i]) - own.begin();
    part.pixels.push_back(pixels_[static_cast<std::size_t>(at)]);
  }
  // Every rank embeds equally many images, as all_gather() requires.
  const auto size = preprocessing_.image_size;
  if (part.pixels.empty()) part.pixels.push_back(at::zeros({3, size.height, size.width}, at::kByte));
  part.pixels.resize(most, part.pixels.back());
  return part;
}

}  // namespace tessera
