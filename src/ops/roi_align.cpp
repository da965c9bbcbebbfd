#include "kernels/roi_align/roi_align.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernels/roi_align/axis.h"
#include "src/ops/dispatch.h"
#include "src/ops/kernel_call.h"
#include "src/ops/operators.h"
#include <tessera/ops/numeric.h>
#include <tessera/ops/roi_align.h>

namespace tessera {
namespace {
namespace roi_align_parts {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void check(const at::Tensor& features, const at::Tensor& boxes, const at::Tensor& image, at::IntArrayRef output_size) {
  TORCH_CHECK(features.dim() == 4 && features.is_floating_point(),
              "roi_align: features must be floating [B, H, W, C], got ", features.scalar_type(), " ",
              features.sym_sizes());
  TORCH_CHECK(features.sym_numel() > 0, "roi_align: features must hold at least one number, got ",
              features.sym_sizes());
  TORCH_CHECK(boxes.dim() == 2 && boxes.sym_size(1) == 4 && boxes.is_floating_point(),
              "roi_align: boxes must be floating [K, 4], got ", boxes.scalar_type(), " ", boxes.sym_sizes());
  TORCH_CHECK(image.dim() == 1 && image.sym_size(0) == boxes.sym_size(0) && image.scalar_type() == at::kLong,
              "roi_align: image must be int64 [K] = [", boxes.sym_size(0), "], got ", image.scalar_type(), " ",
              image.sym_sizes());
  TORCH_CHECK(output_size.size() == 2 && output_size[0] > 0 && output_size[1] > 0,
              "roi_align: output_size must be two numbers of at least 1, got ", output_size);
  for (const auto& [tensor, name] : {std::pair{&boxes, "boxes"}, {&image, "image"}})
    TORCH_CHECK(tensor->device() == features.device(), "roi_align: ", name, " is on ", tensor->device(),
                ", features on ", features.device());
}

// The arguments of the forward and the backward pass.
struct Call {
  at::Tensor corners, image;  // contiguous; `corners` is float64 for float64 features, otherwise float32
  std::int64_t images, height, width, channels;
  at::IntArrayRef output_size;
  std::int64_t sampling_ratio;
  bool aligned;

