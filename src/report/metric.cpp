#include <algorithm>
#include <string_view>
#include <vector>

#include <tessera/report/metric.h>

namespace tessera::report {
namespace {

bool holds_any(const std::string& name, const std::vector<std::string_view>& parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](std::string_view part) { return name.find(part) != std::string::npos; });
}

}  // namespace

bool is_share(const std::string& metric) {
  return holds_any(metric, {"top", "recall", "accuracy", "iou", "mean_per_class", "precision", "f1", "_score"});
}

Better better_value(const std::string& metric) {
  const bool baseline = metric.starts_with("chunks_") || metric.starts_with("random_") || metric.ends_with("_before");
  if (baseline || metric.starts_with("train_")) return Better::neither;
  if (is_share(metric)) return Better::higher;
  if (holds_any(metric, {"loss", "rank", "perplexity", "error"})) return Better::lower;
  return Better::neither;
}

}  // namespace tessera::report
