#pragma once

#include <tessera/objectives/objective.h>
#include <tessera/probe/runner.h>

namespace tessera::probe {

/// What a case compares of an objective: `loss`, its terms, and what it tells where it is inspected.
inline Outputs outputs_of(const Losses& losses) {
  Outputs outputs{{"loss", losses.total}};
  for (const auto& [term, value] : losses.terms) outputs[term] = value;
  for (const auto& [detail, value] : losses.details) outputs[detail] = value;
  return outputs;
}

}  // namespace tessera::probe
