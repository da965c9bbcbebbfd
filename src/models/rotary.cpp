#include <cmath>
#include <numbers>

#include <ATen/ATen.h>

#include "src/models/attention.h"
#include "src/models/per_sample_rng.h"
#include "src/models/rotary.h"

namespace tessera {
namespace {

// Returns the patches' coordinates along one axis, [1, count].
at::Tensor places(const RotarySettings& s, std::int64_t count, std::int64_t reference, const at::Device& device) {
  at::Tensor place = at::arange(count, at::TensorOptions(device).dtype(at::kFloat)).unsqueeze(0);
  if (s.coordinates == "centered") return (place + 0.5 + s.offset) / static_cast<double>(count) * 2.0 - 1.0;
  place = place + s.offset;
  return reference > 0 ? place / static_cast<double>(count) * static_cast<double>(reference) : place;
}

// Coordinates along the two axes, [R, H] and [R, W]. R is 1, or the batch size if each image has its own coordinates.
struct Places {
  at::Tensor rows, columns;
};

Places places_of(const RotarySettings& s, config::Size grid, const at::Device& device) {
  const config::Size reference = s.reference.value_or(config::Size(0, 0));
  return {places(s, grid.height, reference.height, device), places(s, grid.width, reference.width, device)};
}

Places augmented(const RotarySettings& s, Places at, std::int64_t batch) {
  // Draws random numbers u [B, 1] between -1 and 1, and replaces the coordinates of each axis by changed(coordinates, u). With draws = 2,
  // each axis has its own u; with draws = 1, both axes have the same u.
  const auto change = [&](std::int64_t draws, const auto& changed) {
    const at::Tensor u = 2.0 * row_uniform(batch, draws, at.rows.device()) - 1.0;
    at.rows = changed(at.rows, u.narrow(1, 0, 1));
    at.columns = changed(at.columns, u.narrow(1, draws - 1, 1));
  };
  // Returns a function for change() that multiplies coordinates by a log-uniform random factor between 1 / limit and limit.
  const auto scaled = [](double limit) {
    return [limit](const at::Tensor& x, const at::Tensor& u) { return x * (u * std::log(limit)).exp(); };
  };
  if (s.shift) change(2, [&](const at::Tensor& x, const at::Tensor& u) { return x + u * *s.shift; });
  if (s.jitter) change(2, scaled(*s.jitter));
  if (s.rescale) change(1, scaled(*s.rescale));
  return at;
}

// Returns cosine and sine [R, N, d / 2].
Rotation rotation_at(const RotarySettings& s, const Places& places, std::int64_t head_width, std::int64_t prefix) {
  TORCH_CHECK(head_width % 4 == 0, "rotary positions: heads are ", head_width, " wide, but 4 must divide that");
  const std::int64_t bands = head_width / 4, height = places.rows.size(1), width = places.columns.size(1);
  const at::Tensor exponents = at::arange(bands, places.rows.options()) / static_cast<double>(bands);
  at::Tensor speeds = 1.0 / at::pow(s.base, exponents);  // [bands]
  if (s.coordinates == "centered") speeds = speeds * (2.0 * std::numbers::pi);
  const at::Tensor by_row = (places.rows.unsqueeze(-1) * speeds).unsqueeze(2).expand({-1, -1, width, -1});
  const at::Tensor by_column = (places.columns.unsqueeze(-1) * speeds).unsqueeze(1).expand({-1, height, -1, -1});
  const at::Tensor angles =
      (s.order == "rows_first" ? at::cat({by_row, by_column}, 3) : at::cat({by_column, by_row}, 3)).flatten(1, 2);
  return {angles.cos(), angles.sin(), prefix, s.pairs == "halves"};
}

// Prepends `prefix` rows of `value` to a table [.., P, d / 2], for the tokens that are not rotated. Also adds a
// dimension for the heads.
at::Tensor for_all_tokens(const at::Tensor& table, std::int64_t prefix, double value) {
  return at::constant_pad_nd(table, {0, 0, prefix, 0}, value).unsqueeze(-2);
}

// Rotates x [B, N, h, d] in one pass, treating adjacent channels as complex numbers.
at::Tensor turned_neighbors(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine) {
  const at::Tensor numbers = at::view_as_complex(x.unflatten(-1, {x.size(-1) / 2, 2}));
  return at::view_as_real(numbers * at::complex(cosine, sine)).flatten(-2);
}

at::Tensor turned_halves(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine) {
  const std::vector<at::Tensor> half = x.chunk(2, -1);
  return at::cat({at::addcmul(half[0] * cosine, half[1], sine, -1), at::addcmul(half[1] * cosine, half[0], sine)}, -1);
}

}  // namespace

std::optional<config::Problem> validate(const RotarySettings& s) {
  if (s.reference && s.coordinates != "index")
    return config::Problem{"reference", "stretches index coordinates; centered ones are the same for every grid"};
  if (s.jitter && *s.jitter < 1) return config::Problem{"jitter", "must be at least 1"};
  if (s.rescale && *s.rescale < 1) return config::Problem{"rescale", "must be at least 1"};
  return std::nullopt;
}

bool augments(const RotarySettings& s) {
  return s.shift || s.jitter || s.rescale;
}

Rotation rotation_of_grid(const RotarySettings& s, config::Size grid, std::int64_t head_width, std::int64_t prefix,
                          const at::Device& device) {
  Rotation rotation = rotation_at(s, places_of(s, grid, device), head_width, prefix);
  rotation.cosine = rotation.cosine.squeeze(0);
  rotation.sine = rotation.sine.squeeze(0);
  return rotation;
}

Rotation drawn_rotation_of_grid(const RotarySettings& s, config::Size grid, std::int64_t head_width,
                                std::int64_t prefix, const at::Device& device, std::int64_t rows) {
  return rotation_at(s, augmented(s, places_of(s, grid, device), rows), head_width, prefix);
}

Rotation rotation_of_line(double base, bool halves, std::int64_t length, std::int64_t head_width, const at::Device& device) {
  TORCH_CHECK(head_width % 2 == 0, "rotary positions: heads are ", head_width, " wide, but 2 must divide that");
  const auto options = at::TensorOptions(device).dtype(at::kFloat);
  const at::Tensor speeds = 1.0 / at::pow(base, at::arange(0, head_width, 2, options) / static_cast<double>(head_width));
  const at::Tensor angles = at::outer(at::arange(length, options), speeds);
  return {angles.cos(), angles.sin(), 0, halves};
}

at::Tensor rotated(const at::Tensor& x, std::int64_t heads, const Rotation& rotation) {
  if (!rotation.defined()) return x;
  const at::Tensor wide = at_least_float(x).unflatten(-1, {heads, x.size(-1) / heads});  // [B, N, h, d]
  const at::Tensor cosine = for_all_tokens(rotation.cosine, rotation.prefix, 1).to(wide.scalar_type());
  const at::Tensor sine = for_all_tokens(rotation.sine, rotation.prefix, 0).to(wide.scalar_type());
  const at::Tensor turned = rotation.halves ? turned_halves(wide, cosine, sine) : turned_neighbors(wide, cosine, sine);
  return turned.flatten(-2).to(x.scalar_type());
}

}  // namespace tessera
