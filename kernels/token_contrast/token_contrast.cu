// A block of 8 warps processes one pair.
//   1. Compute the products of all queries with all keys, and the squares of their lengths. Both are read once, in slices of 128 bytes of
//      each row, through a ring of buffers. The products are divided by the lengths, which gives the cosines S, in shared memory.
//   2. A warp finds the two log-sum-exps of a token. The forward pass ends here.
//   3. Compute G = d loss / d S, and the weights W_ij = G_ij / (|q_i| |k_j|).
//   4. Compute the gradients a slice at a time: d q_i = sum_j W_ij k_j - (sum_j G_ij S_ij) q_i / |q_i|^2, and the same for k_j with sums
//      over i. Queries and keys are read a second time, from the second-level cache. A unit of a warp's work is 16 rows and 32 columns.
// Rows of padding are not read, and their products are 0. bfloat16 and float32 use tensor cores (device/tensor_core.h).
#include "kernels/device/block_memory.h"
#include "kernels/device/tensor_core.h"
#include "kernels/device/words.h"
#include "kernels/token_contrast/plan.h"

namespace tessera::kernels {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int kMaskWords = static_cast<int>(kMostContrastTokens / 32);
constexpr int kMostRowTiles = static_cast<int>(kMostContrastTokens / 16);
constexpr float kShort = 1e-12f;  // a shorter row is divided by this number instead of by its length

template <class Element>
struct Matrices {
  Element* data;
  std::int64_t batch_stride, row_stride;
  __device__ __forceinline__ Element* row(std::int64_t pair, std::int64_t index) const {
    return data + pair * batch_stride + index * row_stride;
  }
};

/// Whether rows can be read and written 16 bytes at a time.
template <class AnyRows>
bool aligned_rows(const AnyRows& rows, std::int64_t width, std::int64_t element) {
  const std::int64_t per_word = 16 / element;
  return reinterpret_cast<std::uintptr_t>(rows.data) % 16 == 0 && rows.batch_stride % per_word == 0 && rows.row_stride % per_word == 0 &&
         width % per_word == 0;
}

template <class Element>
struct ContrastArguments {
  int tokens, width;
  bool tf32, aligned_inputs, aligned_outputs;
  TokenContrastPlan plan;
  Matrices<const Element> queries, keys;
  const std::uint8_t* mask;
  const float* scale;
  float* losses;             // only in the forward pass, like the members that follow only in the backward pass
  const float* grad_losses;
  Matrices<Element> grad_queries, grad_keys;
  float* grad_scale;
};

/// The numbers of one token, in shared memory.
struct alignas(16) TokenNumbers {
  float query_share, key_share;        // 1 / length
  float right;                         // S_ii
  float row_sum, column_sum;           // log-sum-exp of the token's row and of its column, relative to S_ii
  float query_radial, key_radial;      // the factors of q_i and k_i in their gradients
  float gradient;                      // of the loss
};
static_assert(sizeof(TokenNumbers) == 4 * kContrastNumbers);

template <class Element>
struct ContrastBlock {
  static constexpr int kSliceColumns = kContrastSliceBytes / static_cast<int>(sizeof(Element));
  static constexpr int kSliceTiles = kSliceColumns / 8, kUnitTiles = 4, kUnitsPerRow = kSliceTiles / kUnitTiles;
  using Product = SliceProduct<Element, kContrastSliceBytes, kMostRowTiles, 2>;
  using Layout = Slice<kContrastSliceBytes>;
  using Core = TensorCore<Element>;

  const ContrastArguments<Element>& arguments;
  const std::int64_t pair;
  unsigned char* const shared;
  unsigned real_rows[kMaskWords];

  __device__ __forceinline__ ContrastBlock(const ContrastArguments<Element>& given, std::int64_t index, unsigned char* memory)
      : arguments(given), pair(index), shared(memory) {
#pragma unroll
    for (int i = 0; i < kMaskWords; ++i) {
      const int token = 32 * i + static_cast<int>(threadIdx.x % 32);
      const bool real = token < arguments.tokens && (arguments.mask == nullptr || arguments.mask[pair * arguments.tokens + token] != 0);
      real_rows[i] = __ballot_sync(kAllLanes, real ? 1 : 0);
    }
  }

