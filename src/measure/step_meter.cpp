#include <atomic>
#include <mutex>
#include <numeric>
#include <string_view>

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include "src/base/recomputing.h"
#include "src/measure/step_meter.h"
#include <tessera/base/text.h>

namespace tessera {
namespace {

std::atomic<std::int64_t> counted{0}, counted_again{0};

// Adds `flops` floating-point operations to the counters. `again` is the number of these operations that repeat earlier operations.
void add(std::int64_t flops, std::int64_t again) {
  counted += flops;
  counted_again += Recomputing::now() ? flops : again;
}

struct Counters {
  std::mutex mutex;
  int alive = 0;
  at::CallbackHandle handle = 0;
} counters;

std::int64_t product(at::IntArrayRef sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

// Returns the FLOPs of a product [.., N, K] x [.., K, M].
std::int64_t matrix_product(const at::Tensor& a, const at::Tensor& b) {
  return 2 * a.numel() * b.size(-1);
}

// Returns the FLOPs of a convolution: one multiply-add for each output element and each weight of its filter.
std::int64_t convolution(at::IntArrayRef weight, at::IntArrayRef output) {
  return 2 * output[0] * product(output.slice(2)) * product(weight);
}

// `inputs` are the arguments of aten::convolution: input, weight, bias, stride, padding, dilation, transposed, ...
std::int64_t convolution(c10::ArrayRef<const c10::IValue> inputs) {
  const at::IntArrayRef input = inputs[0].toTensor().sizes(), weight = inputs[1].toTensor().sizes();
  if (inputs[6].toBool()) return convolution(weight, input);
  const auto stride = inputs[3].toIntVector(), padding = inputs[4].toIntVector(), dilation = inputs[5].toIntVector();
  std::vector<std::int64_t> output = input.vec();
  for (std::size_t i = 2; i < output.size(); ++i) {
    const auto at = [i](const std::vector<std::int64_t>& list) { return list.size() == 1 ? list[0] : list[i - 2]; };
    output[i] = (input[i] + 2 * at(padding) - at(dilation) * (weight[i] - 1) - 1) / at(stride) + 1;
  }
  return convolution(weight, output);
}

// Returns the FLOPs of `products` matrix products of queries [B, H, N, d] with keys [B, H, M, d].
std::int64_t attention(const at::Tensor& query, const at::Tensor& key, int products) {
  return products * 2 * query.numel() * key.size(-2);
}

// Returns the FLOPs of one matrix product of attention in packed rows: queries [.., T, H, d], and the rows' offsets [B + 1].
std::int64_t packed_attention(const at::Tensor& query, const at::Tensor& offsets) {
  return 2 * query.size(-2) * query.size(-1) * offsets.diff().to(at::kLong).square().sum().item<std::int64_t>();
}

// The same for the inputs of self_attention(): qkv [T, 3, H, d], offsets, the number of sequences, and the tokens of each without offsets.
std::int64_t self_attention_product(c10::ArrayRef<const c10::IValue> inputs) {
  const at::Tensor qkv = inputs[0].toTensor(), offsets = inputs[1].toTensor();
  if (offsets.defined()) return packed_attention(qkv, offsets);
  return 2 * qkv.size(-2) * qkv.size(-1) * inputs[2].toInt() * inputs[3].toInt() * inputs[3].toInt();
}

bool tensor_at(c10::ArrayRef<const c10::IValue> inputs, std::size_t index) {
  return index < inputs.size() && inputs[index].isTensor();
}

void count(const at::RecordFunction& call) {
  const std::string_view name = call.name();
  const auto inputs = call.inputs();
  std::int64_t flops = 0, again = 0;
  if (name == "aten::mm" || name == "aten::bmm") {
    flops = matrix_product(inputs[0].toTensor(), inputs[1].toTensor());
  } else if (name == "aten::addmm" || name == "aten::baddbmm") {
    flops = matrix_product(inputs[1].toTensor(), inputs[2].toTensor());
  } else if (name == "aten::mv" || name == "aten::dot") {
    flops = 2 * inputs[0].toTensor().numel();
  } else if (name == "aten::convolution") {
    flops = convolution(inputs);
  } else if (name == "aten::convolution_backward") {
    // The inputs are grad_output, input, weight, ... Each requested gradient (of input or weight) takes one convolution.
    const auto mask = inputs[inputs.size() - 1].toBoolList();
    flops = (static_cast<int>(mask.get(0)) + static_cast<int>(mask.get(1))) *
            convolution(inputs[2].toTensor().sizes(), inputs[0].toTensor().sizes());
  } else if (name.find("_scaled_dot_product") != std::string_view::npos) {
    const bool fused = name.find("flash") != std::string_view::npos ||
                       name.find("efficient") != std::string_view::npos || name.find("cudnn") != std::string_view::npos;
    if (!fused) return;  // the composed version calls matrix products, which are counted one by one
    const bool backward = name.find("backward") != std::string_view::npos;
    const std::size_t query = backward ? 1 : 0;
    if (tensor_at(inputs, query) && tensor_at(inputs, query + 1)) {
      const at::Tensor q = inputs[query].toTensor(), k = inputs[query + 1].toTensor();
      flops = attention(q, k, backward ? 5 : 2);
      again = backward ? attention(q, k, 1) : 0;  // the backward pass computes the scores again
    }
  } else if (name.starts_with("aten::_flash_attention_") || name.starts_with("aten::_efficient_attention_")) {
    // Packed rows are passed to these operators directly. Fused attention, which is counted above, calls them without offsets.
    const bool backward = name.ends_with("backward");
    const std::size_t query = backward ? 1 : 0, offsets = backward ? 6 : name.find("flash") != std::string_view::npos ? 3 : 4;
    if (tensor_at(inputs, offsets) && inputs[offsets].toTensor().defined()) {
      const std::int64_t product = packed_attention(inputs[query].toTensor(), inputs[offsets].toTensor());
      flops = (backward ? 5 : 2) * product;
      again = backward ? product : 0;
    }
  }
  add(flops, again);
}

// How many of our own operators are on this thread's call stack. The meter counts the FLOPs of the outermost one as a whole and ignores all
// calls inside it: the second call of the same operator, which autograd makes, and calls of other operators.
thread_local int inside_own = 0;

struct InsideOwn : at::ObserverContext {
  InsideOwn() { ++inside_own; }
  ~InsideOwn() override { --inside_own; }
};

std::unique_ptr<at::ObserverContext> on_call(const at::RecordFunction& call) {
  if (inside_own > 0) return nullptr;
  const std::string_view name = call.name();
  if (name.starts_with("tessera::")) {
    if (const auto flops = operator_flops(name, call.inputs())) {
      add(*flops, operator_recomputed_flops(name, call.inputs()));
      return std::make_unique<InsideOwn>();
    }
  }
  count(call);
  return nullptr;
}

class Reporter : public c10::MemoryReportingInfoBase {
 public:
  explicit Reporter(std::optional<std::int64_t> greatest) : limit(greatest) {}

  void reportMemoryUsage(void* pointer, std::int64_t size, std::size_t /*allocated*/, std::size_t /*reserved*/,
                         c10::Device device) override {
    const std::lock_guard<std::mutex> lock(mutex);
    if (limit && size > 0 && device.is_cpu() && held + size > *limit) {
      // No tensor owns the block yet, so it must be freed here. Nothing was written to it, so it has not used physical memory.
      c10::free_cpu(pointer);
      throw MemoryLimitExceeded("an allocation of " + std::to_string(size) + " bytes in addition to " + std::to_string(held) +
                                " exceeds the limit of " + std::to_string(*limit));
    }
    peak = std::max(peak, held += size);
    changes.push_back(static_cast<double>(size));
  }
  bool memoryProfilingEnabled() const override { return true; }

  const std::optional<std::int64_t> limit;
  std::mutex mutex;
  std::int64_t held = 0, peak = 0;
  std::vector<double> changes;
};

// Returns the FLOPs of one product of every token with every patch of its image: text [B, L, D], image [B, P, D].
std::int64_t group_product(const at::Tensor& text, const at::Tensor& image) {
  return 2 * text.numel() * image.size(1);
}

// Returns the FLOPs of one product of every query [B, N, D] with every key of its pair.
std::int64_t contrast_product(const at::Tensor& queries) {
  return 2 * queries.numel() * queries.size(1);
}

// Returns the FLOPs of the products of all kept patches [B, P, D] with all kept tokens [C, L, D].
std::int64_t kept_products(const at::Tensor& patches, const at::Tensor& patch_keep, const at::Tensor& token_keep) {
  return 2 * patches.size(2) * patch_keep.sum().item<std::int64_t>() * token_keep.sum().item<std::int64_t>();
}

// Returns true if max_similarity and token_max_projection have a kernel for the tokens' type. For other types they call LibTorch's
// products.
bool has_kernel(const at::Tensor& tokens) {
  return tokens.scalar_type() == at::kFloat || tokens.scalar_type() == at::kBFloat16;
}

// Returns the FLOPs of the products of each unmasked token with each row of the table, or nullopt if there is no kernel for the tokens'
// type. `inputs` are tokens [B, N, w], mask [B, N] or None, and table [V, w].
std::optional<std::int64_t> projection_product(c10::ArrayRef<const c10::IValue> inputs) {
  const at::Tensor tokens = inputs[0].toTensor();
  if (!has_kernel(tokens)) return std::nullopt;
  const std::int64_t real =
      inputs[1].isNone() ? tokens.size(0) * tokens.size(1) : inputs[1].toTensor().sum().item<std::int64_t>();
  return 2 * real * inputs[2].toTensor().numel();
}

}  // namespace

struct FlopCounter::Impl {
  const std::int64_t start = counted, start_again = counted_again;
};

// All counters share one callback. Otherwise, operations would be counted once for each counter that exists.
FlopCounter::FlopCounter() : impl_(std::make_unique<Impl>()) {
  const std::lock_guard<std::mutex> lock(counters.mutex);
  if (counters.alive++ == 0)
    counters.handle = at::addGlobalCallback(
        at::RecordFunctionCallback(on_call).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
}

FlopCounter::~FlopCounter() {
  const std::lock_guard<std::mutex> lock(counters.mutex);
  if (--counters.alive == 0) at::removeCallback(counters.handle);
}

double FlopCounter::flops() const {
  return static_cast<double>(counted - impl_->start);
}

double FlopCounter::recomputed() const {
  return static_cast<double>(counted_again - impl_->start_again);
}

std::string format_flops(double flops) {
  if (flops >= 1e12) return fixed(flops / 1e12, 2) + " TFLOPs";
  if (flops >= 1e9) return fixed(flops / 1e9, 2) + " GFLOPs";
  return fixed(flops / 1e6, 2) + " MFLOPs";
}

struct MemoryMeter::Impl {
  explicit Impl(std::optional<std::int64_t> limit) : reporter(std::make_shared<Reporter>(limit)) {}
  std::shared_ptr<Reporter> reporter;
  c10::DebugInfoGuard guard{c10::DebugInfoKind::PROFILER_STATE, reporter};
};

MemoryMeter::MemoryMeter(std::optional<std::int64_t> limit) : impl_(std::make_unique<Impl>(limit)) {}
MemoryMeter::~MemoryMeter() = default;
std::int64_t MemoryMeter::held() const {
  const std::lock_guard<std::mutex> lock(impl_->reporter->mutex);
  return impl_->reporter->held;
}
std::int64_t MemoryMeter::peak() const {
  const std::lock_guard<std::mutex> lock(impl_->reporter->mutex);
  return impl_->reporter->peak;
}
std::vector<double> MemoryMeter::changes() const {
  const std::lock_guard<std::mutex> lock(impl_->reporter->mutex);
  return impl_->reporter->changes;
}

std::optional<std::int64_t> operator_flops(std::string_view name, c10::ArrayRef<const c10::IValue> inputs) {
  if (name == "tessera::_sparsify_group")  // two products: of text and patches (the similarities), and of weights and patches
    return 2 * group_product(inputs[0].toTensor(), inputs[1].toTensor());
  if (name == "tessera::_sparsify_group_backward") {
    // One product recomputes the similarities, and one computes the gradient of the weights. If requested, the gradient of the tokens takes
    // one more product, and the gradient of the patches takes two more.
    const auto wanted = inputs[inputs.size() - 1].toBoolList();
    return (2 + static_cast<int>(wanted.get(0)) + 2 * static_cast<int>(wanted.get(1))) *
           group_product(inputs[1].toTensor(), inputs[2].toTensor());
  }
  if (name == "tessera::_linear_product") return matrix_product(inputs[0].toTensor(), inputs[1].toTensor());
  // One product, of queries and keys. The backward pass repeats it, and each of its gradients takes one more.
  if (name == "tessera::_token_contrast") return contrast_product(inputs[0].toTensor());
  if (name == "tessera::_token_contrast_backward") return 3 * contrast_product(inputs[1].toTensor());
  if (name == "tessera::_max_similarity") {
    const at::Tensor patches = inputs[0].toTensor();
    if (!has_kernel(patches)) return std::nullopt;
    return kept_products(patches, inputs[2].toTensor(), inputs[3].toTensor());
  }
  if (name == "tessera::_token_max_projection") return projection_product(inputs);
  if (name == "tessera::_self_attention") return 2 * self_attention_product(inputs);
  if (name == "tessera::_self_attention_backward") return 5 * self_attention_product(inputs);
  // These backward passes only add rows at the positions of the maxima. On Hopper GPUs, that of max_similarity multiplies all rows by
  // weights that are mostly 0, which does not count.
  if (name == "tessera::_max_similarity_backward" || name == "tessera::_token_max_projection_backward")
    return has_kernel(inputs[2].toTensor()) ? std::optional<std::int64_t>(0) : std::nullopt;
  return std::nullopt;
}

std::int64_t operator_recomputed_flops(std::string_view name, c10::ArrayRef<const c10::IValue> inputs) {
  if (name == "tessera::_sparsify_group_backward") return group_product(inputs[1].toTensor(), inputs[2].toTensor());
  if (name == "tessera::_token_contrast_backward") return contrast_product(inputs[1].toTensor());
  return name == "tessera::_self_attention_backward" ? self_attention_product(inputs) : 0;
}

}  // namespace tessera
