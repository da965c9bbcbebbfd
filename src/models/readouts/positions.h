#pragma once

#include <tessera/models/registry.h>

namespace tessera {

/// The tokens from some position on, and their mask.
struct Positions {
  at::Tensor tokens;
  at::Tensor mask;
};

/// Returns the tokens from position `skip` on. Throws c10::Error if none are left.
Positions skip_positions(const Encoded& encoded, std::int64_t skip);

/// Returns how many tokens to skip for a setting skip_prefix. Encoders return their class token separately, so it
/// counts as already skipped. Throws UserError if nothing would be left.
std::int64_t tokens_to_skip(std::int64_t skip_prefix, const ReadOutContext& context);

}  // namespace tessera
