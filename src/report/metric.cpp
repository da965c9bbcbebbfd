#include <algorithm>
#include <string_view>
#include <vector>

#include "src/report/metric.h"

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

bool NaturalOrder::operator()(std::string_view a, std::string_view b) const {
  const auto digits = [](std::string_view text) {
    std::size_t count = 0;
    while (count < text.size() && text[count] >= '0' && text[count] <= '9') ++count;
    return count;
  };
  const std::string_view whole_a = a, whole_b = b;
  while (!a.empty() && !b.empty()) {
    const std::size_t of_a = digits(a), of_b = digits(b);
    if (of_a > 0 && of_b > 0 && of_a != of_b) return of_a < of_b;
    const std::size_t length = std::max<std::size_t>(1, std::min(of_a, of_b));
    if (const int order = a.substr(0, length).compare(b.substr(0, length)); order != 0) return order < 0;
    a.remove_prefix(length);
    b.remove_prefix(length);
  }
  return a.empty() != b.empty() ? a.empty() : whole_a < whole_b;
}

Better better_value(const std::string& metric) {
  const bool baseline = metric.starts_with("chunks_") || metric.starts_with("random_") || metric.ends_with("_before");
  if (baseline || metric.starts_with("train_")) return Better::neither;
  if (is_share(metric) || metric == "cider_d") return Better::higher;
  if (holds_any(metric, {"loss", "rank", "perplexity", "error"})) return Better::lower;
  return Better::neither;
}

}  // namespace tessera::report
