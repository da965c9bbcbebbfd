// This file has been compiled, but it has never run: see "Attention by cuDNN" in docs/gpu.md.
#include <cmath>
#include <map>
#include <tuple>

#include <ATen/ATen.h>
#include <ATen/cudnn/Handle.h>
#include <cudnn_frontend.h>

#include "src/models/cudnn_attention.h"
#include <tessera/base/error.h>

namespace tessera {
namespace {

namespace fe = cudnn_frontend;
using kernels::Pass;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;
using Pointers = std::unordered_map<std::int64_t, void*>;

enum Uid : std::int64_t {
  kQuery = 1, kKey, kValue, kOutput, kStatistics, kGradOutput, kGradQuery, kGradKey, kGradValue,
  kLengths, kQkvOffsets, kOutputOffsets, kStatisticsOffsets
};

void check(fe::error_t error) {
  TORCH_CHECK(error.is_good(), "attention by cuDNN: ", error.get_message());
}

std::int64_t heads_of(const SelfAttentionProblem& p) {
  return p.qkv.size(2);
}

std::int64_t head_width_of(const SelfAttentionProblem& p) {
  return p.qkv.size(3);
}

bool takes(const SelfAttentionProblem& p) {
  const bool narrow = p.qkv.scalar_type() == at::kBFloat16 || p.qkv.scalar_type() == at::kHalf;
  const bool offsets_fit = p.qkv.numel() < (std::int64_t{1} << 31);  // they are int32, in elements
  return p.qkv.is_cuda() && narrow && head_width_of(p) % 8 == 0 && head_width_of(p) <= 128 && offsets_fit && p.sequences > 0;
}

// A pass as cuDNN's graph. Plans are built when they are first used.
class PassGraph {
 public:
  PassGraph(const SelfAttentionProblem& p, Pass pass) : p_(p) {
    graph_.set_io_data_type(p.qkv.scalar_type() == at::kHalf ? fe::DataType_t::HALF : fe::DataType_t::BFLOAT16);
    graph_.set_intermediate_data_type(fe::DataType_t::FLOAT).set_compute_data_type(fe::DataType_t::FLOAT);
    if (p.offsets.defined()) {
      lengths_ = integers(kLengths, p.sequences);
      qkv_offsets_ = integers(kQkvOffsets, p.sequences + 1);
      output_offsets_ = integers(kOutputOffsets, p.sequences + 1);
      statistics_offsets_ = integers(kStatisticsOffsets, p.sequences + 1);
    }
    pass == Pass::kForward ? add_forward() : add_backward();
    p_ = {};  // keeps no tensors
    check(graph_.validate());
    check(graph_.build_operation_graph(at::native::getCudnnHandle()));
    check(graph_.create_execution_plans({fe::HeurMode_t::A}));
    check(graph_.check_support());
  }

  std::vector<std::int64_t> plans() {
    std::vector<std::int64_t> out;
    for (std::int64_t i = 0; i < graph_.get_execution_plan_count(); ++i)
      if (graph_.build_plan_at_index(i).is_good()) out.push_back(i);
    return out;
  }
  void run(std::int64_t plan, Pointers& pointers, const at::Tensor& like) {
    TORCH_CHECK(plan < graph_.get_execution_plan_count(), "attention by cuDNN: there is no plan ", plan);
    if (workspaces_.count(plan) == 0) {
      check(graph_.build_plan_at_index(plan));
      workspaces_[plan] = graph_.get_workspace_size_plan_at_index(plan);
    }
    const at::Tensor workspace = at::empty({workspaces_[plan]}, like.options().dtype(at::kByte));
    check(graph_.execute_plan_at_index(at::native::getCudnnHandle(), pointers, workspace.data_ptr(), plan));
  }

 private:
  Tensor integers(Uid uid, std::int64_t count) {
    return graph_.tensor(fe::graph::Tensor_attributes()
                             .set_uid(uid)
                             .set_dim({count, 1, 1, 1})
                             .set_stride({1, 1, 1, 1})
                             .set_data_type(fe::DataType_t::INT32));
  }
  // Describes one of `parts` parts of a tensor [T, parts, heads, d].
  fe::graph::Tensor_attributes& describe(fe::graph::Tensor_attributes& of, Uid uid, std::int64_t parts) const {
    const std::int64_t heads = heads_of(p_), width = head_width_of(p_), row = parts * heads * width;
    of.set_uid(uid).set_dim({p_.sequences, heads, p_.longest, width}).set_stride({p_.longest * row, width, row, 1});
    if (p_.offsets.defined()) of.set_ragged_offset(parts == 3 ? qkv_offsets_ : output_offsets_);
    return of;
  }
  // Describes [T, heads] of packed tokens, and otherwise [sequences, heads, longest]: cuDNN demands it.
  fe::graph::Tensor_attributes& describe_statistics(fe::graph::Tensor_attributes& of) const {
    const std::int64_t heads = heads_of(p_);
    of.set_uid(kStatistics).set_dim({p_.sequences, heads, p_.longest, 1}).set_data_type(fe::DataType_t::FLOAT);
    if (!p_.offsets.defined()) return of.set_stride({heads * p_.longest, p_.longest, 1, 1});
    return of.set_stride({heads * p_.longest, 1, heads, 1}).set_ragged_offset(statistics_offsets_);
  }
  Tensor input(Uid uid, std::int64_t parts) {
    fe::graph::Tensor_attributes attributes;
    return graph_.tensor(describe(attributes, uid, parts));
  }
  // What the attributes of both passes have in common.
  template <class Attributes>
  void set_common(Attributes& attributes) const {
    attributes.set_attn_scale(static_cast<float>(1 / std::sqrt(static_cast<double>(head_width_of(p_)))));
    if (p_.causal)
      attributes.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT).set_diagonal_band_right_bound(0);
    if (p_.offsets.defined()) attributes.set_padding_mask(true).set_seq_len_q(lengths_).set_seq_len_kv(lengths_);
  }
  void add_forward() {
    fe::graph::SDPA_attributes attributes;
    set_common(attributes);
    attributes.set_generate_stats(true);
    auto [output, statistics] = graph_.sdpa(input(kQuery, 3), input(kKey, 3), input(kValue, 3), attributes);
    describe(output->set_output(true), kOutput, 1);
    describe_statistics(statistics->set_output(true));
  }
  void add_backward() {
    fe::graph::SDPA_backward_attributes attributes;
    set_common(attributes);
    attributes.set_deterministic_algorithm(true);
    if (p_.offsets.defined()) {
      // The graph serves batches with any number of tokens.
      const std::int64_t most = p_.sequences * p_.longest;
      attributes.set_max_total_seq_len_q(most).set_max_total_seq_len_kv(most);
    }
    fe::graph::Tensor_attributes statistics;
    const Tensor kept = graph_.tensor(describe_statistics(statistics));
    auto [query, key, value] = graph_.sdpa_backward(input(kQuery, 3), input(kKey, 3), input(kValue, 3), input(kOutput, 1),
                                                    input(kGradOutput, 1), kept, attributes);
    describe(query->set_output(true), kGradQuery, 3);
    describe(key->set_output(true), kGradKey, 3);
    describe(value->set_output(true), kGradValue, 3);
  }

