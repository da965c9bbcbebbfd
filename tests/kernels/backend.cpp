#include "tests/kernels/backend.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "kernels/cpu/instruction_set.h"
#include "kernels/emulation/cuda_emulation.h"

namespace tessera::kernels::test {
namespace {

constexpr std::size_t kMargin = 256;
constexpr unsigned char kMarginByte = 0xa5;

class HostBuffer : public Buffer {
 public:
  explicit HostBuffer(const std::vector<unsigned char>& content) : size_(content.size()) {
    memory_.assign(size_ + 2 * kMargin + 64, kMarginByte);
    const std::uintptr_t start = reinterpret_cast<std::uintptr_t>(memory_.data()) + kMargin;
    offset_ = (start + 63) / 64 * 64 - start + kMargin;
    std::copy(content.begin(), content.end(), memory_.begin() + static_cast<std::ptrdiff_t>(offset_));
  }
  ~HostBuffer() override { EXPECT_TRUE(margins_intact()); }
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;
  void* data() override { return memory_.data() + offset_; }
  std::vector<unsigned char> read() override {
    return {memory_.begin() + static_cast<std::ptrdiff_t>(offset_),
            memory_.begin() + static_cast<std::ptrdiff_t>(offset_ + size_)};
  }

 private:
  bool margins_intact() const {
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      if ((i < offset_ || i >= offset_ + size_) && memory_[i] != kMarginByte) return false;
    }
    return true;
  }
  std::size_t size_, offset_;
  std::vector<unsigned char> memory_;
};

/// Computes c = a b^T with plain loops, for a [rows, depth] and b [columns, depth]. It replaces the library's matrix product.
void plain_product(std::int64_t rows, std::int64_t columns, std::int64_t depth, const float* a, const float* b,
                   float* c) {
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) {
      float sum = 0.0f;
      for (std::int64_t k = 0; k < depth; ++k) sum += a[i * depth + k] * b[j * depth + k];
      c[i * columns + j] = sum;
    }
  }
}

}  // namespace

Backend cpu_backend(int threads, const std::string& instruction_set) {
  Parallel parallel;
  parallel.threads = threads;
  Backend result;
  result.name = "cpu";
  result.allocate = [](const auto& content) { return std::make_unique<HostBuffer>(content); };
  const auto choose = [instruction_set] { EXPECT_TRUE(use_instruction_set(instruction_set.c_str())); };
  const auto on_cpu = [=](auto kernel) {
    return [=](const auto& arguments) {
      choose();
      return kernel(arguments, parallel);
    };
  };
  result.sparsify_group_workspace = [=](const auto& p, Pass pass) {
    choose();
    return cpu::sparsify_group_workspace(p, pass, parallel);
  };
  result.sparsify_group_forward = on_cpu(cpu::sparsify_group_forward);
  result.sparsify_group_backward = on_cpu(cpu::sparsify_group_backward);
  result.flops_workspace = [](const auto&) { return std::size_t{0}; };
  result.flops_forward = on_cpu(cpu::flops_forward);
  result.flops_backward = on_cpu(cpu::flops_backward);
  result.cross_entropy_tile = on_cpu(cpu::cross_entropy_tile);
  result.max_similarity_workspace = [](const auto&, Pass) { return std::size_t{0}; };
  result.max_similarity_forward = on_cpu(cpu::max_similarity_forward);
  result.max_similarity_backward = on_cpu(cpu::max_similarity_backward);
  result.patch_softmax = on_cpu(cpu::patch_softmax);
  result.patch_softmax_backward = on_cpu(cpu::patch_softmax_backward);
  result.pooled_pairs = on_cpu(cpu::pooled_pairs);
  result.roi_align_forward = on_cpu(cpu::roi_align_forward);
  result.roi_align_backward = on_cpu(cpu::roi_align_backward);
  result.token_max_projection_forward = [=](const auto& a) {
    choose();
    return cpu::token_max_projection_forward(a, plain_product, parallel);
  };
  result.token_max_projection_backward = on_cpu(cpu::token_max_projection_backward);
  return result;
}

