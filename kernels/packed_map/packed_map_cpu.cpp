// Each thread takes panels of the weight, and multiplies a panel by all blocks of rows of a chunk: the panel stays in the core's L2 cache,
// and the blocks stream through it. A block's values are interleaved, so that all rows of a step are on one cache line.
#include <algorithm>

#include "kernels/cpu/instruction_set.h"
#include "kernels/packed_map/map_tile.h"
#include "kernels/packed_map/packed_map.h"

namespace tessera::kernels::cpu {
namespace {

constexpr std::int64_t kChunkBlocks = 32;  // blocks that are multiplied by a panel before the next panel's turn
constexpr std::int64_t kAlone = 4;         // so few blocks are packed faster by one thread than others wake up

const MapKernels* map_kernels(DataType type) {
#if defined(TESSERA_X86_KERNELS)
  static const bool multiplies_bfloat16 = (__builtin_cpu_init(), __builtin_cpu_supports("avx512bf16") && !__builtin_cpu_supports("amx-bf16"));
  const bool has_avx512 = instruction_set() == InstructionSet::kAvx512;
  if (type == DataType::kBfloat16) return has_avx512 && multiplies_bfloat16 ? &kAvx512Bfloat16MapKernels : nullptr;
  if (has_avx512) return &kAvx512MapKernels;
  if (instruction_set() == InstructionSet::kAvx2) return &kAvx2MapKernels;
#endif
  static_cast<void>(type);
  return nullptr;
}

std::int64_t parts(std::int64_t whole, std::int64_t part) {
  return (whole + part - 1) / part;
}

}  // namespace

bool has_packed_map(DataType type) {
  return map_kernels(type) != nullptr;
}

std::size_t packed_weight_bytes(const PackedMapShape& shape) {
  const MapKernels& kernels = *map_kernels(shape.type);
  return static_cast<std::size_t>(parts(shape.out, kernels.panel) * kernels.panel * kernels.words(shape.in)) * sizeof(float);
}

void pack_weight(const PackedMapShape& shape, const float* weight, void* packed, const Parallel& parallel) {
  const MapKernels& kernels = *map_kernels(shape.type);
  const std::int64_t words = kernels.words(shape.in);
  for_each_item(parallel, parts(shape.out, kernels.panel), [&](int, std::int64_t panel) {
    const std::int64_t row = panel * kernels.panel;
    kernels.pack(weight + row * shape.in, std::min<std::int64_t>(kernels.panel, shape.out - row), shape.in, kernels.panel,
                 static_cast<float*>(packed) + row * words);
  });
}

std::size_t packed_map_workspace(const PackedMapShape& shape, std::int64_t rows) {
  const MapKernels& kernels = *map_kernels(shape.type);
  return static_cast<std::size_t>(parts(rows, kernels.rows) * kernels.group * kernels.words(shape.in)) * sizeof(float);
}

Status packed_map(const PackedMapCall& call, const Parallel& parallel) {
  const PackedMapShape& shape = call.shape;
  const MapKernels* const kernels = map_kernels(shape.type);
  if (kernels == nullptr) return Status::failure("packed_map: this machine lacks the instructions");
  if (call.rows == 0 || shape.out == 0) return {};
  const std::int64_t blocks = parts(call.rows, kernels->rows), height = parts(call.rows, blocks), panels = parts(shape.out, kernels->panel);
  const std::int64_t words = kernels->words(shape.in);
  float* const packed = static_cast<float*>(call.workspace);
  const auto rows_of = [&](std::int64_t block) { return std::clamp<std::int64_t>(call.rows - block * height, 0, height); };
  const auto block_at = [&](std::int64_t block) { return packed + block * words * kernels->group; };
  const auto pack = [&](int, std::int64_t block) {
    kernels->pack(call.x + block * height * shape.in, rows_of(block), shape.in, kernels->group, block_at(block));
  };
  if (blocks <= kAlone)
    for (std::int64_t block = 0; block < blocks; ++block) pack(0, block);
  else
    for_each_item(parallel, blocks, pack);
  for_each_item(parallel, parts(blocks, kChunkBlocks) * panels, [&](int, std::int64_t item) {
    const std::int64_t chunk = item / panels * kChunkBlocks, panel = item % panels, column = panel * kernels->panel;
    const float* const weight = static_cast<const float*>(call.weight) + column * words;
    for (std::int64_t block = chunk; block < std::min(blocks, chunk + kChunkBlocks); ++block) {
      if (rows_of(block) == 0) continue;
      kernels->tile(call, rows_of(block), block_at(block), weight, call.bias == nullptr ? nullptr : call.bias + column,
                    std::min<std::int64_t>(kernels->panel, shape.out - column), call.y + block * height * shape.out + column);
    }
  });
  return {};
}

}  // namespace tessera::kernels::cpu
