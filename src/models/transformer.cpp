#include <algorithm>

#include <ATen/ATen.h>

#include "src/models/batch_norm.h"
#include "src/models/per_sample_rng.h"
#include "src/models/transformer.h"
#include <tessera/base/text.h>
#include <tessera/ops/activation_checkpoint.h>

namespace tessera {

std::optional<config::Problem> validate(const TransformerSettings& s) {
  if (!s.head_width && s.width % s.heads != 0) return config::Problem{"heads", concat(s.heads, " does not divide width ", s.width)};
  if (s.head_width && *s.head_width < 1) return config::Problem{"head_width", "must be at least 1"};
  if (s.key_heads && (*s.key_heads < 1 || s.heads % *s.key_heads != 0))
    return config::Problem{"key_heads", concat(*s.key_heads, " does not divide heads ", s.heads)};
  if (s.score_scale && !(*s.score_scale > 0)) return config::Problem{"score_scale", "must be above 0"};
  if (!s.first_norm && s.block_norm != "before" && s.block_norm != "both")
    return config::Problem{"first_norm", concat("false leaves out a norm before attention, but block_norm is ", s.block_norm)};
  if (s.mlp_hidden && *s.mlp_hidden < 1) return config::Problem{"mlp_hidden", "must be at least 1"};
  if (mlp_width(s) < 1)
    return config::Problem{"mlp_ratio", concat("int(width * mlp_ratio) must be at least 1, but width is ", s.width)};
  return std::nullopt;
}

std::int64_t mlp_width(const TransformerSettings& s) {
  return s.mlp_hidden.value_or(static_cast<std::int64_t>(static_cast<double>(s.width) * s.mlp_ratio));
}

std::int64_t head_width(const TransformerSettings& s) {
  return s.head_width.value_or(s.width / s.heads);
}

Transformer::Transformer(const TransformerSettings& settings, BlockInitialization initialization,
                         const FeedForwardOfBlock& feed_forward)
    : drop_path_(settings.drop_path), grad_checkpointing_(settings.grad_checkpointing) {
  register_module("resblocks", resblocks_);
  for (std::int64_t i = 0; i < settings.layers; ++i)
    resblocks_->push_back(
        std::make_shared<TransformerBlock>(settings, initialization, feed_forward ? feed_forward(i) : nullptr, i == 0));
}

namespace {

using OnStream = std::function<ResidualStream(const ResidualStream&)>;

// Runs a block such that the backward pass computes it again. Only the block's input is kept: the stream and its update.
ResidualStream recomputed_block(const TransformerBlock& block, const OnStream& run, const ResidualStream& stream, const SequenceInfo& sequence,
                                const at::Tensor& factors) {
  const auto value_of = [](const std::vector<at::Tensor>& tensors) { return tensors.size() > 1 ? tensors[1] : at::Tensor(); };
  const auto tensors_of = [](const ResidualStream& of) {
    return of.update.value.defined() ? std::vector{of.x, of.update.value} : std::vector{of.x};
  };
  ResidualUpdate update = stream.update;
  update.value.reset();
  std::vector<at::Tensor> parameters = block.parameters();
  // A mask with a gradient is computed from learned biases of the scores.
  const bool learned = sequence.mask.allowed.defined() && sequence.mask.allowed.requires_grad();
  for (const at::Tensor& parameter : {update.bias, update.column_scale, learned ? sequence.mask.allowed : at::Tensor()})
    if (parameter.defined()) parameters.push_back(parameter);
  const auto body = [=](const std::vector<at::Tensor>& inputs) {
    ResidualStream given = {inputs[0], update};
    given.update.value = value_of(inputs);
    return tensors_of(run(given));
  };
  const std::vector<at::Tensor> out = recomputed(body, tensors_of(stream), parameters);
  return {out[0], block.update_of(value_of(out), factors)};
}

}  // namespace

ResidualStream Transformer::run(const at::Tensor& x, const SequenceInfo& sequence, std::int64_t first) {
  const std::int64_t layers = std::ssize(*resblocks_);
  const bool again = grad_checkpointing_ && is_training() && at::GradMode::is_enabled();
  // Draws the random numbers of stochastic depth here and not in the blocks, so that a block that is computed again
  // skips the same updates.
  at::Tensor draws;  // [B, 2 (layers - first)], two for each sample and block; packed: [T, 2 (layers - first)], one row for each token
  const PackedRows& packed = sequence.mask.packed;
  if (drop_path_ > 0 && is_training()) {
    draws = row_uniform(packed.defined() ? packed.rows : x.size(0), 2 * (layers - first), x.device());
    if (packed.defined()) draws = draws.index_select(0, packed.row_of);
  }
  // Draws the seeds (`keys`) of the tokens' random numbers before the blocks run, so that a block that is computed again uses the same
  // random numbers.
  std::vector<at::Tensor> keys(static_cast<std::size_t>(layers));
  for (std::int64_t i = first; i < layers; ++i)
    if (block(i).draws_for_tokens())
      keys[static_cast<std::size_t>(i)] =
          token_keys(packed.defined() ? packed.rows : x.size(0), x.size(-2), x.device(), packed);
  const at::Tensor real = RealRows::now();
  ResidualStream stream = {x, {}};
  for (std::int64_t i = first; i < layers; ++i) {
    TransformerBlock& block = this->block(i);
    at::Tensor factors;
    if (draws.defined()) {
      const double rate =
          drop_path_ * static_cast<double>(i) / static_cast<double>(std::max<std::int64_t>(1, layers - 1));
      factors = draws.narrow(1, 2 * (i - first), 2).ge(rate) / (1 - rate);
    }
    const bool local = sequence.local && contains(sequence.local_blocks, i);
    const SequenceInfo& seen = local ? *sequence.local : sequence;
    const auto run = [&block, seen, factors, real, of_tokens = keys[static_cast<std::size_t>(i)]](const ResidualStream& given) {
      const RealRows rows(real);
      std::optional<RowRngScope> scope;
      if (of_tokens.defined()) scope.emplace(of_tokens);
      return block.forward(given, seen, factors);
    };
    stream = again ? recomputed_block(block, run, stream, seen, factors) : run(stream);
  }
  return stream;
}

std::array<at::Tensor, 2> Transformer::forward_both(at::Tensor x, const SequenceInfo& sequence, LastBlock kind) {
  const std::int64_t last = std::ssize(*resblocks_) - 1;
  TORCH_CHECK(!is_training() && last >= 0, "another last block: expected a transformer with blocks, in evaluation mode");
  for (std::int64_t i = 0; i < last; ++i) x = block(i).forward(x, sequence);
  return {block(last).forward(x, sequence), block(last).forward_as(kind, x, sequence)};
}

TransformerBlock& Transformer::block(std::int64_t number) {
  return static_cast<TransformerBlock&>(*resblocks_[static_cast<std::size_t>(number)]);
}

std::optional<std::int64_t> Transformer::block_of(const std::string& parameter) {
  constexpr std::string_view kBlocks = "transformer.resblocks.";
  if (!parameter.starts_with(kBlocks)) return std::nullopt;
  return std::stoll(parameter.substr(kBlocks.size()));
}

}  // namespace tessera
