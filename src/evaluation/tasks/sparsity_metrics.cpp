#include "src/evaluation/tasks/sparsity_metrics.h"

namespace tessera {

void add_sparsity(TaskResult& result, const metrics::SparsityMeter& images, const metrics::SparsityMeter& texts) {
  for (const auto& [kind, meter] : {std::pair("image", &images), std::pair("text", &texts)}) {
    if (meter->rows() == 0) continue;
    result.add_number(std::string("active_tokens_per_") + kind, meter->mean_active());
    result.add_number(std::string("dead_") + kind + "_tokens", static_cast<double>(meter->dead_columns()));
  }
}

}  // namespace tessera
