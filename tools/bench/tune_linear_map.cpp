#include <ATen/ATen.h>

#include "src/ops/linear_map.h"
#include "tools/bench/tune.h"
#include <tessera/base/error.h>

namespace tessera::bench {

std::vector<TuningCase> linear_map_tuning_cases(const at::Device& device) {
  // The maps of ViT-B/16 with 512 images (197 tokens), and of its text tower with 512 captions that are padded to 77 tokens. Omitted are
  // the text tower's maps from 512 to 1,536 and to 512 numbers, and packed captions, whose products take the least time.
  constexpr std::int64_t kImageRows = 512 * 197, kTextRows = 512 * 77;
  std::vector<TuningCase> out;
  for (const TunedMap& map : {TunedMap{kImageRows, 768, 2304, /*bias_gradient=*/true}, {kImageRows, 768, 768}, {kImageRows, 768, 3072},
                              {kImageRows, 3072, 768}, {kTextRows, 512, 2048}, {kTextRows, 2048, 512}})
    for (TuningCase& each : map_tuning_cases(map, device)) out.push_back(std::move(each));
  return out;
}

std::vector<TuningCase> map_tuning_cases(const TunedMap& map, const at::Device& device) {
  using kernels::GemmKind;
  const at::TensorOptions options = at::TensorOptions(device).dtype(at::kBFloat16);
  const at::Tensor x = at::randn({map.rows, map.in}, options), gradient = at::randn({map.rows, map.out}, options),
                   weight = at::randn({map.out, map.in}, options), bias = at::randn({map.out}, options);
  // The function's inputs are of one type.
  const auto forward = [](const Tensors& in) -> Tensors { return {apply_map(in[0], {in[1], in[2], {}}, /*by_functional=*/false)}; };
  const auto of_input = [](const Tensors& in) -> Tensors { return {input_gradient(in[0], in[1])}; };
  const auto of_weight = [with_bias = map.bias_gradient](const Tensors& in) -> Tensors {
    const at::ScalarType type = in[0].scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const MapGradient found = parameter_gradient(in[0], in[1], type, /*weight_wanted=*/true, with_bias);
    return with_bias ? Tensors{found.weight, found.bias} : Tensors{found.weight};
  };
  std::vector<TuningCase> out;
  const auto add = [&](const char* name, GemmKind kind, bool with_bias, const Tensors& inputs, const auto& compute) {
    kernels::GemmProblem problem{kind, map.rows, map.in, map.out};
    if (kind == GemmKind::kWeightGradient) problem.result = kernels::DataType::kFloat32;
    problem.bias = with_bias;
    const auto reference = [=] {
      Tensors exact;
      for (const at::Tensor& each : inputs) exact.push_back(each.to(at::kDouble));
      return compute(exact);
    };
    out.push_back({linear_map_tuning_key(problem), concat(name, ", T=", map.rows, " I=", map.in, " O=", map.out),
                   kernels::cuda::gemm_algorithms(problem), [=] { return compute(inputs); }, reference, 1e-2, "cublas"});
  };
  add("map with bias", GemmKind::kForward, true, {x, weight, bias}, forward);
  add("gradient of the input", GemmKind::kInputGradient, false, {gradient, weight}, of_input);
  add(map.bias_gradient ? "gradients of weight and bias" : "gradient of the weight", GemmKind::kWeightGradient, map.bias_gradient,
      {gradient, x}, of_weight);
  return out;
}

}  // namespace tessera::bench
