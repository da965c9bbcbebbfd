// Two kernels of CUTLASS, each with two tiles. Both compute with warpgroup products from tiles that TMA loads:
// Forward: y = x weight^T + bias is stored, and then activation(y).
// Input gradient: grad_x^T = weight^T grad_y^T, in this orientation because CUTLASS adds the columns of a result: the sum over rows of the
// gradient before the activation is the bias gradient. Partial sums go through the workspace and are added in a fixed order.
// The activation is chosen at run time, so that there are only four instantiations.
#include <cutlass/cutlass.h>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/epilogue/fusion/operations.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/gemm/kernel/gemm_universal.hpp>
#include <cutlass/util/packed_stride.hpp>

#include "kernels/activation/gate.h"
#include "kernels/gemm/cutlass_gemm.h"

namespace tessera::kernels {
namespace {

using Element = cutlass::bfloat16_t;
using Row = cutlass::layout::RowMajor;
using Column = cutlass::layout::ColumnMajor;
using cute::_1;
using cute::_2;
using cute::_64;
using cute::_128;
using cute::_256;

struct ChosenActivation {
  bool normal;
  Sigmoid sigmoid;
};

/// Calls use(gate, i) for each of N values. The choice of the activation is outside of the loop.
template <int kCount, class Use>
__device__ __forceinline__ void for_gates(const cutlass::Array<float, kCount>& values, const ChosenActivation& chosen, const Use& use) {
  if (chosen.normal) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) use(normal_gate<Bfloat16>(values[i]), i);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) use(sigmoid_gate(values[i], chosen.sigmoid), i);
  }
}

template <class Values>
struct Activate {
  using Arguments = ChosenActivation;
  __device__ Values operator()(const Values& x, const Arguments& chosen) const {
    Values y;
    for_gates(x, chosen, [&](const Gate& gate, int i) { y[i] = x[i] * gate.share; });
    return y;
  }
};

template <class Values>
struct ActivateBackward {
  using Arguments = ChosenActivation;
  __device__ Values operator()(const Values& gradient, const Values& x, const Arguments& chosen) const {
    Values grad_x;
    for_gates(x, chosen, [&](const Gate& gate, int i) { grad_x[i] = gradient[i] * (gate.share + x[i] * gate.slope); });
    return grad_x;
  }
};

/// A kernel for matrices with these layouts, of results and `before` with the layout Result.
template <class LayoutA, class Result, class Tile, class Mainloop, class Epilogue, class Fusion>
struct Kernel {
  using Cluster = cute::Shape<_2, _1, _1>;
  using CollectiveEpilogue =
      typename cutlass::epilogue::collective::CollectiveBuilder<cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster,
                                                                cutlass::epilogue::collective::EpilogueTileAuto, float, float, void, Result,
                                                                8, Element, Result, 8, Epilogue, Fusion>::CollectiveOp;
  using CollectiveMainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, LayoutA, 8, Element, Column, 8, float, Tile, Cluster,
      cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename CollectiveEpilogue::SharedStorage))>,
      Mainloop>::CollectiveOp;
  using Gemm = cutlass::gemm::device::GemmUniversalAdapter<
      cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, CollectiveMainloop, CollectiveEpilogue>>;
};

using ForwardFusion = cutlass::epilogue::fusion::LinCombPerColBiasEltActAux<Row, Activate, Element, float, Element, Element, void>;
using BackwardFusion =
    cutlass::epilogue::fusion::LinCombDeEltActDePerRowBias<Column, ActivateBackward, Element, float, Element, float, void>;

template <bool kForward, class Tile, class Mainloop, class Epilogue>
using GemmOf = typename Kernel<std::conditional_t<kForward, Row, Column>, std::conditional_t<kForward, Row, Column>, Tile, Mainloop,
                               Epilogue, std::conditional_t<kForward, ForwardFusion, BackwardFusion>>::Gemm;
