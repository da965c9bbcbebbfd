#include <algorithm>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "src/base/dump_utf8.h"
#include "src/distributed/agreement.h"
#include "src/evaluation/rank_images.h"
#include <tessera/base/error.h>

namespace tessera {

std::vector<std::int64_t> RankImages::share_of(const std::vector<std::int64_t>& indices, int rank) const {
  const std::int64_t count = std::ssize(indices), each = share_size(count);
  const std::int64_t begin = std::min(rank * each, count), end = std::min(begin + each, count);
  return {indices.begin() + begin, indices.begin() + end};
}

std::vector<ImageShare::Image> RankImages::read(const std::shared_ptr<const Source>& source, const std::string& name,
                                                const Preprocessing& preprocessing, const std::vector<std::int64_t>& now,
                                                const std::vector<std::int64_t>& next, bool collect) {
  preprocessing_ = preprocessing;
  indices_ = now;
  own_.clear();
  run_on_all_ranks(group_, "reading images", [&] {
    const auto begin = [&](const std::vector<std::int64_t>& batch) {
      return std::make_unique<ImageShare>(source, preprocessing, share_of(batch, group_.rank()), threads_);
    };
    std::unique_ptr<ImageShare> share = std::move(ahead_);
    if (share == nullptr || ahead_name_ != name || share->indices() != share_of(now, group_.rank())) share = begin(now);
    own_ = share->take();
    ahead_ = begin(next);
    ahead_name_ = name;
  });
  std::vector<ImageShare::Image> all(now.size());
  gather_errors(all);
  if (collect && !now.empty()) gather_content(all);
  return all;
}

void RankImages::gather_errors(std::vector<ImageShare::Image>& all) const {
  auto own = nlohmann::json::array();
  const std::int64_t first = group_.rank() * share_size(std::ssize(all));
  for (std::size_t i = 0; i < own_.size(); ++i)
    if (!own_[i].bad_reason.empty()) own.push_back({first + static_cast<std::int64_t>(i), own_[i].bad_reason, own_[i].text});
  const at::Tensor counts = group_.all_gather(at::full({1}, std::ssize(own), at::kLong));
  for (int rank = 0; rank < group_.size(); ++rank) {
    if (counts[rank].item<std::int64_t>() == 0) continue;
    for (const auto& each : nlohmann::json::parse(group_.broadcast_text(dump_utf8(own), rank))) {
      ImageShare::Image& image = all.at(each.at(0).get<std::size_t>());
      each.at(1).get_to(image.bad_reason);
      each.at(2).get_to(image.text);
    }
  }
}

void RankImages::gather_content(std::vector<ImageShare::Image>& all) const {
  const std::int64_t each = share_size(std::ssize(all));
  at::Tensor sizes = at::zeros({each, 3}, at::kLong);  // bytes of pixels, mask and depths
  for (std::size_t i = 0; i < own_.size(); ++i) {
    auto* const of = sizes.data_ptr<std::int64_t>() + 3 * i;
    of[0] = own_[i].pixels.defined() ? own_[i].pixels.numel() : 0;
    of[1] = std::ssize(own_[i].mask);
    of[2] = std::ssize(own_[i].depth) * static_cast<std::int64_t>(sizeof(float));
  }
  sizes = group_.all_gather(sizes);  // row i is that of indices_[i], because only the last shares are smaller
  const at::Tensor own = at::empty({sizes.sum(1).view({group_.size(), each}).sum(1).max().item<std::int64_t>()}, at::kByte);
  if (own.numel() == 0) return;
  auto* to = own.data_ptr<std::uint8_t>();
  const auto put = [&](const void* from, std::size_t bytes) { to = std::copy_n(static_cast<const std::uint8_t*>(from), bytes, to); };
  for (const ImageShare::Image& image : own_) {
    if (image.pixels.defined()) put(image.pixels.const_data_ptr(), static_cast<std::size_t>(image.pixels.numel()));
    put(image.mask.data(), image.mask.size());
    put(image.depth.data(), image.depth.size() * sizeof(float));
  }
  const std::vector<at::Tensor> sent = gather_on_rank0(group_, own);
  if (sent.empty()) return;
  const auto* of = sizes.const_data_ptr<std::int64_t>();
  const std::uint8_t* from = nullptr;
  for (std::size_t i = 0; i < all.size(); ++i, of += 3) {
    if (i % static_cast<std::size_t>(each) == 0) from = sent[i / static_cast<std::size_t>(each)].const_data_ptr<std::uint8_t>();
    if (of[0] > 0) {
      all[i].pixels = at::empty({3, preprocessing_.image_size.height, preprocessing_.image_size.width}, at::kByte);
      std::copy_n(from, of[0], all[i].pixels.data_ptr<std::uint8_t>());
    }
    from += of[0];
    all[i].mask.assign(from, from + of[1]);
    from += of[1];
    all[i].depth.resize(static_cast<std::size_t>(of[2]) / sizeof(float));
    std::copy_n(from, of[2], reinterpret_cast<std::uint8_t*>(all[i].depth.data()));
    from += of[2];
  }
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
    part.pixels.push_back(own_[static_cast<std::size_t>(at)].pixels);
  }
  // Every rank embeds equally many images, as all_gather() requires.
  const auto size = preprocessing_.image_size;
  if (part.pixels.empty()) part.pixels.push_back(at::zeros({3, size.height, size.width}, at::kByte));
  part.pixels.resize(most, part.pixels.back());
  return part;
}

}  // namespace tessera
