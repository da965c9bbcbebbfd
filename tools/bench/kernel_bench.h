#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace tessera::bench {

struct GroupShape {
  std::int64_t batch, tokens, patches, width;  // B, L, P, D
};
struct ContrastShape {
  std::int64_t batch, tokens, width;  // B, L, D
};
struct EncodingShape {
  std::int64_t rows, columns;  // N, V
};

struct SlotShape {
  std::int64_t batch, slots, tokens, width, key;  // B, L, N, d, D
};

struct ProjectionShape {
  std::int64_t batch, positions, vocabulary, width;  // B, N, V, w
};

struct AttentionShape {
  std::int64_t batch, tokens, heads, width;  // B, N, H, d
};

struct CrossEntropyShape {
  std::int64_t tokens, vocabulary, width;  // T, V, D
  std::int64_t words = 0;                  // n, the number of target ids per token for soft targets; 0 means one hard target per token
};

struct MapShape {
  std::int64_t rows, in, out;  // T, I, O
};

struct UpdateShape {
  std::int64_t tensors, elements;  // T tensors of N elements each
};

/// These functions parse "64x55x196x512" (GroupShape), "64x55x512" (ContrastShape), "512x30522" (EncodingShape), "32x128x50x768x64"
/// (SlotShape), "64x196x30522x512" (ProjectionShape), "512x197x12x64" (AttentionShape), "4096x49408x512" (CrossEntropyShape),
/// "2048x49408x768x20" (CrossEntropyShape with soft targets), "4096x768x3072" (MapShape) and "300x500000" (UpdateShape). They throw
/// UserError naming the option.
GroupShape parse_group_shape(const std::string& text, const char* option = "--sparsify-group");
ContrastShape parse_contrast_shape(const std::string& text);
EncodingShape parse_encoding_shape(const std::string& text);
SlotShape parse_slot_shape(const std::string& text);
ProjectionShape parse_projection_shape(const std::string& text);
AttentionShape parse_attention_shape(const std::string& text);
CrossEntropyShape parse_cross_entropy_shape(const std::string& text);
CrossEntropyShape parse_soft_cross_entropy_shape(const std::string& text);
MapShape parse_map_shape(const std::string& text);
UpdateShape parse_update_shape(const std::string& text);

struct KernelBenchSettings {
  at::Device device{at::kCPU};
  std::vector<at::ScalarType> dtypes = {at::kFloat, at::kBFloat16};
  std::vector<GroupShape> groups;                  // for sparsify_group
  std::vector<ContrastShape> contrasts;            // for token_contrast; bfloat16 only on a GPU
  std::vector<EncodingShape> encodings;            // for flops_regularizer
  std::vector<SlotShape> slots;                    // for slot_attention
  std::vector<GroupShape> similarities;            // for max_similarity; bfloat16 only on a GPU
  std::vector<ProjectionShape> projections;        // for token_max_projection; bfloat16 only on a GPU
  std::vector<AttentionShape> attentions;          // for self_attention
  std::vector<CrossEntropyShape> cross_entropies;  // for linear_cross_entropy and linear_soft_cross_entropy; bfloat16 only on a GPU
  std::vector<MapShape> maps;                      // for linear maps with GELU; bfloat16 only on a GPU
  std::vector<UpdateShape> updates;                // for adamw, in float32 only
  int repeats = 9;
  double time_limit = 20;  // seconds per measurement
  std::function<void(const std::string&)> progress;
};

/// The highest rates of the machine, measured with operations that only move data or only multiply matrices.
struct MachinePeak {
  struct Product {
    at::ScalarType dtype;
    double flops;  // FLOP/s of a large square matrix product
  };
  double bandwidth = 0;  // bytes per second that STREAM's triad (`a = b + s * c`) moves on large float32 arrays
  double cached = 0;     // the same on arrays that fit into the cache (a GPU's second-level cache)
  std::vector<Product> products;
};

/// The cost of one pass of a kernel, and the cost of the same pass composed of LibTorch's operators.
struct KernelCost {
  std::string kernel, pass, shape;
  at::ScalarType dtype = at::kFloat;
  double flops = 0;                              // FLOPs of the matrix products that the kernel executes; 0 if there are none
  double bytes = 0;                              // minimum number of bytes moved: each input is read once, and each output is written once
  double seconds = 0, composed_seconds = 0;      // medians
  std::int64_t memory = 0, composed_memory = 0;  // peak bytes, with the outputs but without the inputs
  bool composed_fits = true;                     // whether the composed pass fits into memory; if not, it is not measured
};

struct KernelBench {
  std::string machine;
  MachinePeak peak;
  std::vector<KernelCost> costs;

  /// Returns the FLOP rate in `dtype` or the FLOP rate in float32, whichever is higher. CPUs without bfloat16 units are slower in bfloat16
  /// than in float32.
  double product_flops(at::ScalarType dtype) const;
  /// Returns the shortest time that the machine's peak rates allow for the pass: the time to move its bytes or to compute its FLOPs,
  /// whichever is longer.
  double roofline_seconds(const KernelCost& cost) const;
};

/// Measures the machine's peak rates, and the kernels with all shapes in the settings.
KernelBench measure_kernels(const KernelBenchSettings& settings);

std::string to_markdown(const KernelBench& bench);
std::string to_json(const KernelBench& bench);

}  // namespace tessera::bench