  std::int64_t boxes() const { return image.size(0); }
};

kernels::RoiAlignProblem make_problem(const Call& call, kernels::DataType type) {
  return {call.images,
          call.height,
          call.width,
          call.channels,
          call.boxes(),
          call.output_size[0],
          call.output_size[1],
          call.sampling_ratio,
          call.aligned,
          type,
          call.corners.const_data_ptr<float>(),
          call.image.const_data_ptr<std::int64_t>()};
}

// The weight that each cell has for each bin, along both axes. Used for float64, for which matrix products replace the
// kernels.
struct AxisWeights {
  at::Tensor rows, columns;  // [K, bins, H], [K, bins, W]
};

at::Tensor axis_weights(const Call& call, std::int64_t axis, std::int64_t size) {
  const std::int64_t bins = call.output_size[axis];
  const at::Tensor corners = call.corners.cpu(), weights = at::empty({call.boxes(), bins, size}, corners.options());
  const double* corner = corners.const_data_ptr<double>() + (1 - axis);  // corners are x, y, x, y; axis 0 is y
  auto* to = weights.mutable_data_ptr<double>();
  for (std::int64_t box = 0; box < call.boxes(); ++box, corner += 4)
    for (std::int64_t bin = 0; bin < bins; ++bin, to += size)
      kernels::axis_weights(corner[0], corner[2], bin, bins, call.sampling_ratio, call.aligned, size, to);
  return weights.to(call.corners.device());
}

AxisWeights axis_weights(const Call& call) {
  const bool named =
      !call.image.is_cpu() || call.boxes() == 0 ||
      (call.image.min().item<std::int64_t>() >= 0 && call.image.max().item<std::int64_t>() < call.images);
  TORCH_CHECK(named, "roi_align: image must be in 0..", call.images - 1, ", got ",
              call.image.min().item<std::int64_t>(), "..", call.image.max().item<std::int64_t>());
  return {axis_weights(call, 0, call.height), axis_weights(call, 1, call.width)};
}

at::Tensor forward_in_double(const Call& call, const at::Tensor& features) {
  const AxisWeights weights = axis_weights(call);
  const at::Tensor own = features.index_select(0, call.image).flatten(2);                           // [K, H, W C]
  const at::Tensor of_rows = at::bmm(weights.rows, own).unflatten(2, {call.width, call.channels});  // [K, rows, W, C]
  return at::matmul(weights.columns.unsqueeze(1), of_rows);
}

at::Tensor backward_in_double(const Call& call, const at::Tensor& gradient) {
  const AxisWeights weights = axis_weights(call);
  const at::Tensor of_rows = at::matmul(weights.columns.mT().unsqueeze(1), gradient).flatten(2);  // [K, rows, W C]
  const at::Tensor own = at::bmm(weights.rows.mT(), of_rows).unflatten(2, {call.width, call.channels});
  return at::zeros({call.images, call.height, call.width, call.channels}, gradient.options())
      .index_add_(0, call.image, own);
}

at::Tensor forward_on_device(const at::Tensor& features, const at::Tensor& boxes, const at::Tensor& image,
                             at::IntArrayRef output_size, std::int64_t sampling_ratio, bool aligned) {
  check(features, boxes, image, output_size);
  const c10::OptionalDeviceGuard device(features.device());
  const at::Tensor cells = features.contiguous();
  const Call call{boxes.to(compute_dtype(cells)).contiguous(),
                  image.contiguous(),
                  cells.size(0),
                  cells.size(1),
                  cells.size(2),
                  cells.size(3),
                  output_size,
                  sampling_ratio,
                  aligned};
  if (cells.scalar_type() == at::kDouble) return forward_in_double(call, cells);
  const at::Tensor out = at::empty({call.boxes(), output_size[0], output_size[1], call.channels}, cells.options());
  kernels::RoiAlignForward pass;
  pass.problem = make_problem(call, kernel_type(cells));
  const at::Tensor memory = workspace(kernels::roi_align_workspace(pass.problem), cells);
  pass.features = cells.const_data_ptr();
  pass.out = out.mutable_data_ptr();
  pass.workspace = memory.mutable_data_ptr();
  check_status(cells.is_cpu() ? kernels::cpu::roi_align_forward(pass, torch_threads())
                              : kernels::cuda::roi_align_forward(pass, current_stream(cells)));
  return out;
}

at::Tensor backward_on_device(const at::Tensor& gradient, const at::Tensor& boxes, const at::Tensor& image,
                              c10::SymInt images, c10::SymInt height, c10::SymInt width, std::int64_t sampling_ratio,
                              bool aligned) {
  const c10::OptionalDeviceGuard device(gradient.device());
  const at::Tensor given = gradient.contiguous();
  const Call call{boxes.to(compute_dtype(given)).contiguous(),
                  image.contiguous(),
                  images.expect_int(),
                  height.expect_int(),
                  width.expect_int(),
                  given.size(3),
                  given.sizes().slice(1, 2),
                  sampling_ratio,
                  aligned};
  if (given.scalar_type() == at::kDouble) return backward_in_double(call, given);
  const auto [sorted, order] = call.image.sort(std::optional<bool>(true), /*dim=*/0);
  const at::Tensor first = at::searchsorted(sorted, at::arange(call.images + 1, sorted.options()));
  const at::Tensor out = at::empty({call.images, call.height, call.width, call.channels}, given.options());
  kernels::RoiAlignBackward pass;
  pass.problem = make_problem(call, kernel_type(given));
  const at::Tensor memory = workspace(kernels::roi_align_workspace(pass.problem), given);
  pass.order = order.const_data_ptr<std::int64_t>();
  pass.first = first.const_data_ptr<std::int64_t>();
  pass.gradient = given.const_data_ptr();
  pass.of_features = out.mutable_data_ptr();
  pass.workspace = memory.mutable_data_ptr();
  check_status(given.is_cpu() ? kernels::cpu::roi_align_backward(pass, torch_threads())
                              : kernels::cuda::roi_align_backward(pass, current_stream(given)));
  return out;
}

at::Tensor forward_on_meta(const at::Tensor& features, const at::Tensor& boxes, const at::Tensor& image,
                           at::IntArrayRef output_size, std::int64_t, bool) {
  check(features, boxes, image, output_size);
  return at::empty_symint({boxes.sym_size(0), output_size[0], output_size[1], features.sym_size(3)},
                          features.options());
}

at::Tensor backward_on_meta(const at::Tensor& gradient, const at::Tensor&, const at::Tensor&, c10::SymInt images,
                            c10::SymInt height, c10::SymInt width, std::int64_t, bool) {
  return at::empty_symint({std::move(images), std::move(height), std::move(width), gradient.sym_size(3)},
                          gradient.options());
}

class RoiAlign : public torch::autograd::Function<RoiAlign> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& features, const at::Tensor& boxes,
                            const at::Tensor& image, at::IntArrayRef output_size, std::int64_t sampling_ratio,
                            bool aligned) {
    const at::AutoDispatchBelowADInplaceOrView below;
    ctx->save_for_backward({boxes, image});
    ctx->saved_data["images"] = features.sym_size(0);
    ctx->saved_data["height"] = features.sym_size(1);
    ctx->saved_data["width"] = features.sym_size(2);
    ctx->saved_data["sampling_ratio"] = sampling_ratio;
    ctx->saved_data["aligned"] = aligned;
    static const auto pass = operation<decltype(forward_on_device)>("tessera::_roi_align");
    return pass.call(features, boxes, image, output_size, sampling_ratio, aligned);
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "roi_align has no second derivatives");
    static const auto pass = operation<decltype(backward_on_device)>("tessera::_roi_align_backward");
    const auto saved = ctx->get_saved_variables();
    auto& data = ctx->saved_data;
    return {pass.call(gradients[0], saved[0], saved[1], data["images"].toSymInt(), data["height"].toSymInt(),
                      data["width"].toSymInt(), data["sampling_ratio"].toInt(), data["aligned"].toBool()),
            {},
            {},
            {},
            {},
            {}};
  }
};

