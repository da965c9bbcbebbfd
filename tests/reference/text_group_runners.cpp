#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "src/models/caption_decoder.h"
#include "src/models/groupvit.h"
#include "src/models/mlp_head.h"
#include "src/models/position_embedding.h"
#include "src/models/text_group_encoder.h"
#include "src/objectives/grad_cache.h"
#include "src/objectives/text_group.h"
#include "tests/reference/all_runners.h"
#include <tessera/objectives/caption_loss.h>
#include <tessera/ops/numeric.h>

namespace tessera::probe {
namespace {

/// The settings of a grouping block in the cases. They include sizes that a tower would otherwise set.
struct GroupingCase : GroupingSettings {
  GroupingShape shape;
};

template <class Visitor>
void fields(Visitor& v, GroupingCase& s) {
  fields(v, static_cast<GroupingSettings&>(s));
  v("width", s.shape.width, "d", config::at_least(1));
  v("num_groups", s.shape.groups, "groups in", config::at_least(1));
  v("num_output_groups", s.shape.output_groups, "groups out; 0: as many", config::at_least(0));
  v("heads", s.shape.heads, "of the attention before the assignment", config::at_least(1));
}

Outputs run_grouping_block(Run& run) {
  auto settings = config::read<GroupingCase>(run.settings(), run.path());
  if (settings.shape.output_groups == 0) settings.shape.output_groups = settings.shape.groups;
  const auto block = make_grouping_block(settings, settings.shape);
  run.bind_all(*block);
  const Grouped out = block->forward(run.input("tokens"), run.input("groups"), run.optional_input("token_mask"),
                                     run.optional_input("gumbel_noise"));
  return {{"groups", out.groups}, {"soft_assignment", out.soft_assignment}, {"assignment", out.assignment}};
}

Outputs run_text_group_encoder(Run& run) {
  TextGroupEncoder encoder(config::read<TextGroupEncoderSettings>(run.settings(), run.path()));
  run.bind_all(encoder);
  const at::Tensor& mask = run.input("text_mask");
  const Grouped out =
      encoder.group(encoder.encode_tokens(run.input("text_ids"), mask), mask, run.optional_input("gumbel_noise"));
  return {{"groups", out.groups}, {"soft_assignment", out.soft_assignment}, {"assignment", out.assignment}};
}

struct HeadCase : MlpHeadSettings {
  std::int64_t width = 0;
  std::int64_t output_dim = 256;
  std::string pool = "after";
  bool training = false;
};

template <class Visitor>
void fields(Visitor& v, HeadCase& s) {
  v("width", s.width, "of the groups", config::at_least(1));
  v("output_dim", s.output_dim, "D", config::at_least(1));
  fields(v, static_cast<MlpHeadSettings&>(s));
  v("pool", s.pool, "as in the read-out groups", config::one_of({"after", "before"}));
  v("training", s.training, "mode of the batch norm");
}

Outputs run_group_projection(Run& run) {
  const auto settings = config::read<HeadCase>(run.settings(), run.path());
  MlpHead head(settings, settings.width, settings.output_dim);
  run.bind_all(head);
  head.train(settings.training);
  const at::Tensor& groups = run.input("groups");
  if (settings.pool == "before") return {{"pooled", head.forward(groups.mean(1))}};
  const at::Tensor projected = head.forward(groups);
  return {{"projected_groups", projected}, {"pooled", projected.mean(1)}};
}

struct DecoderCase : CaptionDecoderSettings {
  std::int64_t vocab_size = 49408;
  std::int64_t width = 128;
};

template <class Visitor>
void fields(Visitor& v, DecoderCase& s) {
  fields(v, static_cast<CaptionDecoderSettings&>(s));
  v("vocab_size", s.vocab_size, "V", config::at_least(1));
  v("width", s.width, "of the token table", config::at_least(1));
}

Outputs run_caption_decoder(Run& run) {
  const auto settings = config::read<DecoderCase>(run.settings(), run.path());
  const at::Tensor table = run.parameter("token_embedding.weight");
  CaptionDecoder decoder(settings, table, run.path());
  run.bind_all(decoder);
  const at::Tensor& mask = run.input("text_mask");
  const at::Tensor hidden = decoder.forward(run.input("text_ids"), mask, run.input("groups"));
  const at::Tensor padding = mask.slice(1, 1).logical_not().unsqueeze(2);
  return {{"logits", at::matmul(hidden, table.t()).masked_fill(padding, 0)}};
}

/// Runs the contrastive loss through the objective. For the reconstruction loss, the case contains only the logits, so this function passes
/// them as hidden states, with the identity matrix as token table.
Outputs run_text_group(Run& run) {
  const auto settings = config::read<TextGroupSettings>(run.settings(), run.path());
  Outputs out;
  at::Tensor total;
  const auto add = [&](const char* name, double weight, const at::Tensor& loss) {
    out[name] = loss;
    total = total.defined() ? total + weight * loss : weight * loss;
  };
  if (settings.contrastive_weight > 0) {
    TextGroupSettings contrast = settings;
    contrast.contrastive_weight = 1;
    contrast.reconstruction_weight = 0;
    TextGroup objective(contrast, {});
    run.bind_all(objective);
    Features features;
    features.images["image"].global = run.input("image_global");
    features.texts["caption"].global = run.input("text_global");
    add("loss_contrastive", settings.contrastive_weight, objective.forward(features, {}).total);
  }
  if (settings.reconstruction_weight > 0) {
    const at::Tensor logits = to_compute(run.input("decoder_logits"));
    const at::Tensor &mask = run.input("text_mask"), table = at::eye(logits.size(2), logits.options());
    add("loss_reconstruction", settings.reconstruction_weight,
        reduced_caption_loss(caption_loss_sum(logits, table, run.input("text_ids"), mask), mask,
                             settings.reconstruction_reduction, {}));
  }
  out["loss"] = total;
  return out;
}

Outputs run_groupvit(Run& run) {
  config::Node tree = run.settings();
  const config::Node* patch = tree.find("patch_size");
  const std::int64_t patch_size = patch == nullptr ? GroupVitSettings().patch_size : std::stoll(patch->text());
  const std::int64_t trained = square_grid(run.parameter("pos_embed").size(1)).height * patch_size;
  tree.set("image_size", config::Node::scalar(std::to_string(trained)));
  const auto settings = config::read<GroupVitSettings>(tree, run.path());
  GroupVit encoder(settings);
  run.bind_all(encoder);
  encoder.eval();
  std::vector<at::Tensor> noise;
  for (std::size_t i = 0; run.has(concat("gumbel_noise_", i)); ++i)
    noise.push_back(run.input(concat("gumbel_noise_", i)));
  const GroupVit::Stages stages = encoder.group(run.input("image"), noise);
  Outputs out{{"groups", stages.groups}, {"pooled", stages.groups.mean(1)}};
  for (std::size_t i = 0; i < stages.grouped.size(); ++i) {
    out[concat("soft_assignment_", i)] = stages.grouped[i].soft_assignment;
    out[concat("assignment_", i)] = stages.grouped[i].assignment;
  }
  return out;
}

/// A function that returns the rows of the input with this name.
using InputRows = std::function<at::Tensor(const char* name)>;

/// Runs a step in two passes over chunks. The outputs have the values of the first pass and the gradients of the second pass.
Outputs run_in_chunks(Run& run, const ChunkedRows& chunks, const std::function<Features(const InputRows&)>& encode_rows,
                      Objective& objective) {
  const auto encode = [&](std::int64_t index) {
    return encode_rows(
        [&](const char* name) { return run.input(name).narrow(0, chunks.first(index), chunks.size(index)); });
  };
  Features whole;
  {
    const at::NoGradGuard no_grad;
    std::vector<Features> pieces;
    for (std::int64_t i = 0; i < chunks.count(); ++i) pieces.push_back(encode(i));
    whole = joined(pieces);
  }
  require_gradients(whole);
  const Losses losses = objective.forward(whole, {});
  torch::autograd::backward({losses.total}, {});
  backward_through_chunks(whole, chunks, encode,
                          [](const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& gradients, bool) {
                            torch::autograd::backward(outputs, gradients);
                          });

  at::Tensor loss = losses.total.detach();
  const auto add_gradient_of = [&](const at::Tensor& leaf) {
    if (leaf.requires_grad() && leaf.grad().defined())
      loss = loss + ((leaf - leaf.detach()) * leaf.grad().clone()).sum();
  };
  for (const auto& [name, input] : run.inputs()) add_gradient_of(input);
  for (const auto& [name, binding] : run.bindings()) add_gradient_of(binding.leaf);
  Outputs out{
      {"loss", loss}, {"image_global", whole.image().global.detach()}, {"text_global", whole.text().global.detach()}};
  for (const auto& [name, term] : losses.terms) out[name] = term.detach();
  return out;
}

/// Returns fc2(GELU(fc1(x))) with the case's parameters under `prefix`.
at::Tensor small_tower(Run& run, const std::string& prefix, const at::Tensor& x) {
  const auto linear = [&](const char* name, const at::Tensor& in) {
    return at::linear(in, run.parameter(prefix + name + ".weight"), run.parameter(prefix + name + ".bias"));
  };
  return linear("fc2", at::gelu(linear("fc1", x)));
}

struct GradCacheCase {
  std::string model;
  std::int64_t chunk_size = 1;
  double temperature = 0.07;
  double reconstruction_weight = 1.0;
  TextGroupEncoderSettings text_encoder;
  DecoderCase decoder;
};

template <class Visitor>
void fields(Visitor& v, GradCacheCase& s) {
  v("model", s.model, "what is trained", config::one_of({"mlp_pair", "text_group"}));
  v("chunk_size", s.chunk_size, "rows", config::at_least(1));
  v("temperature", s.temperature, "of text_group", config::above(0));
  v("reconstruction_weight", s.reconstruction_weight, "of text_group", config::at_least(0));
  v("text_encoder", s.text_encoder, "of text_group");
  v("decoder", s.decoder, "of text_group");
}

Outputs run_grad_cache(Run& run) {
  const auto settings = config::read<GradCacheCase>(run.settings(), run.path());
  const ChunkedRows chunks{run.input("image").size(0), settings.chunk_size};
  Features features;
  TowerFeatures &image = features.images["image"], &text = features.texts["caption"];
  if (settings.model == "mlp_pair") {
    const auto clip = objectives().make({"clip"}, "clip", {});
    run.bind_all(*clip);
    return run_in_chunks(
        run, chunks,
        [&](const InputRows& rows) {
          image.global = small_tower(run, "image_tower.", rows("image"));
          text.global = small_tower(run, "text_tower.", rows("text"));
          return features;
        },
        *clip);
  }
  TextGroupEncoder encoder(settings.text_encoder);
  run.bind_all(encoder, "text_encoder.");
  const at::Tensor& weight = run.parameter("text_projection.linear_out.weight");
  MlpHead head({}, weight.size(1), weight.size(0));
  run.bind_all(head, "text_projection.");
  SharedParameters shared;
  shared.token_embedding = encoder.token_embedding();
  TextGroupSettings losses;
  losses.temperature = settings.temperature;
  losses.reconstruction_weight = settings.reconstruction_weight;
  losses.decoder = settings.decoder;
  TextGroup objective(losses, {.shared = &shared});
  run.bind_all(objective);
  const bool noisy = run.has("gumbel_noise");
  return run_in_chunks(
      run, chunks,
      [&](const InputRows& rows) {
        image.global = small_tower(run, "image_tower.", rows("image"));
        text.input = text_input(rows("text_ids"), rows("text_mask"));
        const at::Tensor x = encoder.encode_tokens(text.input.ids, text.input.mask);
        text.tokens = encoder.group(x, text.input.mask, noisy ? rows("gumbel_noise") : at::Tensor()).groups;
        text.global = head.forward(text.tokens).mean(1);
        return features;
      },
      objective);
}

}  // namespace

void add_text_group_runners(Runners& runners) {
  runners.add("grouping_block", run_grouping_block);
  runners.add("text_group_encoder", run_text_group_encoder);
  runners.add("group_projection", run_group_projection);
  runners.add("caption_decoder", run_caption_decoder);
  runners.add("text_group", run_text_group);
  runners.add("groupvit", run_groupvit);
  runners.add("grad_cache", run_grad_cache);
}

}  // namespace tessera::probe
