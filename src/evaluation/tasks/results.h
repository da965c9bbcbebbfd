#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "src/evaluation/metrics/sparse.h"
#include "src/report/cards.h"
#include <tessera/report/bootstrap.h>
#include <tessera/report/task_result.h>

/// What tasks add to their results: numbers with the samples' outcomes, and the cards of the report.
namespace tessera {

/// The entries of report::Outcomes as tensors [E]. If a tensor is undefined, its entries have the default in the tensor's comment.
struct OutcomeRows {
  at::Tensor part;         // double; or bool, true for hits
  at::Tensor whole = {};   // double; undefined: each entry is 1
  at::Tensor sample = {};  // int64, index of each entry's sample; undefined: 0, 1, 2, ...
  at::Tensor group = {};   // int64; undefined: each entry is 0
};

report::Outcomes make_outcomes(const std::string& metric, const OutcomeRows& rows);

/// Returns the outcomes of recall or accuracy at k. ranks: int64 [E], counted from 0; a rank below k is a hit, and entries with -1
/// are left out. `sample` and `group` are as in OutcomeRows.
report::Outcomes hits_within(const std::string& metric, const at::Tensor& ranks, std::int64_t k,
                             const at::Tensor& sample = {}, const at::Tensor& group = {});

/// Adds a share with its outcomes.
void add_share(const std::string& metric, double value, const OutcomeRows& rows, TaskResult& result,
               MetricRule::Better better = MetricRule::Better::higher);

/// For each k in `topk`, adds the share of ranks below k (metrics::recall_at) with its outcomes, as the metric `name` followed by k. Also
/// adds the share of a model that guesses, if `candidates`, the number of items that are ranked, is not 0.
void add_hits(const std::string& name, const std::vector<std::int64_t>& topk, const at::Tensor& ranks, TaskResult& result,
              std::int64_t candidates = 0, const at::Tensor& sample = {});

/// The kinds of items, such as pairs of captions: the names in alphabetical order, and the kind of each item as an index.
struct ItemKinds {
  std::vector<std::string> names;
  at::Tensor of;  // [items] int64

  explicit ItemKinds(const std::vector<std::string>& of_items);
};

/// Adds the share of items that are right as the metric `measure`, the mean over the kinds as mean_category_MEASURE, and the share of each
/// kind as KIND_MEASURE. Returns the shares of the kinds, double [kinds]. right: bool [items]. `sample` is int64 [items], the image that
/// each item belongs to, because items of the same image are not independent.
at::Tensor add_by_kind(const std::string& measure, const at::Tensor& right, const at::Tensor& sample, const ItemKinds& kinds,
                       TaskResult& result);

/// Adds the mean number of active tokens per image and per text, and the numbers of tokens that are not active in any image or in
/// any text. Adds nothing for a meter without rows.
void add_sparsity(TaskResult& result, const metrics::SparsityMeter& images, const metrics::SparsityMeter& texts);

/// Adds a card (src/report/cards.h) that shows `items`, unless there are none. `card` has the other members of the card.
void add_items(nlohmann::json card, const nlohmann::json& items, TaskResult& result);

/// Adds a card with a bar for each name whose share is present (not below 0), unless there are none. shares: double [names].
void add_bars(const std::string& title, const std::vector<std::string>& names, const at::Tensor& shares, TaskResult& result);

/// Writes a file beside the results; does nothing if tasks write no files (`folder` is empty).
void write_json(const std::string& folder, const std::string& name, const nlohmann::json& json);

/// Adds make(), with this score, to `best` if it is among the `most` items with the greatest scores so far. The greatest comes first; at
/// ties, the earlier item does.
template <class Item, class Make>
void offer(std::vector<Item>& best, double score, std::int64_t most, const Make& make) {
  const auto place = std::upper_bound(best.begin(), best.end(), score, [](double value, const Item& item) { return value > item.score; });
  if (place == best.end() && std::ssize(best) == most) return;
  best.insert(place, make())->score = score;
  if (std::ssize(best) > most) best.pop_back();
}

/// Number of images that a task shows in the report.
inline constexpr std::int64_t kExampleImages = 12;

/// Chooses which samples of a pass the report shows: at most `wanted` samples, evenly spread. If a sample is skipped, the next sample
/// takes its place.
class ExampleChooser {
 public:
  ExampleChooser(std::int64_t total, std::int64_t wanted = kExampleImages) : total_(total), wanted_(wanted) {}
  /// Returns true if the sample is chosen. Must be called once per sample, in ascending order of `index`.
  bool choose(std::int64_t index) {
    if (chosen_ == wanted_ || index < chosen_ * total_ / wanted_) return false;
    ++chosen_;
    return true;
  }

 private:
  std::int64_t total_, wanted_;
  std::int64_t chosen_ = 0;
};

/// Converts pixels, uint8 [3, H, W], to an Image.
Image to_image(const at::Tensor& pixels);

}  // namespace tessera
