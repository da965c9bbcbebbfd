#include "src/models/room.h"

#include <algorithm>
#include <charconv>
#include <new>
#include <set>

#include <ATen/ATen.h>
#include <torch/library.h>
#include <torch/nn/module.h>

#include "src/base/machine_memory.h"
#include "src/config/values.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

// While this dispatch key, which no part of LibTorch uses, is included, the operators that give parameters their initial values do not
// touch large tensors. The operating system provides memory for a page only when it is written.
constexpr c10::DispatchKey kUnfilled = c10::DispatchKey::TESTING_ONLY_GenericMode;

bool is_large(const at::Tensor& tensor) {
  constexpr std::size_t kLarge = 1 << 20;
  return tensor.nbytes() >= kLarge;
}

at::Tensor& no_draw(at::Tensor& self, double, double, std::optional<at::Generator>) {
  return self;
}

at::Tensor& fill_if_small(at::Tensor& self, const at::Scalar& value) {
  const c10::impl::ExcludeDispatchKeyGuard as_usual(kUnfilled);
  return is_large(self) ? self : self.fill_(value);
}

at::Tensor& zero_if_small(at::Tensor& self) {
  const c10::impl::ExcludeDispatchKeyGuard as_usual(kUnfilled);
  return is_large(self) ? self : self.zero_();
}

at::Tensor mul_if_small(const at::Tensor& a, const at::Tensor& b) {
  const c10::impl::ExcludeDispatchKeyGuard as_usual(kUnfilled);
  return is_large(a) && b.dim() == 0 ? at::empty_like(a) : at::mul(a, b);
}

at::Tensor div_if_small(const at::Tensor& a, const at::Tensor& b) {
  const c10::impl::ExcludeDispatchKeyGuard as_usual(kUnfilled);
  return is_large(a) && b.dim() == 0 ? at::empty_like(a) : at::div(a, b);
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, m) {
  m.impl("normal_", no_draw);
  m.impl("uniform_", no_draw);
  m.impl("fill_.Scalar", fill_if_small);
  m.impl("zero_", zero_if_small);
  m.impl("mul.Tensor", mul_if_small);
  m.impl("div.Tensor", div_if_small);
}

// Returns the largest whole numbers among the settings, as in "model.text.encoder.vocab_size 49408, model.image.encoder.width 768".
std::string largest_numbers(const std::string& path, const config::Node& settings) {
  std::vector<std::pair<std::int64_t, std::string>> found;
  config::for_each_value(settings, path, [&](const std::string& key, const config::Node& value) {
    std::int64_t number = 0;
    const char* end = value.text().data() + value.text().size();
    const auto read = std::from_chars(value.text().data(), end, number);
    if (!value.quoted() && !value.text().empty() && read.ec == std::errc() && read.ptr == end) found.emplace_back(number, key);
  });
  std::ranges::sort(found, std::greater());
  if (found.size() > 4) found.resize(4);
  std::string out;
  for (const auto& [number, key] : found) out += concat(out.empty() ? "" : ", ", key, " ", number);
  return out;
}

// Whether an allocation failed, or a tensor has more bytes than 64 bits can count.
bool means_too_large(const std::exception& error) {
  const std::string_view text = error.what();
  return dynamic_cast<const std::bad_alloc*>(&error) != nullptr || text.find("can't allocate memory") != std::string_view::npos ||
         text.find("overflow") != std::string_view::npos || text.find("negative dimension") != std::string_view::npos;
}

}  // namespace

std::vector<at::Tensor> tensors_of(const torch::nn::Module& module) {
  std::vector<at::Tensor> out = module.parameters(), buffers = module.buffers();
  out.insert(out.end(), buffers.begin(), buffers.end());
  return out;
}

void check_room(const std::string& what, const std::string& path, const config::Node& settings,
                const std::function<std::vector<at::Tensor>()>& build) {
  const auto fail = [&](const std::string& needed) {
    user_error(path, path.empty() ? "the " : ": the ", what, " need ", needed, " of memory, but this machine has only ",
               format_bytes(static_cast<double>(free_memory())), " free; the largest settings are ", largest_numbers(path, settings),
               ": make one of them smaller");
  };
  double bytes = 0;
  try {
    const c10::impl::IncludeDispatchKeyGuard unfilled(kUnfilled);
    std::set<const void*> seen;
    for (const at::Tensor& tensor : build())
      if (seen.insert(tensor.unsafeGetTensorImpl()).second) bytes += static_cast<double>(tensor.nbytes());
  } catch (const UserError&) {
    throw;
  } catch (const std::exception& error) {
    if (!means_too_large(error)) throw;
    fail("more than " + format_bytes(static_cast<double>(free_memory())));
  }
  if (bytes > static_cast<double>(free_memory())) fail(format_bytes(bytes));
}

}  // namespace tessera
