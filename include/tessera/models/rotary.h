#pragma once

#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include <tessera/config/fields.h>

namespace tessera {

/// 2-D rotary positions of patches (Su et al. 2021): one axis of the patch's position rotates half of a head's pairs of
/// channels, the other axis the other half. EVA-02: the defaults with `reference`; PE: offset 1, order columns_first;
/// DINOv3: base 100, coordinates centered, pairs halves.
struct RotarySettings {
  double base = 10000.0;
  std::string coordinates = "index";
  std::optional<config::Size> reference;
  double offset = 0.0;
  std::string order = "rows_first";
  std::string pairs = "neighbors";
  std::optional<double> shift;
  std::optional<double> jitter;
  std::optional<double> rescale;
};

template <class Visitor>
void fields(Visitor& v, RotarySettings& s) {
  v("base", s.base, "pair i of an axis rotates by base^(-i / pairs) for each step", config::above(0));
  v("coordinates", s.coordinates,
    "index: rows and columns are counted from 0; centered: patch centers from -1 to 1, in whole turns (DINOv3)",
    config::one_of({"index", "centered"}));
  v("reference", s.reference, "index: every grid is stretched to this one, the grid of pre-training (EVA-02); null: none");
  v("offset", s.offset, "added to rows and columns before they are scaled (PE: 1)");
  v("order", s.order, "which axis rotates the first half of the pairs: rows_first or columns_first (PE)",
    config::one_of({"rows_first", "columns_first"}));
  v("pairs", s.pairs,
    "which channels form a pair: neighbors (0 and 1, 2 and 3 ...) or halves (i and i + half of the head's width)",
    config::one_of({"neighbors", "halves"}));
  v("shift", s.shift,
    "while the encoder is trained: each axis is shifted by a random amount of at most this (DINOv3); null: never");
  v("jitter", s.jitter,
    "while the encoder is trained: each axis is scaled by its own factor between 1/jitter and jitter (DINOv3); null: never");
  v("rescale", s.rescale,
    "while the encoder is trained: both axes are scaled by one factor between 1/rescale and rescale (DINOv3: 2); null: never");
}

std::optional<config::Problem> validate(const RotarySettings& settings);

/// The rotation of a sequence's queries and keys. Undefined: none.
struct Rotation {
  at::Tensor cosine, sine;   // float32 [N, d / 2], or [B, N, d / 2] if rows differ; N patches, d the width of a head
  std::int64_t prefix = 0;   // tokens before the patches, which are not rotated
  bool halves = false;       // RotarySettings::pairs

  bool defined() const { return cosine.defined(); }
};

/// Whether the settings ask for random augmentation in training.
bool augments(const RotarySettings& settings);

/// Returns the rotation of a grid's patches, row by row. Throws c10::Error if 4 does not divide head_width.
Rotation rotation_of_grid(const RotarySettings& settings, config::Size grid, std::int64_t head_width,
                          std::int64_t prefix, const at::Device& device);

/// The same with DINOv3's augmentation of the coordinates, in its order: shift, jitter, rescale. Each of the `rows`
/// images has its own draws (row_uniform), so that neither ranks nor chunks of a batch change them; DINOv3 itself draws
/// once per batch. Cosine and sine are [rows, N, d / 2].
Rotation drawn_rotation_of_grid(const RotarySettings& settings, config::Size grid, std::int64_t head_width,
                                std::int64_t prefix, const at::Device& device, std::int64_t rows);

/// Rotates x [B, prefix + N, w] with adjacent heads; returns x's own type (computed in at least float32).
at::Tensor rotated(const at::Tensor& x, std::int64_t heads, const Rotation& rotation);

}  // namespace tessera