  __device__ __forceinline__ bool real(int row) const {
    const unsigned word = row < 64 ? row < 32 ? real_rows[0] : real_rows[1] : row < 96 ? real_rows[2] : real_rows[3];
    return (word >> (row & 31) & 1u) != 0;
  }
  /// Whether one of the 16 rows of a tile is real.
  __device__ __forceinline__ bool any_real(int tile) const {
    const unsigned word = tile < 4 ? tile < 2 ? real_rows[0] : real_rows[1] : tile < 6 ? real_rows[2] : real_rows[3];
    return (word >> (tile % 2 * 16) & 0xffffu) != 0;
  }
  __device__ __forceinline__ TokenNumbers* numbers() const { return reinterpret_cast<TokenNumbers*>(shared); }
  __device__ __forceinline__ float& similarity(int query, int key) const {
    return reinterpret_cast<float*>(shared + arguments.plan.similarities)[query * arguments.plan.similarity_pitch + key];
  }
  __device__ __forceinline__ Element* weights() const { return reinterpret_cast<Element*>(shared + arguments.plan.weights); }
  __device__ __forceinline__ int key_offset() const { return arguments.plan.rows * kContrastSliceBytes; }
  __device__ __forceinline__ Ring ring() const {
    return {shared + arguments.plan.ring, arguments.plan.stage_bytes, arguments.plan.stages,
            (arguments.width + kSliceColumns - 1) / kSliceColumns};
  }
  __device__ __forceinline__ void copy_rows(int step, unsigned char* buffer) const {
    const auto valid = [&](int row) { return real(row); };
    copy_slice<kThreads, kContrastSliceBytes>(buffer, arguments.queries.row(pair, 0), arguments.queries.row_stride, step * kSliceColumns,
                                              arguments.width, arguments.plan.rows, arguments.aligned_inputs, valid);
    copy_slice<kThreads, kContrastSliceBytes>(buffer + key_offset(), arguments.keys.row(pair, 0), arguments.keys.row_stride,
                                              step * kSliceColumns, arguments.width, arguments.plan.rows, arguments.aligned_inputs, valid);
  }

  /// Returns the sum of the squares of a row of a slice.
  static __device__ __forceinline__ float squares(const unsigned char* slice, int row) {
    float sum = 0.0f;
#pragma unroll
    for (int piece = 0; piece < Layout::kPieces; ++piece) {
      const Word word = word_at<Word>(slice + Layout::offset(row, piece));
#pragma unroll
      for (int e = 0; e < kWordElements<Element>; ++e) sum += element<Element>(word, e) * element<Element>(word, e);
    }
    return sum;
  }

  __device__ __forceinline__ Product product() const {
    unsigned tiles = 0;
#pragma unroll
    for (int i = 0; i < kMostRowTiles; ++i) tiles |= any_real(i) ? 1u << i : 0u;
    const int warp = threadIdx.x / 32;
    return {tiles, warp, Product::column_tiles(warp, arguments.plan.rows)};
  }