Backend emulation_backend() {
  const auto emulated = [](auto kernel) {
    return [=](const auto& arguments) { return kernel(arguments, nullptr); };
  };
  Backend result;
  result.name = "emulation";
  result.rounds_weights = true;
  result.allocate = [](const auto& content) { return std::make_unique<HostBuffer>(content); };
  result.adamw_update = emulated(emulation::adamw_update);
  result.attention_forward = emulated(emulation::attention_forward);
  result.attention_backward = emulated(emulation::attention_backward);
  result.sparsify_group_workspace = emulation::sparsify_group_workspace;
  result.sparsify_group_forward = emulated(emulation::sparsify_group_forward);
  result.sparsify_group_backward = emulated(emulation::sparsify_group_backward);
  result.flops_workspace = emulation::flops_workspace;
  result.flops_forward = emulated(emulation::flops_forward);
  result.flops_backward = emulated(emulation::flops_backward);
  result.cross_entropy_tile = emulated(emulation::cross_entropy_tile);
  result.max_similarity_workspace = emulation::max_similarity_workspace;
  result.max_similarity_forward = emulated(emulation::max_similarity_forward);
  result.max_similarity_backward = emulated(emulation::max_similarity_backward);
  result.patch_softmax = emulated(emulation::patch_softmax);
  result.patch_softmax_backward = emulated(emulation::patch_softmax_backward);
  result.pooled_pairs = emulated(emulation::pooled_pairs);
  result.activation_workspace = emulation::activation_workspace;
  result.activation_forward = emulated(emulation::activation_forward);
  result.activation_backward = emulated(emulation::activation_backward);
  result.residual_norm_workspace = emulation::residual_norm_workspace;
  result.residual_norm_forward = emulated(emulation::residual_norm_forward);
  result.residual_norm_backward = emulated(emulation::residual_norm_backward);
  result.roi_align_forward = emulated(emulation::roi_align_forward);
  result.roi_align_backward = emulated(emulation::roi_align_backward);
  result.token_contrast_forward = emulated(emulation::token_contrast_forward);
  result.token_contrast_backward = emulated(emulation::token_contrast_backward);
  result.token_max_projection_forward = emulated(emulation::token_max_projection_forward);
  result.token_max_projection_backward = emulated(emulation::token_max_projection_backward);
  return result;
}

void reverse_threads(bool reverse) {
  emulation::set_schedule(reverse ? emulation::Schedule::kReverse : emulation::Schedule::kForward);
}

#if !defined(TESSERA_TEST_CUDA)
std::unique_ptr<Backend> cuda_backend() {
  return nullptr;
}
#endif

std::vector<std::string> backend_names() {
  std::vector<std::string> names = {"cpu", "emulation"};
  for (const char* instruction_set : {"portable", "avx2", "avx512"}) {
    if (use_instruction_set(instruction_set)) names.push_back(std::string("cpu_") + instruction_set);
  }
  if (cuda_backend() != nullptr) names.push_back("cuda");
  return names;
}

std::vector<std::string> device_backend_names() {
  std::vector<std::string> names = backend_names();
  std::erase_if(names, [](const std::string& name) { return name.starts_with("cpu"); });
  return names;
}

Backend backend(const std::string& name) {
  if (name == "cpu") return cpu_backend();
  if (name.rfind("cpu_", 0) == 0) return cpu_backend(2, name.substr(4));
  if (name == "emulation") return emulation_backend();
  return *cuda_backend();
}

std::vector<unsigned char> to_bytes(const std::vector<float>& values, DataType type) {
  std::vector<unsigned char> bytes(values.size() * size_of(type));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t half = float_to_bfloat16(values[i]);
    std::memcpy(bytes.data() + i * size_of(type),
                type == DataType::kBfloat16 ? static_cast<const void*>(&half) : &values[i], size_of(type));
  }
  return bytes;
}

std::vector<float> from_bytes(const std::vector<unsigned char>& bytes, DataType type) {
  std::vector<float> values(bytes.size() / size_of(type));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (type == DataType::kFloat32) {
      std::memcpy(&values[i], bytes.data() + i * 4, 4);
    } else {
      std::uint16_t half;
      std::memcpy(&half, bytes.data() + i * 2, 2);
      values[i] = bfloat16_to_float(half);
    }
  }
  return values;
}

std::vector<float> rounded(const std::vector<float>& values, DataType type) {
  return from_bytes(to_bytes(values, type), type);
}

void expect_close(const std::string& what, const std::vector<float>& ours, const std::vector<double>& theirs,
                  double tolerance) {
  ASSERT_EQ(ours.size(), theirs.size()) << what;
  double largest = 0.0;
  for (const double value : theirs) largest = std::max(largest, std::isfinite(value) ? std::abs(value) : 0.0);
  const double bound = tolerance * (1.0 + largest);
  double worst = 0.0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    if (std::isnan(theirs[i]) && std::isnan(ours[i])) continue;
    const double error = std::abs(static_cast<double>(ours[i]) - theirs[i]);
    if (!(error <= worst)) {
      worst = std::isnan(error) ? HUGE_VAL : error;
      at = i;
    }
  }
  EXPECT_LE(worst, bound) << what << ": element " << at << " is " << ours[at] << ", expected " << theirs[at]
                          << ", worst error " << worst / bound << " of the bound";
}

}  // namespace tessera::kernels::test
