#pragma once

#include <tessera/models/registry.h>

namespace tessera {

/// The tokens (and their mask) from position `skip` on.
struct Positions {
  at::Tensor tokens;
  at::Tensor mask;
};

/// Throws c10::Error if nothing is left.
Positions skip_positions(const Encoded& encoded, std::int64_t skip);

/// How many tokens to leave out for a setting skip_prefix: encoders keep their class token apart, so of the leading tokens
/// to leave out it is already gone. Throws UserError if nothing would be left.
std::int64_t tokens_to_skip(std::int64_t skip_prefix, const ReadOutContext& context);

}  // namespace tessera
