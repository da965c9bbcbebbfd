#include <cmath>

#include <ATen/ATen.h>

#include "src/models/per_sample_rng.h"
#include <tessera/models/lora.h>

namespace tessera {

std::optional<config::Problem> validate(const LoraSettings& settings) {
  if (!settings.layers.empty()) return std::nullopt;
  return config::Problem{"layers", "names no layer: most runs use [query, value]"};
}

void Adaptable::add_adapter(torch::nn::Module& self, const LinearMap& map, const LoraSettings& settings) {
  const at::Tensor weight = self.named_parameters()[map.parameter];
  const std::int64_t in = weight.size(1);
  TORCH_CHECK(settings.rank <= std::min(in, map.rows), "LoRA: rank ", settings.rank, " of a map from ", in, " to ", map.rows);
  LoraAdapter adapter{map, {}, {}, settings.alpha / static_cast<double>(settings.rank)};
  const double bound = 1 / std::sqrt(static_cast<double>(in));
  const at::Tensor drawn = at::empty({settings.rank, in}).uniform_(-bound, bound);
  adapter.a = self.register_parameter("lora_" + map.name + "_a", drawn.to(weight.options()));
  adapter.b = self.register_parameter("lora_" + map.name + "_b", at::zeros({map.rows, settings.rank}, weight.options()));
  adapters_.push_back(std::move(adapter));
  dropout_ = settings.dropout;
}

void Adaptable::add_updates(const at::Tensor& x, std::initializer_list<Output> outputs, bool training,
                            std::int64_t left_out) const {
  if (adapters_.empty() || merged_) return;
  std::vector<std::pair<const LoraAdapter*, at::Tensor*>> found;
  std::vector<at::Tensor> down;
  std::vector<std::int64_t> ranks;
  for (const Output& output : outputs)
    for (const LoraAdapter& adapter : adapters_) {
      if (adapter.map.name != output.name) continue;
      found.emplace_back(&adapter, &output.value);
      down.push_back(adapter.a);
      ranks.push_back(adapter.a.size(0));
    }
  if (found.empty()) return;
  // Computes one product for all maps, so that x is read only once, cast only once (under autocast), and kept only once for the backward
  // pass.
  const at::Tensor input = training && dropout_ > 0 ? dropped(x, left_out) : x;
  const std::vector<at::Tensor> low =
      at::linear(input, down.size() == 1 ? down[0] : at::cat(down)).flatten(0, -2).split_with_sizes(ranks, 1);
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto& [adapter, output] = found[i];
    *output = at::addmm(output->flatten(0, -2), low[i] * adapter->scale, adapter->b.t()).view(output->sizes());
  }
}

// Applies dropout to x [..., N - left_out, in]. Each random integer serves two entries of x, with 31 bits for each entry.
at::Tensor Adaptable::dropped(const at::Tensor& x, std::int64_t left_out) const {
  constexpr std::int64_t kBits = 0x7FFFFFFF;
  const std::int64_t width = x.size(-1);
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes[sizes.size() - 2] += left_out;
  const std::int64_t tokens = c10::multiply_integers(sizes.begin(), sizes.end() - 1);
  const at::Tensor numbers =
      row_random_int(tokens, (width + 1) / 2, x.device()).view(at::kInt).bitwise_and(kBits).narrow(1, 0, width);
  const at::Tensor drop = numbers.lt(std::llround(dropout_ * static_cast<double>(kBits))).reshape(sizes);
  return x.masked_fill(drop.slice(-2, left_out), 0) / (1 - dropout_);
}

}  // namespace tessera