  /// Computes the cosines. Those of tiles without a real row stay unwritten.
  __device__ __forceinline__ void find_similarities() const {
    const auto load = [&](int step, unsigned char* buffer) { copy_rows(step, buffer); };
    const Product pairs = product();
    const int thread = threadIdx.x, rows = arguments.plan.rows;
    float sums[kMostRowTiles][2][4] = {};
    float square = 0.0f;  // of query `thread`, or of key `thread` - rows
    const Ring slices = ring();
    slices.start(load);
    slices.run(load, [&](int, const unsigned char* buffer) {
      pairs.accumulate(sums, buffer, buffer + key_offset(), arguments.tf32);
      if (thread < 2 * rows) square += squares(buffer, thread);  // the keys follow the queries
    });
    if (thread < 2 * rows) {
      const float length = sqrtf(square), share = 1.0f / (length < kShort ? kShort : length);
      TokenNumbers& mine = numbers()[thread < rows ? thread : thread - rows];
      (thread < rows ? mine.query_share : mine.key_share) = share;
      // Marks short rows, whose gradient has no radial part.
      (thread < rows ? mine.query_radial : mine.key_radial) = length < kShort ? 0.0f : share * share;
    }
    __syncthreads();
    pairs.for_each_row([&](int i, int h, int row) {
      const float share = numbers()[row].query_share;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int column = pairs.column(j) + 2 * static_cast<int>(threadIdx.x % 4) + e;
          if (j < pairs.columns) similarity(row, column) = sums[i][j][2 * h + e] * share * numbers()[column].key_share;
        }
      }
    });
    __syncthreads();
  }

  /// Calls visit(token) for the real tokens of a warp, and skip(token) for the others of its tokens.
  template <class Visit, class Skip>
  __device__ __forceinline__ void for_each_token(Visit visit, Skip skip) const {
#pragma unroll 1
    for (int token = static_cast<int>(threadIdx.x / 32); token < arguments.plan.rows; token += kWarps) {
      if (real(token)) visit(token);
      else skip(token);
    }
  }

  /// Returns log sum exp(scale (at(j) - right)) over the real tokens j.
  template <class At>
  __device__ __forceinline__ float log_sum(float right, float scale, At at) const {
    float logits[kMaskWords], highest = -kInfinity, sum = 0.0f;
#pragma unroll
    for (int k = 0; k < kMaskWords; ++k) {
      const int other = 32 * k + static_cast<int>(threadIdx.x % 32);
      const bool counts = real(other);
      logits[k] = counts ? (at(other) - right) * scale : -kInfinity;
      highest = fmaxf(highest, logits[k]);
    }
    highest = warp_maximum(highest);
#pragma unroll
    for (int k = 0; k < kMaskWords; ++k) sum += expf(logits[k] - highest);
    return highest + logf(warp_sum(sum));
  }

  /// Finds the log-sum-exps of the real tokens.
  __device__ __forceinline__ void find_sums(float scale) const {
    for_each_token(
        [&](int token) {
          const float right = similarity(token, token);
          const float row = log_sum(right, scale, [&](int other) { return similarity(token, other); });
          const float column = log_sum(right, scale, [&](int other) { return similarity(other, token); });
          if (threadIdx.x % 32 == 0) {
            TokenNumbers& mine = numbers()[token];
            mine.right = right;
            mine.row_sum = row;
            mine.column_sum = column;
          }
        },
        [](int) {});
    __syncthreads();
  }

  __device__ __forceinline__ void put_losses() const {
    const int token = threadIdx.x;
    if (token >= arguments.tokens) return;
    const TokenNumbers& mine = numbers()[token];
    arguments.losses[pair * arguments.tokens + token] = real(token) ? 0.5f * (mine.row_sum + mine.column_sum) : 0.0f;
  }

  /// Writes the weights W, replaces S_ij by G_ij S_ij, and finds the radial factors and the gradient of the scale.
  __device__ __forceinline__ void find_weights(float scale) const {
    TokenNumbers* const all = numbers();
    const int lane = threadIdx.x % 32, pitch = arguments.plan.weight_pitch;
    float of_scale = 0.0f;
    for_each_token(
        [&](int token) {
          const TokenNumbers mine = all[token];
          float radial = 0.0f;
          for (int other = lane; other < arguments.plan.rows; other += 32) {
            Element weight = from_float<Element>(0.0f);
            if (real(other)) {
              const TokenNumbers& theirs = all[other];
              const float cosine = similarity(token, other), by_row = cosine - mine.right, by_column = cosine - theirs.right;
              const float row = mine.gradient * expf(by_row * scale - mine.row_sum);
              const float column = theirs.gradient * expf(by_column * scale - theirs.column_sum);
              const float gradient = 0.5f * scale * (other == token ? row + column - 2.0f * mine.gradient : row + column);
              of_scale += row * by_row + column * by_column;
              const float shares = mine.query_share * theirs.key_share;
              weight = from_float<Element>(gradient * shares);
              // With the rounded weight, the rounded gradients of rows have no radial part either.
              const float of_length = to_float(weight) / shares * cosine;
              radial += of_length;
              similarity(token, other) = of_length;
            }
            weights()[token * pitch + other] = weight;
          }
          radial = warp_sum(radial);
          if (lane == 0) all[token].query_radial *= radial;
        },
        [&](int token) {
          for (int other = lane; other < arguments.plan.rows; other += 32) weights()[token * pitch + other] = from_float<Element>(0.0f);
        });
    of_scale = warp_sum(of_scale);
    __syncthreads();
    for_each_token(
        [&](int token) {
          float radial = 0.0f;
          for (int other = lane; other < arguments.plan.rows; other += 32) radial += real(other) ? similarity(other, token) : 0.0f;
          radial = warp_sum(radial);
          if (lane == 0) all[token].key_radial *= radial;
        },
        [](int) {});
    if (lane == 0) all[threadIdx.x / 32].right = of_scale;  // the cosines of the right pairs are no longer needed
    __syncthreads();
    if (threadIdx.x == 0) {
      float sum = 0.0f;
      for (int warp = 0; warp < kWarps; ++warp) sum += all[warp].right;
      arguments.grad_scale[pair] = 0.5f * sum;
    }
  }

  /// Computes one unit of a slice of the gradients.
  __device__ __forceinline__ void put_gradients(int unit, int step, const unsigned char* buffer) const {
    const int rows = arguments.plan.rows, per_matrix = rows / 16 * kUnitsPerRow, pitch = arguments.plan.weight_pitch;
    const bool of_keys = unit >= per_matrix, tf32 = arguments.tf32;
    const int within = of_keys ? unit - per_matrix : unit, tile = within / kUnitsPerRow, column_tile = within % kUnitsPerRow * kUnitTiles;
    const unsigned char* const own = buffer + (of_keys ? key_offset() : 0);
    const unsigned char* const other = buffer + (of_keys ? 0 : key_offset());
    float sums[kUnitTiles][4];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = 16 * tile + 8 * h + static_cast<int>(threadIdx.x % 32 / 4);
      const float radial = !real(row) ? 0.0f : of_keys ? numbers()[row].key_radial : numbers()[row].query_radial;
#pragma unroll
      for (int j = 0; j < kUnitTiles; ++j) {
        const int byte = (8 * (column_tile + j) + 2 * static_cast<int>(threadIdx.x % 4)) * static_cast<int>(sizeof(Element));
        const Pair<Element> pair_of_columns = word_at<Pair<Element>>(own + Layout::offset(row, byte / 16) + byte % 16);
        sums[j][2 * h] = 0.0f - radial * to_float(pair_of_columns.values[0]);
        sums[j][2 * h + 1] = 0.0f - radial * to_float(pair_of_columns.values[1]);
      }
    }
    if (any_real(tile)) {
#pragma unroll 2
      for (int k = 0; k < rows; k += Core::kDepth) {
        typename Core::B b[kUnitTiles];
        Core::template load_columns<kContrastSliceBytes>(b, other, column_tile, k, tf32);
        const typename Core::A a = of_keys ? Core::load_columns(weights(), pitch, 16 * tile, k, tf32)
                                           : Core::load_rows(weights(), pitch, 16 * tile, k, tf32);
        Core::multiply(sums, 0, a, b, kUnitTiles, tf32);
      }
    }
    const Matrices<Element>& to = of_keys ? arguments.grad_keys : arguments.grad_queries;
    store_tiles<Element>(sums, step * kSliceColumns + 8 * column_tile, arguments.width, arguments.aligned_outputs, [&](int offset) {
      const int token = 16 * tile + offset;
      return token < arguments.tokens ? to.row(pair, token) : nullptr;
    });
  }

  __device__ __forceinline__ void differentiate() const {
    const auto load = [&](int step, unsigned char* buffer) { copy_rows(step, buffer); };
    const int units = arguments.plan.rows / 16 * kUnitsPerRow * 2;
    find_similarities();
    const Ring slices = ring();
    slices.start(load);  // the first slices arrive while the weights are computed
    if (const int token = threadIdx.x; token < arguments.tokens && real(token))
      numbers()[token].gradient = arguments.grad_losses[pair * arguments.tokens + token];
    const float scale = *arguments.scale;
    find_sums(scale);
    find_weights(scale);
    slices.run(load, [&](int step, const unsigned char* buffer) {
      for (int unit = static_cast<int>(threadIdx.x / 32); unit < units; unit += kWarps) put_gradients(unit, step, buffer);
    });
  }
};

