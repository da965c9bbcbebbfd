#include "src/models/readouts/positions.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "src/models/attention.h"

namespace tessera {

Positions skip_positions(const Encoded& encoded, std::int64_t skip) {
  if (skip >= encoded.tokens.size(1))
    user_error("model: a read-out's skip_prefix leaves out ", skip, " tokens, but there are only ", encoded.tokens.size(1), ": make it smaller");
  const at::Tensor mask = encoded.mask.defined() ? encoded.mask.slice(1, skip) : encoded.mask;
  return {at_least_float(encoded.tokens.slice(1, skip)), mask};
}

std::int64_t tokens_to_skip(std::int64_t skip_prefix, const ReadOutContext& context) {
  const std::int64_t skip = skip_prefix - (context.class_token ? 1 : 0);
  if (context.tokens > 0 && skip >= context.tokens)
    user_error(context.path, ".skip_prefix: ", skip_prefix, " leaves nothing of ", context.tokens, " tokens");
  return std::max<std::int64_t>(0, skip);
}

}  // namespace tessera
