#include "src/objectives/captioning.h"

#include <ATen/ATen.h>

#include "src/base/digest.h"
#include "src/models/attention.h"
#include "src/models/autocast.h"
#include "src/models/per_sample_rng.h"
#include "src/objectives/common/reduction.h"
#include <tessera/base/error.h>
#include <tessera/base/random.h>
#include <tessera/objectives/caption_loss.h>
#include <tessera/ops/activation_checkpoint.h>
#include <tessera/ops/linear_cross_entropy.h>
#include <tessera/ops/numeric.h>

namespace tessera {
namespace {

constexpr std::int64_t kCaptionTask = 0, kReferringTask = 1, kGroundedTask = 2, kTasks = 3;  // indices of the tasks' rows in task_tokens
constexpr std::int64_t kCoordinates = 4;
constexpr double kTokenStart = 0.02;  // initial standard deviation of learned tokens, the same as for token tables

CaptionDecoderShape decoder_shape(const CaptioningSettings& s, const ObjectiveContext& context) {
  CaptionDecoderShape shape;
  shape.memory_width = context.image_width;
  shape.more_places = s.uses_boxes() ? kCoordinates : 0;
  if (s.decoder.vocabulary == "own") {
    if (context.vocab_size == 0)
      user_error("objective.decoder.vocabulary: own takes the number of token ids from the text encoder, but the model has none: set "
                 "model.text");
    shape.vocab_size = context.vocab_size;
    shape.width = s.decoder.width.value_or(context.image_width);
    return shape;
  }
  if (context.shared == nullptr || !context.shared->token_embedding.defined())
    user_error("objective.decoder.vocabulary is shared, but this model's text encoder has no token table: set it to own");
  shape.table = context.shared->token_embedding;
  if (const auto width = s.decoder.width; width && *width != shape.table.size(1))
    user_error("objective.decoder.width is ", *width, ", but the text encoder's token table is ", shape.table.size(1),
               " wide: leave it out, or set vocabulary to own");
  return shape;
}

// Returns bool [..., L], true for the ids that count as text. An id counts only if the mask marks it as real. If `padding_id` is set, the
// mask may mark padding as real, too, because the text encoder reads padding as text. Then only the first of the padding tokens at the end
// counts.
at::Tensor said_of(const at::Tensor& ids, const at::Tensor& mask, const std::optional<std::int64_t>& padding_id) {
  if (!padding_id) return mask;
  const at::Tensor filling = (ids == *padding_id) | mask.logical_not();
  const at::Tensor to_the_end = filling.flip(-1).to(at::kLong).cumprod(-1).flip(-1).to(at::kBool);
  return mask & at::constant_pad_nd(to_the_end.slice(-1, 0, -1), {1, 0}, 0).logical_not();
}

// Adds one position in front, because caption_loss_sum() takes its targets from the second position on.
at::Tensor with_start(const at::Tensor& ids_or_mask) {
  return at::constant_pad_nd(ids_or_mask, {1, 0}, 0);
}

// In each row of x [n, T, w], moves the positions where `real` [n, T] is true to the front. Keeps the order of these positions.
at::Tensor real_first(const at::Tensor& x, const at::Tensor& real) {
  const at::Tensor order = std::get<1>(real.logical_not().to(at::kByte).sort(/*stable=*/true, /*dim=*/1, /*descending=*/false));
  return x.gather(1, order.unsqueeze(2).expand_as(x));
}

at::Tensor first_places(const at::Tensor& all, std::int64_t count) {
  return all.narrow(1, 0, count);
}

// Maps the corners [..., 4] of boxes, as fractions of the view's size, to their four tokens, int64 [..., 4] in 0..bins - 1.
at::Tensor box_tokens(const at::Tensor& corners, std::int64_t bins) {
  return (corners * bins).floor().clamp(0, bins - 1).to(at::kLong);
}

// Chooses at random, on the CPU, the images of this rank whose captions are predicted in parallel. The choice for an image depends on the
// image's position in the global batch. The loader deals the images of the global batch to the ranks one by one.
at::Tensor drawn_parallel(double share, std::int64_t images, const StepContext& context) {
  const auto stream = derive_seed(context.seed, Purpose::step,
                                  {static_cast<std::uint64_t>(context.step), fingerprint("captioning")});
  const RowRngScope keyed(row_keys(stream, context.group.rank(), context.group.size(), images));
  return row_uniform(images, 1, at::kCPU).squeeze(1) < share;
}

}  // namespace

std::optional<config::Problem> validate(const CaptioningSettings& s) {
  if (s.caption_weight == 0 && !s.uses_boxes())
    return config::Problem{"caption_weight", "is 0, and so are referring_weight and grounded_weight: there is nothing to train on"};
  return std::nullopt;
}

Captioning::Captioning(const CaptioningSettings& settings, const ObjectiveContext& context) : settings_(settings) {
  if (context.image_width == 0) user_error("objective captioning: the model does not report the width of the image encoder's tokens");
  decoder_ = register_module("decoder", std::make_shared<CaptionDecoder>(
                                            settings.decoder, decoder_shape(settings, context), "objective.decoder"));
  const auto tokens = [&](const char* name, at::IntArrayRef sizes) {
    return register_parameter(name, kTokenStart * at::randn(sizes));
  };
  const std::int64_t width = decoder_->width();
  task_tokens_ = tokens("task_tokens", {settings.uses_boxes() ? kTasks : 1, width});
  if (settings.parallel > 0) mask_token_ = tokens("mask_token", {width});
  if (settings.uses_boxes()) coordinates_ = tokens("coordinates", {settings.coordinate_bins, width});
  learned_ = parameters();
  if (settings.decoder.vocabulary == "shared") learned_.push_back(decoder_->table());
}

Needs Captioning::needs() const {
  Needs needs;
  needs.images = {{settings_.image_view,
                   {.encoder_tokens = true, .boxes = settings_.uses_boxes(), .optional = settings_.skip_absent}}};
  needs.texts.clear();
  const bool captions = settings_.caption_weight > 0;
  if (captions)
    needs.texts[settings_.text_view] = {.student = false, .input_ids = true, .optional = settings_.skip_absent};
  if (settings_.uses_boxes()) needs.texts[kPhrases] = {.student = false, .input_ids = true, .optional = captions};
  return needs;
}

Captioning::Memory Captioning::Memory::rows(const at::Tensor& index) const {
  const auto of = [&](const at::Tensor& all) { return all.defined() ? all.index_select(0, index) : all; };
  return {of(tokens), of(mask), of(present)};
}

Captioning::Texts Captioning::Texts::rows(const at::Tensor& index) const {
  return {ids.index_select(0, index), said.index_select(0, index)};
}

Captioning::Memory Captioning::memory_of(const TowerFeatures& image) const {
  TORCH_CHECK(image.encoder_tokens.defined() && image.encoder_tokens.dim() == 3 && image.encoder_tokens.size(0) > 0,
              "captioning: the encoder tokens of ", settings_.image_view, " are missing: the tower does not output them");
  return {zero_padding(to_compute(image.encoder_tokens), image.mask), image.mask, image.present};
}

Captioning::Texts Captioning::texts_of(const TowerFeatures& text, const Memory& memory, const std::string& view) const {
  const std::int64_t batch = memory.tokens.size(0);
  TORCH_CHECK(text.input.ids.defined(), "captioning: the ids of ", view, " are missing: the tower does not output them");
  const at::Tensor ids = text.input.ids.dim() == 2 ? text.input.ids.unsqueeze(1) : text.input.ids;
  TORCH_CHECK(ids.dim() == 3 && ids.size(0) == batch, "captioning: the ids of ", view, " must be [B, L] or [B, K, L] with B = ",
              batch, ", got ", text.input.ids.sizes());
  at::Tensor mask = text.input.mask.defined() ? text.input.mask.view_as(ids) : at::ones_like(ids, at::kBool);
  const auto keep = [&](const at::Tensor& there) {
    if (there.defined()) mask = mask & there.reshape({batch, -1, 1});
  };
  keep(memory.present);
  keep(text.present);
  decoder_->check_length(ids.size(2));
  return {ids, said_of(ids, mask, settings_.padding_id)};
}

at::Tensor Captioning::task(std::int64_t which, std::int64_t sequences) const {
  return task_tokens_[which].expand({sequences, 1, -1});
}

// Returns the decoder states [n, L, w] that predict the ids [n, L] of n captions.
at::Tensor Captioning::caption_states(const Memory& memory, const at::Tensor& ids, const at::Tensor& said, bool causal) {
  const std::int64_t sequences = ids.size(0), length = ids.size(1);
  const at::Tensor x =
      causal ? at::cat({task(kCaptionTask, sequences),
                        decoder_->embed(first_places(ids, length - 1), first_places(said, length - 1))}, 1)
             : mask_token_.expand({sequences, settings_.decoder.context_length, -1});
  return first_places(decoder_->decode(x, memory.tokens, memory.mask, causal), length);
}

// Returns the decoder states [n, k + 1, w] that predict the coordinates 0..k of each phrase's box. `known` [n, k] contains the first k
// coordinates.
at::Tensor Captioning::box_states(const Memory& memory, const at::Tensor& ids, const at::Tensor& said, const at::Tensor& known) {
  const std::int64_t sequences = ids.size(0);
  const at::Tensor parts = at::cat({task(kReferringTask, sequences), decoder_->embed(ids, said), at::embedding(coordinates_, known)}, 1);
  const at::Tensor real = at::cat({said.new_ones({sequences, 1}), said, at::ones_like(known, at::kBool)}, 1);
  // The coordinates directly follow the phrase's last token, and the padding comes after them.
  const at::Tensor states = decoder_->decode(real_first(parts, real), memory.tokens, memory.mask, /*causal=*/true);
  const at::Tensor places = said.sum(1, /*keepdim=*/true) + at::arange(known.size(1) + 1, known.options());
  return states.gather(1, places.unsqueeze(2).expand({-1, -1, states.size(2)}));
}

// Returns the decoder states [n, L, w] that predict the ids [n, L] of the boxes' phrases. box: [n, 4].
at::Tensor Captioning::phrase_states(const Memory& memory, const at::Tensor& box, const at::Tensor& ids, const at::Tensor& said) {
  const std::int64_t length = ids.size(1);
  const at::Tensor x = at::cat({task(kGroundedTask, ids.size(0)), at::embedding(coordinates_, box),
                                decoder_->embed(first_places(ids, length - 1), first_places(said, length - 1))}, 1);
  return decoder_->decode(x, memory.tokens, memory.mask, /*causal=*/true).narrow(1, kCoordinates, length);
}

// Sums the results of `body` over tiles of consecutive images.
at::Tensor Captioning::sum_of_tiles(const Memory& memory, const TileBody& body) {
  const std::int64_t images = memory.tokens.size(0), chunk = settings_.chunk.value_or(images);
  std::vector<at::Tensor> sums;
  for (std::int64_t first = 0; first < images; first += chunk) {
    const at::Tensor tokens = memory.tokens.slice(0, first, first + chunk);
    const at::Tensor mask = memory.mask.defined() ? memory.mask.slice(0, first, first + chunk) : at::Tensor();
    const auto tile = [=, precision = settings_.decoder.precision](const at::Tensor& own) {
      const PrecisionScope scope(own.device(), precision);
      return body({own, mask, {}}, first);
    };
    sums.push_back(chunk < images ? recomputed(tile, tokens, learned_) : tile(tokens));
  }
  return at::stack(sums).sum();
}

at::Tensor Captioning::caption_loss(const Memory& memory, const Texts& texts, const StepContext& context) {
  const std::int64_t images = memory.tokens.size(0);
  const at::Tensor parallel = drawn_parallel(settings_.parallel, images, context);
  at::Tensor sum = task_tokens_.sum() * 0;
  if (mask_token_.defined()) sum = sum + mask_token_.sum() * 0;  // gives mask_token_ a gradient even if no caption is predicted in parallel
  for (const bool causal : {true, false}) {
    const at::Tensor index = (causal ? parallel.logical_not() : parallel).nonzero().squeeze(1);
    if (index.numel() == 0) continue;
    const bool all = index.numel() == images;
    at::Tensor places;  // not made if it is not needed, because a recorded step must not copy from the CPU
    if (!all) places = index.to(memory.tokens.device(), /*non_blocking=*/true);
    const Texts chosen = all ? texts : texts.rows(places);
    sum = sum + sum_of_tiles(all ? memory : memory.rows(places), [=, this](const Memory& own, std::int64_t first) {
      const auto flat = [&](const at::Tensor& rows) { return rows.narrow(0, first, own.tokens.size(0)).flatten(0, 1); };
      const at::Tensor ids = flat(chosen.ids), said = flat(chosen.said);
      return caption_loss_sum(caption_states(own, ids, said, causal), decoder_->table(), with_start(ids), with_start(said));
    });
  }
  return mean_over_tokens(sum, texts.said, context.group);
}

void Captioning::add_box_losses(const Features& features, const Memory& memory, const ProcessGroup& group, Losses& losses) {
  const Boxes& boxes = features.image(settings_.image_view).boxes;
  const Texts given = texts_of(features.text(kPhrases), memory, kPhrases);
  TORCH_CHECK(boxes.corners.defined() && boxes.mask.defined(), "captioning: the boxes of ", settings_.image_view, " are missing");
  const at::Tensor& ids = given.ids;
  TORCH_CHECK(boxes.corners.dim() == 3 && boxes.mask.sizes() == ids.sizes().slice(0, 2) && boxes.corners.size(2) == kCoordinates &&
                  boxes.corners.sizes().slice(0, 2) == boxes.mask.sizes(),
              "captioning: the boxes must be [B, R, 4] and their mask [B, R] = ", ids.sizes().slice(0, 2), ", as the texts of ",
              kPhrases, ", got ", boxes.corners.sizes(), " and ", boxes.mask.sizes());
  const at::Tensor there = boxes.mask & given.said.any(2), said = given.said & there.unsqueeze(2);
  const at::Tensor box = box_tokens(boxes.corners.masked_fill(there.logical_not().unsqueeze(2), 0), settings_.coordinate_bins);
  const at::Tensor counted = there.unsqueeze(2).expand_as(box);
  constexpr std::int64_t kIgnored = -100;
  const auto add = [&](const char* name, double weight, const at::Tensor& predicted, const TileBody& body) {
    if (weight == 0) return;
    // If there are no boxes, these tensors get gradients of 0, so that the same parameters have gradients on all ranks.
    const at::Tensor sum = ids.numel() == 0 ? (memory.tokens.sum() + coordinates_.sum() + task_tokens_.sum()) * 0
                                            : sum_of_tiles(memory, body);
    losses.add(name, weight, mean_over_tokens(sum, predicted, group));
  };
  const auto flat = [](const at::Tensor& rows, const Memory& own, std::int64_t first) {
    return rows.narrow(0, first, own.tokens.size(0)).flatten(0, 1);
  };
  add("loss_referring", settings_.referring_weight, counted, [=, this](const Memory& own, std::int64_t first) {
    const at::Tensor right = flat(box, own, first);
    const at::Tensor states = box_states(own, flat(ids, own, first), flat(said, own, first), first_places(right, kCoordinates - 1));
    const at::Tensor targets = right.masked_fill(flat(counted, own, first).logical_not(), kIgnored);
    return linear_cross_entropy(states.flatten(0, 1), coordinates_, targets.flatten(), kIgnored, {}, at::Reduction::Sum);
  });
  add("loss_grounded", settings_.grounded_weight, said, [=, this](const Memory& own, std::int64_t first) {
    const at::Tensor words = flat(ids, own, first), real = flat(said, own, first);
    return caption_loss_sum(phrase_states(own, flat(box, own, first), words, real), decoder_->table(), with_start(words), with_start(real));
  });
}

Losses Captioning::forward(const Features& features, const StepContext& context) {
  const Memory memory = memory_of(features.image(settings_.image_view));
  Losses losses;
  if (settings_.caption_weight > 0) {
    const Texts texts = texts_of(features.text(settings_.text_view), memory, settings_.text_view);
    losses.add("loss_captioning", settings_.caption_weight,
               texts.ids.numel() == 0 ? memory.tokens.sum() * 0 : caption_loss(memory, texts, context));
  }
  if (settings_.uses_boxes()) add_box_losses(features, memory, context.group, losses);
  return losses;
}

at::Tensor Captioning::write(const TowerFeatures& image, const std::vector<std::int64_t>& ends) {
  const PrecisionScope scope(image.encoder_tokens.device(), settings_.decoder.precision);
  const at::NoGradGuard no_grad;
  const Memory memory = memory_of(image);
  const std::int64_t batch = memory.tokens.size(0);
  const at::TensorOptions options = memory.tokens.options().dtype(at::kLong);
  const at::Tensor stops = at::tensor(ends, at::kLong).to(options.device());
  at::Tensor written = at::zeros({batch, 1}, options), ended = at::zeros({batch}, options.dtype(at::kBool));
  for (std::int64_t length = 1; length <= settings_.decoder.context_length; ++length) {
    const at::Tensor states = caption_states(memory, written, written >= 0, /*causal=*/true);
    const at::Tensor next = at::matmul(states.select(1, -1), decoder_->table().t().to(states.scalar_type())).argmax(1);
    ended = ended | at::isin(next, stops);
    if (ended.all().item<bool>()) return written.slice(1, 0, -1);
    written.select(1, -1).copy_(next.masked_fill(ended, -1));
    written = at::constant_pad_nd(written, {0, 1}, 0);
  }
  return written.slice(1, 0, -1);
}

TokenHits Captioning::token_hits(const TowerFeatures& image, const at::Tensor& ids, const at::Tensor& mask) {
  const PrecisionScope scope(image.encoder_tokens.device(), settings_.decoder.precision);
  const at::NoGradGuard no_grad;
  decoder_->check_length(ids.size(1));
  const at::Tensor said = said_of(ids, mask, settings_.padding_id);
  const at::Tensor states = caption_states(memory_of(image), ids, said, /*causal=*/true);
  // Predicts one position at a time, because logits [B, L, V] would be large.
  std::vector<at::Tensor> right;
  for (std::int64_t place = 0; place < ids.size(1); ++place)
    right.push_back(at::matmul(states.select(1, place), decoder_->table().t().to(states.scalar_type())).argmax(1) == ids.select(1, place));
  return {at::stack(right, 1) & said, said};
}

at::Tensor Captioning::locate(const TowerFeatures& image, const at::Tensor& ids, const at::Tensor& mask) {
  TORCH_CHECK(settings_.referring_weight > 0, "captioning: referring_weight is 0, so this decoder has not learned to find boxes");
  const PrecisionScope scope(image.encoder_tokens.device(), settings_.decoder.precision);
  const at::NoGradGuard no_grad;
  decoder_->check_length(ids.size(2));
  const at::Tensor said = said_of(ids, mask, settings_.padding_id).flatten(0, 1);
  at::Tensor known = at::zeros({said.size(0), 0}, ids.options());
  for (std::int64_t i = 0; i < kCoordinates; ++i) {
    const at::Tensor states = box_states(memory_of(image), ids.flatten(0, 1), said, known).select(1, -1);
    known = at::cat({known, at::matmul(states, coordinates_.t()).argmax(1, /*keepdim=*/true)}, 1);
  }
  return ((known.to(at::kFloat) + 0.5) / settings_.coordinate_bins).unflatten(0, {ids.size(0), ids.size(1)});
}

}  // namespace tessera
