#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

namespace tessera {

/// Floating-point operations of the products inside one call of an operator of ours (tessera::...) that runs a kernel;
/// nothing for all other operators, and where ours is composed of LibTorch's, which are counted one by one.
std::optional<std::int64_t> operator_flops(std::string_view name, c10::ArrayRef<const c10::IValue> inputs);

/// How many of them repeat products of the forward pass; 0 for all operators but ours.
std::int64_t operator_recomputed_flops(std::string_view name, c10::ArrayRef<const c10::IValue> inputs);

}  // namespace tessera