template <class Element>
__global__ void __launch_bounds__(kThreads, 2) token_contrast_forward_kernel(ContrastArguments<Element> arguments) {
  TESSERA_DYNAMIC_SHARED(shared);
  const ContrastBlock<Element> block(arguments, blockIdx.x, shared);
  block.find_similarities();
  block.find_sums(*arguments.scale);
  block.put_losses();
}

template <class Element>
__global__ void __launch_bounds__(kThreads, 2) token_contrast_backward_kernel(ContrastArguments<Element> arguments) {
  TESSERA_DYNAMIC_SHARED(shared);
  ContrastBlock<Element>(arguments, blockIdx.x, shared).differentiate();
}

/// The shared memory that a block may use on the GPU of the calling thread; in the emulation, that of an H100.
inline std::size_t current_block_memory() {
#if defined(TESSERA_CUDA_EMULATION)
  return 227 * 1024;
#else
  int device = 0;
  cudaGetDevice(&device);
  return cuda::block_memory(device);
#endif
}

template <class Element, class Given>
ContrastArguments<Element> contrast_arguments(const Given& given, const TokenContrastPlan& plan) {
  const TokenContrastProblem& problem = given.problem;
  const auto rows = [](const ConstRows& of) {
    return Matrices<const Element>{static_cast<const Element*>(of.data), of.batch_stride, of.row_stride};
  };
  ContrastArguments<Element> out{};
  out.tokens = static_cast<int>(problem.tokens);
  out.width = static_cast<int>(problem.width);
  out.tf32 = problem.tf32;
  out.aligned_inputs =
      aligned_rows(given.queries, problem.width, sizeof(Element)) && aligned_rows(given.keys, problem.width, sizeof(Element));
  out.plan = plan;
  out.queries = rows(given.queries);
  out.keys = rows(given.keys);
  out.mask = given.mask;
  out.scale = given.scale;
  return out;
}

