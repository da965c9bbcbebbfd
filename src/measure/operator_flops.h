#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

namespace tessera {

/// Returns the floating-point operations of the matrix products inside one call of one of Tessera's own operators (tessera::...), if the
/// call runs a kernel. Returns nothing for other operators, and nothing if the operator is composed of LibTorch's operators, because those
/// are counted separately.
std::optional<std::int64_t> operator_flops(std::string_view name, c10::ArrayRef<const c10::IValue> inputs);

/// Returns how many of the operations counted by operator_flops() repeat products of the forward pass; 0 for operators that repeat none.
std::int64_t operator_recomputed_flops(std::string_view name, c10::ArrayRef<const c10::IValue> inputs);

}  // namespace tessera
