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

/// Returns how many tokens the read-out must skip for the setting skip_prefix. The class token counts as already
/// skipped, because encoders return it separately. Throws UserError if no token would be left.
std::int64_t tokens_to_skip(std::int64_t skip_prefix, const ReadOutContext& context);

}  // namespace tessera