template <bool kForward>
using Pingpong = GemmOf<kForward, cute::Shape<_128, _128, _64>, cutlass::gemm::KernelTmaWarpSpecializedPingpong,
                        cutlass::epilogue::TmaWarpSpecialized>;
template <bool kForward>
using Cooperative = GemmOf<kForward, cute::Shape<_128, _256, _64>, cutlass::gemm::KernelTmaWarpSpecializedCooperative,
                           cutlass::epilogue::TmaWarpSpecializedCooperative>;

constexpr const char* kNames[] = {"cutlass/128x128", "cutlass/128x256"};

template <class Gemm>
typename Gemm::Arguments arguments_of(const GemmCall& call) {
  const GemmProblem& p = call.problem;
  const bool forward = p.kind == GemmKind::kForward;
  const int m = static_cast<int>(forward ? p.rows : p.in), n = static_cast<int>(forward ? p.out : p.rows),
            k = static_cast<int>(forward ? p.in : p.out);
  using Kernel = typename Gemm::GemmKernel;
  const auto a = cutlass::make_cute_packed_stride(typename Kernel::StrideA{}, {m, k, 1});
  const auto b = cutlass::make_cute_packed_stride(typename Kernel::StrideB{}, {n, k, 1});
  const auto d = cutlass::make_cute_packed_stride(typename Kernel::StrideD{}, {m, n, 1});
  const auto* const left = static_cast<const Element*>(forward ? call.x : call.weight);
  const auto* const right = static_cast<const Element*>(forward ? call.weight : call.grad_y);
  typename Gemm::Arguments out{cutlass::gemm::GemmUniversalMode::kGemm, {m, n, k, 1}, {left, a, right, b},
                               {{}, nullptr, {}, static_cast<Element*>(call.result), d}};
  auto& fusion = out.epilogue.thread;
  fusion.activation = {p.activation == Activation::kGelu, sigmoid_of(p.activation)};
  fusion.aux_ptr = static_cast<Element*>(call.before);
  fusion.dAux = d;
  if constexpr (requires { fusion.bias_ptr; })
    fusion.bias_ptr = static_cast<const Element*>(call.bias);
  else
    fusion.dbias_ptr = static_cast<float*>(call.bias_gradient);
  return out;
}

template <class Gemm>
Status start(const GemmCall& call, void* stream) {
  const auto arguments = arguments_of<Gemm>(call);
  Gemm gemm;
  cutlass::Status status = gemm.can_implement(arguments);
  if (status == cutlass::Status::kSuccess) status = gemm.run(arguments, call.workspace, static_cast<cudaStream_t>(stream));
  if (status == cutlass::Status::kSuccess) return {};
  return Status::failure(std::string("gemm: ") + call.algorithm + ": " + cutlass::cutlassGetStatusString(status));
}

}  // namespace

std::vector<std::string> cutlass_algorithms(const GemmProblem& problem) {
  const bool possible = problem.activated && problem.kind != GemmKind::kWeightGradient;
  return possible ? std::vector<std::string>(std::begin(kNames), std::end(kNames)) : std::vector<std::string>();
}

std::size_t cutlass_workspace(const GemmProblem& problem) {
  if (cutlass_algorithms(problem).empty() || problem.kind == GemmKind::kForward) return 0;
  const GemmCall call{problem};
  return std::max(Pingpong<false>::get_workspace_size(arguments_of<Pingpong<false>>(call)),
                  Cooperative<false>::get_workspace_size(arguments_of<Cooperative<false>>(call)));
}

Status cutlass_gemm(const GemmCall& call, void* stream) {
  const bool small = call.algorithm == kNames[0];
  if (call.problem.kind == GemmKind::kForward) return small ? start<Pingpong<true>>(call, stream) : start<Cooperative<true>>(call, stream);
  return small ? start<Pingpong<false>>(call, stream) : start<Cooperative<false>>(call, stream);
}

}  // namespace tessera::kernels
