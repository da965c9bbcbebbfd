#include <algorithm>
#include <set>

#include <ATen/ATen.h>

#include "src/base/dump_utf8.h"
#include "src/evaluation/metrics/cosine.h"
#include "src/evaluation/metrics/pairs.h"
#include "src/evaluation/tasks/results.h"
#include "src/report/cards.h"
#include <tessera/base/text.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

at::Tensor filled_in(const at::Tensor& rows, const at::Tensor& otherwise) {
  const at::Tensor out = rows.defined() ? rows.to(at::kCPU, otherwise.scalar_type()).contiguous() : otherwise;
  TORCH_CHECK(out.dim() == 1 && out.numel() == otherwise.numel(), "outcomes must have the same length, got ", out.sizes(),
              " and ", otherwise.sizes());
  return out;
}

}  // namespace

report::Outcomes make_outcomes(const std::string& metric, const OutcomeRows& rows) {
  const at::Tensor part = rows.part.to(at::kCPU, at::kDouble).contiguous();
  const std::int64_t count = part.numel();
  const at::Tensor whole = filled_in(rows.whole, at::ones({count}, at::kDouble));
  const at::Tensor sample = filled_in(rows.sample, at::arange(count, at::kLong));
  const at::Tensor group = filled_in(rows.group, at::zeros({count}, at::kLong));
  report::Outcomes out{metric, {}};
  out.entries.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i)
    out.entries.push_back({sample.const_data_ptr<std::int64_t>()[i], part.const_data_ptr<double>()[i],
                           whole.const_data_ptr<double>()[i], group.const_data_ptr<std::int64_t>()[i]});
  return out;
}

report::Outcomes hits_within(const std::string& metric, const at::Tensor& ranks, std::int64_t k, const at::Tensor& sample,
                             const at::Tensor& group) {
  const at::Tensor rows = ranks.ge(0).nonzero().squeeze(1);
  const auto of_rows = [&](const at::Tensor& tensor) { return tensor.defined() ? tensor.index_select(0, rows) : tensor; };
  return make_outcomes(metric, {.part = ranks.index_select(0, rows).lt(k),
                                .sample = sample.defined() ? of_rows(sample) : rows,
                                .group = of_rows(group)});
}

void add_share(const std::string& metric, double value, const OutcomeRows& rows, TaskResult& result, MetricRule::Better better) {
  result.add_share(metric, value, better);
  result.outcomes.push_back(make_outcomes(metric, rows));
}

void add_hits(const std::string& name, const std::vector<std::int64_t>& topk, const at::Tensor& ranks, TaskResult& result,
              std::int64_t candidates, const at::Tensor& sample) {
  const std::vector<double> shares = metrics::recall_at(ranks, topk);
  for (std::size_t i = 0; i < topk.size(); ++i) {
    const std::string metric = concat(name, topk[i]);
    result.add_share(metric, shares[i]);
    if (candidates > 0) result.chance[metric] = std::min(1.0, static_cast<double>(topk[i]) / static_cast<double>(candidates));
    result.outcomes.push_back(hits_within(metric, ranks, topk[i], sample));
  }
}

ItemKinds::ItemKinds(const std::vector<std::string>& of_items) {
  const std::set<std::string> sorted(of_items.begin(), of_items.end());
  names.assign(sorted.begin(), sorted.end());
  std::vector<std::int64_t> numbers;
  for (const std::string& kind : of_items) numbers.push_back(std::ranges::lower_bound(names, kind) - names.begin());
  of = at::tensor(numbers, at::kLong);
}

at::Tensor add_by_kind(const std::string& measure, const at::Tensor& right, const at::Tensor& sample, const ItemKinds& kinds,
                       TaskResult& result) {
  const auto scores = metrics::category_accuracy(right, kinds.of, std::ssize(kinds.names));
  add_share(measure, scores.accuracy, {.part = right, .sample = sample}, result);
  add_share("mean_category_" + measure, scores.mean_category_accuracy, {.part = right, .sample = sample, .group = kinds.of}, result);
  for (std::size_t k = 0; k < kinds.names.size(); ++k) {
    const auto kind = static_cast<std::int64_t>(k);
    const at::Tensor own = kinds.of.eq(kind);
    add_share(kinds.names[k] + "_" + measure, scores.category_accuracy[kind].item<double>(),
              {.part = right.masked_select(own), .sample = sample.masked_select(own)}, result);
  }
  return scores.category_accuracy;
}

void add_sparsity(TaskResult& result, const metrics::SparsityMeter& images, const metrics::SparsityMeter& texts) {
  for (const auto& [kind, meter] : {std::pair("image", &images), std::pair("text", &texts)}) {
    if (meter->rows() == 0) continue;
    result.add_number(concat("active_tokens_per_", kind), meter->mean_active());
    result.add_number(concat("dead_", kind, "_tokens"), static_cast<double>(meter->dead_columns()));
  }
}

void add_items(nlohmann::json card, const nlohmann::json& items, TaskResult& result) {
  if (items.empty()) return;
  card["items"] = items;
  result.add_card(card);
}

void add_bars(const std::string& title, const std::vector<std::string>& names, const at::Tensor& shares, TaskResult& result) {
  std::vector<std::pair<std::string, double>> bars;
  for (std::size_t i = 0; i < names.size(); ++i)
    if (const double share = shares[static_cast<std::int64_t>(i)].item<double>(); share >= 0) bars.emplace_back(names[i], share);
  if (!bars.empty()) result.add_card(report::bars_card(title, bars));
}

void write_json(const std::string& folder, const std::string& name, const nlohmann::json& json) {
  if (!folder.empty()) io::write_file(folder + "/" + name, dump_utf8(json, 1) + "\n");
}

Image to_image(const at::Tensor& pixels) {
  const at::Tensor rows = pixels.permute({1, 2, 0}).contiguous();
  const auto* data = rows.const_data_ptr<std::uint8_t>();
  return {rows.size(0), rows.size(1), {data, data + rows.numel()}};
}

}  // namespace tessera
