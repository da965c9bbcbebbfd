#pragma once

#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include <tessera/config/fields.h>

namespace tessera {

/// 2-D rotary positions of patches (Su et al. 2021). In each head, angles that depend on the patch's row rotate half of the channel pairs,
/// and angles that depend on the patch's column rotate the other half. Published models: EVA-02 has the defaults except `reference`; PE has
/// `offset: 1` and `order: columns_first`; DINOv3 has `base: 100`, `coordinates: centered` and `pairs: halves`.
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
  v("reference", s.reference,
    "for coordinates index: the grid of pre-training, to which every grid is stretched (EVA-02); null: grids are not stretched");
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

/// The rotation of a sequence's queries and keys. If it is undefined, queries and keys are not rotated.
struct Rotation {
  at::Tensor cosine, sine;   // float32 [N, d / 2], or [B, N, d / 2] if each image has its own rotation, for N patches and heads of width d
  std::int64_t prefix = 0;   // number of tokens before the patches; these tokens are not rotated
  bool halves = false;       // whether RotarySettings::pairs is "halves"

  bool defined() const { return cosine.defined(); }
};

/// Whether the settings ask for random augmentation in training.
bool augments(const RotarySettings& settings);

/// Returns the rotation of a grid's patches, row by row. Throws c10::Error if 4 does not divide head_width.
Rotation rotation_of_grid(const RotarySettings& settings, config::Size grid, std::int64_t head_width,
                          std::int64_t prefix, const at::Device& device);

/// Does the same as rotation_of_grid(), but with DINOv3's augmentation of the coordinates, in DINOv3's order: shift, jitter, rescale. Each
/// of the `rows` images has its own random numbers (row_uniform()), which do not depend on the number of ranks or the chunks of a batch;
/// DINOv3 itself draws once per batch. Cosine and sine are [rows, N, d / 2].
Rotation drawn_rotation_of_grid(const RotarySettings& settings, config::Size grid, std::int64_t head_width,
                                std::int64_t prefix, const at::Device& device, std::int64_t rows);

/// Returns the 1-D rotation of a text's tokens: pair i of place p rotates by p * base^(-2 i / head_width). Throws c10::Error if 2 does not
/// divide head_width.
Rotation rotation_of_line(double base, bool halves, std::int64_t length, std::int64_t head_width, const at::Device& device);

/// Rotates x [B, prefix + N, w], in which heads are contiguous slices of the width. Computes in at least float32 and
/// returns x's own type.
at::Tensor rotated(const at::Tensor& x, std::int64_t heads, const Rotation& rotation);

}  // namespace tessera
