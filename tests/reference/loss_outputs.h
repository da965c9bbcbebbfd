#pragma once

#include "tests/reference/runner.h"
#include <tessera/objectives/objective.h>

namespace tessera::probe {

/// Returns the outputs of an objective that are compared with a case: `loss`, the terms, and the details returned for inspection.
inline Outputs outputs_of(const Losses& losses) {
  Outputs outputs{{"loss", losses.total}};
  for (const auto& [term, value] : losses.terms) outputs[term] = value;
  for (const auto& [detail, value] : losses.details) outputs[detail] = value;
  return outputs;
}

}  // namespace tessera::probe
