#include <cmath>
#include <numbers>

#include <ATen/ATen.h>

#include <tessera/models/attention.h>
#include <tessera/models/rotary.h>

namespace tessera {
namespace {

// A factor between 1 / limit and limit, even on a logarithmic scale.
at::Tensor drawn_factor(double limit, std::int64_t count) {
  return at::empty({count}).uniform_(-std::log(limit), std::log(limit)).exp();
}

// Where the patches stand along one axis, [count].
at::Tensor places(const RotarySettings& s, std::int64_t count, std::int64_t reference) {
  at::Tensor place = at::arange(count, at::kFloat);
  if (s.coordinates == "centered") return (place + 0.5 + s.offset) / static_cast<double>(count) * 2.0 - 1.0;
  place = place + s.offset;
  return reference > 0 ? place / static_cast<double>(count) * static_cast<double>(reference) : place;
}

}  // namespace

std::optional<config::Problem> validate(const RotarySettings& s) {
  if (s.reference && s.coordinates != "index")
    return config::Problem{"reference", "stretches index coordinates; centered ones are the same for every grid"};
  if (s.jitter && *s.jitter < 1) return config::Problem{"jitter", "must be at least 1"};
  if (s.rescale && *s.rescale < 1) return config::Problem{"rescale", "must be at least 1"};
  return std::nullopt;
}

Rotation rotation_of_grid(const RotarySettings& s, config::Size grid, std::int64_t head_width, std::int64_t prefix,
                          const at::Device& device, bool augment) {
  TORCH_CHECK(head_width % 4 == 0, "rotary positions: heads are ", head_width, " wide, but 4 must divide that");
  const config::Size reference = s.reference.value_or(config::Size(0, 0));
  at::Tensor rows = places(s, grid.height, reference.height), columns = places(s, grid.width, reference.width);
  if (augment) {
    at::Tensor factors = at::ones({2}), shifts = at::zeros({2});
    if (s.shift) shifts.uniform_(-*s.shift, *s.shift);
    if (s.jitter) factors = factors * drawn_factor(*s.jitter, 2);
    if (s.rescale) factors = factors * drawn_factor(*s.rescale, 1);
    rows = (rows + shifts[0]) * factors[0];
    columns = (columns + shifts[1]) * factors[1];
  }
  const std::int64_t bands = head_width / 4;
  const at::Tensor exponents = at::arange(bands, at::kFloat) / static_cast<double>(bands);
  at::Tensor speeds = 1.0 / at::pow(s.base, exponents);  // [bands]
  if (s.coordinates == "centered") speeds = speeds * (2.0 * std::numbers::pi);
  const at::Tensor by_row = (rows.unsqueeze(1) * speeds).unsqueeze(1).expand({-1, grid.width, -1});
  const at::Tensor by_column = (columns.unsqueeze(1) * speeds).unsqueeze(0).expand({grid.height, -1, -1});
  const at::Tensor angles =
      (s.order == "rows_first" ? at::cat({by_row, by_column}, 2) : at::cat({by_column, by_row}, 2)).flatten(0, 1);
  return {angles.cos().to(device), angles.sin().to(device), prefix, s.pairs == "halves"};
}

at::Tensor rotated(const at::Tensor& x, std::int64_t heads, const Rotation& rotation) {
  if (!rotation.defined()) return x;
  const at::Tensor patches = x.slice(1, rotation.prefix).unflatten(-1, {heads, x.size(-1) / heads});  // [B, N, h, d]
  const at::Tensor cosine = rotation.cosine.unsqueeze(-2), sine = rotation.sine.unsqueeze(-2);
  const std::int64_t half = patches.size(-1) / 2;
  const at::Tensor wide = at_least_float(patches);
  const at::Tensor first = rotation.halves ? wide.slice(-1, 0, half) : wide.slice(-1, 0, c10::nullopt, 2);
  const at::Tensor second = rotation.halves ? wide.slice(-1, half) : wide.slice(-1, 1, c10::nullopt, 2);
  const at::Tensor turned_first = first * cosine - second * sine, turned_second = second * cosine + first * sine;
  const at::Tensor turned = rotation.halves ? at::cat({turned_first, turned_second}, -1)
                                            : at::stack({turned_first, turned_second}, -1).flatten(-2);
  const at::Tensor out = turned.flatten(-2).to(x.scalar_type());
  return rotation.prefix == 0 ? out : at::cat({x.slice(1, 0, rotation.prefix), out}, 1);
}

}  // namespace tessera
