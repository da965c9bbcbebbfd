#pragma once

#include <string>

#include <c10/core/ScalarType.h>

#include "tools/command_line.h"

namespace tessera::tools {

/// Adds --precision, whose value precision_type() turns into the type for DualEncoderEmbedder.
inline void add_precision(CLI::App& app, std::string& precision) {
  add_default(app, "--precision", precision,
              "type of the numbers that the towers multiply: float32, or bfloat16, which is about twice as fast on CPUs with avx512_bf16 and "
              "moves embeddings slightly (docs/serving.md)")
      ->check(CLI::IsMember({"float32", "bfloat16"}));
}
inline at::ScalarType precision_type(const std::string& precision) { return precision == "bfloat16" ? at::kBFloat16 : at::kFloat; }

}  // namespace tessera::tools
