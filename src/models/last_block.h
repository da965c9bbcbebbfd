#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include "src/models/transformer_block.h"
#include <tessera/batch.h>

namespace tessera {

/// Standard deviation of NACLIP's window, in patches.
inline constexpr double kNaclipDeviation = 5.0;

/// Returns the kind of last block with this name: plain, maskclip, sclip, clearclip or naclip. Throws c10::Error for other names.
LastBlock last_block_named(const std::string& name);

/// Whether the block adds its attention to its input and then applies its MLP (plain, MaskCLIP, SCLIP). If false, the block's output is
/// only its attention (ClearCLIP, NACLIP).
bool keeps_residual(LastBlock kind);

/// Computes attention as the kind of last block defines it, head by head, where d is the width of a head:
///   plain      softmax(q k^T / sqrt(d)) v
///   maskclip   v                                                            Zhou et al. 2022 (ECCV), "MaskCLIP"
///   sclip      (softmax(q q^T / sqrt(d)) + softmax(k k^T / sqrt(d))) v      Wang et al. 2024 (ECCV), "SCLIP"
///   clearclip  softmax(q q^T / sqrt(d)) v                                   Lan et al. 2024 (ECCV), "ClearCLIP"
///   naclip     softmax(k k^T / sqrt(d) + w) v                               Hajimiri et al. 2025 (WACV), "NACLIP"
/// where w = exp(-|p - p'|^2 / (2 kNaclipDeviation^2)) between patches p and p' of the grid, and w = 0 if the query or the key is the class
/// token or a register. q, k, v [B, N, width], in which heads are contiguous slices of the width -> [B, N, width]. Throws c10::Error if
/// naclip gets no grid.
at::Tensor attend_as(LastBlock kind, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     std::int64_t heads, const SequenceInfo& sequence);

/// Returns NACLIP's w: [N, N] float32, where N = prefix + rows * columns and the prefix comes first.
at::Tensor neighbor_window(config::Size grid, std::int64_t prefix, double deviation = kNaclipDeviation);

}  // namespace tessera
