#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

namespace tessera {

/// Returns the floating-point operations of the products inside one call of our own operators (tessera::...) that run a kernel.
/// Returns nothing for other operators, and for our operators that are composed of LibTorch's, which are counted individually.
std::optional<std::int64_t> operator_flops(std::string_view name, c10::ArrayRef<const c10::IValue> inputs);

/// Returns how many of these operations repeat products of the forward pass; 0 for other operators.
std::int64_t operator_recomputed_flops(std::string_view name, c10::ArrayRef<const c10::IValue> inputs);

}  // namespace tessera
