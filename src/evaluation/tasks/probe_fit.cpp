#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include <ATen/ATen.h>

#include "src/evaluation/tasks/probe_fit.h"
#include <tessera/base/error.h>
#include <tessera/base/random.h>

namespace tessera {
namespace {

std::optional<config::Problem> check_adamw_probe(const LinearProbeSettings& settings) {
  if (!settings.shots.empty()) return config::Problem{"shots", "belong to solver: lbfgs; leave them out with adamw"};
  if (settings.l2) return config::Problem{"l2", "belongs to solver: lbfgs; with adamw set weight_decays"};
  for (const auto& [key, list] : {std::pair("learning_rates", settings.learning_rates), {"weight_decays", settings.weight_decays}})
    if (list.empty()) return config::Problem{key, "is empty: give at least one"};
  if (settings.validation_share == 0 && settings.learning_rates.size() * settings.weight_decays.size() > 1)
    return config::Problem{"validation_share",
                           "is 0, but the sweep over learning_rates and weight_decays needs held-out samples: give one of "
                           "each, or a share above 0"};
  return std::nullopt;
}

std::vector<std::int64_t> shuffled(std::int64_t count, std::uint64_t seed) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  Random(seed, Purpose::shuffle).shuffle(order);
  return order;
}

LabeledFeatures select_rows(const LabeledFeatures& all, const std::vector<std::int64_t>& rows) {
  const at::Tensor index = at::tensor(rows, at::kLong);
  return {all.features.index_select(0, index), all.labels.index_select(0, index)};
}

/// Returns the rows of each step's batch, [steps, batch]. Each epoch is shuffled separately, and its incomplete last batch is
/// dropped.
at::Tensor draw_batches(std::int64_t count, std::int64_t epochs, std::int64_t batch) {
  batch = std::min(batch, count);
  const std::int64_t steps = count / batch;
  std::vector<at::Tensor> all;
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch)
    all.push_back(at::tensor(shuffled(count, static_cast<std::uint64_t>(epoch)), at::kLong)
                      .narrow(0, 0, steps * batch)
                      .view({steps, batch}));
  return at::cat(all);
}

metrics::AdamwProbe fit(const LabeledFeatures& train, std::int64_t classes, const LinearProbeSettings& settings, double lr,
                        double weight_decay) {
  const at::Tensor weight = at::zeros({classes, train.features.size(1)}, at::kDouble);
  const at::Tensor batches = draw_batches(train.labels.size(0), settings.epochs, settings.batch_size);
  return metrics::linear_probe_adamw(train.features, train.labels, weight, at::zeros({classes}, at::kDouble), batches, lr, weight_decay);
}

}  // namespace

std::optional<config::Problem> validate(const LinearProbeSettings& settings) {
  if (settings.solver == "adamw") return check_adamw_probe(settings);
  if (!settings.l2 && settings.validation_share == 0) {
    return config::Problem{"validation_share", "is 0, but l2 is null and its sweep needs held-out samples: set l2, or a share above 0"};
  }
  return std::nullopt;
}

HeldOut hold_out(const LabeledFeatures& train, const LinearProbeSettings& settings) {
  const std::int64_t count = train.labels.size(0);
  const auto held = static_cast<std::int64_t>(std::llround(static_cast<double>(count) * settings.validation_share));
  if (held < 1 || held >= count)
    user_error("linear_probe.validation_share is ", settings.validation_share, ", which holds out ", held, " of ", count,
               " training samples: set ", settings.solver == "adamw" ? "one learning rate and one weight decay" : "l2",
               " instead, or another share");
  const std::vector<std::int64_t> order = shuffled(count, 0);
  return {select_rows(train, {order.begin(), order.begin() + held}), select_rows(train, {order.begin() + held, order.end()})};
}

HeldOut draw_shots(const LabeledFeatures& train, std::int64_t shots, std::int64_t seed) {
  constexpr std::int64_t kMostValidation = 4;
  std::vector<std::int64_t> order(static_cast<std::size_t>(train.labels.size(0)));
  std::iota(order.begin(), order.end(), 0);
  Random(static_cast<std::uint64_t>(seed), Purpose::shuffle).shuffle(order);
  std::map<std::int64_t, std::int64_t> seen;  // by class
  std::vector<std::int64_t> rest, validation;
  for (const std::int64_t row : order) {
    const std::int64_t earlier = seen[train.labels[row].item<std::int64_t>()]++;
    if (earlier < shots) rest.push_back(row);
    if (earlier >= shots && earlier < shots + std::min(shots, kMostValidation)) validation.push_back(row);
  }
  return {select_rows(train, validation), select_rows(train, rest)};
}

AdamwChoice fit_with_adamw(const LabeledFeatures& train, std::int64_t classes, const LinearProbeSettings& settings) {
  AdamwChoice best{.probe = {}, .lr = settings.learning_rates.front(), .weight_decay = settings.weight_decays.front()};
  if (settings.learning_rates.size() * settings.weight_decays.size() > 1) {
    const HeldOut parts = hold_out(train, settings);
    for (const double lr : settings.learning_rates)
      for (const double weight_decay : settings.weight_decays) {
        const auto probe = fit(parts.rest, classes, settings, lr, weight_decay);
        const double top1 = metrics::measure_classifier(probe.weight, probe.bias, parts.validation.features, parts.validation.labels).top1;
        if (best.validation_top1 && top1 <= *best.validation_top1) continue;
        best = {.probe = {}, .lr = lr, .weight_decay = weight_decay, .validation_top1 = top1};
      }
  }
  best.probe = fit(train, classes, settings, best.lr, best.weight_decay);
  return best;
}

}  // namespace tessera
