#include <ATen/ATen.h>

#include "src/models/last_block.h"

namespace tessera {

LastBlock last_block_named(const std::string& name) {
  if (name == "plain") return LastBlock::plain;
  if (name == "maskclip") return LastBlock::maskclip;
  if (name == "sclip") return LastBlock::sclip;
  if (name == "clearclip") return LastBlock::clearclip;
  TORCH_CHECK(name == "naclip", "no last block named ", name);
  return LastBlock::naclip;
}

bool keeps_residual(LastBlock kind) {
  return kind != LastBlock::clearclip && kind != LastBlock::naclip;
}

at::Tensor neighbor_window(config::Size grid, std::int64_t prefix, double deviation) {
  const auto distances = [](std::int64_t count) {
    const at::Tensor places = at::arange(count, at::kFloat);
    return (places.unsqueeze(1) - places).square();  // [count, count]
  };
  const std::int64_t patches = grid.height * grid.width;
  const at::Tensor rows = distances(grid.height).view({grid.height, 1, grid.height, 1});
  const at::Tensor columns = distances(grid.width).view({1, grid.width, 1, grid.width});
  const at::Tensor window = ((rows + columns) / (-2 * deviation * deviation)).exp().reshape({patches, patches});
  return at::constant_pad_nd(window, {prefix, 0, prefix, 0});
}

at::Tensor attend_as(LastBlock kind, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     std::int64_t heads, const SequenceInfo& sequence) {
  switch (kind) {
    case LastBlock::plain:
      break;
    case LastBlock::maskclip:
      return value;
    case LastBlock::sclip:
      return attend(query, query, value, heads) + attend(key, key, value, heads);
    case LastBlock::clearclip:
      return attend(query, query, value, heads);
    case LastBlock::naclip:
      const config::Size grid = sequence.grid;
      TORCH_CHECK(grid.height * grid.width + sequence.prefix == key.size(1), "naclip: ", key.size(1),
                  " tokens are not a grid of ", grid.height, " x ", grid.width, " patches");
      AttentionMask window;
      window.allowed = neighbor_window(grid, sequence.prefix).to(key.options()).unsqueeze(0).unsqueeze(0);
      return attend(key, key, value, heads, window);
  }
  return attend(query, key, value, heads, sequence.mask);
}

}  // namespace tessera
