#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include <tessera/batch.h>
#include <tessera/config/fields.h>

namespace tessera {

/// Draws which patches of a grid are hidden from the encoder. Returns bool [rows, height * width], with the same number
/// of hidden patches in each row: floor(share * patches), but at least one. With `blocks`, first hides rectangles of at
/// least 4 patches with aspect ratios between 0.3 and 1 / 0.3, until the next rectangle would hide too many patches.
/// Then hides single patches (BEiT, Bao et al. 2022, algorithm 1). The random numbers come from the rows' keys
/// (row_random_int).
at::Tensor draw_hidden_patches(const HiddenPatches& settings, std::int64_t rows, config::Size grid,
                               const at::Device& device);

}  // namespace tessera