at::Tensor forward_with_gradient(const at::Tensor& features, const at::Tensor& boxes, const at::Tensor& image,
                                 at::IntArrayRef output_size, std::int64_t sampling_ratio, bool aligned) {
  return RoiAlign::apply(features, boxes, image, output_size, sampling_ratio, aligned);
}

at::Tensor operate(const at::Tensor& features, const at::Tensor& boxes, const at::Tensor& image,
                   at::IntArrayRef output_size, std::int64_t sampling_ratio, bool aligned) {
  check(features, boxes, image, output_size);
  static const auto pass = operation<decltype(forward_on_device)>("tessera::_roi_align");
  const at::ScalarType type = features.scalar_type();
  // A device without kernels computes in float64 with LibTorch's own operators.
  const at::ScalarType inner = !has_kernels(features) ? at::kDouble : type == at::kHalf ? at::kFloat : type;
  return pass.call(features.to(inner), boxes, image, output_size, sampling_ratio, aligned).to(type);
}

at::Tensor operate_without_autocast(const at::Tensor& features, const at::Tensor& boxes, const at::Tensor& image,
                                    at::IntArrayRef output_size, std::int64_t sampling_ratio, bool aligned) {
  const NoAutocast no_autocast;
  return operate(features, boxes, image, output_size, sampling_ratio, aligned);
}

}  // namespace roi_align_parts
}  // namespace

void define_roi_align(torch::Library& library) {
  using namespace roi_align_parts;
  const std::string arguments =
      "(Tensor features, Tensor boxes, Tensor image, int[2] output_size, int sampling_ratio=0, "
      "bool aligned=True) -> Tensor";
  library.def(("roi_align" + arguments).c_str(), {at::Tag::pt2_compliant_tag});
  library.def(("_roi_align" + arguments).c_str(), {at::Tag::pt2_compliant_tag});
  library.def(
      "_roi_align_backward(Tensor gradient, Tensor boxes, Tensor image, SymInt images, SymInt height, SymInt width, "
      "int sampling_ratio, bool aligned) -> Tensor",
      {at::Tag::pt2_compliant_tag});
  implement<operate, operate_without_autocast>(library, "roi_align");
  implement_passes<forward_on_device, backward_on_device, forward_on_meta, backward_on_meta, forward_with_gradient>(
      library, "_roi_align");
}

at::Tensor roi_align(const at::Tensor& features, const at::Tensor& boxes, const at::Tensor& image,
                     const RoiAlignSettings& settings) {
  using namespace roi_align_parts;
  register_operators();
  static const auto registered = operation<decltype(operate)>("tessera::roi_align");
  return registered.call(features, boxes, image, settings.output_size, settings.sampling_ratio, settings.aligned);
}

}  // namespace tessera
