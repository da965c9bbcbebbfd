#pragma once

#include <tessera/objectives/objective.h>
#include <tessera/probe/runner.h>

namespace tessera::probe {

/// Returns the outputs of an objective that a case compares: `loss`, its terms, and its details (from inspection).
inline Outputs outputs_of(const Losses& losses) {
  Outputs outputs{{"loss", losses.total}};
  for (const auto& [term, value] : losses.terms) outputs[term] = value;
  for (const auto& [detail, value] : losses.details) outputs[detail] = value;
  return outputs;
}

}  // namespace tessera::probe