template <class Element>
Status start(const TokenContrastForward& given, const TokenContrastPlan& plan, void* stream) {
  ContrastArguments<Element> arguments = contrast_arguments<Element>(given, plan);
  arguments.losses = given.losses;
  return launch("token_contrast forward", token_contrast_forward_kernel<Element>, dim3(static_cast<unsigned>(given.problem.batch)),
                kThreads, plan.bytes, stream, arguments);
}

template <class Element>
Status start(const TokenContrastBackward& given, const TokenContrastPlan& plan, void* stream) {
  const auto rows = [](const Rows& of) { return Matrices<Element>{static_cast<Element*>(of.data), of.batch_stride, of.row_stride}; };
  const std::int64_t width = given.problem.width;
  ContrastArguments<Element> arguments = contrast_arguments<Element>(given, plan);
  arguments.aligned_outputs =
      aligned_rows(given.grad_queries, width, sizeof(Element)) && aligned_rows(given.grad_keys, width, sizeof(Element));
  arguments.grad_losses = given.grad_losses;
  arguments.grad_queries = rows(given.grad_queries);
  arguments.grad_keys = rows(given.grad_keys);
  arguments.grad_scale = given.grad_scale;
  return launch("token_contrast backward", token_contrast_backward_kernel<Element>, dim3(static_cast<unsigned>(given.problem.batch)),
                kThreads, plan.bytes, stream, arguments);
}

template <class Given>
Status plan_and_start(const Given& given, Pass pass, void* stream) {
  const TokenContrastProblem& problem = given.problem;
  if (Status status = check(given); !status.ok() || problem.batch == 0) return status;
  if (problem.batch > kMostBlocks) return Status::failure("token_contrast: batch must be at most " + std::to_string(kMostBlocks));
  const std::size_t memory = current_block_memory();
  const TokenContrastPlan plan = contrast_plan(problem, pass, memory);
  if (plan.bytes > memory)
    return Status::failure("token_contrast: " + std::to_string(problem.tokens) + " tokens do not fit into the shared memory of a block");
  return problem.type == DataType::kBfloat16 ? start<Bfloat16>(given, plan, stream) : start<float>(given, plan, stream);
}

}  // namespace

namespace TESSERA_DEVICE_NAMESPACE {

Status token_contrast_forward(const TokenContrastForward& arguments, void* stream) {
  return plan_and_start(arguments, Pass::kForward, stream);
}

Status token_contrast_backward(const TokenContrastBackward& arguments, void* stream) {
  return plan_and_start(arguments, Pass::kBackward, stream);
}

}  // namespace TESSERA_DEVICE_NAMESPACE
}  // namespace tessera::kernels