  SelfAttentionProblem p_;
  fe::graph::Graph graph_;
  Tensor lengths_, qkv_offsets_, output_offsets_, statistics_offsets_;
  std::map<std::int64_t, std::int64_t> workspaces_;  // bytes of the plans that have been built
};

// Each thread has its own graphs, because cuDNN's are not safe for several threads.
PassGraph& graph_for(const SelfAttentionProblem& p, Pass pass) {
  using Key = std::tuple<Pass, std::int64_t, std::int64_t, std::int64_t, std::int64_t, bool, bool, at::ScalarType, at::DeviceIndex>;
  thread_local std::map<Key, std::unique_ptr<PassGraph>> graphs;
  const Key key(pass, p.sequences, p.longest, heads_of(p), head_width_of(p), p.causal, p.offsets.defined(), p.qkv.scalar_type(),
                p.qkv.device().index());
  std::unique_ptr<PassGraph>& graph = graphs[key];
  if (!graph) graph = std::make_unique<PassGraph>(p, pass);
  return *graph;
}

// Adds the three parts of a tensor [T, 3, heads, d].
void add_parts(Pointers& pointers, const at::Tensor& qkv, Uid first) {
  for (std::int64_t i = 0; i < 3; ++i) pointers[first + i] = qkv.select(1, i).data_ptr();
}

// Returns the number of a pass's plan in an option.
std::int64_t plan_of(const std::string& option, Pass pass) {
  const std::size_t comma = option.find(',');
  TORCH_CHECK(comma != std::string::npos, "attention by cuDNN: expected the plans of both passes, such as 0,0, got ", option);
  return std::stoll(pass == Pass::kForward ? option.substr(0, comma) : option.substr(comma + 1));
}

void run(const SelfAttentionProblem& p, Pass pass, const std::string& option, Pointers pointers) {
  std::vector<at::Tensor> integers;  // live until the launch
  const auto add = [&](Uid uid, const at::Tensor& tensor) {
    integers.push_back(tensor);
    pointers[uid] = tensor.data_ptr();
  };
  add_parts(pointers, p.qkv, kQuery);
  if (p.offsets.defined()) {
    const std::int64_t heads = heads_of(p), row = heads * head_width_of(p);
    add(kLengths, p.offsets.diff());
    add(kQkvOffsets, p.offsets * (3 * row));
    add(kOutputOffsets, p.offsets * row);
    add(kStatisticsOffsets, p.offsets * heads);
  }
  graph_for(p, pass).run(plan_of(option, pass), pointers, p.qkv);
}

}  // namespace

std::vector<std::string> cudnn_attention_options(const SelfAttentionProblem& problem) {
  std::vector<std::string> out;
  if (!takes(problem)) return out;
  for (const std::int64_t forward : graph_for(problem, Pass::kForward).plans())
    for (const std::int64_t backward : graph_for(problem, Pass::kBackward).plans()) out.push_back(concat(forward, ",", backward));
  return out;
}

SelfAttentionResult cudnn_attention_forward(const SelfAttentionProblem& p, const std::string& option) {
  TORCH_CHECK(takes(p), "attention by cuDNN: expected bfloat16 or float16 on a GPU, and heads of a width up to 128 that 8 divides, got ",
              p.qkv.scalar_type(), " ", p.qkv.sizes(), " on ", p.qkv.device());
  const at::TensorOptions options = p.qkv.options();
  const SelfAttentionResult out = {at::empty({p.qkv.size(0), heads_of(p), head_width_of(p)}, options),
                                   at::empty({p.qkv.size(0), heads_of(p)}, options.dtype(at::kFloat))};
  run(p, Pass::kForward, option, {{kOutput, out[0].data_ptr()}, {kStatistics, out[1].data_ptr()}});
  return out;
}

void cudnn_attention_backward(const SelfAttentionProblem& p, const std::string& option, const SelfAttentionResult& result,
                              const at::Tensor& grad_output, const at::Tensor& grad_qkv) {
  Pointers pointers = {{kOutput, result[0].data_ptr()}, {kStatistics, result[1].data_ptr()}, {kGradOutput, grad_output.data_ptr()}};
  add_parts(pointers, grad_qkv, kGradQuery);
  run(p, Pass::kBackward, option, std::move(pointers));
}

}  // namespace tessera
